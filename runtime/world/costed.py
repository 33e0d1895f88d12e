"""A pipeline with costs in the place of its functions, and with ends of the forecast: a source of
what arrives, and sinks that record when."""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import DeadLetter, Reader, RunContext, Sink, Split, Writer
from anabranch.runtime.plan.operator import Operator, Retry, Step
from anabranch.runtime.plan.spec import Keyed, KeyedEdge
from anabranch.runtime.sources.generate import Generate, GenerateReader
from anabranch.runtime.world.costs import DrawnKeys, KeyedWork, Work
from anabranch.runtime.world.forecast_values import OFFERED_S, Arrivals, Cost

Taken = Callable[[str, list[float]], None]
"""Gets the name of a sink and, of each tuple that came to it, when what it stems from was due."""


def costed(
    pipeline: Pipeline,
    costs: Mapping[str, Cost],
    curves: Mapping[str, ArrivalCurve],
    rng_of: Callable[[str], random.Random],
    taken: Taken,
) -> Pipeline:
    made = Pipeline(pipeline.name, groups=pipeline.groups, delivery=pipeline.delivery)
    for name, operator in pipeline.operators.items():
        cost = costs[name]
        work = Work(cost, rng_of(f"work of {name}"))
        plain = replace(
            operator,
            scale=operator.scale if operator.can_scale else None,
            retry=Retry(),
            timing=None,
        )
        if operator.keyed:
            plain = _keyed(plain, cost, pipeline.groups, work, rng_of(f"keys of {name}"))
        if operator.source:
            curve = curves[name]
            plain = replace(plain, source=ArrivalSource(partial(_come, work, curve), curve))
        elif operator.sink:
            plain = replace(plain, sink=ForecastSink(work, partial(taken, str(name))))
        elif not operator.keyed:
            whole = work.is_cheap
            step = Step("flat_map", work.many if whole else work, str(name), batch=whole)
            plain = replace(plain, steps=(step,))
        made.operators[name] = plain
    return made


def _keyed(operator: Operator, cost: Cost, groups: int, work: Work, rng: random.Random) -> Operator:
    """A sink costs what its writer does: its tuples only pass."""
    if operator.sink:
        work = Work(Cost(), rng)
    key_of = DrawnKeys(cost, groups, rng)
    keyed = Keyed("work", partial(KeyedWork, work, cost.keys / groups), asks_for_time=False)
    edges = {name: KeyedEdge(key_of, edge.side) for name, edge in operator.edges.items()}
    return replace(operator, keyed=keyed, edges=edges)


def _come(work: Work, curve: ArrivalCurve, number: int) -> float:
    work.spend(1)
    curve.read += 1
    return curve.due_at(number)


# -- ends ------------------------------------------------------------------------------------


class ArrivalCurve:
    """What comes to a source, as a rate of `generate`. `read`: how many are read."""

    def __init__(self, arrivals: Arrivals, name: str) -> None:
        self.read = 0
        self._look_s = arrivals.look_s
        self._totals = arrivals.totals[name]

    def due(self, t_s: float) -> float:
        """How many by then: evenly between two of the times at which it is given."""
        at = t_s / self._look_s
        first = min(int(at), len(self._totals) - 1)
        last = min(first + 1, len(self._totals) - 1)
        return self._totals[first] + (at - first) * (self._totals[last] - self._totals[first])

    def __call__(self, t_s: float) -> float:
        before = max(0.0, t_s - OFFERED_S)
        return (self.due(t_s) - self.due(before)) / (t_s - before) if t_s > 0 else self.due(1.0)

    def due_at(self, number: int) -> float:
        """When number `number`, counted from 0, comes."""
        totals = self._totals
        at = bisect.bisect_right(totals, number)
        if at == len(totals):
            return at * self._look_s
        since = (number + 1 - totals[at - 1]) / (totals[at] - totals[at - 1]) if at else 0.0
        return max(0.0, at - 1 + since) * self._look_s


@dataclass(frozen=True)
class ArrivalSource(Generate):
    """Each tuple is there when it is due, and not at even distances over a slice of time."""

    def open(self, split: Split, context: RunContext) -> Reader:
        return ArrivalReader(split, self, context.started_s)


class ArrivalReader(GenerateReader):
    def _due(self) -> int:
        due = self._curve.due(self._clock() - self._started_s)
        return min(self._end, max(self._first, int(due + 1e-6)))

    @property
    def _curve(self) -> ArrivalCurve:
        assert isinstance(self._source.rate, ArrivalCurve)
        return self._source.rate

    def _next_due_s(self, from_s: float, to_s: float) -> float:
        return self._curve.due_at(self._next)


class ForecastSink(Sink):
    """`taken` gets the tuples of each batch."""

    exact = True

    def __init__(self, work: Work, taken: Callable[[list[Any]], None]) -> None:
        self.work = work
        self.taken = taken

    def open(self, context: RunContext) -> Writer:
        return ForecastWriter(self)


class ForecastWriter(Writer):
    def __init__(self, sink: ForecastSink) -> None:
        self._sink = sink

    async def write(self, tuples: list[Any]) -> list[DeadLetter]:
        self._sink.work.spend(len(tuples))
        self._sink.taken(tuples)
        return []
