"""Time for bytes: the tier they lie in, the on-chip cache, the ramp to full rate."""

import numpy as np

from hwmodel.kernels import columns as c
from hwmodel.kernels.bare import bare


@bare
def stream_time(bytes_: float, bandwidth: float, ramp: float) -> float:
    """Seconds to stream `bytes_` (B) at `bandwidth` (B/s) with a start-up of `ramp` (s).

    bytes / bandwidth + ramp, which is the usual BW(S) = BW S / (S + S_half) with S_half = BW ramp. Nothing for no bytes.
    """
    if bytes_ <= 0.0:
        return 0.0
    return bytes_ / bandwidth + ramp


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
    cache_bytes = device[c.CACHE_BYTES]
    room = cache_bytes / max(where[c.WARM], 1)
    ramp = device[c.RAMP]
    cached = 0.0
    if cache_bytes > 0.0:
        cached = (weights + kv + activations) / device[c.CACHE_BANDWIDTH]
        if where[c.WARM] > 0 and weights + kv + activations <= room:
            out[c.BOUND_TIER] = -1.0
            return cached + ramp
    spilled = 0.0 if activations <= room else activations
    if weight_tier == kv_tier:
        slowest = stream_time(weights + kv + spilled, device[c.TIER + weight_tier], ramp)
        tier = float(weight_tier)
    else:
        first = stream_time(weights + spilled, device[c.TIER + weight_tier], ramp)
        second = stream_time(kv, device[c.TIER + kv_tier], ramp)
        slowest = max(first, second)
        tier = float(weight_tier if first >= second else kv_tier)
    if cached > slowest:
        out[c.BOUND_TIER] = -1.0
        return cached
    out[c.BOUND_TIER] = tier
    return slowest


@bare
def overlapped(compute: float, memory: float, sharpness: float) -> float:
    """Seconds (s) of an op whose compute and memory run side by side: (C^p + M^p)^(1/p), for p = 0 the larger one.

    A finite p says that neither hides the other perfectly near the ridge. sharpness : p, 0 or at least 1
    """
    if sharpness == 0.0:
        return max(compute, memory)
    longer, shorter = max(compute, memory), min(compute, memory)
    if longer <= 0.0:
        return 0.0
    return longer * (1.0 + (shorter / longer) ** sharpness) ** (1.0 / sharpness)


@bare
def finish(compute: float, memory: float, device: np.ndarray, out: np.ndarray) -> None:
    """Fill TIME = overlapped(compute, memory) + launch and its parts (s): what fails to overlap lengthens both parts alike.

    So TIME is the longer part + launch under any sharpness, and what bounds an op adds up to its time.
    """
    whole = overlapped(compute, memory, device[c.SHARPNESS])
    if device[c.SHARPNESS] != 0.0 and whole > 0.0:
        longer = max(compute, memory)
        compute, memory = compute * whole / longer, memory * whole / longer
    out[c.COMPUTE] = compute
    out[c.MEMORY] = memory
    out[c.WIRE] = 0.0
    out[c.WIRE_BYTES] = 0.0
    out[c.OVERHEAD] = device[c.LAUNCH]
    out[c.TIME] = whole + device[c.LAUNCH]
