"""Collectives among the chips of one pool: alpha-beta with the best algorithm for the size."""

import numpy as np

from hwmodel.kernels import columns as c
from hwmodel.kernels.bare import bare

KIND = "collective"
MATRIX = False
DIMS = ("elements", "chips")
CONSTS = ("bytes", "operation")
"""Bytes per element; which collective, an index into OPERATIONS."""
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p")


@bare
def one_level(
    operation: float,
    size: float,
    n: float,
    bandwidth: float,
    latency: float,
    reduces: float,
    topology: float,
    peer: float,
) -> tuple[float, float]:
    """(seconds on the wire, seconds of latency) of one collective over n chips joined by one kind of link.

    Switch: all-reduce is the quickest of one-shot a + (n-1) S/B, two-shot 2a + 2 (n-1)/n S/B and, where the switch adds,
    a + S/B; the one-shot crossing is S = a B / ((n-1)(1-2/n)). All-gather, reduce-scatter, all-to-all: a + (n-1)/n S/B.
    Lanes wired to fixed peers: at most n-1 times the bandwidth to one peer. Ring and torus: hops instead of one
    latency, 2(n-1) a + 2 (n-1)/n S/B for a ring all-reduce; a torus of side s = sqrt(n) takes 4(s-1) hops; an all-to-all
    shares the bisection, n/8 (ring) or s/8 (torus) times S/B. p2p: a + S/B.

    size : bytes of the full buffer (B); bandwidth : B/s per direction as reached, all links of a chip; latency : s
    """
    if n <= 1.0 or size <= 0.0:
        return 0.0, 0.0
    if operation == 4.0:
        return size / bandwidth, latency
    share = (n - 1.0) / n
    bandwidth = reached(bandwidth, peer, n)
    if topology == 2.0 or topology == 3.0:  # noqa: PLR1714  kept to plain comparisons for numba
        side = n if topology == 2.0 else np.sqrt(n)
        hops = (n - 1.0) if topology == 2.0 else 2.0 * (side - 1.0)
        if operation == 0.0:
            return 2.0 * share * size / bandwidth, 2.0 * hops * latency
        if operation == 3.0:
            return max(share, side / 8.0) * size / bandwidth, hops * latency / 2.0
        return share * size / bandwidth, hops * latency
    if operation != 0.0:
        return share * size / bandwidth, latency
    wire, alpha = 2.0 * share * size / bandwidth, 2.0 * latency
    one = (n - 1.0) * size / bandwidth
    if one + latency < wire + alpha:
        wire, alpha = one, latency
    if reduces == 1.0 and size / bandwidth + latency < wire + alpha:
        wire, alpha = size / bandwidth, latency
    return wire, alpha


@bare
def reached(bandwidth: float, peer: float, n: float) -> float:
    """Bandwidth (B/s) of a group of n chips: that of the chip, or of its lanes to the n - 1 others."""
    return min(bandwidth, (n - 1.0) * peer) if peer > 0.0 and n > 1.0 else bandwidth


FEATURES = ("bytes", "chips")
"""Sizes that a measured correction goes by: bytes of the full buffer, chips that take part."""


@bare
def features(dims: np.ndarray, consts: np.ndarray, out: np.ndarray, found: np.ndarray) -> None:
    """Write FEATURES of every op. dims, consts, out as in price; found : (points, ops, N_AXES)."""
    for q in range(dims.shape[0]):
        for j in range(dims.shape[1]):
            found[q, j, 0] = dims[q, j, 0] * consts[j, 0]
            found[q, j, 1] = dims[q, j, 1]


@bare
def exchanged(
    operation: float, size: float, n: float, bandwidth: float, latency: float, reach: float, reduces: float, topology: float,
    peer: float, next_bandwidth: float, next_latency: float, next_reduces: float, next_topology: float, next_peer: float,
) -> tuple[float, float, float]:  # fmt: skip
    """(seconds on the wire, seconds of latency, bytes (B) sent by a chip) over a link that reaches `reach` chips and the next.

    size : bytes of the full buffer (B); bandwidths : B/s, that of the next link 0 where there is none; latencies : s
    """
    domain = min(n, reach)
    wire, alpha = one_level(operation, size, domain, bandwidth, latency, reduces, topology, peer)
    sent = wire * reached(bandwidth, peer, domain)
    if n > domain:
        if next_bandwidth > 0.0:
            groups = np.ceil(n / domain)
            part = size if operation >= 3.0 else size / domain
            far, hops = one_level(operation, part, groups, next_bandwidth, next_latency, next_reduces, next_topology, next_peer)
            wire, alpha = wire + far, alpha + hops
            sent += far * reached(next_bandwidth, next_peer, groups)
        else:  # the partition says that it cannot be; priced as if the link reached
            wire, alpha = one_level(operation, size, n, bandwidth, latency, reduces, topology, peer)
            sent = wire * reached(bandwidth, peer, n)
    return wire, alpha, sent


@bare
def one(dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, chip: np.ndarray, out: np.ndarray) -> None:
    """One collective at one point; fills `out` as price does (TIME in s)."""
    size, n = dims[0] * consts[0], dims[1]
    slot = where[c.LINK_SLOT]
    i = c.LINK + slot * c.LINK_WIDTH
    last = slot + 1 >= c.N_LINKS
    j = i if last else i + c.LINK_WIDTH
    wire, alpha, sent = exchanged(
        consts[1], size, n, chip[i], chip[i + 1], chip[i + 2], chip[i + 3], chip[i + 4], chip[i + 5],
        0.0 if last else chip[j], chip[j + 1], chip[j + 3], chip[j + 4], chip[j + 5],
    )  # fmt: skip
    if n > 1.0 and size > 0.0:
        alpha += chip[c.EXCHANGE]
    out[c.WIRE] = wire
    out[c.OVERHEAD] = alpha
    out[c.WIRE_BYTES] = sent
    out[c.TIME] = 0.0 if chip[c.HIDDEN_COLLECTIVES] == 1.0 else wire + alpha


@bare
def price(
    dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, device: np.ndarray, out: np.ndarray
) -> None:
    """Times (s) and bytes of collectives, in one level or, past the link's domain, in two. Bytes are those one chip sends.

    Two levels: the buffer is reduced (gathered, exchanged) inside each domain over the first link, and 1/domain of it (all
    of the foreign part for all-to-all) crosses between domains over the next link.

    dims : (points, ops, 2) elements of the full buffer, chips; consts : (ops, 2); where LINK_SLOT is the inner link.
    Thakur et al., IJHPCA 2005, for ring and recursive forms.
    """
    for q in range(dims.shape[0]):
        dq = q if device.shape[0] > 1 else 0
        for j in range(dims.shape[1]):
            one(dims[q, j], consts[j], where[j], bins[j], device[dq, where[j, c.ROW]], out[q, j])
