"""What each operator is offered, from what comes in and how many results a tuple makes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from anabranch.runtime.values.checks import PipelineError


@dataclass(frozen=True, slots=True)
class RatedStream:
    """From operator `above` to `below`; `selectivity`: results in it per tuple of `above` (EL1)."""

    above: str
    below: str
    selectivity: float


def selectivity(counts: Iterable[tuple[float, float]]) -> float | None:
    """Of a stream, from pairs of tuples that came in and results that went out (EL1): all results
    over all tuples; None if none came."""
    tuples = results = 0.0
    for came, went in counts:
        tuples += came
        results += went
    return results / tuples if tuples > 0 else None


def input_rates(offered: Mapping[str, float], streams: Sequence[RatedStream]) -> dict[str, float]:
    """Tuples per second of each operator (EL4). `offered`: of each source. Raises `PipelineError`
    for streams in a circle."""
    above: dict[str, list[RatedStream]] = {}
    graph: dict[str, set[str]] = {source: set() for source in offered}
    for stream in streams:
        above.setdefault(stream.below, []).append(stream)
        graph.setdefault(stream.below, set()).add(stream.above)
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise PipelineError(f"streams in a circle: {', '.join(error.args[1])}") from None
    rates: dict[str, float] = {}
    for operator in order:
        come = (s.selectivity * rates[s.above] for s in above.get(operator, ()))
        rates[operator] = offered.get(operator, 0.0) + sum(come)
    return rates


def after_a_hop(
    expected: Mapping[str, float], offered: Mapping[str, float], streams: Sequence[RatedStream]
) -> dict[str, float]:
    """What operators expect when each has received what its predecessors have announced: without a
    controller, EL4 travels with the batches, a hop at a time. None has announced anything at
    first."""
    found = {name: offered.get(name, 0.0) for name in (*offered, *(s.below for s in streams))}
    for stream in streams:
        found[stream.below] += stream.selectivity * expected.get(stream.above, 0.0)
    return found


def expected_load(now: float, forecast: Sequence[float], ahead: int, letter: bool = False) -> float:
    """The highest of the next `ahead` minutes (EL7), and not less than now unless by the `letter`
    (EL-G9). Without a forecast what comes now: reactive."""
    some = list(forecast[:ahead])
    if not some:
        return now
    return max(some) if letter else max(now, *some)
