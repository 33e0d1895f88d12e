"""A picture of forecasts: load, instances, what waits, latency and messages over time, one column
per setting, with the band of all seeds around the median. Needs matplotlib (extra `plot`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from anabranch.forecasting import Band, Scenario
from anabranch.panels import (
    IN,
    INK,
    OPERATORS,
    Label,
    head,
    name_lines,
    new_figure,
    plain,
    prepare,
    thousands,
)
from anabranch.views.figures import plural
from anabranch.views.forecast import shown, sinks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHTS = (2.2, 3.2, 2.2, 2.4, 1.8)
COLUMN_WIDTH = 7.5
LATENCY = (("p50_ms", "p50", "solid"), ("p99_ms", "p99", "dashed"))


def draw(scenarios: Sequence[Scenario], path: Path) -> Path:
    """Raises `PictureUnavailable` without matplotlib."""
    first = scenarios[0]
    seeds = plural(len(first.forecasts), "seed")
    title = f"{first.pipeline.name}, simulated ({seeds})"
    figure = new_figure(3 + COLUMN_WIDTH * len(scenarios), 11, title)
    grid = figure.subplots(
        len(HEIGHTS),
        len(scenarios),
        sharex=True,
        sharey="row",
        squeeze=False,
        height_ratios=HEIGHTS,
    )
    for column, scenario in zip(grid.T, scenarios, strict=True):
        _column(column, scenario, named=len(scenarios) > 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path


def _column(column: Sequence[Axes], scenario: Scenario, *, named: bool) -> None:
    for axes in column:
        prepare(axes, scenario.forecasts[0].seconds)
    where = f"  ({scenario.name})" if named else ""
    labels = [
        _load(column[0], scenario, where),
        _instances(column[1], scenario),
        _lines(column[2], scenario, "waiting", "Waiting", "tuples queued at it or held for it"),
        _latency(column[3], scenario),
        _lines(column[4], scenario, "messages", "Messages", "control messages sent so far"),
    ]
    column[-1].set_xlabel("seconds", color=INK)
    for axes, ends, height in zip(column, labels, HEIGHTS, strict=True):
        name_lines(axes, ends, gap=0.27 / height)


def _load(axes: Axes, scenario: Scenario, where: str) -> list[Label]:
    head(axes, f"Load{where}", "tuples per second offered")
    axes.plot(scenario.t, scenario.offered, color=IN, linewidth=1.5)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(thousands)
    return [(scenario.offered[-1], "offered", IN)]


def _instances(axes: Axes, scenario: Scenario) -> list[Label]:
    from matplotlib.ticker import MaxNLocator

    labels = _lines(axes, scenario, "instances", "Instances", "of each operator")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return labels


def _lines(axes: Axes, scenario: Scenario, figure: str, what: str, unit: str) -> list[Label]:
    head(axes, what, unit)
    labels = []
    for i, name in enumerate(shown(scenario)):
        colour = OPERATORS[i % len(OPERATORS)]
        band = scenario.band(name, figure)
        _band(axes, scenario.t, band, colour, "solid")
        labels.append((band.middle[-1], name, colour))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(thousands)
    return labels


def _latency(axes: Axes, scenario: Scenario) -> list[Label]:
    from matplotlib.ticker import LogLocator, NullLocator

    head(axes, "Latency", "milliseconds from source to sink, logarithmic")
    axes.set_yscale("log")
    labels = []
    for i, name in enumerate(sinks(scenario)):
        colour = OPERATORS[i % len(OPERATORS)]
        for figure, percentile, style in LATENCY:
            band = scenario.band(name, figure)
            _band(axes, scenario.t, band, colour, style)
            known = [v for v in band.middle if not np.isnan(v)]
            if known:
                labels.append((known[-1], f"{name} {percentile}", colour))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(plain)
    return labels


def _band(axes: Axes, t: Sequence[float], band: Band, colour: str, style: str) -> None:
    axes.fill_between(t, band.low, band.high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(t, band.middle, color=colour, linewidth=1.6, linestyle=style)
