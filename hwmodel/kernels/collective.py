"""Collectives among the chips of one pool: alpha-beta with the best algorithm for the size."""

import numpy as np
from numba import njit

from hwmodel.kernels import columns as c

KIND = "collective"
DIMS = ("elements", "chips")
CONSTS = ("bytes", "operation")
"""Bytes per element; which collective, an index into OPERATIONS."""
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p")
RING, SWITCH, TORUS = 1.0, 0.0, 2.0


@njit(cache=True)
def one_level(operation: float, size: float, n: float, bandwidth: float, latency: float, reduces: float) -> tuple[float, float]:
    """(seconds on the wire, seconds of latency) of one collective over n chips joined by one link.

    all-reduce: the quickest of one-shot a + (n-1) S/B, two-shot 2a + 2 (n-1)/n S/B, ring 2(n-1) a + 2 (n-1)/n S/B, and
    in-switch reduction a + S/B where the link can. all-gather and reduce-scatter of a full buffer S: a + (n-1)/n S/B.
    all-to-all: a + (n-1)/n S/B. p2p: a + S/B. The one-shot crossing is S = a B / ((n-1)(1-2/n)).

    size : bytes of the full buffer (B); bandwidth : B/s per direction as reached; latency : s
    """
    if n <= 1.0 or size <= 0.0:
        return 0.0, 0.0
    share = (n - 1.0) / n
    if operation == 0.0:
        one = (n - 1.0) * size / bandwidth
        two = 2.0 * share * size / bandwidth
        wire, alpha = (one, latency) if one + latency <= two + 2.0 * latency else (two, 2.0 * latency)
        if reduces == 1.0 and size / bandwidth + latency < wire + alpha:
            wire, alpha = size / bandwidth, latency
        return wire, alpha
    if operation == 4.0:
        return size / bandwidth, latency
    return share * size / bandwidth, latency


@njit(cache=True)
def wire_bytes(operation: float, size: float, n: float) -> float:
    """Bytes that one chip must send at least: 2 (n-1)/n S for an all-reduce, (n-1)/n S for the others, S for p2p."""
    if n <= 1.0:
        return 0.0
    share = (n - 1.0) / n
    return 2.0 * share * size if operation == 0.0 else size if operation == 4.0 else share * size


@njit(cache=True, nogil=True)
def price(dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, device: np.ndarray, out: np.ndarray) -> None:
    """Times (s) and bytes of collectives, in one level or, past the link's domain, in two.

    Two levels: the buffer is reduced (gathered, exchanged) inside each domain over the first link, and 1/domain of it (all
    of the foreign part for all-to-all) crosses between domains over the next link.

    dims : (points, ops, 2) elements of the full buffer, chips; consts : (ops, 2); where LINK_SLOT is the inner link.
    Thakur et al., IJHPCA 2005, for ring and recursive forms.
    """
    for q in range(dims.shape[0]):
        dq = q if device.shape[0] > 1 else 0
        for j in range(dims.shape[1]):
            size, n = dims[q, j, 0] * consts[j, 0], dims[q, j, 1]
            operation = consts[j, 1]
            chip = device[dq, where[j, c.ROW]]
            o = out[q, j]
            slot = where[j, c.LINK_SLOT]
            inner = chip[c.LINK + slot * c.LINK_WIDTH : c.LINK + (slot + 1) * c.LINK_WIDTH]
            domain = min(n, inner[2])
            wire, alpha = one_level(operation, size, domain, inner[0], inner[1], inner[3])
            if n > domain and slot + 1 < c.N_LINKS:
                outer = chip[c.LINK + (slot + 1) * c.LINK_WIDTH : c.LINK + (slot + 2) * c.LINK_WIDTH]
                if outer[0] > 0.0:
                    groups = np.ceil(n / domain)
                    part = size if operation >= 3.0 else size / domain
                    far, hops = one_level(operation, part, groups, outer[0], outer[1], outer[3])
                    wire, alpha = wire + far, alpha + hops
                else:
                    wire = np.inf
            o[c.WIRE] = wire
            o[c.OVERHEAD] = alpha
            o[c.WIRE_BYTES] = wire_bytes(operation, size, n)
            o[c.TIME] = 0.0 if chip[c.HIDDEN_COLLECTIVES] == 1.0 else wire + alpha
