"""What can happen at a site: deliveries, the instance's own work, decisions, and deaths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.ownership import Assignment, groups_of
from anabranch.protocol.replay_order import ReplayOrder
from anabranch.runtime.explorer.budget import FREE, Budgets
from anabranch.runtime.explorer.driver import (
    Birth,
    Driver,
    Overrun,
    Sent,
    StateBegun,
    TupleProcessed,
    TupleRead,
)
from anabranch.runtime.explorer.interned import Interned
from anabranch.runtime.explorer.items import NO_GROUP, Again, Tuple
from anabranch.runtime.explorer.machine import Machine
from anabranch.runtime.explorer.mail import Mailing
from anabranch.runtime.explorer.node import BEGUN, WANTED, Node
from anabranch.runtime.explorer.site import Mail, Option, Site

CHOICES_MAX = 16
DRAWS_MAX = 2


class SiteOptions:
    """Which moves are possible at a site; a core may still veto a decision."""

    def __init__(
        self,
        machine: Machine,
        budgets: Budgets,
        nodes: Interned[Node],
        mailing: Mailing,
        driver: Callable[[InstanceId], Driver],
    ) -> None:
        self._machine = machine
        self._scope = budgets.scope
        self._budgets = budgets
        self._nodes = nodes
        self._mailing = mailing
        self._driver = driver
        self._groups = range(self._scope.groups) if self._scope.keyed else (NO_GROUP,)
        self.deaths = 0
        """How many have been emitted, most of them without any effect."""

    def at(self, site: Site) -> Iterator[Option]:
        node = self._nodes.values[site.node]
        if node.sending:
            yield Option(site, FREE, Sent(node.sending))
            return
        yield from self._deliveries(site)
        yield from self._own_work(site, node)
        if self._scope.keyed:
            yield from self._work_for_groups(site, node)
        if self._scope.decides(site.me):
            yield from self._decisions(site, node)
        if self._scope.crashes:
            yield from self._deaths(site, node)

    # -- deliveries --------------------------------------------------------------------------

    def _deliveries(self, site: Site) -> Iterator[Option]:
        mailing, driver = self._mailing, self._driver(site.me)
        order = self._replay_order(site.mail)
        for channel in site.mail:
            parcel = mailing.parcels.values[channel[0]]
            told = not isinstance(parcel.item, Tuple | Again)
            if told or order.are_over or order.has_its_turn(parcel.sender, 1):
                mail = mailing.taken(site.mail, channel)
                if driver.gives_away(*parcel):
                    mail = mailing.aged(mail)
                yield Option(site._replace(mail=mail), FREE, parcel, parcel=channel[0])

    def _replay_order(self, mail: Mail) -> ReplayOrder:
        """The shipped order of what comes again (duty 12), counted from the first parcel of each
        channel: a mark for each age, behind the last tuple that is as old."""
        order = self._machine.replay_order(lambda _: 1)
        if self._scope.crashes:
            ages = self._mailing.ages(mail)
            oldest = max((age for each in ages.values() for age in each), default=0)
            order.restore(
                tuple((s, 1 + sum(one >= age for one in each)) for s, each in ages.items())
                for age in range(oldest, 0, -1)
            )
        return order

    # -- own work ----------------------------------------------------------------------------

    def _own_work(self, site: Site, node: Node) -> Iterator[Option]:
        machine = self._machine
        if node.asked and not node.queue and self._all_is_in(site.mail, "drains early"):
            calm = self._with(site, node._replace(asked=False))
            yield Option(calm, FREE, events.Drained())
        if node.queue and node.working and machine.routes(node.state):
            yield from self._processing(site, node)
        if self._driver(site.me).is_source and node.working and node.reading:
            if machine.is_active(node.state):
                yield from self._reading(site, node)
            elif self._scope.crashes and machine.routes(node.state):
                yield Option(site, FREE, Overrun())
            if self._scope.finish:
                ended = self._with(site, node._replace(reading=False))
                yield Option(ended, ("end",), events.InputEnded())
        if self._scope.spawn and not node.forsaken:
            yield from self._arrived_children(site, node)

    def _processing(self, site: Site, node: Node) -> Iterator[Option]:
        """The next tuple, for every choice of receivers of its results."""
        driver = self._driver(site.me)
        item = driver.next_tuple(node)
        if item is not None:
            for targets in driver.ways(node, item.group):
                done = TupleProcessed(item, targets)
                yield Option(site, self._budgets.processed(site.me), done)

    def _reading(self, site: Site, node: Node) -> Iterator[Option]:
        for group in self._groups:
            for targets in self._driver(site.me).ways(node, group):
                yield Option(site, self._budgets.read(site.me), TupleRead(group, targets))

    def _work_for_groups(self, site: Site, node: Node) -> Iterator[Option]:
        if node.freezing:
            yield Option(site, FREE, events.GroupsFrozen())
        for to in dict.fromkeys(node.transferring):
            yield Option(site, FREE, events.GroupsTransferred(to))
        for to, _, stage in node.outgoing:
            if stage == WANTED:
                yield Option(site, FREE, StateBegun(to))
            elif stage == BEGUN and self._all_is_in(site.mail, "transfers early"):
                yield Option(site, FREE, events.GroupsTransferred(to))

    def _all_is_in(self, mail: Mail, neglected: str) -> bool:
        """Whether nothing that was accepted before a death has yet to come again."""
        return self._machine.broken_duty == neglected or not any(self._mailing.coming_again(mail))

    def _arrived_children(self, site: Site, node: Node) -> Iterator[Option]:
        n = self._machine.spawning(node.state)
        if not n:
            return
        yield Option(site, FREE, events.SpawnFailed("no room"))
        new = self._children(site, node, n)
        after = self._after_birth(site, node, n)
        own = node.state.own
        for moved in [()] if own.migrate or own.leave else self._shares(node, new):
            ready = events.ChildrenReady(frozenset(new), moved)
            yield Option(after, ("births", *new), ready, new)

    # -- decisions ---------------------------------------------------------------------------

    def _decisions(self, site: Site, node: Node) -> Iterator[Option]:
        scope = self._scope
        if scope.leaves:
            yield from self._leaving(site, node)
        for n in range(1, scope.batch + 1 if scope.joins else 1):
            yield from self._birth(site, node, "joins", n, events.DuplicateDecided(n))
        if scope.fresh:
            yield from self._birth(site, node, "fresh", 1, events.HandOverDecided())
        if scope.relocations:
            yield from self._birth(site, node, "relocations", 1, events.RelocateDecided())
        if scope.sibling:
            for via in self._neighbours(node):
                yield self._decided(site, "sibling", events.HandOverDecided(via))
        if scope.moves:
            for group in sorted(self._owned(node)):
                for via, draw in self._ways_to_a_new_owner(site, node):
                    move = events.MoveDecided(frozenset({group}), via, draw)
                    yield self._decided(site, "moves", move)

    def _decided(self, site: Site, name: str, event: events.Event) -> Option:
        return Option(site, (name,), event, optional=True)

    def _leaving(self, site: Site, node: Node) -> Iterator[Option]:
        if not self._owned(node):
            yield self._decided(site, "leaves", events.LeaveDecided())
            return
        for via, draw in self._ways_to_a_new_owner(site, node):
            yield self._decided(site, "leaves", events.LeaveDecided(via, draw))

    def _ways_to_a_new_owner(self, site: Site, node: Node) -> Iterator[tuple[InstanceId, int]]:
        draws = max(1, min(self._scope.siblings_max(site.me.operator), DRAWS_MAX))
        return product(self._neighbours(node), range(draws))

    def _neighbours(self, node: Node) -> list[InstanceId]:
        return sorted(self._machine.succs(node.state) | self._machine.preds(node.state))

    def _birth(
        self, site: Site, node: Node, name: str, n: int, event: events.Event
    ) -> Iterator[Option]:
        """A decision to create instances, with their arrival unless that is an event of its own."""
        if self._scope.spawn:
            yield self._decided(site, name, event)
            return
        new = self._children(site, node, n)
        after = self._after_birth(site, node, n)
        for moved in self._shares(node, new) if name == "joins" else [()]:
            yield Option(after, (name, *new), Birth(event, new, moved), new, optional=True)

    def _shares(self, node: Node, new: tuple[InstanceId, ...]) -> Iterator[Assignment]:
        """Which child gets which group: every way but for the names of the children, or some
        where there are too many."""
        groups, n = sorted(self._owned(node)), len(new)
        if (n + 1) ** len(groups) > CHOICES_MAX:
            yield ()
            yield from (((g, new[0]),) for g in groups)
            yield tuple((g, new[i % n]) for i, g in enumerate(groups))
            return
        for choice in product(range(n + 1), repeat=len(groups)):
            used = list(dict.fromkeys(c for c in choice if c))
            if used == sorted(used) and set(used) == set(range(1, len(used) + 1)):
                yield tuple((g, new[c - 1]) for g, c in zip(groups, choice, strict=True) if c)

    def _owned(self, node: Node) -> frozenset[int]:
        return groups_of(self._machine.owned(node.state))

    def _children(self, site: Site, node: Node, n: int) -> tuple[InstanceId, ...]:
        return tuple(self._budgets.child(site.me, node.children + i) for i in range(n))

    def _after_birth(self, site: Site, node: Node, n: int) -> Site:
        return self._with(site, node._replace(children=node.children + n))

    # -- deaths ------------------------------------------------------------------------------

    def _deaths(self, site: Site, node: Node) -> Iterator[Option]:
        """Any process may die at any moment."""
        for died in self._driver(site.me).deaths(node):
            self.deaths += 1
            after = site._replace(mail=self._mailing.after(site.mail, died))
            yield Option(after, ("crashes",), died, optional=True)

    def _with(self, site: Site, node: Node) -> Site:
        return site._replace(node=self._nodes.number(node))
