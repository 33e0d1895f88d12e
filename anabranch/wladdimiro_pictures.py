"""Figures 5 to 11 of Wladdimiro et al. 2021: load, replicas, rates and what is processed so far.

The paper's figures are known from its text only, so each is drawn by what it says there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from anabranch.panels import FAINT, INK, OPERATORS, head, new_figure, prepare
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.wladdimiro2021.evaluation import Evaluation, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMOOTH_S = 5


def draw_figures(evaluation: Evaluation, folder: Path) -> list[Path]:
    """Write wladdimiro-P.svg and wladdimiro-R.svg, by reading. Raises `PictureUnavailable`."""
    return [_draw(evaluation, by, folder / f"wladdimiro-{by}.svg") for by in ("P", "R")]


def _draw(evaluation: Evaluation, by: str, path: Path) -> Path:
    figure = new_figure(9, 12, f"Wladdimiro et al. 2021, load T, host D, reading {by}")
    import matplotlib

    rows = {m: evaluation.row(f"III, {m}, host D", by) for m in ("δ", "U", "Q", "U gated")}
    panels: list[tuple[str, str, Callable[[Row], FloatArray]]] = [
        ("replicas", "of four operators", lambda row: row.course.replicas),
        ("delivered", "tuples/s", lambda row: _smooth(row.course.delivered)),
        ("waiting", "tuples", lambda row: row.course.waiting),
        ("processed so far", "tuples", lambda row: np.cumsum(row.course.delivered)),
    ]
    all_axes = figure.subplots(len(panels), 1, sharex=True)
    for axes, (what, unit, values) in zip(all_axes, panels, strict=True):
        _panel(axes, what, unit, {name: values(row) for name, row in rows.items()})
    all_axes[1].plot(rows["δ"].course.due, color=INK, linewidth=0.8, linestyle=":", label="due")
    all_axes[0].legend(frameon=False, fontsize=9, ncols=4)
    all_axes[-1].set_xlabel("seconds", color=FAINT)
    # Without salt and date the same evaluation is the same file.
    with matplotlib.rc_context({"svg.hashsalt": "anabranch"}):
        figure.savefig(path, metadata={"Date": None})
    return path


def _panel(axes: Axes, what: str, unit: str, lines: dict[str, FloatArray]) -> None:
    prepare(axes, len(next(iter(lines.values()))))
    head(axes, what, unit)
    for colour, (name, values) in zip(OPERATORS, lines.items(), strict=False):
        axes.plot(values, color=colour, linewidth=1.2, label=name)


def _smooth(values: FloatArray) -> FloatArray:
    return np.convolve(values, np.ones(SMOOTH_S) / SMOOTH_S, mode="same")
