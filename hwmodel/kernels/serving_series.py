"""The state of all instances over time, as means over rows that grow longer as the run does.

Means and no samples: a sample at every thousandth event would find an instance busy, since events are where it works.
"""

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_jit import inner


@inner
def note_state(s: Serving, k: int) -> None:
    """What instance k holds from now on."""
    idle = s.inst[k, c.EVICTABLE] * s.inst[k, c.PER_UNIT]
    note(s, k, c.RUNNING_, s.inst[k, c.BATCH])
    note(s, k, c.WAITING_, s.inst[k, c.QUEUED])
    note(s, k, c.LOADING_, s.inst[k, c.INFLIGHT])
    note(s, k, c.USED_PAGES, s.inst[k, c.CAPACITY] - s.inst[k, c.FREE] - idle)
    note(s, k, c.IDLE_PAGES, idle)


@inner
def note(s: Serving, k: int, column: int, value: float) -> None:
    """One number of instance k, and of all instances."""
    s.noted[s.inst.shape[0], column] += value - s.noted[k, column]
    s.noted[k, column] = value


@inner
def pass_time(s: Serving, now: float) -> None:
    """The state stays as it is until `now` (s)."""
    if s.total[c.ROW_BEGUN] < 0.0:
        s.total[c.ROW_BEGUN] = now
        return
    whole = s.inst.shape[0]
    spent = now - s.total[c.CLOCK]
    for j in range(1, c.N_SERIES):
        s.noted[whole + 1, j] += s.noted[whole, j] * spent
    if now - s.total[c.ROW_BEGUN] > s.total[c.SPACING_S]:
        end_row(s, now)


@inner
def end_row(s: Serving, now: float) -> None:
    """Close the open row; two by two they become one when there is no place for more, and new ones twice as long."""
    row, begun = int(s.total[c.SERIES]), s.total[c.ROW_BEGUN]
    s.series[row, c.AT_S] = begun
    for j in range(1, c.N_SERIES):
        s.series[row, j] = s.noted[s.inst.shape[0] + 1, j] / (now - begun)
        s.noted[s.inst.shape[0] + 1, j] = 0.0
    s.total[c.ROW_BEGUN] = now
    row += 1
    if row == s.series.shape[0] - 1:
        row //= 2
        for i in range(row):
            first, second = s.series[2 * i, c.AT_S], s.series[2 * i + 1, c.AT_S]
            end = s.series[2 * i + 2, c.AT_S] if i < row - 1 else now
            share = (second - first) / (end - first)
            for j in range(1, c.N_SERIES):
                s.series[i, j] = s.series[2 * i, j] * share + s.series[2 * i + 1, j] * (1.0 - share)
            s.series[i, c.AT_S] = first
        s.total[c.SPACING_S] = (now - s.series[0, c.AT_S]) / row
    s.total[c.SERIES] = row


@inner
def end_series(s: Serving) -> None:
    """Close the last row, and say what is left behind it."""
    now = s.total[c.CLOCK]
    if now > s.total[c.ROW_BEGUN] >= 0.0:
        end_row(s, now)
    row = int(s.total[c.SERIES])
    for j in range(1, c.N_SERIES):
        s.series[row, j] = s.noted[s.inst.shape[0], j]
    s.series[row, c.AT_S] = now
    s.total[c.SERIES] = row + 1
