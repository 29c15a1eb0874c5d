"""The answer of a simulation as plain data: the JSON of ``hwmodel simulate``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel import __version__
from hwmodel.calibration import doubt_of
from hwmodel.kernels import serving_columns as c
from hwmodel.run import run as run_step
from hwmodel.serve import metrics
from hwmodel.serve.doubt import doubtful
from hwmodel.serve.engine import REASONS, Run
from hwmodel.serve.requests import TARGETS
from hwmodel.serve.scratch import filled, parts, whole_sum
from hwmodel.serve.simulate import Answer
from hwmodel.serve.spending import spent
from hwmodel.serve.theory import checks

Flags = NDArray[np.bool_]
DAY_S = 86_400.0
"""s of a day."""
YEAR_DAYS = 365.0
WORST = 0.02
"""Error of the step tables beyond which a warning says so."""


def to_dict(answer: Answer) -> dict[str, Any]:
    """Everything a reader of a simulation wants; seconds, bytes and tokens."""
    run = answer.run
    done, refused = int(run.finished.sum()), int(run.rejected.sum())
    span = metrics.makespan_s(run)
    latency = {name: _row(metrics.quantiles(metrics.finite(run, name))) for name in metrics.LATENCIES}
    moved = latency.pop("transfer_s")
    good = metrics.within(run, answer.slo)
    rate = metrics.finished_tokens(run) / span if span else 0.0
    bill, why = spent(answer, rate)
    floor = _floor(answer)
    found: dict[str, Any] = {
        "scenario": answer.service.scenario.name,
        "trace": run.requests.source,
        "requests": {
            "in": len(run.requests), "finished": done, "rejected": refused,
            "unfinished": len(run.requests) - done - refused, "reasons": _reasons(run),
        },
        **latency,
        "itl_s": _row(metrics.itl(run)),
        "ttft_slowest": metrics.slowest_parts(run),
        "transfer_s": moved,
        "sessions": _sessions(run, bill),
        "makespan_s": span,
        "output_tokens_per_s": rate,
        "goodput": {
            "slo": {f"{name}_s": limit for name, limit in answer.slo.items()},
            "requests_per_s": int(good.sum()) / span if span else 0.0, "share": float(good.mean()),
            "classes": _classes(answer, good),
        },
        "iterations": run.iterations, "wall_s": answer.wall_s, "requests_per_wall_s": len(run.requests) / answer.wall_s,
        "prefix_hit_rate": metrics.hit_rate(run), "preemptions": int(run.inst[:, c.PREEMPTIONS].sum()),
        "keep": _keep(answer), "tiers": _tiers(answer), "pools": _pools(answer), "cost": bill, "cost_reason": why,
        "floor": floor, "checks": checks(answer, floor),
        "step_times": [{"pool": kind.name, **asdict(kind.steps.accuracy)} for kind in answer.kinds if kind.steps.accuracy],
        "warnings": warnings(answer), "version": __version__,
    }  # fmt: skip
    if answer.found is not None:
        found["find"] = dict(answer.found)
    elif answer.slo:
        found["goodput"]["doubt"] = doubtful(answer, [run.requests])
    return found


def _sessions(run: Run, bill: dict[str, Any] | None) -> dict[str, Any] | None:
    """Time and cost of a session; None where the trace has none."""
    times = metrics.session_s(run)
    if not len(times):
        return None
    usd = bill["usd_per_hour"] * metrics.makespan_s(run) / 3600 / len(times) if bill else None
    busy = bill["usd_busy"] / len(times) if bill else None
    joules = bill["joules"] / len(times) if bill and bill["joules"] is not None else None
    return {"finished": len(times), "time_s": _row(metrics.quantiles(times)), "usd": usd, "usd_busy": busy, "joules": joules}


def _row(quantiles: metrics.Quantiles | None) -> dict[str, float] | None:
    return asdict(quantiles) if quantiles else None


def _reasons(run: Run) -> dict[str, int]:
    counts = np.zeros(max(REASONS) + 1, np.int64)
    for part in parts(len(run), run.req):
        req = run.req[part]
        counts += np.bincount(req[req[:, c.STATE] == c.REJECTED, c.REASON], minlength=len(counts))
    return {text: int(counts[code]) for code, text in REASONS.items() if counts[code]}


def _classes(answer: Answer, good: Flags) -> list[dict[str, Any]]:
    """Goodput of every class of requests under all targets of its own."""
    run, span, found = answer.run, metrics.makespan_s(answer.run), []
    for i, name in enumerate(run.requests.tiers):
        own = filled(len(run), partial(_of_class, run, i), run.requests.tier, dtype=np.bool_)
        if not (count := int(own.sum())):
            continue
        slo = dict(answer.slo)
        if run.requests.limits is not None:
            limits = run.requests.limits[i]
            slo |= {target: float(limit) for target, limit in zip(TARGETS, limits, strict=True) if np.isfinite(limit)}
        met = sum(int((good[part] & own[part]).sum()) for part in parts(len(run), good, own))
        finished = sum(int((own[part] & metrics.done_in(run, part)).sum()) for part in parts(len(run), run.req, own))
        found.append({
            "class": name, "requests": count, "finished": finished,
            "slo": {f"{target}_s": limit for target, limit in slo.items()}, "share": met / count,
            "requests_per_s": met / span if span else 0.0,
            "ttft_s": _row(metrics.quantiles(metrics.finite(run, "ttft_s", own))),
            "tpot_s": _row(metrics.quantiles(metrics.finite(run, "tpot_s", own))),
        })  # fmt: skip
    return found


def _of_class(run: Run, number: int, part: slice) -> Flags:
    return np.asarray(run.requests.tier[part] == number)


def _tiers(answer: Answer) -> list[dict[str, Any]]:
    """What lower tiers kept and gave, all instances together; the first tier is the pages of the pools."""
    rows = []
    run = answer.run
    span = metrics.makespan_s(run)
    for index in range(1, run.tier.shape[1]):
        group = run.fleet.groups[0]
        below = group.tiers[index - 1]
        size = group.token_bytes * run.fleet.page * run.inst[0, c.PER_UNIT]
        total = run.tier[:, index].sum(axis=0)
        several = 1 if below.pooled else len(run.inst)
        daily = float(total[c.WRITES] * size) / span * DAY_S if span else 0.0
        rows.append({
            "tier": below.name, "capacity_bytes": float(total[c.ROOM] * size),
            "peak_bytes": float(total[c.MOST] * size), "hits": int(total[c.HITS]), "read_bytes": float(total[c.READS] * size),
            "written_bytes": float(total[c.WRITES] * size), "written_bytes_per_day": daily,
            "life_years": below.endurance_bytes * several / daily / YEAR_DAYS
            if daily and np.isfinite(below.endurance_bytes) else None,
            "writing_fraction": float(run.tier_s[:, index, c.WRITING_S].sum()) / (span * len(run.inst)) if span else 0.0,
            "not_kept_bytes": {"buffer_full": float(total[c.UNWRITTEN] * size), "less_worth": float(total[c.DROPPED] * size)},
        })  # fmt: skip
    return rows


def _keep(answer: Answer) -> dict[str, Any]:
    """By which rule idle KV stays, and how good the forecasts were."""
    keep, worth = answer.service.serving.keep, answer.run.requests.worth
    told: dict[str, Any] = {"policy": keep.policy}
    if keep.timeout_s is not None:
        told["timeout_s"] = float(keep.timeout_s)
    if keep.policy == "return" and worth is not None:
        name = keep.predictor or "rate"
        known = bool(np.isfinite(worth.auc))
        told |= {"predictor": name if isinstance(name, str) else next(iter(name)), "auc": worth.auc if known else None}
    return told


def _pools(answer: Answer) -> list[dict[str, Any]]:
    """Instances of one kind together."""
    run, rows = answer.run, []
    span = metrics.makespan_s(run)
    for index, (group, kind) in enumerate(zip(run.fleet.groups, answer.kinds, strict=True)):
        inst, meter = run.inst[run.group == index], run.meter[run.group == index]
        rows.append({
            "pool": group.name, "instances": group.instances, "chips": group.instances * kind.scenario.cluster.chips,
            "chip": " + ".join(dict.fromkeys(pool.chip.name for pool in kind.scenario.cluster.pools)),
            "scheduler": group.scheduler.kind,
            "busy_fraction": float(meter[:, c.BUSY_S].sum() / (span * group.instances)) if span else 0.0,
            "iterations": int(inst[:, c.ITERATIONS].sum()),
            "kv_tokens": int(group.pages * run.fleet.page),
            "kv_peak_share": float(inst[:, c.PEAK].max() / group.pages),
            "prefill_tokens": int(inst[:, c.PREFILLS].sum()), "decode_rows": int(inst[:, c.DECODES].sum()),
            "slot_utilisation": float(inst[:, c.ROWS].sum() / max(1, inst[:, c.SLOTS].sum())),
            "preemptions": int(inst[:, c.PREEMPTIONS].sum()),
            "kv_sent_bytes": float(meter[:, c.SENT_TOKENS].sum() * group.token_bytes),
        })  # fmt: skip
    return rows


def _floor(answer: Answer) -> dict[str, float]:
    """The physical floor of the requests served: the mean prompt, less what was cached of it, and one sequence decoding."""
    run = answer.run
    total = count = 0
    for part in parts(len(run), run.req, run.requests.prompt):
        served = metrics.done_in(run, part)
        total, count = total + int(run.requests.prompt[part][served].sum()), count + int(served.sum())
    mean = int(total / count) if count else int(whole_sum(run.requests.prompt) / len(run))
    cached = int(mean * metrics.hit_rate(run))

    def ideal(role: str, **work: Any) -> float:
        scenario = next(kind.scenario for kind in answer.kinds if kind.role in (role, "mixed"))
        asked = replace(scenario, workload=scenario.workload.model_copy(update=work))
        return run_step(asked, ideal=True).step.time_s

    return {
        "ttft_s": ideal("prefill", phase="prefill", batch=1, new_tokens=max(1, mean - cached), cached=cached),
        "tpot_s": ideal("decode", phase="decode", batch=1, context=max(1, mean)),
    }


def warnings(answer: Answer) -> list[str]:
    """What a reader must know before quoting a number."""
    found = []
    for kind in answer.kinds:
        said = kind.steps.accuracy
        if said is not None and said.worst > WORST:
            found.append(f"{kind.name}: step times are interpolated; of {said.points} random steps the worst is "
                         f"{said.worst:.1%} off exact pricing, the mean {said.mean:.2%}")  # fmt: skip
        doubts = [doubt_of(pool.chip.name, pool.stack, pool.calibration) for pool in kind.scenario.cluster.pools]
        found += [doubt for doubt in doubts if doubt]
    run = answer.run
    lost = int(run.rejected.sum())
    if lost:
        found.append(f"{lost} of {len(run)} requests were rejected: " + "; ".join(_reasons(run)))
    model, sizes = answer.service.scenario.model, run.requests
    pieces = parts(len(run), sizes.prompt, sizes.output) if model.max_context else ()
    beyond = sum(int((sizes.prompt[part] + sizes.output[part] > model.max_context).sum()) for part in pieces)
    if beyond:
        found.append(f"{beyond} of {len(sizes)} requests are longer than the {model.max_context:,} tokens that {model.name} "
                     "was made for: an engine would reject or cut them; here they are served whole")  # fmt: skip
    if answer.found is not None and not answer.found["met"]:
        found.append(_unmet(answer.found))
    unused = [kind.name for kind in answer.kinds if float(kind.scenario.economics.utilisation) != 1]
    if unused:
        found.append(f"{', '.join(unused)}: economics.utilisation is not used here: the run itself says when chips wait, and "
                     "all of its time is paid for")  # fmt: skip
    return list(dict.fromkeys(found))


def _unmet(searched: Mapping[str, Any]) -> str:
    """That a search found nothing, and how far it looked."""
    wanted = f"{100 * searched['share']:.4g} % of the requests good"
    if searched["what"] != "rate":
        return f"no size that was tried makes {wanted}"
    return (
        f"no rate makes {wanted}: even at {searched['rate_scale']:.2g} times the rate, where requests hardly ever meet, "
        f"{searched['goodput_share']:.1%} are; the targets are below what one request alone takes, see the physical floor"
    )


def rows(answer: Answer) -> Iterator[dict[str, Any]]:
    """One row per request, in the order of the trace; empty where it was rejected."""
    run, good = answer.run, metrics.within(answer.run, answer.slo)
    names = ("ttft_s", "tpot_s", "e2e_s", "queue_s")
    for part in parts(len(run), run.when, run.req, run.requests.prompt, run.requests.output):
        latencies = {name: metrics.LATENCIES[name](run, part) for name in names}
        pieces = metrics.ttft_parts(run, part)
        for place, i in enumerate(range(part.start, part.stop)):
            row: dict[str, Any] = {
                "request": i, "class": run.requests.tiers[run.requests.tier[i]], "arrival_s": float(run.when[i, c.ARRIVAL]),
                "prompt": int(run.requests.prompt[i]), "output": int(run.requests.output[i]),
                "session": int(run.requests.session[i]),
            }  # fmt: skip
            row |= {name: _known(value[place]) for name, value in latencies.items()}
            row |= {f"ttft_{name}_s": _known(value[place]) for name, value in pieces.items()}
            yield row | {
                "good": bool(good[i]), "cached_tokens": max(0, int(run.req[i, c.HIT])),
                "loaded_tokens": int(run.req[i, c.LOADED]), "load_s": float(run.when[i, c.LOADING_S]),
                "transfer_s": float(run.when[i, c.TRANSFER_S]), "preempted": int(run.req[i, c.PREEMPTED]),
                "instance": int(run.req[i, c.AT]),
                "rejected": REASONS.get(int(run.req[i, c.REASON]), ""),
            }  # fmt: skip


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
