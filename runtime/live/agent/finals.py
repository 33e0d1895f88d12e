"""The final counts of instances that have ended: the latest ones as they are, the others summed,
for instances come and go as long as the stream flows."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

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
"""Accounts that are kept one by one, so that a fault of the ledger can name its place."""
_OF_CHANNELS = {"sent", "received", "sent_before", "received_before"}
_COUNTS = [f for f in FinalCount.__struct_fields__ if f not in {"id", "operator", *_OF_CHANNELS}]
"""Fields of an account that add up, each by itself."""


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
        """What all reported, or those of one operator; sums among them."""
        rows = [*(one.count for one in self.summed.values()), *self.latest]
        return [row for row in rows if operator in (None, row.operator)]

    def _sum_up(self, final: FinalCount) -> None:
        """Look at it now, for a sum does not show what two of its parts have wrong in opposite
        ways."""
        operator = final.operator
        nothing = SummedFinals(count=FinalCount(id="", operator=operator))
        before = self.summed.get(operator) or nothing
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
        sent_before=_sent(sum_.sent_before, one),
        received_before=_received(sum_.received_before, one),
        **{name: _added(getattr(sum_, name), getattr(one, name)) for name in _COUNTS},
    )


def _added(first: Any, second: Any) -> Any:
    """Numbers, or counts by name."""
    if isinstance(first, dict):
        return dict(Counter(first) + Counter(second))
    return first + second


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
