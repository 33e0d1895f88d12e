"""What pictures of runs and of forecasts have in common: panels that share a time axis.

Colours are Okabe and Ito's, told apart by colour-blind readers too; lines carry their names
themselves instead of a legend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, GRID = "#2b2b2b", "#8a8a8a", "#e4e4e4"
IN, OUT = "#0072B2", "#D55E00"
OPERATORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5b5b5b")

Label = tuple[float, str, str]
"""Where a line ends (its last y), its name, its colour."""


class PictureUnavailable(RuntimeError):
    """matplotlib is missing. The message says how to get it."""


def new_figure(width: float, height: float, title: str) -> Figure:
    """Raises `PictureUnavailable` without matplotlib."""
    try:
        # A figure of its own, not pyplot's: no global state, no window, no display needed.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PictureUnavailable(
            "drawing needs matplotlib: pip install 'anabranch[plot]'"
        ) from error
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.012, ha="left", fontsize=13, fontweight="bold", color=INK)
    return figure


def prepare(axes: Axes, seconds: float) -> None:
    axes.set_xlim(0, max(seconds, 1e-3))
    axes.grid(True, axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=FAINT, labelcolor=INK, labelsize=9)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)


def head(axes: Axes, what: str, unit: str) -> None:
    axes.set_title(what, loc="left", fontsize=10.5, fontweight="bold", color=INK, pad=6)
    axes.text(
        1.0,
        1.03,
        unit,
        transform=axes.transAxes,
        fontsize=8.5,
        color=FAINT,
        ha="right",
        va="bottom",
    )


def name_lines(axes: Axes, labels: Sequence[Label], gap: float) -> None:
    """Write each name right of its line's end, moved apart where they would overlap.

    `gap`: the height of a name as a share of the panel's.
    """
    low, high = axes.get_ylim()
    scale = np.log10 if axes.get_yscale() == "log" else np.asarray
    span = scale(high) - scale(low) or 1.0
    places = [float(np.clip((scale(max(y, low)) - scale(low)) / span, 0, 1)) for y, _, _ in labels]
    for place, (_, name, colour) in zip(spread(places, gap), labels, strict=True):
        axes.text(
            1.008,
            place,
            name,
            transform=axes.transAxes,
            color=colour,
            fontsize=9,
            va="center",
            fontweight="bold",
        )


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Positions from 0 to 1, moved as little as needed to be `gap` apart, in the same order."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = list(places)
    floor = 0.0
    for i in order:
        moved[i] = max(places[i], floor)
        floor = moved[i] + gap
    ceiling = 1.0
    for i in reversed(order):
        moved[i] = min(moved[i], ceiling)
        ceiling = moved[i] - gap
    return moved


def thousands(value: float, _: object) -> str:
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def plain(value: float, _: object) -> str:
    return f"{value:g}"
