"""Figures 6 and 9 to 13 of Lombardi et al. 2018: thresholds, degradation beside hosts saved, and
courses of the first seed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from anabranch.panels import FAINT, INK, OPERATORS, head, new_figure, prepare
from anabranch.workloads.lombardi2018 import published
from anabranch.workloads.lombardi2018.courses import Course, latencies
from anabranch.workloads.lombardi2018.results import Evaluation, Group

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BIN_S = 10.0
SHOWN = ("joint", "R", "P", "no controller")


def draw_figures(found: Evaluation, folder: Path) -> list[Path]:
    """Write lombardi-6.svg, lombardi-9.svg, and lombardi-NUMBER-SCENE.svg. Raises
    `PictureUnavailable`."""
    figures = {"6": _thresholds(found), "9": _saved(found)}
    for scene in found.scenes("main"):
        figures[f"10-{_slug(scene)}"] = _courses(found, "main", scene, SHOWN)
    for group, number in (("filter", "10a"), ("steady", "12")):
        name: Group = "filter" if group == "filter" else "steady"
        for scene in found.scenes(name):
            names = tuple(found.contestants(name))
            figures[f"{number}-{_slug(scene)}"] = _courses(found, name, scene, names)
    return [_save(figure, folder / f"lombardi-{name}.svg") for name, figure in figures.items()]


def _slug(scene: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in scene.lower()).replace("---", "-")


def _save(figure: Figure, path: Path) -> Path:
    import matplotlib

    # Without salt and date the same evaluation is the same file.
    with matplotlib.rc_context({"svg.hashsalt": "anabranch"}):
        figure.savefig(path, metadata={"Date": None})
    return path


def _thresholds(found: Evaluation) -> Figure:
    figure = new_figure(9, 4, "Figure 6: reward by the share up to which a host may be used")
    axes = figure.subplots()
    prepare(axes, 1)
    head(axes, "share minus degradation", "")
    for background, colour in zip(found.learnt, OPERATORS, strict=False):
        some = [t for t in found.thresholds if t.background == background]
        label = f"{background:g} cores of background"
        axes.plot([t.share for t in some], [t.reward for t in some], color=colour, label=label)
    axes.plot([*published.TABLE_1], [*published.TABLE_1.values()], color=INK, linestyle="--",
              label="paper")  # fmt: skip
    axes.set_xlim(0.58, 0.92)
    axes.set_xlabel("share", color=FAINT)
    axes.legend(frameon=False, fontsize=9)
    return figure


def _saved(found: Evaluation) -> Figure:
    scenes = found.scenes("main")
    rows = -(-len(scenes) // 3)
    figure = new_figure(11, 3 * rows, "Figure 9: degradation of throughput, nodes saved")
    panels = figure.subplots(rows, 3, squeeze=False).ravel()
    for axes, scene in zip(panels, scenes, strict=False):
        prepare(axes, 70)
        head(axes, scene, "TD by nodes saved in %")
        for name, colour in zip(SHOWN, OPERATORS, strict=False):
            if found.of("main", scene, name):
                at, td = (found.mean("main", scene, name, f) for f in ("saved", "degradation"))
                axes.plot([at], [td], "o", color=colour, label=name)
            if (paper := published.of(scene, name)) is not None:
                axes.plot([paper[1]], [paper[0]], "x", color=colour, label=f"{name}, paper")
        axes.set_ylim(bottom=0)
    for axes in panels[len(scenes) :]:
        axes.set_visible(False)
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def _courses(found: Evaluation, group: Group, scene: str, names: tuple[str, ...]) -> Figure:
    some = {c: course for s, c, course in found.courses(group) if s == scene and c in names}
    figure = new_figure(9, 10, f"{scene}, first seed")
    panels = figure.subplots(4, 1, sharex=True)
    seconds = len(next(iter(some.values())).hosts) * BIN_S
    heads = (("done", "tweets/s"), ("instances", ""), ("hosts", ""), ("latency from due", "s"))
    for axes, (what, unit) in zip(panels, heads, strict=True):
        prepare(axes, seconds)
        head(axes, what, unit)
    _lines(panels, some)
    panels[0].legend(frameon=False, fontsize=8, ncols=4)
    panels[-1].set_xlabel("seconds", color=FAINT)
    return figure


def _lines(
    panels: np.ndarray[tuple[int], np.dtype[np.object_]], some: Mapping[str, Course]
) -> None:
    first = next(iter(some.values()))
    at = np.arange(len(first.hosts)) * BIN_S
    axes: Axes = panels[0]
    axes.step(at, first.offered.sum(axis=1), where="post", color=INK, linestyle=":", label="due")
    for (name, course), colour in zip(some.items(), OPERATORS, strict=False):
        sizes = np.sum([*course.sizes.values()], axis=0)
        for axes, values in zip(
            panels[:3], (course.acked.sum(axis=1), sizes, course.hosts), strict=True
        ):
            axes.step(at, values, where="post", color=colour, linewidth=1, label=name)
        due, _ = latencies(course)
        done = np.linspace(0, at[-1] + BIN_S, len(due))
        panels[3].plot(done, due, color=colour, linewidth=1)
