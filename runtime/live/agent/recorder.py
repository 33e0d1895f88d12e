"""Keeps the statuses of instances, within bounds, and makes the samples of the report from them.

No clock here: times are arguments, in seconds since the run began.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import chain, islice
from statistics import median
from typing import Any

from msgspec.structs import replace

from anabranch.runtime.live.agent.finals import Finals
from anabranch.runtime.measuring.latency import LatencyCounts, merged, percentile
from anabranch.runtime.policies.controller import Controller
from anabranch.runtime.policies.policy import Heritage
from anabranch.runtime.reporting.ledger import SummedFinals
from anabranch.runtime.reporting.report import Event, SampleRow, Samples, rates
from anabranch.runtime.reporting.snapshot import ControllerSnapshot
from anabranch.runtime.reporting.status import IDLE, FinalCount, Status, operator_of
from anabranch.runtime.values.kinds import EventKind

EVENTS_FIRST = 2_000
EVENTS_LAST = 8_000
CAPACITIES_MAX = 256
"""Of each operator: enough for a median."""
ROWS_MAX = 2_400
"""Ten minutes of samples at four a second; longer runs are kept at half the rate, and so on."""
RECENT_S = 1.2
"""What the rates of a live view are the mean of."""


Tick = tuple[float, dict[str, SampleRow]]


class Recorder:
    """`edges`: (upstream, downstream)."""

    def __init__(
        self, operators: Iterable[str], period_s: float, edges: Iterable[tuple[str, str]] = ()
    ) -> None:
        operators = tuple(operators)
        self.period_s = period_s
        self._first_events: list[Event] = []
        self._last_events: deque[Event] = deque(maxlen=EVENTS_LAST)
        self.events_dropped = 0
        self.resumed = 0
        """How often the run went on after all its processes were gone."""
        self.finals = Finals(operators, edges)
        self.statuses: dict[str, Status] = {}
        """The latest of every instance that has not ended."""
        self.capacities: dict[str, dict[str, float]] = {name: {} for name in operators}
        """By operator and instance, tuples per busy second, where known: of those that live, and
        of some that have ended."""
        self.learnt: Callable[[float], dict[Controller[Any], Heritage]] | None = None
        """What controllers have learnt by a time, if there are any."""
        self.controllers: dict[str, ControllerSnapshot] = {}
        """By the text of the controller."""
        self.joins = dict.fromkeys(operators, 0)
        self.leaves = dict.fromkeys(operators, 0)
        self.deaths = dict.fromkeys(operators, 0)
        self._ticks: list[Tick] = []
        self._floor: dict[str, SampleRow] = {}
        """The last row of an earlier part of the run."""
        self._recent: deque[Tick] = deque()
        self._latency = {name: LatencyCounts() for name in self.joins}
        self._tick_latency = {name: LatencyCounts() for name in self.joins}
        self._ended = {name: SampleRow(0, 0.0, 0, 0, 0, 0, 0) for name in self.joins}

    def note(self, event: Event) -> None:
        self.resumed += event.kind is EventKind.RUN_RESUMED
        if len(self._first_events) < EVENTS_FIRST:
            self._first_events.append(event)
            return
        self.events_dropped += len(self._last_events) == EVENTS_LAST
        self._last_events.append(event)

    @property
    def events(self) -> list[Event]:
        """Oldest first; of very many the first and the last ones."""
        return [*self._first_events, *self._last_events]

    def last_events(self, most: int) -> list[Event]:
        """Oldest first."""
        newest_first = chain(reversed(self._last_events), reversed(self._first_events))
        return list(islice(newest_first, most))[::-1]

    def note_status(self, status: Status) -> None:
        self.statuses[status.id] = status
        if status.capacity > 0:
            self._note_capacity(self.capacities[status.operator], status)
        self._latency[status.operator].add(status.latency)
        self._tick_latency[status.operator].add(status.latency)

    def _note_capacity(self, capacities: dict[str, float], status: Status) -> None:
        """The latest value of each; the one that was silent for longest is dropped first."""
        capacities.pop(status.id, None)
        capacities[status.id] = status.capacity
        if len(capacities) > CAPACITIES_MAX:
            del capacities[next(iter(capacities))]

    def forget_all_but(self, living: Container[str]) -> None:
        """What the others have sent last is of no use: they took no part."""
        for instance in [*self.statuses]:
            if instance not in living:
                del self.statuses[instance]

    def note_final(self, final: FinalCount) -> None:
        self.statuses.pop(final.id, None)
        self.finals.add(final)
        self._count(final)

    def restore(self, summed: SummedFinals) -> None:
        """Accounts of an earlier part of the run."""
        self.finals.restore(summed)
        self._count(summed.count)

    def _count(self, final: FinalCount) -> None:
        ended = self._ended[final.operator]
        ended.tuples_in += final.tuples_in
        ended.tuples_out += final.tuples_out
        ended.dead += final.dead + final.dead_upstream
        ended.sent_to = _together([ended.sent_to, sent_to(final)])
        self.leaves[final.operator] += final.leaves

    def sample(self, t: float, instances: Mapping[str, int]) -> Tick | None:
        """Take one row per operator. `instances`: how many are active. Returns what the report
        keeps of it, if anything."""
        rows = {name: self._row(name, count) for name, count in instances.items()}
        self._recent.append((t, rows))
        while len(self._recent) > 2 and t - self._recent[1][0] >= RECENT_S:
            self._recent.popleft()
        if self._ticks and t - self._ticks[-1][0] < 0.5 * self.period_s:
            return None
        tick = t, self._with_latency_since_last_tick(rows)
        self._keep(tick)
        return tick

    def restore_sample(self, t: float, rows: dict[str, SampleRow]) -> None:
        """What an earlier part of the run has kept. Totals go on from there, though instances have
        not sent anything yet."""
        self._keep((t, rows))
        self._floor = rows

    def _keep(self, tick: Tick) -> None:
        self._ticks.append(tick)
        if len(self._ticks) >= ROWS_MAX:
            self._ticks = _halved(self._ticks)
            self.period_s *= 2

    @property
    def ticks(self) -> Sequence[Tick]:
        """What is kept for the report, oldest first."""
        return self._ticks

    @property
    def last_s(self) -> float:
        """The time of the latest that is kept."""
        return max([0.0, *(t for t, _ in self._ticks[-1:]), *(e.t for e in self.last_events(1))])

    def latest(self, operator: str) -> SampleRow:
        return self._recent[-1][1][operator] if self._recent else self._ended[operator]

    def recent_rates(self, operator: str) -> tuple[float, float]:
        """Tuples in and out per second, over about the last second."""
        if len(self._recent) < 2:
            return 0.0, 0.0
        (t0, first), (t1, last) = self._recent[0], self._recent[-1]
        a, b = first[operator], last[operator]
        if t1 <= t0:
            return 0.0, 0.0
        into, out = b.tuples_in - a.tuples_in, b.tuples_out - a.tuples_out
        return max(0, into) / (t1 - t0), max(0, out) / (t1 - t0)

    def recent_rates_to(self, operator: str) -> dict[str, float]:
        """Tuples sent per second to each downstream operator, over about the last second."""
        if len(self._recent) < 2 or (seconds := self._recent[-1][0] - self._recent[0][0]) <= 0:
            return {}
        first, last = self._recent[0][1][operator].sent_to, self._recent[-1][1][operator].sent_to
        return {name: max(0, n - first.get(name, 0)) / seconds for name, n in last.items()}

    def recent_latency(self, operator: str) -> LatencyCounts:
        whole = LatencyCounts()
        for _, rows in self._recent:
            whole.add(rows[operator].latency)
        return whole

    def capacity(self, operator: str) -> float | None:
        """Of one instance: the median of what they measured; None if none did."""
        known = self.capacities[operator].values()
        return round(median(known), 3) if known else None

    def samples(self, operator: str) -> Samples:
        t = [round(t, 3) for t, _ in self._ticks]
        rows = [rows[operator] for _, rows in self._ticks]
        return Samples(
            t=t,
            instances=[r.instances for r in rows],
            load=[round(r.load, 4) for r in rows],
            rate_in=rates(t, [r.tuples_in for r in rows]),
            rate_out=rates(t, [r.tuples_out for r in rows]),
            queue=[r.queue for r in rows],
            held=[r.held for r in rows],
            latency_p50_ms=[percentile(r.latency, 0.5) for r in rows],
            latency_p99_ms=[percentile(r.latency, 0.99) for r in rows],
            rate_to=_rates_to(t, rows),
            offered=[round(r.offered or 0.0, 1) for r in rows] if _is_paced(rows) else [],
        )

    def _row(self, operator: str, instances: int) -> SampleRow:
        own = [s for s in self.statuses.values() if s.operator == operator and s.state != IDLE]
        ended = self._ended[operator]
        least = self._floor.get(operator, _NOTHING)
        return SampleRow(
            instances=instances,
            load=sum(s.load for s in own) / len(own) if own else 0.0,
            tuples_in=max(least.tuples_in, ended.tuples_in + sum(s.tuples_in for s in own)),
            tuples_out=max(least.tuples_out, ended.tuples_out + sum(s.tuples_out for s in own)),
            dead=max(least.dead, ended.dead + sum(s.dead for s in own)),
            queue=sum(s.queued for s in own),
            held=sum(s.held for s in own),
            latency=self._latency[operator].take(),
            sent_to=_greater(least.sent_to, _together([ended.sent_to, *(s.sent_to for s in own)])),
            offered=_sum_known(s.offered for s in own),
        )

    def _with_latency_since_last_tick(self, rows: dict[str, SampleRow]) -> dict[str, SampleRow]:
        return {
            name: replace(row, latency=self._tick_latency[name].take())
            for name, row in rows.items()
        }


_NOTHING = SampleRow(0, 0.0, 0, 0, 0, 0, 0)


def sent_to(final: FinalCount) -> dict[str, int]:
    """Tuples sent in all, by downstream operator."""
    one_by_one = ({operator_of(peer): tuples} for peer, tuples in final.sent.items())
    summed = {operator: carried.tuples for operator, carried in final.sent_before.items()}
    return _together([summed, *one_by_one])


def _together(many: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for one in many:
        found.update(one)
    return dict(found)


def _greater(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return {name: max(first.get(name, 0), second.get(name, 0)) for name in {**first, **second}}


def _sum_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _is_paced(rows: Iterable[SampleRow]) -> bool:
    return any(row.offered is not None for row in rows)


def _rates_to(t: Sequence[float], rows: Sequence[SampleRow]) -> dict[str, list[float]]:
    names = dict.fromkeys(chain.from_iterable(row.sent_to for row in rows))
    return {name: rates(t, [row.sent_to.get(name, 0) for row in rows]) for name in names}


def _halved(ticks: list[Tick]) -> list[Tick]:
    """Every second tick, with the latencies of the one that went."""
    kept = []
    for (_, gone), (t, rows) in zip(ticks[0::2], ticks[1::2], strict=False):
        both = {n: merged((gone[n].latency, r.latency)).counts for n, r in rows.items()}
        kept.append((t, {n: replace(r, latency=both[n]) for n, r in rows.items()}))
    return kept
