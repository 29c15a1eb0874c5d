"""The model against measured rows: how wrong it is, group by group, beside a plain roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.answered import Answered
from hwmodel.hardware import Chip, load_chip
from hwmodel.kernels import columns as c
from hwmodel.likeness import calibration_for
from hwmodel.measured import FILES, KINDS_IN, Rows, form_of, read
from hwmodel.published import NONE, TABLE, Published, published
from hwmodel.replay import Part, replay, times
from hwmodel.served.compare import TABLES, EndToEnd, end_to_end
from hwmodel.served.steady import NONE as UNASKED
from hwmodel.served.steady import TABLE as THROUGHPUT
from hwmodel.served.steady import Steady, steady
from hwmodel.spec import catalog
from hwmodel.spec.errors import InputError, Problem, did_you_mean, shortened
from hwmodel.uncertainty import chip_band

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """Errors of one op on one device under one stack in one format, as shares (0.1 is 10 %)."""

    op: str
    device: str
    stack: str
    dtype: str
    rows: int
    q25: float
    median: float
    q75: float
    p90: float
    bias: float
    """Median of the signed error."""
    roofline_median: float
    """Error of max(FLOP / peak, bytes / bandwidth) on the same rows."""
    calibrated: str
    """chip, prior or no: where the parameters come from."""
    inside_80: float
    """Share of the rows inside the predicted 80 % interval."""
    held_out: float | None = None
    """Median error that the fit had on rows held out of it; the rows compared here may be among those it rests on."""
    families: tuple[str, ...] = ()
    spread: float | None = None
    """From fold to fold of the rows held out: the largest median less the smallest."""
    held_out_p90: float | None = None
    """Error that nine in ten of the rows held out stay below."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, errors in per cent."""
        shares = ("q25", "median", "q75", "p90", "bias", "roofline_median")
        found = {
            key: value for key, value in vars(self).items() if key not in ("families", "held_out", "held_out_p90", "spread")
        }
        return {key: 100 * value if key in shares else value for key, value in found.items()} | {
            "calibrated": self.calibrated == "chip", "parameters": self.calibrated,
            "held_out_median": None if self.held_out is None else 100 * self.held_out,
            "held_out_p90": None if self.held_out_p90 is None else 100 * self.held_out_p90,
            "held_out_fold_spread": None if self.spread is None else 100 * self.spread,
        }  # fmt: skip


@dataclass(frozen=True)
class Validation(Answered):
    """Everything that was compared, and what could not be."""

    groups: tuple[Group, ...]
    e2e: tuple[EndToEnd, ...]
    skipped: Mapping[str, int]
    """Rows of operations left out, by reason."""
    published: Published = NONE
    """Single published figures of whole systems."""
    steady: Steady = UNASKED
    """Throughput tables of a steady state."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "groups": [group.to_dict() for group in self.groups],
            "e2e": [item.to_dict() for item in self.e2e],
            "skipped": dict(self.skipped),
            **self.published.to_dict(),
            **self.steady.to_dict(),
        }


@dataclass(frozen=True)
class _Compared:
    rows: Rows
    ratio: Array
    roofline: Array
    inside: NDArray[np.bool_]
    source: str
    held_out: float | None
    spread: float | None
    held_out_p90: float | None


def validate(
    folder: str | Path | None = None, *, device: str = "", ops: Sequence[str] = (), calibrated: bool = True, bands: bool = True
) -> Validation:
    """Compare every row of the tables in a folder, as ``hwmodel validate`` does; errors are shares (0.1 is 10 %).

    Parameters
    ----------
    folder
        Of tables in the columns of ``measured/``; the shipped one when None.
    device, ops
        Only this device; only these kinds of operation, or e2e, steady or published.
    calibrated
        With the calibration of the chip and stack, else the prior of its kind; else with the chip's stated efficiencies.
    bands
        Also work out the intervals of what is not calibrated, which takes most of the time.

    Raises
    ------
    InputError
        When the folder holds no known table or unreadable rows.
    """
    folder = Path(folder) if folder is not None else catalog.shipped("measured")
    _check(folder, ops, device)
    wanted = [op for op in ops if op not in ("e2e", TABLE, "steady")]
    kernels = (wanted or not ops) and any((folder / f"{name}.csv").is_file() for name in FILES)
    skipped: dict[str, int] = {}
    parts: dict[tuple[str, str, str, str], list[_Compared]] = {}
    known = set(catalog.names("chips"))
    for rows in read(folder, wanted) if kernels else []:
        if device and rows.device != device:
            continue
        if rows.device not in known:
            reason = f"no chip named '{rows.device}' in chips/"
            skipped[reason] = skipped.get(reason, 0) + len(rows)
            continue
        try:
            found = _compare(rows, load_chip(rows.device), calibrated, bands)
        except InputError as error:
            reason = error.problems[0].message
            skipped[reason] = skipped.get(reason, 0) + len(rows)
            continue
        parts.setdefault((rows.op, rows.device, rows.stack, rows.dtype), []).append(found)
    e2e = end_to_end(folder, device=device, calibrated=calibrated) if not ops or "e2e" in ops else []
    figures = published(folder, device=device, calibrated=calibrated) if not ops or TABLE in ops else NONE
    rates = steady(folder, device=device, calibrated=calibrated) if not ops or "steady" in ops else UNASKED
    return Validation(tuple(_group(key, found) for key, found in parts.items()), tuple(e2e), skipped, figures, rates)


def _check(folder: Path, ops: Sequence[str], device: str) -> None:
    """A folder without any known table and words that name nothing are mistakes, not empty answers."""
    known = ("e2e", "steady", TABLE, *FILES, *dict.fromkeys(name for names in KINDS_IN.values() for name in names))
    problems = [Problem(f"--op {shortened(op)}: no such operation{did_you_mean(op, known)}") for op in ops if op not in known]
    tables = [f"{name}.csv" for name in (*FILES, *TABLES, TABLE, THROUGHPUT)]
    if not folder.is_dir():
        problems.append(Problem("no such folder of measured rows", file=str(folder)))
    elif not any((folder / name).is_file() for name in tables):
        problems.append(Problem(f"holds none of the known tables: {', '.join(tables)}", file=str(folder)))
    chips = catalog.names("chips")
    if device and device not in chips:
        problems.append(Problem(f"--device {shortened(device)}: no such chip{did_you_mean(device, chips)}"))
    if problems:
        raise InputError(problems)


def _compare(rows: Rows, chip: Chip, calibrated: bool, bands: bool) -> _Compared:
    calibration = calibration_for(chip, rows.stack) if calibrated else None
    fit = calibration.find(rows.kind, form_of(rows), chip.link_name) if calibration else None
    source = "no" if calibration is None or fit is None else "prior" if calibration.prior else "chip"
    parts = replay(rows, chip, calibration)
    ratio = times(parts) / rows.measured_s
    low, high = (fit.low, fit.high) if fit is not None else stated_band(rows, chip) if bands else (1.0, 1.0)
    inside = (1 / ratio >= low) & (1 / ratio <= high)
    held_out = fit.held_out.median if fit is not None and fit.held_out is not None else None
    folds = fit.held_out.spread if fit is not None and fit.held_out is not None else None
    p90 = float(fit.held_out.p90) if fit is not None and fit.held_out is not None else None
    return _Compared(rows, ratio, roofline(parts, chip) / rows.measured_s, np.asarray(inside), source, held_out, folds, p90)


def roofline(parts: Sequence[Part], chip: Chip) -> Array:
    """max(FLOP / peak, bytes / bandwidth) of the whole operation; link bytes over the first link's bandwidth. Seconds."""
    peaks = chip.peaks.by_dtype()
    flops, moved = np.zeros(len(parts[0].out)), np.zeros(len(parts[0].out))
    wire = np.zeros(len(parts[0].out))
    for part in parts:
        peak = next((peaks[name] for name in part.op.compute if name in peaks), max(peaks.values()))
        flops += part.out[:, c.FLOPS] / peak
        moved += part.out[:, [c.WEIGHT_BYTES, c.KV_BYTES, c.ACTIVATION_BYTES]].sum(axis=1)
        wire += part.out[:, c.WIRE_BYTES]
    link = chip.links[0].bandwidth_bytes_per_s if chip.links else np.inf
    return np.maximum(np.maximum(flops, moved / chip.main.bandwidth_bytes_per_s), wire / link)


def stated_band(rows: Rows, chip: Chip) -> tuple[float, float]:
    """Factors on the prediction from the ranges of the chip's own numbers; a sample of the rows is enough."""
    some = np.linspace(0, len(rows) - 1, min(len(rows), 40)).astype(int)
    return chip_band(chip, lambda changed: times(replay(rows.pick(some), changed, None)))


def _group(key: tuple[str, str, str, str], found: Sequence[_Compared]) -> Group:
    ratio = np.concatenate([part.ratio for part in found])
    errors = np.abs(ratio - 1)
    q25, median, q75, p90 = (float(np.quantile(errors, q)) for q in (0.25, 0.5, 0.75, 0.9))
    sources = {part.source for part in found}
    return Group(
        *key, len(ratio), q25, median, q75, p90, float(np.median(ratio - 1)),
        float(np.median(np.abs(np.concatenate([part.roofline for part in found]) - 1))),
        next(name for name in ("no", "prior", "chip") if name in sources),
        float(np.mean(np.concatenate([part.inside for part in found]))),
        _weighted(found, "held_out"), tuple(sorted({part.rows.kind for part in found})), _weighted(found, "spread"),
        _weighted(found, "held_out_p90"),
    )  # fmt: skip


def _weighted(found: Sequence[_Compared], what: str) -> float | None:
    known = [(getattr(part, what), len(part.rows)) for part in found if getattr(part, what) is not None]
    return sum(error * rows for error, rows in known) / sum(rows for _, rows in known) if known else None


@dataclass(frozen=True)
class Family:
    """Medians over the groups of one kind of operation."""

    name: str
    groups: int
    median: float
    p90: float
    held_out: float | None
    held_out_p90: float | None
    spread: float | None
    roofline: float
    worst: Group


def summary(groups: Sequence[Group]) -> list[Family]:
    """What the groups of each kind of operation have in common."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(_family(group), []).append(group)
    result = []
    for name, members in found.items():
        unseen = [_median([getattr(group, key) for group in members]) for key in ("held_out", "held_out_p90", "spread")]
        median, p90, roofline = (
            float(np.median([getattr(group, key) for group in members])) for key in ("median", "p90", "roofline_median")
        )
        worst = max(members, key=lambda group: group.median)
        result.append(Family(name, len(members), median, p90, unseen[0], unseen[1], unseen[2], roofline, worst))
    return result


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _family(group: Group) -> str:
    if set(group.families) <= {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}:
        return "collectives"
    if set(group.families) <= {"expert_dispatch", "expert_combine"}:
        return "expert all-to-all"
    return group.op
