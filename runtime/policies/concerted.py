"""What neighbours send each other for policies, beside the protocol: its safety does not need it.

**Sums** of all siblings. At the end of a slot each instance sends its own figures to one neighbour,
its **teller**: the least of its predecessors, for a source the least of its successors. Siblings
have the same neighbours, so they have the same teller, and it has channels to all of them. When it
has the figures of all, it sends the sums to each. It decides nothing. Without sums, for instance
while neighbours change, an instance uses its own figures; the next slot may have another teller.

**Plans.** If the keeper of an operator decides for all (`Policy.at_keeper`), it sends the number to
the teller, which passes the newest on to all siblings. If one is lost, the next comes a period
later.

**Arrears.** An instance sends the successors that hold it up how much waits for it (`arrears`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from itertools import groupby
from typing import Generic, Protocol, TypeVar

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.measuring.reading import Figures, Planned, Reading
from anabranch.runtime.measuring.slot_meter import added
from anabranch.runtime.policies.arrears import is_news, passed_on


class LoadTold(Protocol):
    """What this needs of a channel: what the peer has sent last. `figures_told`: its own figures,
    `sums_told`: the sums of my siblings and me. `plan_told`: its plan as the keeper of its
    operator, `keepers_plan_told`: that of the keeper of mine. `arrears_told`: how many results will
    come to my operator from the tuples that wait for the peer; `arrears_said`: the same of me, as
    sent to it."""

    peer: InstanceId
    figures_told: Figures | None
    sums_told: Figures | None
    plan_told: Planned | None
    keepers_plan_told: Planned | None
    arrears_told: float
    arrears_said: float

    def tell_figures(self, figures: Figures, *, of_all: bool) -> None: ...
    def tell_plan(self, planned: Planned, *, of_keeper: bool) -> None: ...
    def tell_arrears(self, tuples: float) -> None: ...


C = TypeVar("C", bound=LoadTold)


class Concerted(Generic[C]):
    """One instance's part, as one of siblings and as a teller. `channel_to`: of a neighbour."""

    def __init__(self, channel_to: Callable[[InstanceId], C]) -> None:
        self._channel_to = channel_to
        self._own_told = -1
        self._sums_told: dict[str, int] = {}
        self._planned: Planned | None = None
        self._plans_told: dict[str, Planned] = {}

    def exchange(
        self,
        reading: Reading,
        preds: Collection[InstanceId],
        succs: Collection[InstanceId],
        *,
        in_concert: bool,
    ) -> Reading:
        """Send neighbours what is new, and return the reading with what they have sent.
        `in_concert`: whether the policy here goes by the sums of all siblings."""
        ahead = [self._channel_to(x) for x in sorted(succs)]
        behind = [self._channel_to(x) for x in sorted(preds)]
        arrears = sum(c.arrears_told for c in behind) / max(1, reading.instances)
        if arrears:
            reading = replace(reading, arrears=arrears)
        self._pass_on(reading, ahead)
        channels = [*behind, *ahead]
        if in_concert:
            teller = self.teller(reading.own, preds, succs)
            if teller is not None and reading.own is not None:
                self._channel_to(teller).tell_figures(reading.own, of_all=False)
            planned = [c.keepers_plan_told for c in channels if c.keepers_plan_told is not None]
            reading = replace(
                reading, operator=newest(channels), planned=max(planned, default=None)
            )
        for siblings, sums in self.complete(channels):
            for channel in siblings:
                channel.tell_figures(sums, of_all=True)
        self._pass_on_plans(channels)
        return reading

    def plan(
        self,
        planned: Planned | None,
        preds: Collection[InstanceId],
        succs: Collection[InstanceId],
    ) -> None:
        """Send siblings what this instance, the keeper, has planned for all, if it has changed."""
        teller = min(preds or succs, default=None)
        if planned is not None and planned != self._planned and teller is not None:
            self._channel_to(teller).tell_plan(planned, of_keeper=False)
        self._planned = planned

    def _pass_on_plans(self, channels: list[C]) -> None:
        plans: dict[str, Planned] = {}
        for channel in channels:
            if (told := channel.plan_told) is not None:
                operator = channel.peer.operator
                plans[operator] = max(told, plans.get(operator, told))
        news = {name: plan for name, plan in plans.items() if plan != self._plans_told.get(name)}
        self._plans_told |= news
        for channel in channels:
            if (planned := news.get(channel.peer.operator)) is not None:
                channel.tell_plan(planned, of_keeper=True)

    def _pass_on(self, reading: Reading, ahead: Iterable[C]) -> None:
        culprit, tuples = passed_on(reading)
        for channel in ahead:
            arrears = tuples if channel.peer.operator == culprit else 0.0
            if is_news(arrears, channel.arrears_said):
                channel.tell_arrears(arrears)

    def teller(
        self, own: Figures | None, preds: Collection[InstanceId], succs: Collection[InstanceId]
    ) -> InstanceId | None:
        """The neighbour that gets `own` figures now; None if they were sent, or are not there."""
        if own is None or own.slot <= self._own_told:
            return None
        self._own_told = own.slot
        return min(preds or succs, default=None)

    def complete(self, channels: Iterable[C]) -> list[tuple[list[C], Figures]]:
        """Operators all of whose instances have sent figures of the same slot: their channels, and
        the sums, which were not sent yet. `channels`: to all neighbours."""
        channels, found = list(channels), []
        if all(c.figures_told is None for c in channels):
            return []
        for operator, group in groupby(sorted(channels, key=_peer), lambda c: c.peer.operator):
            siblings = list(group)
            figures = [c.figures_told for c in siblings if c.figures_told is not None]
            if len(figures) < len(siblings) or len({f.slot for f in figures}) > 1:
                continue
            if figures[0].slot > self._sums_told.get(operator, -1):
                self._sums_told[operator] = figures[0].slot
                found.append((siblings, added(figures)))
        return found


def newest(channels: Iterable[LoadTold]) -> Figures | None:
    """The sums of the latest slot that any neighbour has sent."""
    told = [c.sums_told for c in channels if c.sums_told is not None]
    return max(told, key=lambda f: (f.slot, f.instances), default=None)


def _peer(channel: LoadTold) -> InstanceId:
    return channel.peer
