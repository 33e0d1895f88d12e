"""A picture of a run: load, instances, latency and queues over time, drawn from its report.

Needs matplotlib (extra `plot`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from anabranch.panels import (
    FAINT,
    GRID,
    IN,
    INK,
    OPERATORS,
    OUT,
    Label,
    PictureUnavailable,
    head,
    name_lines,
    new_figure,
    plain,
    prepare,
    thousands,
)
from anabranch.story import Reportlike, Story, StoryLine, story_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FAINT", "GRID", "INK", "PictureUnavailable", "draw", "draw_story"]

HEIGHTS = (3.0, 3.4, 2.6, 2.2)
"""Of the panels, relative to each other."""


def draw(
    report: Reportlike,
    path: str | Path,
    *,
    planned: Callable[[Any], Any] | None = None,
    begin_s: float = 0.0,
) -> Path:
    """Draw `report` (a report, its dictionary, or the path of its JSON) into `path`; return it.

    The ending of `path` chooses the format: png, svg, pdf. `planned`: the load curve that the
    source was to follow, drawn behind what it did. `begin_s`: where the picture begins, in
    seconds of the run, as after a wait for the first tuple; `planned` counts from there. Raises
    `PictureUnavailable` without matplotlib, `ValueError` for a report without samples.
    """
    figure = draw_story(story_of(report).since(begin_s), planned)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=130)
    return target


def draw_story(story: Story, planned: Callable[[Any], Any] | None = None) -> Figure:
    figure = new_figure(10.5, 10, story.title)
    rows = figure.subplots(4, 1, sharex=True, height_ratios=HEIGHTS)
    colours = {name: OPERATORS[i % len(OPERATORS)] for i, name in enumerate(story.operators)}
    for axes in rows:
        prepare(axes, story.seconds)
    labels = [
        _load(rows[0], story, planned),
        _instances(rows[1], story, colours),
        _latency(rows[2], story),
        _queues(rows[3], story, colours),
    ]
    rows[-1].set_xlabel("seconds", color=INK)
    for axes, ends, height in zip(rows, labels, HEIGHTS, strict=True):
        name_lines(axes, ends, gap=0.27 / height)
    return figure


def _load(axes: Axes, story: Story, planned: Callable[[Any], Any] | None) -> list[Label]:
    head(axes, "Load", "tuples per second")
    labels = []
    if planned is not None:
        times = np.linspace(0, story.seconds, 400)
        axes.fill_between(times, planned(times), color=GRID, linewidth=0)
        labels.append((float(planned(story.seconds)), "planned", FAINT))
    for line, name, colour in ((story.read, "read", IN), (story.results, "results", OUT)):
        axes.plot(line.t, line.y, color=colour, linewidth=1.7)
        labels.append((_end(line), name, colour))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(thousands)
    return labels


def _instances(axes: Axes, story: Story, colours: dict[str, str]) -> list[Label]:
    from matplotlib.ticker import MaxNLocator

    head(axes, "Instances", "processes of each operator, \u25b2 joined  \u25bd left")
    labels = []
    for index, (name, line) in enumerate(story.instances.items()):
        # Lines of equal height would hide each other; a tenth of an instance keeps them apart.
        shift = (index - (len(story.instances) - 1) / 2) * 0.09
        colour = colours[name]
        y = np.asarray(line.y) + shift
        axes.step(line.t, y, where="post", color=colour, linewidth=2)
        labels.append((float(y[-1]) if len(y) else 0.0, name, colour))
        for mark in story.changes:
            if mark.operator == name:
                _mark(axes, mark.t, mark.instances + shift, mark.joined, colour)
    most = max((max(line.y, default=1) for line in story.instances.values()), default=1)
    axes.set_ylim(0.5, most + 0.6)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return labels


def _mark(axes: Axes, t: float, y: float, joined: bool, colour: str) -> None:
    face = colour if joined else "white"
    axes.plot(
        [t],
        [y],
        marker="^" if joined else "v",
        markersize=7,
        color=colour,
        markerfacecolor=face,
        linestyle="none",
        zorder=4,
    )


def _latency(axes: Axes, story: Story) -> list[Label]:
    from matplotlib.ticker import LogLocator, NullLocator

    head(axes, "Latency", "milliseconds from source to sink, logarithmic")
    if not story.p50.y:
        axes.text(
            0.5,
            0.5,
            "no tuple has reached a sink",
            transform=axes.transAxes,
            color=FAINT,
            ha="center",
        )
        return []
    axes.set_yscale("log")
    axes.fill_between(story.p50.t, story.p50.y, story.p99.y, color=IN, alpha=0.12, linewidth=0)
    axes.plot(story.p50.t, story.p50.y, color=IN, linewidth=1.7)
    axes.plot(story.p99.t, story.p99.y, color=IN, linewidth=1.2, linestyle=(0, (4, 1.5)))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(plain)
    return [(_end(story.p50), "p50", IN), (_end(story.p99), "p99", IN)]


def _queues(axes: Axes, story: Story, colours: dict[str, str]) -> list[Label]:
    head(axes, "Waiting", "tuples queued at an operator or held for its successors")
    labels = []
    for name, line in story.waiting.items():
        axes.plot(line.t, line.y, color=colours[name], linewidth=1.5)
        labels.append((_end(line), name, colours[name]))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(thousands)
    return labels


def _end(line: StoryLine) -> float:
    return float(line.y[-1]) if len(line.y) else 0.0
