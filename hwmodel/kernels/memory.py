"""Time for bytes: the tier they lie in, the on-chip cache, the ramp to full rate."""

import math

import numpy as np

from hwmodel.kernels import columns as c
from hwmodel.kernels.bare import bare

NOTHING = 1e-300
"""A share of the longer part that adds nothing to it."""


@bare
def stream_time(bytes_: float, bandwidth: float, ramp: float) -> float:
    """Seconds to stream `bytes_` (B) at `bandwidth` (B/s) with a start-up of `ramp` (s).

    bytes / bandwidth + ramp, which is the usual BW(S) = BW S / (S + S_half) with S_half = BW ramp. Nothing for no bytes.
    """
    if bytes_ <= 0.0:
        return 0.0
    return bytes_ / bandwidth + ramp


@bare
def served(
    weights: float, kv: float, activations: float, weight_rate: float, kv_rate: float, together: bool, cache_bytes: float,
    cache_rate: float, ramp: float, warm: int,
) -> tuple[float, float]:  # fmt: skip
    """(seconds (s) that memory needs, what takes them: -1 the cache, 0 the tier of the weights, 1 that of the KV cache).

    weights, kv, activations : bytes moved (B); weight_rate, kv_rate, cache_rate : B/s; together : weights and KV cache lie in
    one tier; cache_bytes : 0 for none; ramp : s; warm : operands are in the cache where so many sets of them fit it, as a
    benchmark takes them in turn; 0: they come from memory
    """
    cached, room = 0.0, cache_bytes / max(warm, 1)
    if cache_bytes > 0.0:
        cached = (weights + kv + activations) / cache_rate
        if warm > 0 and weights + kv + activations <= room:
            return cached + ramp, -1.0
    spilled = 0.0 if activations <= room else activations
    if together:
        slowest, which = stream_time(weights + kv + spilled, weight_rate, ramp), 0.0
    else:
        first, second = stream_time(weights + spilled, weight_rate, ramp), stream_time(kv, kv_rate, ramp)
        slowest, which = max(first, second), 0.0 if first >= second else 1.0
    if cached > slowest:
        return cached, -1.0
    return slowest, which


@bare
def memory_time(weights: float, kv: float, activations: float, where: np.ndarray, device: np.ndarray, out: np.ndarray) -> float:
    """Seconds (s) that memory needs for one op; fills WEIGHT_BYTES, KV_BYTES, ACTIVATION_BYTES and BOUND_TIER of `out`.

    Tiers work side by side and one tier serves its bytes one after the other. Activations live in the on-chip cache when
    they fit it and pass through the main tier (that of the weights) when not; everything passes through the cache. Of a
    benchmark that takes WARM sets of operands in turn, what fits WARM times over is in the cache.

    weights, kv, activations : bytes moved (B); where : (N_WHERE,) int; device : (N_DEVICE,) SI; out : (N_OUT,) SI
    """
    out[c.WEIGHT_BYTES] = weights
    out[c.KV_BYTES] = kv
    out[c.ACTIVATION_BYTES] = activations
    weight_tier, kv_tier = where[c.WEIGHT_TIER], where[c.CACHE_TIER]
    if device[c.FREE_ACTIVATIONS] == 1.0:
        activations = 0.0
    time, which = served(
        weights, kv, activations, device[c.TIER + weight_tier], device[c.TIER + kv_tier], weight_tier == kv_tier,
        device[c.CACHE_BYTES], device[c.CACHE_BANDWIDTH], device[c.RAMP], where[c.WARM],
    )  # fmt: skip
    out[c.BOUND_TIER] = -1.0 if which < 0.0 else float(weight_tier if which == 0.0 else kv_tier)
    return time


@bare
def finish(compute: float, memory: float, device: np.ndarray, out: np.ndarray) -> None:
    """Fill TIME = max(compute, memory) + launch and its parts (s), as of a chip on which the longer hides the other."""
    out[c.COMPUTE] = compute
    out[c.MEMORY] = memory
    out[c.WIRE] = 0.0
    out[c.WIRE_BYTES] = 0.0
    out[c.OVERHEAD] = device[c.LAUNCH]
    out[c.TIME] = max(compute, memory) + device[c.LAUNCH]


@bare
def overlap(where: np.ndarray, device: np.ndarray, out: np.ndarray, times: np.ndarray, power: np.ndarray) -> None:
    """Lengthen TIME and its parts (s) from max(C, M) to (C^p + M^p)^(1/p) where the op's device row names a sharpness p.

    A finite p says that neither compute C nor memory M hides the other perfectly near the ridge. What fails to overlap
    lengthens both parts alike: TIME stays the longer part + launch, and what bounds an op adds up to its time. As longer
    part x (1 + (shorter / longer)^p)^(1/p), by exponentials and logarithms, one function a loop: the processor then works
    on several points at once, in two thirds of the time.

    where, device, out as in gemm, p 0 or at least 1; times, power : (points,) room
    """
    for j in range(out.shape[1]):
        overlaps = False
        for q in range(out.shape[0]):
            o, p = out[q, j], device[q if device.shape[0] > 1 else 0, where[j, c.ROW], c.SHARPNESS]
            shorter = min(o[c.COMPUTE], o[c.MEMORY])
            times[q], power[q] = NOTHING, 1.0
            if p > 0.0 and shorter > 0.0:
                times[q], power[q], overlaps = shorter / max(o[c.COMPUTE], o[c.MEMORY]), p, True
        if not overlaps:  # as on links
            continue
        for q in range(out.shape[0]):
            times[q] = math.log(times[q])
        for q in range(out.shape[0]):
            times[q] = 1.0 + math.exp(times[q] * power[q])
        for q in range(out.shape[0]):
            times[q] = math.log(times[q]) / power[q]
        for q in range(out.shape[0]):
            times[q] = math.exp(times[q])
        for q in range(out.shape[0]):
            o = out[q, j]
            o[c.TIME] += (times[q] - 1.0) * max(o[c.COMPUTE], o[c.MEMORY])
            o[c.COMPUTE] *= times[q]
            o[c.MEMORY] *= times[q]
