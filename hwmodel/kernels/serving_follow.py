"""Who waits for whom, turned round: of each request those that wait for its end."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def followers(after: np.ndarray, follow: np.ndarray) -> None:
    """Of each request where its followers begin, then where the last ones end, then all followers, in order of their numbers.

    after : (requests,) int, the request that one waits for, -1 for none; follow : (requests + 1 + followers,) int, zeros, out
    """
    n = after.shape[0]
    for r in range(n):
        if after[r] >= 0:
            follow[after[r] + 1] += 1
    follow[0] = n + 1
    for r in range(n):
        follow[r + 1] += follow[r]
    for r in range(n - 1, -1, -1):  # from the back: what was the end of a request's followers becomes their begin
        if after[r] >= 0:
            follow[after[r] + 1] -= 1
            follow[follow[after[r] + 1]] = r
    for r in range(n):
        follow[r] = follow[r + 1]
    follow[n] = follow.shape[0]
