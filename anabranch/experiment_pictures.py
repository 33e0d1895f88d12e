"""Figures 3 to 6 of Belkhiria & Tedeschi 2019 for the policies compared.

What the paper's figures show is taken from its text: instances against the ideal over time
(3), accuracy (4), throughput (5) and messages (6). Where the paper draws one run, 3 does too;
the others show all runs, since one is luck.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from anabranch.picture import FAINT, GRID, INK, PictureUnavailable
from anabranch.workloads.belkhiria2019.evaluation import LIMIT, OURS, PUBLISHED, Evaluation
from anabranch.workloads.belkhiria2019.metrics import accuracy, formula, throughput
from anabranch.workloads.curve_base import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {PUBLISHED: "#D55E00", OURS: "#0072B2", LIMIT: "#009E73"}


def draw_figures(evaluation: Evaluation, folder: Path) -> list[Path]:
    """Write figure3.svg to figure6.svg. Raises `PictureUnavailable` without matplotlib."""
    try:
        import matplotlib
    except ImportError as error:
        raise PictureUnavailable(
            "drawing needs matplotlib: pip install 'anabranch[plot]'"
        ) from error
    pictures: dict[str, Callable[[Evaluation], Figure]] = {
        "figure3": _instances,
        "figure4": _accuracy,
        "figure5": _throughput,
        "figure6": _messages,
    }
    written = []
    # Without salt and date the same evaluation is the same file.
    with matplotlib.rc_context({"svg.hashsalt": "anabranch"}):
        for name, picture in pictures.items():
            path = folder / f"{name}.svg"
            picture(evaluation).savefig(path, metadata={"Date": None})
            written.append(path)
    return written


def _figure(title: str, panels: int) -> tuple[Figure, list[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.2 + 2.6 * panels), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.012, ha="left", fontsize=12, fontweight="bold", color=INK)
    rows = figure.subplots(panels, 1, sharex=True, sharey=panels > 1, squeeze=False)[:, 0]
    for axes in rows:
        axes.grid(True, axis="y", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(colors=FAINT, labelcolor=INK, labelsize=9)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
    rows[-1].set_xlabel("step", color=INK)
    return figure, list(rows)


def _head(axes: Axes, text: str, colour: str) -> None:
    axes.set_title(text, loc="left", fontsize=10, fontweight="bold", color=colour)


def _instances(evaluation: Evaluation) -> Figure:
    """Of the run whose load rises highest: all five operators together."""
    load = evaluation.outcomes[PUBLISHED].load.sum(axis=1)
    run = int(load.max(axis=1).argmax())
    figure, rows = _figure("Figure 3: instances of five operators, and the ideal", len(COLOURS))
    for axes, (policy, colour) in zip(rows, COLOURS.items(), strict=True):
        axes.plot(load[run] / evaluation.setup.full, color=FAINT, linewidth=1)
        axes.step(
            np.arange(load.shape[1]),
            evaluation.outcomes[policy].instances[run].sum(axis=0),
            where="post",
            color=colour,
            linewidth=1.8,
        )
        _head(axes, f"{policy} (grey: ideal)", colour)
    return figure


def _bands(title: str, evaluation: Evaluation, of: Callable[[str], FloatArray]) -> Figure:
    figure, rows = _figure(title, len(COLOURS))
    for axes, (policy, colour) in zip(rows, COLOURS.items(), strict=True):
        low, middle, high = np.quantile(of(policy), [0.05, 0.5, 0.95], axis=(0, 1))
        axes.fill_between(np.arange(len(low)), low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(middle, color=colour, linewidth=1.8)
        _head(axes, policy, colour)
    return figure


def _accuracy(evaluation: Evaluation) -> Figure:
    return _bands(
        "Figure 4: accuracy, median and 5 % to 95 % of all runs",
        evaluation,
        lambda p: accuracy(evaluation.setup, evaluation.outcomes[p]),
    )


def _throughput(evaluation: Evaluation) -> Figure:
    return _bands(
        "Figure 5: share of the offered tuples processed, median and 5 % to 95 % of all runs",
        evaluation,
        lambda p: throughput(evaluation.setup, evaluation.outcomes[p]),
    )


def _messages(evaluation: Evaluation) -> Figure:
    """Mean of all runs, beside what the formula gives for the same newcomers made singly."""
    figure, rows = _figure("Figure 6: messages per operator and step, mean", len(COLOURS))
    for axes, (policy, colour) in zip(rows, COLOURS.items(), strict=True):
        out = evaluation.outcomes[policy]
        joins = out.messages - 2 * out.leaves * out.neighbours
        axes.plot(formula(out).mean(axis=(0, 1)), color=FAINT, linewidth=1)
        axes.plot(joins.mean(axis=(0, 1)), color=colour, linewidth=1.6)
        axes.plot(out.messages.mean(axis=(0, 1)), color=colour, linewidth=0.9, linestyle="--")
        _head(axes, f"{policy}: joins, with leaves (dashed), formula for the joins (grey)", colour)
    return figure
