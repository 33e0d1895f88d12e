"""The final counts of instances that have ended: the latest ones as they are, the others summed,
for instances come and go as long as the stream flows."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping

from anabranch.runtime.measuring.latency import merged
from anabranch.runtime.reporting.carried import ByOperator, added, carried
from anabranch.runtime.reporting.ledger import (
    FAULTS_MAX,
    Faults,
    SummedFinals,
    compare_within,
    downstream_of,
    sources_of,
)
from anabranch.runtime.reporting.status import FinalCount, operator_of

LATEST_MAX = 256
"""Told one by one, so that a fault of the ledger can be told where it is."""


class Finals:
    """`edges`: (upstream, downstream). `summed`: by operator, of all that are not among the
    `latest`."""

    def __init__(self, operators: Iterable[str], edges: Iterable[tuple[str, str]]) -> None:
        self._downstream = downstream_of(edges)
        self._sources = sources_of(operators, self._downstream)
        self.latest: deque[FinalCount] = deque()
        self.summed: dict[str, SummedFinals] = {}

    def add(self, final: FinalCount) -> None:
        self.latest.append(final)
        if len(self.latest) > LATEST_MAX:
            self._sum_up(self.latest.popleft())

    def restore(self, summed: SummedFinals) -> None:
        self.summed[summed.count.operator] = summed

    def rows(self, operator: str | None = None) -> list[FinalCount]:
        """What all said, or those of one operator; sums among them."""
        rows = [*(one.count for one in self.summed.values()), *self.latest]
        return [row for row in rows if operator in (None, row.operator)]

    def _sum_up(self, final: FinalCount) -> None:
        """Look at it now, for a sum does not show what two of its parts have wrong in opposite
        ways."""
        operator = final.operator
        nobody = FinalCount(id="", operator=operator)
        before = self.summed.get(operator) or SummedFinals(count=nobody)
        faults = Faults(before.lost, before.duplicated, words=[*before.faults])
        is_source = operator in self._sources
        compare_within(final, self._downstream.get(operator, ()), is_source, faults)
        self.summed[operator] = SummedFinals(
            count=_together(before.count, final),
            lost=faults.lost,
            duplicated=faults.duplicated,
            faults=faults.words[:FAULTS_MAX],
        )


def _together(sum_: FinalCount, one: FinalCount) -> FinalCount:
    return FinalCount(
        id=sum_.id,
        operator=sum_.operator,
        tuples_in=sum_.tuples_in + one.tuples_in,
        processed=sum_.processed + one.processed,
        tuples_out=sum_.tuples_out + one.tuples_out,
        dead=sum_.dead + one.dead,
        dead_upstream=sum_.dead_upstream + one.dead_upstream,
        dead_towards=_counted(sum_.dead_towards, one.dead_towards),
        sent_before=_sent(sum_.sent_before, one),
        received_before=_received(sum_.received_before, one),
        queued=sum_.queued + one.queued,
        handed_out=sum_.handed_out + one.handed_out,
        handed_in=sum_.handed_in + one.handed_in,
        messages=sum_.messages + one.messages,
        joins=sum_.joins + one.joins,
        leaves=sum_.leaves + one.leaves,
        latency=merged((sum_.latency, one.latency)).counts,
        dead_reasons=_counted(sum_.dead_reasons, one.dead_reasons),
        late=_counted(sum_.late, one.late),
        ahead=sum_.ahead + one.ahead,
        busy_s=sum_.busy_s + one.busy_s,
        blocked_s=sum_.blocked_s + one.blocked_s,
        cpu_s=sum_.cpu_s + one.cpu_s,
        here_s=sum_.here_s + one.here_s,
    )


def _sent(sums: ByOperator, one: FinalCount) -> ByOperator:
    for peer, tuples in one.sent.items():
        sums = added(sums, operator_of(peer), carried(one.id, peer, tuples))
    return _both(sums, one.sent_before)


def _received(sums: ByOperator, one: FinalCount) -> ByOperator:
    for peer, tuples in one.received.items():
        sums = added(sums, operator_of(peer), carried(peer, one.id, tuples))
    return _both(sums, one.received_before)


def _both(sums: ByOperator, more: ByOperator) -> ByOperator:
    for operator, one in more.items():
        sums = added(sums, operator, one)
    return sums


def _counted(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(first) + Counter(second))
