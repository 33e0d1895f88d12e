"""The result of a forecast: as lines of text, and as plain values for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from anabranch.forecasting import Band, Costed, Scenario
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.policies.policy import Scale
from anabranch.views.figures import count, duration, milliseconds, plural, rate, table

ROWS = 12
"""Lines of the table over time."""


def lines_of(
    scenarios: Sequence[Scenario], costs: Mapping[str, Costed], load: str, seconds: float
) -> list[str]:
    first = scenarios[0]
    seeds = plural(len(first.forecasts), "seed")
    lines = [f"{first.pipeline.name} under {load} for {duration(seconds)}, simulated, {seeds}", ""]
    lines += [*_costs(first, costs), *_keyed(first, costs), "", *_summary(scenarios)]
    for scenario in scenarios:
        title = ["", scenario.name] if len(scenarios) > 1 else [""]
        lines += [*title, *_over_time(scenario)]
    return lines


def shown(scenario: Scenario) -> list[str]:
    """The operators of interest: those that scale, or else those that work."""
    operators = scenario.pipeline.operators.values()
    scaling = [str(o.name) for o in operators if o.scale is not None and o.can_scale]
    return scaling or [str(o.name) for o in operators if o.source is None and o.sink is None]


def sinks(scenario: Scenario) -> list[str]:
    return [str(o.name) for o in scenario.pipeline.operators.values() if o.sink is not None]


def _costs(scenario: Scenario, costs: Mapping[str, Costed]) -> list[str]:
    rows = [["operator", "capacity", "from", "results", "scale"]]
    for operator in scenario.pipeline.operators.values():
        costed = costs[operator.name]
        capacity = costed.cost.capacity
        free = math.isinf(capacity)
        rows.append(
            [
                operator.name,
                "-" if free else f"{rate(capacity)}/s",
                costed.origin,
                "-" if operator.sink else f"{costed.cost.selectivity:.3g}",
                _scale(operator),
            ]
        )
    return table(rows, left=5)


def _scale(operator: Operator) -> str:
    scale = operator.scale
    if scale is None or not operator.can_scale:
        return "one instance"
    span = f"{scale.min_instances} to {scale.max_instances} instances"
    if scale.policy != Scale().policy:
        return f"{span} by {scale.policy.text}"
    return f"{span}, target {scale.target:g}"


def _keyed(scenario: Scenario, costs: Mapping[str, Costed]) -> list[str]:
    """What is modelled of state by key."""
    pipeline = scenario.pipeline
    lines = [
        f"{o.name}: by key, {pipeline.groups} key groups, "
        f"{count(costs[o.name].cost.keys)} keys in all"
        for o in pipeline.operators.values()
        if o.keyed
    ]
    if not lines:
        return []
    told = "modelled: groups move with each join and leave, and their state takes time to arrive;"
    return ["", *lines, told, "not modelled: event time; keys are as frequent as --skew says"]


def _summary(scenarios: Sequence[Scenario]) -> list[str]:
    head = ["operator", "settings", "instances", "most", "load", "most waiting", "joins", "leaves"]
    rows = [[*head, "messages"]]
    for name in shown(scenarios[0]):
        for i, scenario in enumerate(scenarios):
            f = summary_of(scenario, name)
            figures = [f"{f['instances_mean']:.1f}", count(int(f["instances_most"]))]
            figures += [f"{f['load_mean']:.2f}", count(int(f["waiting_most"]))]
            figures += [f"{f[n]:.0f}" for n in ("joins", "leaves", "messages")]
            rows.append([name if not i else "", scenario.name, *figures])
    rows_latency = [["sink", "settings", "delivered", "p50", "p99"]]
    for name in sinks(scenarios[0]):
        for i, scenario in enumerate(scenarios):
            p50, p99 = (_middle(scenario, name, f) for f in ("p50_ms", "p99_ms"))
            delivered = count(round(median(f.delivered[name] for f in scenario.forecasts)))
            row = [delivered, milliseconds(p50), milliseconds(p99)]
            rows_latency.append([name if not i else "", scenario.name, *row])
    if len(scenarios) == 1:
        rows = [[*row[:1], *row[2:]] for row in rows]
        rows_latency = [[*row[:1], *row[2:]] for row in rows_latency]
    left = 1 if len(scenarios) == 1 else 2
    return [*table(rows, left=left), "", *table(rows_latency, left=left)]


def summary_of(scenario: Scenario, operator: str) -> dict[str, float]:
    """Over the whole time; of several seeds the median."""
    courses, forecasts = scenario.courses(operator), scenario.forecasts
    return {
        "instances_mean": round(median(fmean(c.instances) for c in courses), 3),
        "instances_most": median(max(c.instances) for c in courses),
        "load_mean": round(median(fmean(c.load) for c in courses), 4),
        "waiting_most": median(max(c.waiting) for c in courses),
        "joins": median(f.joins[operator] for f in forecasts),
        "leaves": median(f.leaves[operator] for f in forecasts),
        "messages": median(c.messages[-1] for c in courses),
    }


def _middle(scenario: Scenario, sink: str, figure: str) -> float | None:
    """The median of the samples of all seeds."""
    values = [v for c in scenario.courses(sink) for v in getattr(c, figure) if v is not None]
    return median(values) if values else None


def _over_time(scenario: Scenario) -> list[str]:
    names, ends = shown(scenario), sinks(scenario)
    head = ["time", "offered"]
    for name in names:
        head += [name, "load", "waiting", "messages"]
    rows = [[*head, *(f"{end} p99" for end in ends)]]
    figures = ("instances", "load", "waiting", "messages")
    bands = {(n, f): scenario.band(n, f) for n in names for f in figures}
    latencies = [scenario.band(end, "p99_ms") for end in ends]
    step = math.ceil(len(scenario.t) / ROWS)
    for i in reversed(range(len(scenario.t) - 1, -1, -step)):
        row = [duration(scenario.t[i]), f"{rate(scenario.offered[i])}/s"]
        for name in names:
            row.append(_whole(bands[name, "instances"], i))
            row.append(f"{bands[name, 'load'].middle[i]:.2f}")
            row.append(_whole(bands[name, "waiting"], i))
            row.append(count(round(bands[name, "messages"].middle[i])))
        for latency in latencies:
            middle = latency.middle[i]
            row.append(milliseconds(None if math.isnan(middle) else middle))
        rows.append(row)
    return table(rows, left=1)


def _whole(band: Band, i: int) -> str:
    """`5`, or `5 (4-6)` where seeds differ."""
    low, middle, high = (round(values[i]) for values in (band.low, band.middle, band.high))
    return count(middle) if low == high else f"{count(middle)} ({count(low)}-{count(high)})"


def plain_values(
    scenarios: Sequence[Scenario], costs: Mapping[str, Costed], load: str, seconds: float
) -> dict[str, Any]:
    """For JSON. Bands are of all seeds: 5 %, the median and 95 % at each time."""
    first = scenarios[0]
    return {
        "pipeline": first.pipeline.name,
        "load": load,
        "seconds": seconds,
        "seeds": [f.seed for f in first.forecasts],
        "costs": {name: _plain_cost(costed) for name, costed in costs.items()},
        "t": first.t,
        "offered": first.offered,
        "settings": [_plain_scenario(s) for s in scenarios],
    }


def _plain_cost(costed: Costed) -> dict[str, Any]:
    capacity = costed.cost.capacity
    return {
        "capacity": None if math.isinf(capacity) else capacity,
        "selectivity": costed.cost.selectivity,
        "from": costed.origin,
    }


def _plain_scenario(scenario: Scenario) -> dict[str, Any]:
    figures = ("instances", "load", "rate_in", "waiting", "messages", "p50_ms", "p99_ms")
    operators: dict[str, dict[str, Any]] = {}
    for name in map(str, scenario.pipeline.operators):
        bands = {f: _plain_band(scenario.band(name, f)) for f in figures}
        operators[name] = {"summary": summary_of(scenario, name), **bands}
    for name in sinks(scenario):
        operators[name]["delivered"] = median(f.delivered[name] for f in scenario.forecasts)
    delivered = median(sum(f.delivered.values()) for f in scenario.forecasts)
    return {"name": scenario.name, "delivered": delivered, "operators": operators}


def _plain_band(band: Band) -> dict[str, list[float | None]]:
    return {
        name: [None if math.isnan(v) else v for v in values]
        for name, values in (("low", band.low), ("middle", band.middle), ("high", band.high))
    }
