"""Transitions of one instance where some operators are keyed: more to decide, tuples by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.ownership import Assignment, groups_of
from anabranch.protocol.rules.context import Context
from anabranch.runtime.explorer.budget import FREE
from anabranch.runtime.explorer.deaths import Died
from anabranch.runtime.explorer.group_duties import BEGUN, WANTED
from anabranch.runtime.explorer.items import Again, Item, NumberedTuple
from anabranch.runtime.explorer.keyed_node import (
    KeyedDriver,
    StateBegun,
    TupleProcessed,
    TupleRead,
)
from anabranch.runtime.explorer.node import Driver, Outcome
from anabranch.runtime.explorer.sites import Mail, Option, Parcel, Site, Sites

CHOICES_MAX = 16
DRAWS_MAX = 2


@dataclass(frozen=True, slots=True)
class Birth:
    """Event: a decision to create instances, and what they are to own when they are there."""

    decision: events.Event
    moved: Assignment


class KeyedSites(Sites):
    """All sites of a scope with keyed operators."""

    def _new_driver(self, context: Context) -> Driver:
        return KeyedDriver(self.machine, context, self.scope)

    def _keyed_driver(self, site: Site) -> KeyedDriver:
        driver = self.driver(site.me)
        assert isinstance(driver, KeyedDriver)
        return driver

    def _own_work(self, site: Site) -> Iterator[Option]:
        yield from super()._own_work(site)
        node: Any = self.nodes.values[site.node]
        if node.freezing:
            frozen = events.GroupsFrozen()
            yield Option(site, FREE, frozen, frozen)
        for to in dict.fromkeys(node.transferring):
            out = events.GroupsTransferred(to)
            yield Option(site, FREE, out, out)
        for to, _, stage in node.outgoing:
            if stage == WANTED:
                begun = StateBegun(to)
                yield Option(site, FREE, begun, begun)
            elif stage == BEGUN and self.all_is_in(site, "transfers early"):
                out = events.GroupsTransferred(to)
                yield Option(site, FREE, out, out)

    def _processing(self, site: Site, node: Any) -> Iterator[Option]:
        driver = self._keyed_driver(site)
        item = driver.next_tuple(node)
        if item is not None:
            for targets in driver.ways(node, item.group):
                done = TupleProcessed(item, targets)
                yield Option(site, self.budgets.processed(site.me), done, done)

    def _reading(self, site: Site, node: Any) -> Iterator[Option]:
        for group in range(self.scope.groups):
            for targets in self._keyed_driver(site).ways(node, group):
                done = TupleRead(group, targets)
                yield Option(site, self.budgets.read(site.me), done, done)

    # -- deaths ------------------------------------------------------------------------------

    def mail_again(self, site: Site, died: Died) -> Site:
        channels = {self._sender(channel): channel for channel in site.mail}
        for sender, again in reversed(died.again):
            first = self.parcels.number(Parcel(sender, again))
            channels[sender] = (first, *channels.get(sender, ()))
        return site._replace(mail=tuple(sorted(channels.values())))

    def _sender(self, channel: tuple[int, ...]) -> InstanceId:
        return self.parcels.values[channel[0]].sender

    def all_is_in(self, site: Site, neglected: str = "drains early") -> bool:
        return self.machine.broken_duty == neglected or not any(self._coming_again(site.mail))

    def comes_again(self, site: int) -> bool:
        return any(self._coming_again(self.sites.values[site].mail))

    def _coming_again(self, mail: Mail) -> Iterator[Again]:
        items = (self.parcels.values[p].item for channel in mail for p in channel)
        return (item for item in items if isinstance(item, Again))

    def _deliveries(self, site: Site) -> Iterator[Option]:
        if not self.scope.crashes:
            yield from super()._deliveries(site)
            return
        driver = self._keyed_driver(site)
        oldest = max((again.age for again in self._coming_again(site.mail)), default=0)
        for option in super()._deliveries(site):
            if not self._comes_in_turn(option.what.item, oldest):
                continue
            if driver.gives_away(option.event):
                option = option._replace(site=self._aged(option.site))
            yield option

    def _comes_in_turn(self, item: Item, oldest: int) -> bool:
        """Duty 12: what was accepted before new owners were acknowledged comes before the rest."""
        if self.machine.broken_duty == "order":
            return True
        if isinstance(item, Again):
            return item.age == oldest
        return not isinstance(item, NumberedTuple) or oldest == 0

    def _aged(self, site: Site) -> Site:
        return site._replace(
            mail=tuple(sorted(tuple(map(self._older, channel)) for channel in site.mail))
        )

    def _older(self, parcel: int) -> int:
        sender, item = self.parcels.values[parcel]
        if not isinstance(item, Again):
            return parcel
        return self.parcels.number(Parcel(sender, replace(item, age=item.age + 1)))

    # -- decisions ---------------------------------------------------------------------------

    def _decisions(self, site: Site) -> Iterator[Option]:
        yield from super()._decisions(site)
        if self.scope.moves and self.scope.decides(site.me):
            for group in sorted(self._owned(site)):
                for via, draw in self._ways_to_a_new_owner(site):
                    move = events.MoveDecided(frozenset({group}), via, draw)
                    yield Option(site, ("moves",), move, move, optional=True)

    def _leaving(self, site: Site) -> Iterator[Option]:
        if not self._owned(site):
            yield from super()._leaving(site)
            return
        for via, draw in self._ways_to_a_new_owner(site):
            leave = events.LeaveDecided(via, draw)
            yield Option(site, ("leaves",), leave, leave, optional=True)

    def _ways_to_a_new_owner(self, site: Site) -> Iterator[tuple[InstanceId, int]]:
        state = self.nodes.values[site.node].state
        neighbours = self.machine.succs(state) | self.machine.preds(state)
        draws = max(1, min(self.scope.siblings_max(site.me.operator), DRAWS_MAX))
        return product(sorted(neighbours), range(draws))

    def _birth(self, site: Site, name: str, n: int, event: events.Event) -> Iterator[Option]:
        if self.scope.spawn or name == "fresh":
            yield from super()._birth(site, name, n, event)
            return
        new = self._children(site, n)
        for moved in self._shares(site, new):
            birth = Birth(event, moved)
            yield Option(self._after_birth(site, n), (name, *new), birth, birth, new, True)

    def _arrived_children(self, site: Site, node: Any) -> Iterator[Option]:
        for option in super()._arrived_children(site, node):
            if not isinstance(option.event, events.ChildrenReady) or node.state.own.migrate:
                yield option
                continue
            for moved in self._shares(site, option.born):
                ready = events.ChildrenReady(option.event.new, moved)
                yield option._replace(what=ready, event=ready)

    def _shares(self, site: Site, new: tuple[InstanceId, ...]) -> Iterator[Assignment]:
        """Which child gets which group: every way but for the names of the children, or some
        where there are too many."""
        groups, n = sorted(self._owned(site)), len(new)
        if (n + 1) ** len(groups) > CHOICES_MAX:
            yield ()
            yield from (((g, new[0]),) for g in groups)
            yield tuple((g, new[i % n]) for i, g in enumerate(groups))
            return
        for choice in product(range(n + 1), repeat=len(groups)):
            used = list(dict.fromkeys(c for c in choice if c))
            if used == sorted(used) and set(used) == set(range(1, len(used) + 1)):
                yield tuple((g, new[c - 1]) for g, c in zip(groups, choice, strict=True) if c)

    def _owned(self, site: Site) -> frozenset[int]:
        return groups_of(self.machine.owned(self.nodes.values[site.node].state))

    def _run(self, driver: Driver, node: Any, event: Any, born: tuple[InstanceId, ...]) -> Outcome:
        if not isinstance(event, Birth):
            return super()._run(driver, node, event, born)
        outcome = driver.run(node, event.decision)
        if not outcome.spawn:
            return outcome
        ready = driver.run(outcome.node, events.ChildrenReady(frozenset(born), event.moved))
        return ready._replace(sends=outcome.sends + ready.sends)
