"""Measured rows to calibration files: fits with their held-out errors, and priors for chips that were not measured."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.calibration import Calibration, Fit, calibration_of
from hwmodel.features import EXCHANGES
from hwmodel.hardware import Chip, load_chip
from hwmodel.likeness import ENOUGH, alike, kinship
from hwmodel.measured import Rows, form_of, read
from hwmodel.sample import PARAMETERS, Sample
from hwmodel.spec import catalog
from hwmodel.spec.errors import InputError, did_you_mean
from hwmodel.spec.write import modeline, to_yaml
from hwmodel.study import CLIP, FEW, Solved, Study, studies

Array = NDArray[np.float64]
_NCCL = dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), "nccl")
RUNS: dict[str, dict[str, str]] = {
    "trtllm": {"all_reduce": "custom_trtllm_TRTLLM", **_NCCL},
    "vllm": {"all_reduce": "custom_vllm_vLLM_custom_graph", **_NCCL},
    "sglang": {
        "all_reduce": "custom_sglang_SGLang_CustomAllReduce_graph", **_NCCL,
        "expert_dispatch": "deepep", "expert_combine": "deepep",
    },
}  # fmt: skip
"""The library whose collectives a serving stack runs, as the tables name it. Their own all-reduce tables go over to nccl by
themselves for large buffers; the tables of DeepEP over several nodes are of SGLang's version 0.5.6."""


def library(stack: str, kind: str) -> str:
    """The name under which the tables hold what a stack runs for a kind of op."""
    return RUNS.get(stack, {}).get(kind, stack)


BAND = 0.8
"""Share of measured times that an interval shall hold."""
UNKNOWN = 0.6
"""Half width of a band, as a natural logarithm, where nothing says how wrong a prediction is."""
PRIOR_ROWS = 20
"""Rows that the band of a prior counts for, beside a group's own."""


def calibrate(
    chip: str, stack: str, groups: Sequence[Rows], chips: Mapping[str, Chip], date: str = "", data: str = ""
) -> Calibration:
    """The calibration of one chip under one stack; the other groups help as far as their chips are alike.

    Raises
    ------
    InputError
        When the rows hold none of that chip under that stack, or `chips` not that chip.
    """
    own = {rows.kind for rows in groups if (rows.device, rows.stack) == (chip, stack)}
    if not own:
        stacks = sorted({rows.stack for rows in groups if rows.device == chip})
        if not stacks:
            has = sorted({rows.device for rows in groups})
            near = did_you_mean(chip, has)
            raise InputError(f"no measured rows of {chip}{near}" + f"; the tables hold {', '.join(has)}" * (near[:1] == ","))
        raise InputError(f"no measured rows of {chip} under {stack}{did_you_mean(stack, stacks)}; "
                         f"it was measured under {', '.join(stacks)}")  # fmt: skip
    if chip not in chips:
        raise InputError(f"no chip named '{chip}' in chips/, whose numbers the rows are fitted with: put {chip}.yaml there, or "
                         f"name its file, 'hwmodel calibrate ./{chip}.yaml'")  # fmt: skip
    return _from_studies(chip, stack, studies([rows for rows in groups if rows.kind in own], chips, _known), date, data)


def _from_studies(chip: str, stack: str, made: Mapping[str, Study], date: str, data: str) -> Calibration:
    fits: list[Fit] = []
    used: set[str] = set()
    for kind, study in made.items():
        for index, sample in enumerate(study.samples):
            if (sample.rows.device, sample.rows.stack) == (chip, library(stack, kind)) and form_of(sample.rows) not in {
                fit.dtype for fit in fits if fit.op == kind
            }:
                fits.append(fit_of(study, index))
                used.update(f"{kind} {version}" for version in sample.rows.versions if version)
    return Calibration(
        chip=chip, stack=stack, date=date or datetime.date.today().isoformat(),
        data=f"{data}{'; ' if data and used else ''}{', '.join(sorted(used))}", fits=tuple(fits),
    )  # fmt: skip


def known_chips(groups: Sequence[Rows]) -> dict[str, Chip]:
    """The chips of the rows that have a file."""
    return {name: load_chip(name) for name in {rows.device for rows in groups} & {*catalog.names("chips")}}


def calibrate_all(measured: Path, out: Path, date: str = "", data: str = "") -> Iterator[Path]:
    """Write a calibration of every chip and stack of the tables, and the priors of every kind of chip, into a folder.

    Nothing of what is known already enters: the files are those of the tables alone, whatever stood in the folder.
    """
    groups = read(measured)
    chips = known_chips(groups)
    out.mkdir(parents=True, exist_ok=True)
    made = studies(groups, chips)
    pairs = sorted({(rows.device, rows.stack) for rows in groups if rows.device in chips})
    found = [_from_studies(device, stack, made, date, data) for device, stack in pairs]
    kinds = sorted({chip.kind for chip in chips.values()})
    stacks = sorted({stack for _, stack in pairs})
    found += [prior(kind, stack, made.values(), date, data) for kind in kinds for stack in (*stacks, "any")]
    for calibration in found:
        path = out / f"{calibration.chip}.{calibration.stack}.yaml"
        path.write_text(text_of(calibration, path), encoding="utf-8")
        yield path


def text_of(calibration: Calibration, file: Path | None = None) -> str:
    """The text of a calibration, to stand in this file; in one of the current folder when None."""
    plain = calibration.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return to_yaml(plain, f"{modeline('calibration', file or Path('calibration.yaml'))}\nwritten by `hwmodel calibrate`")


def _known(sample: Sample) -> Fit | None:
    """What other chips say of a group's op: the prior of its kind of chip."""
    for name in (sample.rows.stack, "any"):
        found = calibration_of("", sample.chip.kind, name)
        fit = found.find(sample.rows.kind, form_of(sample.rows), sample.chip.link_name) if found else None
        if fit is not None:
            return fit
    return None


def fit_of(study: Study, index: int) -> Fit:
    """The fit of one group, its errors from shapes that were held out."""
    sample = study.samples[index]
    solved = study.solve(index)
    ratio = study.held_out(index)
    seen = ratio > 0  # a handful of rows may all stand in one fold
    errors = np.abs(ratio[seen] - 1)
    low, high = _band(1 / ratio[seen], study.prior(sample) if len(sample.rows) < 2 * FEW else None)
    held_out = None
    if seen.any():
        held_out = {
            "median": _round(np.median(errors)), "p90": _round(np.quantile(errors, 0.9)),
            "bias": _round(np.median(ratio[seen] - 1)), "folds": _folds(errors, sample.fold[seen]),
        }  # fmt: skip
    return Fit.model_validate({
        **_described(solved.theta, sample, study, solved.grid),
        "low": low, "high": high, "rows": len(sample.rows), "held_out": held_out,
        "domain": {key: [float(v.min()), float(v.max())] for key, v in sample.rows.columns.items() if v.dtype.kind == "f"},
        "doubt": _doubt(sample, errors),
    })  # fmt: skip


def _described(theta: Array, sample: Sample, study: Study, grid: Array | None) -> dict[str, Any]:
    found = {"op": sample.rows.kind, "dtype": form_of(sample.rows), **_shares(theta)}
    if grid is not None:
        found["correction"] = correction_of(study, grid)
    return found


def _shares(theta: Array) -> dict[str, Any]:
    """Parameters as a calibration writes them."""
    launch, compute, memory, sharp = np.exp(theta)
    rounded = {"compute": _round(compute), "memory": _round(memory), "sharpness": _round(1 + sharp)}
    return {"launch": f"{launch * 1e6:.4g} us", **rounded}


def correction_of(study: Study, grid: Array) -> dict[str, Any]:
    """A grid as a calibration writes it: thousandths, one line per run of the last axis."""
    shape = study.how.lattice.shape
    lines = np.rint(np.clip(grid, -CLIP, CLIP) * 1000).astype(int).reshape(-1, shape[-1])
    axes = dict(zip(study.how.names, (list(axis) for axis in study.how.lattice.axes), strict=True))
    return {"axes": axes, "permille": "\n".join(" ".join(str(v) for v in line) for line in lines) + "\n"}


def _band(ratios: Array, prior: Fit | None) -> tuple[float, float]:
    """Factors on the prediction that hold 80 % of the measured times; few rows are mixed with the band of the prior."""
    low, high = np.quantile(np.log(ratios), [(1 - BAND) / 2, (1 + BAND) / 2]) if len(ratios) else (-UNKNOWN, UNKNOWN)
    if prior is not None:
        own = len(ratios) / (len(ratios) + PRIOR_ROWS)
        low, high = (own * mine + (1 - own) * np.log(theirs) for mine, theirs in ((low, prior.low), (high, prior.high)))
    return _round(np.exp(min(low, -0.005))), _round(np.exp(max(high, 0.005)))


def _folds(errors: Array, folds: NDArray[np.int64]) -> str:
    return " ".join(f"{np.median(errors[folds == fold]):.3f}" for fold in np.unique(folds))


def _doubt(sample: Sample, errors: Array) -> str:
    rows = len(sample.rows)
    if rows < FEW:
        return f"only {rows} rows: outside their sizes this is what other chips do, shifted to them"
    if len(errors) and np.median(errors) > 0.15:
        return f"half of the held-out rows are off by more than {np.median(errors):.0%}"
    return ""


def _round(value: Any) -> float:
    return float(f"{float(value):.4g}")


# --- priors ----------------------------------------------------------------------------------------------------------


def prior(kind: str, stack: str, all_studies: Iterable[Study], date: str = "", data: str = "") -> Calibration:
    """What the chips of a kind have in common under one stack (``any``: under all): for chips that were not measured.

    Parameters are those of each chip, to be weighed by likeness with the chip at hand, and their geometric means; the
    correction is that of all groups; the band holds 80 % of the rows of each chip when it is left out with those that would
    stand in for it. Collectives have a prior for each kind of link beside that of all: cards that share a PCIe root reach a
    third of the share of their bandwidth that chips on a switch of their own reach.
    """
    fits = []
    for study in all_studies:
        of = library(stack, study.kind)
        chosen = [s for s in study.samples if s.chip.kind == kind and of in ("any", s.rows.stack)]
        links = sorted({s.chip.link_name for s in chosen}) if study.kind in EXCHANGES else []
        for form in sorted({form_of(s.rows) for s in chosen}):
            fits += [_prior_fit(study, kind, of, form, link) for link in ("", *(links if len(links) > 1 else ()))]
    return Calibration(chip=kind, stack=stack, prior=True, date=date or datetime.date.today().isoformat(), data=data,
                       fits=tuple(fit for fit in fits if fit is not None))  # fmt: skip


def _prior_fit(study: Study, kind: str, stack: str, form: str, link: str = "") -> Fit | None:
    """`stack` as the tables name it."""
    chosen = [
        index for index, s in enumerate(study.samples)
        if s.chip.kind == kind and form_of(s.rows) == form and stack in ("any", s.rows.stack)
        and link in ("", s.chip.link_name)
    ]  # fmt: skip
    if not chosen:
        return None
    thetas = np.array([study.theta(index, -1) for index in chosen])
    devices = sorted({study.samples[index].rows.device for index in chosen})
    logs = None
    if len(devices) > 1:
        apart = [left_out(study, stack, form, device, by_link=bool(link), like=False) for device in devices]
        logs = np.log(np.concatenate(apart))
    low, high = (-UNKNOWN, UNKNOWN) if logs is None or not len(logs) else np.quantile(-logs, [(1 - BAND) / 2, (1 + BAND) / 2])
    middle = thetas.mean(axis=0)
    spread = np.maximum(thetas.std(axis=0), 0.1) if len(chosen) > 1 else np.full(4, 0.4)
    sample = study.samples[chosen[0]]
    of = np.array([study.samples[index].rows.device for index in chosen])
    members = {device: _shares(thetas[of == device].mean(axis=0)) for device in devices} if len(devices) > 1 else {}
    return Fit.model_validate({
        **_described(middle, sample, study, study.common(middle, sample)), "link": link,
        "low": _round(np.exp(min(low, -0.02))), "high": _round(np.exp(max(high, 0.02))),
        "rows": sum(len(study.samples[index].rows) for index in chosen),
        "spread": dict(zip(PARAMETERS, (_round(v) for v in spread), strict=True)), "members": members,
        "doubt": f"drawn from {', '.join(devices)}; not measured on the chip at hand",
    })  # fmt: skip


def left_out(
    study: Study, stack: str, form: str, device: str, *, by_link: bool = True, like: bool = True
) -> Array:  # fmt: skip
    """Predicted over measured time of a device's rows, from a prior that never saw the device; shape (rows,).

    Parameters
    ----------
    stack
        As the tables name it, or "any".
    by_link
        Of collectives: from the chips that the same kind of link joins, where there are any.
    like
        Also from chips so like it that their measurements would stand in for its own; False: only where there are others.
    """
    others = study.without(device)
    rest = others.samples
    own = [s for s in study.samples if s.rows.device == device and form_of(s.rows) == form and stack in ("any", s.rows.stack)]
    given = [i for i, s in enumerate(rest) if form_of(s.rows) == form and stack in ("any", s.rows.stack)]
    given = given or [i for i, s in enumerate(rest) if form_of(s.rows) == form]
    if not given or not own:
        return np.ones(0)
    chip = own[0].chip
    if not like:
        given = [i for i in given if alike(rest[i].chip, chip) < ENOUGH]
        if not given:
            return np.ones(0)
    if by_link and study.kind in EXCHANGES:
        given = [i for i in given if rest[i].chip.link_name == chip.link_name] or given
    weight = np.array([kinship(rest[i].chip, chip) for i in given])
    theta = np.average([others.theta(i, -1) for i in given], axis=0, weights=weight)
    solved = Solved(theta, others.common(theta, own[0]))
    every = [solved.predict(s, study.how, np.ones(len(s.rows), dtype=bool)) / s.measured for s in own]
    return np.concatenate(every)
