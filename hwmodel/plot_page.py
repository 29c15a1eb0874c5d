"""What every picture has: colours, style, a title above and a footer below; files without dates.

matplotlib is loaded when one is drawn. Colours are those of Okabe and Ito (2008), which colour-blind readers tell apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwmodel import __version__
from hwmodel.spec.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PINK, YELLOW = "#56B4E9", "#CC79A7", "#F0E442"
GREY, PALE, INK, SOFT = "#999999", "#ECECEC", "#222222", "#555555"
CYCLE = (BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW)
STYLE: Any = {
    "font.family": "DejaVu Sans", "font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6, "legend.frameon": False, "legend.fontsize": 8.5, "svg.hashsalt": "hwmodel",
    "path.simplify": False, "savefig.dpi": 150, "figure.dpi": 150,
}  # fmt: skip
FIXED: dict[str, dict[str, str | None]] = {
    ".png": {"Software": f"hwmodel {__version__}"},
    ".svg": {"Date": None, "Creator": f"hwmodel {__version__}"},
    ".pdf": {"CreationDate": None, "Creator": f"hwmodel {__version__}", "Producer": None},
}
"""Metadata of a file by suffix: without dates, so that equal pictures are equal files."""


@contextmanager
def page(
    path: str | Path,
    title: str,
    what: str,
    foot: str,
    size: tuple[float, float],
    panels: int = 1,
    rows: int = 1,
    **options: Any,
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure with rows of panels under a title, above a footer; written to `path` when the block ends.

    size : width, height in inches. InputError for a suffix that no picture is written in.
    """
    import matplotlib as mpl  # noqa: PLC0415 - slow to load, needed only when something is drawn
    from matplotlib.figure import Figure  # noqa: PLC0415

    target = Path(path)
    if target.suffix.lower() not in FIXED:
        raise InputError(f"{target}: a picture is written as {', '.join(FIXED)}")
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        top, bottom = 0.62 / size[1], (0.30 / size[1] if foot else 0.0)
        layout: Any = figure.get_layout_engine()
        layout.set(rect=(0, bottom, 1, 1 - top - bottom), w_pad=0.12, wspace=0.02)
        figure.text(0.012, 1 - 0.10 / size[1], title, size=12, weight="bold", va="top", color=INK)
        figure.text(0.012, 1 - 0.36 / size[1], what, size=9.5, va="top", color=SOFT)
        figure.text(0.012, 0.09 / size[1], foot, size=8, color=SOFT)
        yield figure, list(figure.subplots(rows, panels, squeeze=False, **options).flat)
        figure.savefig(target, metadata=FIXED[target.suffix.lower()])
