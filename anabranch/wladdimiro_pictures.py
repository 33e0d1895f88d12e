"""Figures 5 to 12 of Wladdimiro et al. 2021: load, replicas, rates and what is processed so far,
and latency.

The paper's figures are known from its text only, so each is drawn by what it says there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from anabranch.panels import FAINT, INK, OPERATORS, head, new_figure, prepare
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.wladdimiro2021.evaluation import Evaluation
from anabranch.workloads.wladdimiro2021.levels import LevelEvaluation
from anabranch.workloads.wladdimiro2021.model import Course

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMOOTH_S = 5


def draw_figures(evaluation: Evaluation, folder: Path) -> list[Path]:
    """Write wladdimiro-P.svg and wladdimiro-R.svg, by reading. Raises `PictureUnavailable`."""
    written = []
    for by in ("P", "R"):
        named = {m: evaluation.row(f"III, {m}, host D", by) for m in ("δ", "U", "Q", "U gated")}
        courses = {name: row.course for name, row in named.items()}
        title = f"Wladdimiro et al. 2021, load T, host D, reading {by}"
        written.append(_draw(courses, title, folder / f"wladdimiro-{by}.svg"))
    return written


def draw_level(found: LevelEvaluation, folder: Path) -> list[Path]:
    """Write wladdimiro-LEVEL.svg. Raises `PictureUnavailable`."""
    shown = SHOWN[found.level]
    courses = {name: found.row(row).course for name, row in shown.items()}
    title = f"Wladdimiro et al. 2021, level {found.level}, a tenth of a second a step"
    return [_draw(courses, title, folder / f"wladdimiro-{found.level}.svg")]


SHOWN = {
    "simulated": {"δ": "III, δ", "U": "III, U", "Q": "III, Q", "shipped": "T, shipped policy"},
    "live": {"pool": "II, pool", "redeployment": "II, redeployment"},
}
"""Rows by their names in the figure."""


def _draw(courses: dict[str, Course], title: str, path: Path) -> Path:
    figure = new_figure(9, 14, title)
    import matplotlib

    panels: list[tuple[str, str, Callable[[Course], FloatArray]]] = [
        ("replicas", "of four operators", lambda course: course.replicas),
        ("delivered", "tuples per step", lambda course: _smooth(course.delivered)),
        ("waiting", "tuples", lambda course: course.waiting),
        ("processed so far", "tuples", lambda course: np.cumsum(course.delivered)),
        ("latency", "steps of waiting per tuple of this step", _latency),
    ]
    all_axes = figure.subplots(len(panels), 1, sharex=True)
    for axes, (what, unit, values) in zip(all_axes, panels, strict=True):
        _panel(axes, what, unit, {name: values(course) for name, course in courses.items()})
    due = next(iter(courses.values())).due
    all_axes[1].plot(_smooth(due), color=INK, linewidth=0.8, linestyle=":", label="due")
    all_axes[0].legend(frameon=False, fontsize=9, ncols=4)
    all_axes[-1].set_xlabel("steps", color=FAINT)
    # Without salt and date the same evaluation is the same file.
    with matplotlib.rc_context({"svg.hashsalt": "anabranch"}):
        figure.savefig(path, metadata={"Date": None})
    return path


def _latency(course: Course) -> FloatArray:
    """By Little's law, of what waits and what leaves in a while."""
    out: FloatArray = course.waiting / np.maximum(_smooth(course.delivered), 1e-3)
    return np.minimum(out, len(out))


def _panel(axes: Axes, what: str, unit: str, lines: dict[str, FloatArray]) -> None:
    prepare(axes, len(next(iter(lines.values()))))
    head(axes, what, unit)
    for colour, (name, values) in zip(OPERATORS, lines.items(), strict=False):
        axes.plot(values, color=colour, linewidth=1.2, label=name)


def _smooth(values: FloatArray) -> FloatArray:
    return np.convolve(values, np.ones(SMOOTH_S) / SMOOTH_S, mode="same")
