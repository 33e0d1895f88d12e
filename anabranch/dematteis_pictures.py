"""Figures of De Matteis & Mencagli 2017: courses of each load, the tables, and the keys that move.

The paper's Figures 4 and 6 are known from its text only, so they are drawn by what it says there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from anabranch.panels import FAINT, INK, OPERATORS, head, new_figure, prepare
from anabranch.workloads.dematteis2017.contestants import PUBLISHED
from anabranch.workloads.dematteis2017.keys import PUBLISHED as MOVES
from anabranch.workloads.dematteis2017.model import INSTANCES_MAX
from anabranch.workloads.dematteis2017.moving import (
    BIN_S,
    DOUBLES_S,
    ENDS_S,
    JUMPS_S,
    Moved,
)
from anabranch.workloads.dematteis2017.results import Evaluation, Results
from anabranch.workloads.dematteis2017.telling import PAPER, PAPER_STEPS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = ("NoSw", "Sw 1", "Sw 3", "rules")
RADAR = ("violations", "reconfigurations", "instances", "amplitude", "jitter_ms", "p95_ms")
BARS = {
    "reconfigurations": "% of the steps",
    "violations": "% of the steps",
    "instances": "% of all, mean",
    "amplitude": "% of all",
}


def draw_figures(found: Evaluation, folder: Path) -> list[Path]:
    """Write dematteis-LOAD.svg and dematteis-radar.svg, with load b dematteis-tables.svg, of the
    model dematteis-keys.svg, live dematteis-live-move.svg; of other levels their name comes before
    that of the figure. Raises `PictureUnavailable`."""
    figures = {name: _course(results) for name, results in found.results.items()}
    figures["radar"] = _radars([r for name, r in found.results.items() if name != "jump"])
    if found.moves:
        figures["keys"] = _keys(found)
    if found.moved:
        figures["move"] = _latencies(found.moved)
    if "b" in found.results:
        figures["tables"] = _tables(found.results["b"])
    level = "" if found.level == "model" else f"{found.level}-"
    return [
        _save(figure, folder / f"dematteis-{level}{name}.svg") for name, figure in figures.items()
    ]


def _save(figure: Figure, path: Path) -> Path:
    import matplotlib

    # Without salt and date the same evaluation is the same file.
    with matplotlib.rc_context({"svg.hashsalt": "anabranch"}):
        figure.savefig(path, metadata={"Date": None})
    return path


def _course(results: Results) -> Figure:
    """Of the first seed."""
    figure = new_figure(9, 7, f"De Matteis & Mencagli 2017, load {results.name}, first seed")
    above, below = figure.subplots(2, 1, sharex=True)
    at = np.arange(results.steps) * results.size.step_s
    for axes, what, unit in ((above, "instances", ""), (below, "latency", "ms, mean of a step")):
        prepare(axes, results.steps * results.size.step_s)
        head(axes, what, unit)
    shown = [name for name in SHOWN if name in results.runs]
    for name, colour in zip(shown, OPERATORS, strict=False):
        run = results.runs[name][0]
        above.step(at, run.instances, where="post", color=colour, linewidth=1.3, label=name)
        below.plot(at, np.maximum(run.latencies_s * 1000, 1), color=colour, linewidth=1.2)
    offered = next(iter(results.runs.values()))[0].offered
    above.plot(
        at,
        offered * results.size.work_s,
        color=INK,
        linewidth=0.8,
        linestyle=":",
        label="busy, at least",
    )
    below.axhline(results.size.latency_ms, color=FAINT, linewidth=1, linestyle="--")
    below.set_yscale("log")
    below.set_xlabel("seconds", color=FAINT)
    above.legend(frameon=False, fontsize=9, ncols=5)
    return figure


def _tables(results: Results) -> Figure:
    """Tables I and II: theirs beside ours, as shares, for numbers of steps and instances differ."""
    figure = new_figure(9, 6, "Tables I and II: the paper (grey) and ours, load b")
    names = [name for name in PUBLISHED if name in results.runs]
    for axes, (what, unit) in zip(figure.subplots(2, 2).flat, BARS.items(), strict=True):
        of_steps = unit.endswith("steps")
        theirs = 100 / (PAPER_STEPS if of_steps else INSTANCES_MAX)
        here = 100 / (results.steps if of_steps else results.size.instances_max)
        _pairs(
            axes,
            names,
            [PAPER[name][what] * theirs for name in names],
            [results.mean(name, what) * here for name in names],
        )
        head(axes, what, unit)
    return figure


def _radars(loads: Sequence[Results]) -> Figure:
    """Figures 4 and 6: each figure over the greatest of all strategies, so small is good."""
    figure = new_figure(5 * len(loads), 5, "Figures 4 and 6: shares of the worst strategy")
    angles = np.linspace(0, 2 * np.pi, len(RADAR), endpoint=False)
    all_axes = figure.subplots(1, len(loads), squeeze=False, subplot_kw={"projection": "polar"})
    for axes, results in zip(all_axes[0], loads, strict=True):
        names = [name for name in PUBLISHED if name in results.runs]
        worst = [max(results.mean(name, f) for name in names) or 1.0 for f in RADAR]
        for name, colour in zip(names, OPERATORS, strict=False):
            shares = [results.mean(name, f) / w for f, w in zip(RADAR, worst, strict=True)]
            around, closed = [*angles, angles[0]], [*shares, shares[0]]
            axes.plot(around, closed, color=colour, linewidth=1.3, label=name)
        axes.set_xticks(angles, [f.removesuffix("_ms") for f in RADAR], fontsize=8)
        axes.set_yticklabels([])
        axes.set_title(f"load {results.name}", fontsize=10, color=INK)
    all_axes[0][0].legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(-0.2, 1.1))
    return figure


def _keys(found: Evaluation) -> Figure:
    figure = new_figure(7, 3.5, "Figure 5: keys moved, 30 to 60 instances (grey: paper)")
    axes = figure.subplots()
    names = list(found.moves)
    _pairs(axes, names, [MOVES[n][0] for n in names], [found.moves[n].keys for n in names])
    axes.set_yscale("log")
    axes.set_ylim(10, None)
    return figure


def _latencies(moved: dict[str, list[Moved]]) -> Figure:
    """Of the first seed."""
    figure = new_figure(9, 4, "Figure 5: latency while keys move, first seed")
    axes = figure.subplots()
    prepare(axes, ENDS_S - JUMPS_S)
    head(axes, "latency", "ms, mean of a quarter of a second")
    for (way, runs), colour in zip(moved.items(), OPERATORS, strict=False):
        means = runs[0].latencies_s
        axes.plot(np.arange(len(means)) * BIN_S, means * 1000, color=colour, label=way)
    axes.axvline(DOUBLES_S - JUMPS_S, color=FAINT, linewidth=1, linestyle="--")
    axes.set_xlabel("seconds since the load jumped", color=FAINT)
    axes.legend(frameon=False, fontsize=9)
    return figure


def _pairs(
    axes: Axes, names: Sequence[str], theirs: Sequence[float], ours: Sequence[float]
) -> None:
    prepare(axes, len(names))
    at = np.arange(len(names))
    axes.bar(at - 0.2, theirs, width=0.38, color=FAINT)
    axes.bar(at + 0.2, ours, width=0.38, color=OPERATORS[0])
    axes.set_xticks(at, names)
    axes.set_xlim(-0.6, len(names) - 0.4)
