"""Matrix products on a machine of cores that each work on one output tile at a time."""

import numpy as np

from hwmodel.kernels import columns as c
from hwmodel.kernels.bare import bare

LEAST_DEPTH = 256.0
"""Of k: below this a share of a tile is not worth the sum with the others."""


@bare
def product_time(m: float, n: float, k: float, groups: float, peak: float, device: np.ndarray, enough: float = -1.0) -> float:
    """Seconds (s) of compute for `groups` products (m x k)(k x n) on one chip.

    tiles = groups ceil(m/tm) ceil(n/tn); waves = ceil(tiles / cores); t = waves 2 tm tn k cores / peak, the best over the
    chip's tiles. Fewer tiles than cores are shared along k (stream-K, Osama et al., PPoPP 2023): each core then walks
    max(k tiles / cores, min(k, 256)) instead of k. With CORES = 0: 2 m n k groups / peak.

    m, n, k, groups : sizes, m may be a mean; peak : FLOP/s as reached; device : (N_DEVICE,); enough : s, a time below
    which the rest of the tiles need no look (the answer is then no more than this)
    """
    if m <= 0.0 or n <= 0.0 or k <= 0.0:
        return 0.0
    cores = device[c.CORES]
    if cores <= 0.0:
        return 2.0 * m * n * k * groups / peak
    best = np.inf
    for j in range(c.N_TILES):
        rows, cols = device[c.TILES + 2 * j], device[c.TILES + 2 * j + 1]
        if rows <= 0.0:
            break
        tiles = groups * np.ceil(m / rows - 1e-9) * np.ceil(n / cols - 1e-9)
        best = min(best, tiled_time(tiles, rows, cols, k, peak, cores, device[c.SPLIT_K]))
        if best < enough:
            break
    return best


@bare
def tiled_time(tiles: float, rows: float, cols: float, k: float, peak: float, cores: float, may_split: float) -> float:
    """Seconds (s) for `tiles` output tiles of rows x cols with inner length k on `cores` cores that reach `peak` FLOP/s."""
    depth = k
    if may_split == 1.0 and tiles < cores:
        depth = max(k * tiles / cores, min(k, LEAST_DEPTH))
    return np.ceil(tiles / cores - 1e-9) * 2.0 * rows * cols * depth * cores / peak
