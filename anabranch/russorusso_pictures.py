"""Figures 3 to 7 of Russo Russo et al. 2018, of the first seed: load, response times, instances and
hosts by row, and what the managers of regions cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from anabranch.panels import FAINT, INK, OPERATORS, head, new_figure, prepare
from anabranch.workloads.russorusso2018.evaluation import Evaluation
from anabranch.workloads.russorusso2018.loads import DAY
from anabranch.workloads.russorusso2018.rows import LEARNS, SIMPLE, THRESHOLD, TRIES, Row
from anabranch.workloads.russorusso2018.setup import RESPONSE_MAX_S

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from anabranch.workloads.russorusso2018.model import Course

SHOWN_DAYS, LATE_DAY = 5, 60
RESPONSE_SHOWN_MS = 200.0
"""Higher ones, and infinite ones, are drawn there."""


def draw_figures(found: Evaluation, folder: Path) -> list[Path]:
    """Write russorusso-3.svg to russorusso-7.svg. Raises `PictureUnavailable`."""
    rows = {name: results.row for name, results in found.results.items()}
    courses = {n: r.runs[0].course for n, r in found.results.items()}
    some = {name: course for name, course in courses.items() if course is not None}
    first = [name for name in some if rows[name].table == "1"]
    weights = [n for n in some if rows[n].table == "2" and rows[n].operators == LEARNS]
    begin = [f"{SIMPLE}, {THRESHOLD}", f"{LEARNS}, {LEARNS}"]
    last = slice(-SHOWN_DAYS * DAY, None)
    figures = {
        "3": _load(found),
        "4": _courses("Figure 4: the last five days", some, first, last),
        "5": _courses("Figure 5: the last five days, by w_d", some, weights, last),
        "6": _courses("Figure 6: the first five days", some, begin, slice(0, SHOWN_DAYS * DAY)),
        "7": _costs(some),
    }
    return [_save(figure, folder / f"russorusso-{name}.svg") for name, figure in figures.items()]


def _save(figure: Figure, path: Path) -> Path:
    import matplotlib

    # Without salt and date the same evaluation is the same file.
    with matplotlib.rc_context({"svg.hashsalt": "anabranch"}):
        figure.savefig(path, metadata={"Date": None})
    return path


def _load(found: Evaluation) -> Figure:
    figure = new_figure(9, 5, "Figure 3: the load")
    late = LATE_DAY if found.slots >= (LATE_DAY + SHOWN_DAYS) * DAY else SHOWN_DAYS
    for axes, day in zip(figure.subplots(2, 1), (0, late), strict=True):
        part = found.load[day * DAY : (day + SHOWN_DAYS) * DAY]
        prepare(axes, SHOWN_DAYS)
        head(axes, f"from day {day} on", "tuples/s")
        axes.plot(np.arange(len(part)) / DAY, part, color=OPERATORS[0], linewidth=0.7)
        axes.set_xlabel("days", color=FAINT)
    return figure


def _courses(
    title: str, courses: Mapping[str, Course], names: Sequence[str], part: slice
) -> Figure:
    figure = new_figure(9, 8, title)
    panels = figure.subplots(3, 1, sharex=True)
    for axes, (what, unit) in zip(
        panels,
        (("response time", "ms, mean of 10 min"), ("instances", ""), ("open hosts", "")),
        strict=True,
    ):
        prepare(axes, SHOWN_DAYS)
        head(axes, what, unit)
    for name, colour in zip(names, OPERATORS, strict=False):
        _lines(panels, courses[name], part, name, colour)
    panels[0].axhline(1000 * RESPONSE_MAX_S, color=INK, linewidth=0.8, linestyle="--")
    panels[0].set_yscale("log")
    panels[-1].set_xlabel("days", color=FAINT)
    panels[1].legend(frameon=False, fontsize=8, ncols=3)
    return figure


def _lines(panels: Sequence[Axes], course: Course, part: slice, name: str, colour: str) -> None:
    response = np.minimum(1000 * course.response_s[part], RESPONSE_SHOWN_MS)
    some = len(response) // 10 * 10
    coarse = response[:some].reshape(-1, 10).mean(axis=1)
    panels[0].plot(np.arange(len(coarse)) * 10 / DAY, coarse, color=colour, linewidth=0.8)
    for axes, values in ((panels[1], course.instances), (panels[2], course.hosts)):
        shown = values[part]
        at = np.arange(len(shown)) / DAY
        axes.step(at, shown, where="post", color=colour, linewidth=0.8, label=name)


def _costs(courses: Mapping[str, Course]) -> Figure:
    figure = new_figure(9, 4, "Figure 7: cost of the managers of regions, mean of a day")
    axes = figure.subplots()
    names = [Row(LEARNS, LEARNS).name, Row(LEARNS, THRESHOLD).name, Row(TRIES, THRESHOLD).name]
    slots = min(len(course.cost) for course in courses.values())
    each = min(DAY, slots)
    prepare(axes, slots / DAY)
    head(axes, "cost of a slot", "")
    for name, colour in zip(names, OPERATORS, strict=False):
        means = courses[name].cost[: slots // each * each].reshape(-1, each).mean(axis=1)
        at = (np.arange(len(means)) + 0.5) * each / DAY
        axes.plot(at, means, color=colour, linewidth=1.2, marker=".", markersize=3, label=name)
    axes.set_xlabel("days", color=FAINT)
    axes.legend(frameon=False, fontsize=9)
    return figure
