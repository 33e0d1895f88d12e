"""Transitions of one instance, worked out once by the shipped core and then looked up.

A site is an instance with its node and everything on its way to it (its mail, one FIFO queue for
each sender). What can happen at a site depends on nothing else but the shared budgets, so each
pair of site and event runs the core once; the search then works on small integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.rules.context import Context
from anabranch.runtime.explorer.budget import FREE, Budgets, Kind
from anabranch.runtime.explorer.machine import Machine
from anabranch.runtime.explorer.node import Driver, Fault, Item, Node, Outcome, Tuple
from anabranch.runtime.explorer.scope import Scope

T = TypeVar("T")
Mail = tuple[tuple[InstanceId, tuple[Item, ...]], ...]
"""Non-empty channels towards an instance, by sender."""


class Interned(Generic[T]):
    """Equal values get one small number."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
        return found

    def __len__(self) -> int:
        return len(self.values)


class Site(NamedTuple):
    me: InstanceId
    node: Node
    mail: Mail = ()


class Parcel(NamedTuple):
    sender: InstanceId
    item: Item


@dataclass(frozen=True, slots=True)
class Move:
    """One transition: the site after it, what it sends, whom it creates, and its name.

    `sends`: (operator index, number, parcel number). `what`: the event, for a story.
    `site` is negative if the move breaks a property, which `fault` then tells.
    """

    kind: int
    site: int
    sends: tuple[tuple[int, int, int], ...]
    born: tuple[int, ...]
    optional: bool
    what: Any
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Received:
    sender: InstanceId
    item: Item


@dataclass(frozen=True, slots=True)
class Processed:
    targets: tuple[InstanceId, ...]


@dataclass(frozen=True, slots=True)
class Read:
    targets: tuple[InstanceId, ...]


class Sites:
    """All sites of a scope that have been met, and their moves."""

    def __init__(self, machine: Machine, scope: Scope) -> None:
        self.machine = machine
        self.scope = scope
        self.budgets = Budgets(scope)
        self.sites: Interned[Site] = Interned()
        self.parcels: Interned[Parcel] = Interned()
        self.views: Interned[Any] = Interned()
        self.view_of: list[int] = []
        self.operator_index = {name: i for i, name in enumerate(scope.names)}
        self._moves: list[tuple[Move, ...] | None] = []
        self._arrivals: dict[tuple[int, int], int] = {}
        self._drivers: dict[InstanceId, Driver] = {}
        self._outcomes: dict[tuple[InstanceId, Node, Any], Outcome | str] = {}

    def driver(self, me: InstanceId) -> Driver:
        if me not in self._drivers:
            self._drivers[me] = Driver(self.machine, Context(me, self.scope.topology))
        return self._drivers[me]

    def site(self, site: Site) -> int:
        number = self.sites.number(site)
        if number == len(self.view_of):
            self.view_of.append(self.views.number(site.node.state))
            self._moves.append(None)
        return number

    def founding_sites(self) -> list[int]:
        founders = self.scope.founders()
        topology, sites = self.scope.topology, []
        for me in founders:
            succs = frozenset(y for y in founders if topology.feeds(me.operator, y.operator))
            preds = frozenset(y for y in founders if topology.feeds(y.operator, me.operator))
            event = events.Founded(succs, preds, keeper=me.number == 0)
            newborn = Node(self.machine.newborn())
            sites.append(self.site(Site(me, self.driver(me).handle(newborn, event).node)))
        return sites

    def arrive(self, site: int, parcel: int) -> int:
        """The site after a parcel has been put on its channel; negative if it is dead mail."""
        key = (site, parcel)
        after = self._arrivals.get(key)
        if after is None:
            after = self._arrivals[key] = self._arrive(self.sites.values[site], parcel)
        return after

    def _arrive(self, site: Site, parcel: int) -> int:
        if self._is_dead(site):
            return -1
        sender, item = self.parcels.values[parcel]
        mail = dict(site.mail)
        mail[sender] = (*mail.get(sender, ()), item)
        return self.site(site._replace(mail=tuple(sorted(mail.items()))))

    def _is_dead(self, site: Site) -> bool:
        return self.machine.letter_to_the_dead() and self.machine.is_gone(site.node.state)

    def moves(self, site: int) -> tuple[Move, ...]:
        found = self._moves[site]
        if found is None:
            found = self._moves[site] = tuple(self._work_out(self.sites.values[site]))
        return found

    # -- what can happen at a site -----------------------------------------------------------

    def _work_out(self, site: Site) -> Iterator[Move]:
        yield from self._deliveries(site)
        yield from self._own_work(site)
        yield from self._decisions(site)

    def _deliveries(self, site: Site) -> Iterator[Move]:
        for sender, items in site.mail:
            item = items[0]
            rest = tuple((s, q[1:] if s == sender else q) for s, q in site.mail)
            opened = site._replace(mail=tuple((s, q) for s, q in rest if q))
            event: events.Event = (
                events.BatchReceived(sender, 1)
                if isinstance(item, Tuple)
                else events.MessageReceived(sender, item)
            )
            yield self._move(opened, FREE, Received(sender, item), event)

    def _own_work(self, site: Site) -> Iterator[Move]:
        me, node, _ = site
        driver, budgets = self.driver(me), self.budgets
        if node.asked and not node.queue:
            calm = site._replace(node=node._replace(asked=False))
            yield self._move(calm, FREE, events.Drained(), events.Drained())
        if node.queue and node.working and self.machine.routes(node.state):
            lighter = site._replace(node=node._replace(queue=node.queue - 1))
            for targets in driver.routes(node):
                kind = budgets.processed(me)
                yield self._move(lighter, kind, Processed(targets), targets)
        if driver.context.is_source and node.working and node.reading:
            if self.machine.is_active(node.state):
                for targets in driver.routes(node):
                    yield self._move(site, budgets.read(me), Read(targets), targets)
            if self.scope.finish:
                ended = site._replace(node=node._replace(reading=False))
                event = events.InputEnded()
                yield self._move(ended, budgets.end(), event, event)
        yield from self._arrived_children(site)

    def _arrived_children(self, site: Site) -> Iterator[Move]:
        n = self.machine.spawning(site.node.state) if self.scope.spawn else 0
        if not n:
            return
        failed = events.SpawnFailed("no room")
        yield self._move(site, FREE, failed, failed)
        for first, kind in self.budgets.births(site.me, n):
            new = _children(site.me, first, n)
            event = events.ChildrenReady(frozenset(new))
            yield self._move(site, kind, event, event, born=new)

    def _decisions(self, site: Site) -> Iterator[Move]:
        me, scope, budgets = site.me, self.scope, self.budgets
        if scope.leaves:
            yield from self._decide(site, budgets.leave(), events.LeaveDecided())
        if scope.joins:
            for n in range(1, scope.batch + 1):
                event = events.DuplicateDecided(n)
                if scope.spawn:
                    yield from self._decide(site, budgets.ask(), event)
                    continue
                for first, kind in budgets.joins(me, n):
                    yield from self._decide(site, kind, event, _children(me, first, n))
        if scope.fresh:
            for first, kind in budgets.fresh(me):
                event_ = events.HandOverDecided()
                yield from self._decide(site, kind, event_, _children(me, first, 1))
        if scope.sibling:
            neighbours = self.machine.succs(site.node.state) | self.machine.preds(site.node.state)
            for via in sorted(neighbours):
                yield from self._decide(site, budgets.sibling(), events.HandOverDecided(via))

    def _decide(
        self, site: Site, kind: Kind, event: events.Event, born: tuple[InstanceId, ...] = ()
    ) -> Iterator[Move]:
        move = self._move(site, kind, event, event, born, optional=True)
        if move.what is not None:
            yield move

    def _move(
        self,
        site: Site,
        kind: Kind,
        what: Any,
        event: Any,
        born: tuple[InstanceId, ...] = (),
        optional: bool = False,
    ) -> Move:
        """`event`: an event for the core, or the receivers of one tuple's results."""
        number = self.budgets.number(kind)
        try:
            outcome = self._outcome(site.me, site.node, event, born)
            if outcome.veto:
                return Move(number, -1, (), (), optional, None)
            after = site._replace(node=outcome.node)
            if after.mail and self._is_dead(after):
                raise Fault(_dead_mail(after))
        except Fault as fault:
            return Move(number, -1, (), (), optional, what, str(fault))
        sends = tuple(
            (
                self.operator_index[to.operator],
                to.number,
                self.parcels.number(Parcel(site.me, item)),
            )
            for to, item in outcome.sends
        )
        newborn = tuple(self.site(Site(child, Node(self.machine.newborn()))) for child in born)
        return Move(number, self.site(after), sends, newborn, optional, what)

    def _outcome(
        self, me: InstanceId, node: Node, event: Any, born: tuple[InstanceId, ...]
    ) -> Outcome:
        """Runs the core once for each node and event, whatever else is on its way there."""
        key = (me, node, (event, born))
        found = self._outcomes.get(key)
        if found is None:
            try:
                found = self._run(self.driver(me), node, event, born)
            except Fault as fault:
                found = str(fault)
            self._outcomes[key] = found
        if isinstance(found, str):
            raise Fault(found)
        return found

    def _run(
        self, driver: Driver, node: Node, event: Any, born: tuple[InstanceId, ...]
    ) -> Outcome:
        if isinstance(event, tuple):
            return driver.pass_on(node, event)
        outcome = driver.handle(node, event)
        if outcome.spawn and born:
            ready = driver.handle(outcome.node, events.ChildrenReady(frozenset(born)))
            return ready._replace(sends=outcome.sends + ready.sends)
        return outcome


def _children(creator: InstanceId, first: int, n: int) -> tuple[InstanceId, ...]:
    return tuple(
        InstanceId(creator.operator, first + i, creator=creator.number) for i in range(n)
    )


def _dead_mail(site: Site) -> str:
    sender, items = site.mail[0]
    number = "S1" if any(isinstance(i, Tuple) for i in items) else "S3"
    names = ", ".join(type(i).__name__ for i in items)
    return f"{number}: {names} from {sender} is under way to {site.me}, which terminates"
