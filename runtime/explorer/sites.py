"""Transitions of one instance, worked out once by the shipped core and then looked up.

A site is an instance with its node and everything on its way to it (its mail, one FIFO queue for
each sender). What can happen at a site depends on nothing else but the shared budgets, so each
pair of site and event runs the core once; the search then works on small integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.ownership import belonging_to, leading_to
from anabranch.protocol.rules.context import Context
from anabranch.runtime.explorer.budget import FREE, Budgets, Kind
from anabranch.runtime.explorer.coverage import Cell
from anabranch.runtime.explorer.deaths import Died
from anabranch.runtime.explorer.interned import Interned
from anabranch.runtime.explorer.items import Item, Tuple
from anabranch.runtime.explorer.machine import Machine
from anabranch.runtime.explorer.node import Driver, Fault, Node, Outcome
from anabranch.runtime.explorer.rank import Ranking
from anabranch.runtime.explorer.scope import Scope

FULL = -2
Mail = tuple[tuple[int, ...], ...]
"""Non-empty channels towards an instance, sorted: the numbers of the parcels on each."""
OutcomeKey = tuple[InstanceId, int, Any, tuple[InstanceId, ...]]
"""The instance, its node, the event or the parcel, and the children it gets."""


class Site(NamedTuple):
    """`node`: its number; values are compared once, numbers ever after."""

    me: InstanceId
    node: int
    mail: Mail = ()


class Parcel(NamedTuple):
    sender: InstanceId
    item: Item


@dataclass(frozen=True, slots=True)
class Move:
    """One transition: the site after it, what it sends, which instances it creates, and its name.

    `sends`: (number of the receiver, number of the parcel). `born`: (number, site) of each child.
    `what`: the event, for a story.
    `site` is negative if the move breaks a property, which `fault` then tells.
    """

    me: InstanceId
    kind: int
    site: int
    sends: tuple[tuple[int, int], ...]
    born: tuple[tuple[int, int], ...]
    optional: bool
    what: Any
    fault: str = ""
    way: int = 0
    """Number of the cells of the table that it goes through."""


@dataclass(frozen=True, slots=True)
class Sent:
    """There was room at last for what a blocking send held."""

    targets: tuple[InstanceId, ...]


@dataclass(frozen=True, slots=True)
class Blocking:
    """Event: results are ready for these receivers, and nothing else is done until they go."""

    targets: tuple[InstanceId, ...]


OVERRUN = "reads after StopIntake"
"""Event, which must not happen."""


class Option(NamedTuple):
    """A move that may be tried: the site without what the move uses up, and the event for the
    core, or the receivers of one tuple's results."""

    site: Site
    kind: Kind
    what: Any
    event: Any
    born: tuple[InstanceId, ...] = ()
    optional: bool = False
    parcel: int = -1
    """Number of the parcel that is delivered: a name for the event that is quick to compare."""


@dataclass(frozen=True, slots=True)
class Processed:
    targets: tuple[InstanceId, ...]


@dataclass(frozen=True, slots=True)
class Read:
    targets: tuple[InstanceId, ...]


class Sites:
    """All sites of a scope that have been met, and their moves.

    Large because what may be tried at a site, and what the core makes of it, share the numbers of
    sites, nodes and parcels, and the sites of pipelines by key replace single steps of both."""

    def __init__(self, machine: Machine, scope: Scope) -> None:
        self.machine = machine
        self.scope = scope
        self.budgets = Budgets(scope)
        self.sites: Interned[Site] = Interned()
        self.nodes: Interned[Node] = Interned()
        self.parcels: Interned[Parcel] = Interned()
        self.views: Interned[Any] = Interned()
        self.view_of: list[int] = []
        self._moves: list[tuple[Move, ...] | None] = []
        self._arrivals: dict[tuple[int, int], int] = {}
        self._ranking = Ranking(scope) if machine.ranked else None
        self._drivers: dict[InstanceId, Driver] = {}
        self._outcomes: dict[OutcomeKey, tuple[Outcome | str, int]] = {}
        self.ways: Interned[tuple[Cell, ...]] = Interned()
        self.aside: set[int] = set()
        """Ways that are no transition: foundings, refused decisions, deaths that change nothing."""
        self.deaths = 0
        """How many have been tried, most of them without any effect."""

    def driver(self, me: InstanceId) -> Driver:
        if me not in self._drivers:
            self._drivers[me] = self._new_driver(Context(me, self.scope.topology))
        return self._drivers[me]

    def _new_driver(self, context: Context) -> Driver:
        return Driver(self.machine, context)

    def site(self, site: Site) -> int:
        number = self.sites.number(site)
        if number == len(self.view_of):
            self.view_of.append(self.views.number(self.nodes.values[site.node].state))
            self._moves.append(None)
        return number

    def node_at(self, site: int) -> Node:
        return self.nodes.values[self.sites.values[site].node]

    def founding_sites(self) -> list[int]:
        founders = self.scope.founders()
        topology, sites = self.scope.topology, []
        for me in founders:
            succs = frozenset(y for y in founders if topology.feeds(me.operator, y.operator))
            preds = frozenset(y for y in founders if topology.feeds(y.operator, me.operator))
            routes = self.scope.founding_routes()
            event = events.Founded(
                succs,
                preds,
                keeper=me.number == 0,
                routes=leading_to(routes, topology.downstream(me.operator)),
                owned=belonging_to(routes, me),
            )
            driver = self.driver(me)
            node = driver.handle(driver.newborn(), event).node
            self.aside.add(self.ways.number(tuple(driver.way)))
            sites.append(self.site(Site(me, self.nodes.number(node))))
        return sites

    def arrive(self, site: int, parcel: int) -> int:
        """The site after a parcel has been put on its channel; negative if it is dead mail, or
        if there is no room for it (`FULL`)."""
        key = (site, parcel)
        after = self._arrivals.get(key)
        if after is None:
            after = self._arrivals[key] = self._arrive(self.sites.values[site], parcel)
        return after

    def _arrive(self, site: Site, parcel: int) -> int:
        if self._is_dead(site):
            return -1
        sender = self.parcels.values[parcel].sender
        others = [q for q in site.mail if self.parcels.values[q[0]].sender != sender]
        mine = [q for q in site.mail if self.parcels.values[q[0]].sender == sender]
        channel = (*mine[0], parcel) if mine else (parcel,)
        if self.scope.room and isinstance(self.parcels.values[parcel].item, Tuple):
            tuples = sum(isinstance(self.parcels.values[p].item, Tuple) for p in channel)
            if tuples + self.nodes.values[site.node].queue > self.scope.room:
                return FULL
        return self.site(site._replace(mail=tuple(sorted([*others, channel]))))

    def _is_dead(self, site: Site) -> bool:
        node = self.nodes.values[site.node]
        return self.machine.letter_to_the_dead() and self.machine.is_gone(node.state)

    def moves(self, site: int) -> tuple[Move, ...]:
        """Every move at a site, whether or not the budgets allow it at present."""
        found = self._moves[site]
        if found is None:
            options = self.options(site)
            moves = [m for option in options if (m := self.move(option)) is not None]
            self.aside |= {m.way for m in moves if _is_idle(site, m)}
            found = tuple(self._ranked(site, m) for m in moves if not _is_idle(site, m))
            self._moves[site] = found
        return found

    def _ranked(self, site: int, move: Move) -> Move:
        """The move, with a fault if it does not make the rank smaller (L3)."""
        rank = self._ranking
        if rank is None or move.fault:
            return move
        me, before, after = move.me.operator, self.node_at(site), self.node_at(move.site)
        ids, parcels, what = self.budgets.ids.values, self.parcels.values, move.what
        spent = rank.budget(self.budgets.kinds.values[move.kind][0]) + rank.node(me, before)
        spent += rank.item(me, what.item) if isinstance(what, Parcel) else 0
        left = rank.node(me, after)
        left += sum(rank.item(ids[to].operator, parcels[p].item) for to, p in move.sends)
        left += sum(rank.node(me, self.node_at(child)) for _, child in move.born)
        left += sum(rank.item(me, a) for _, a in what.again) if isinstance(what, Died) else 0
        if spent > left:
            return move
        name = type(what.item if isinstance(what, Parcel) else what).__name__
        fault = f"L3: {name} at {move.me} makes the rank {left}, from {spent}"
        return replace(move, site=-1, sends=(), born=(), fault=fault)

    def options(self, site: int) -> list[Option]:
        """What could be tried at a site; a core may yet veto a decision."""
        at = self.sites.values[site]
        if targets := self.nodes.values[at.node].sending:
            return [Option(self._unblocked(at), FREE, Sent(targets), targets)]
        return [
            *self._deliveries(at),
            *self._own_work(at),
            *self._decisions(at),
            *(self._deaths(at) if self.scope.crashes else ()),
        ]

    # -- what can happen at a site -----------------------------------------------------------

    def _deliveries(self, site: Site) -> Iterator[Option]:
        driver = self.driver(site.me)
        for channel in site.mail:
            sender, item = self.parcels.values[channel[0]]
            rest = [q for q in site.mail if q is not channel]
            mail = tuple(sorted([*rest, channel[1:]])) if channel[1:] else tuple(rest)
            event = driver.arrival(sender, item)
            what = self.parcels.values[channel[0]]
            yield Option(site._replace(mail=mail), FREE, what, event, parcel=channel[0])

    def _own_work(self, site: Site) -> Iterator[Option]:
        me, node = site.me, self.nodes.values[site.node]
        driver = self.driver(me)
        if node.asked and not node.queue and self.all_is_in(site):
            calm = self._with(site, node._replace(asked=False))
            yield Option(calm, FREE, events.Drained(), events.Drained())
        if node.queue and node.working and self.machine.routes(node.state):
            yield from self._processing(site, node)
        if driver.context.is_source and node.working and node.reading:
            if self.machine.is_active(node.state):
                yield from self._reading(site, node)
            elif self.scope.crashes and self.machine.routes(node.state):
                yield Option(site, FREE, Read(()), OVERRUN)
            if self.scope.finish:
                ended = self._with(site, node._replace(reading=False))
                event = events.InputEnded()
                yield Option(ended, ("end",), event, event)
        yield from self._arrived_children(site, node)

    def all_is_in(self, site: Site) -> bool:
        """Whether nothing that was accepted before a death has yet to come again."""
        return True

    def comes_again(self, site: int) -> bool:
        """Whether something that was accepted before a death has yet to come again."""
        return False

    def _processing(self, site: Site, node: Node) -> Iterator[Option]:
        """The next tuple, for every choice of receivers of its results."""
        lighter = self._with(site, node._replace(queue=node.queue - 1))
        for targets in self.driver(site.me).routes(node):
            event: Any = Blocking(targets) if self.scope.blocking else targets
            yield Option(lighter, self.budgets.processed(site.me), Processed(targets), event)

    def _reading(self, site: Site, node: Node) -> Iterator[Option]:
        for targets in self.driver(site.me).routes(node):
            event = Blocking(targets) if self.scope.blocking else targets
            yield Option(site, self.budgets.read(site.me), Read(targets), event)

    def _unblocked(self, site: Site) -> Site:
        return self._with(site, self.nodes.values[site.node]._replace(sending=()))

    def _with(self, site: Site, node: Node) -> Site:
        return site._replace(node=self.nodes.number(node))

    def _arrived_children(self, site: Site, node: Node) -> Iterator[Option]:
        n = self.machine.spawning(node.state) if self.scope.spawn else 0
        if not n or node.forsaken:
            return
        failed = events.SpawnFailed("no room")
        yield Option(site, FREE, failed, failed)
        new = self._children(site, n)
        event = events.ChildrenReady(frozenset(new))
        yield Option(self._after_birth(site, n), ("births", *new), event, event, new)

    def _children(self, site: Site, n: int) -> tuple[InstanceId, ...]:
        first = self.nodes.values[site.node].children
        return tuple(self.budgets.child(site.me, first + i) for i in range(n))

    def _after_birth(self, site: Site, n: int) -> Site:
        node = self.nodes.values[site.node]
        return self._with(site, node._replace(children=node.children + n))

    def _decisions(self, site: Site) -> Iterator[Option]:
        scope = self.scope
        if not scope.decides(site.me):
            return
        if scope.leaves:
            yield from self._leaving(site)
        for n in range(1, scope.batch + 1 if scope.joins else 1):
            yield from self._birth(site, "joins", n, events.DuplicateDecided(n))
        if scope.fresh:
            yield from self._birth(site, "fresh", 1, events.HandOverDecided())
        if scope.sibling:
            state = self.nodes.values[site.node].state
            neighbours = self.machine.succs(state) | self.machine.preds(state)
            for via in sorted(neighbours):
                offer = events.HandOverDecided(via)
                yield Option(site, ("sibling",), offer, offer, optional=True)

    def _leaving(self, site: Site) -> Iterator[Option]:
        leave = events.LeaveDecided()
        yield Option(site, ("leaves",), leave, leave, optional=True)

    def _birth(self, site: Site, name: str, n: int, event: events.Event) -> Iterator[Option]:
        """A decision to create instances, with their arrival unless that is an event of its own."""
        if self.scope.spawn:
            yield Option(site, (name,), event, event, optional=True)
            return
        new = self._children(site, n)
        yield Option(self._after_birth(site, n), (name, *new), event, event, new, True)

    def _deaths(self, site: Site) -> Iterator[Option]:
        """Any process may die at any moment."""
        for died in self.driver(site.me).deaths(self.nodes.values[site.node]):
            self.deaths += 1
            after = self.mail_again(site, died)
            yield Option(after, ("crashes",), died, died, optional=True)

    def mail_again(self, site: Site, died: Died) -> Site:
        """The site with what has been lost on its channels, ahead of everything newer."""
        return site

    def move(self, option: Option) -> Move | None:
        """Runs the core; None if it vetoes the decision."""
        site, kind, what, event, born, optional, parcel = option
        number = self.budgets.kinds.number(kind)
        try:
            tag = event if parcel < 0 else parcel
            outcome, way = self._outcome((site.me, site.node, tag, born), event)
            if outcome.veto:
                self.aside.add(way)
                return None
            after = self._with(site, outcome.node)
            if after.mail and self._is_dead(after):
                raise Fault(self._dead_mail(after))
        except Fault as fault:
            return Move(site.me, number, -1, (), (), optional, what, str(fault))
        ids = self.budgets.ids
        sends = tuple(
            (ids.number(to), self.parcels.number(Parcel(site.me, item)))
            for to, item in outcome.sends
        )
        cradle = self.nodes.number(self.driver(site.me).newborn())
        newborn = tuple((ids.number(c), self.site(Site(c, cradle))) for c in sorted(born))
        return Move(site.me, number, self.site(after), sends, newborn, optional, what, way=way)

    def _outcome(self, key: OutcomeKey, event: Any) -> tuple[Outcome, int]:
        """Runs the core once for each node and event, whatever else is on its way there; also
        the number of the cells that it has gone through."""
        known = self._outcomes.get(key)
        if known is None:
            known = self._outcomes[key] = self._run_once(key, event)
        found, way = known
        if isinstance(found, str):
            raise Fault(found)
        return found, way

    def _run_once(self, key: OutcomeKey, event: Any) -> tuple[Outcome | str, int]:
        me, node, _, born = key
        driver = self.driver(me)
        driver.way.clear()
        try:
            found: Outcome | str = self._run(driver, self.nodes.values[node], event, born)
        except Fault as fault:
            found = str(fault)
        return found, self.ways.number(tuple(dict.fromkeys(driver.way)))

    def _dead_mail(self, site: Site) -> str:
        parcels = [self.parcels.values[p] for p in site.mail[0]]
        number = "S1" if any(isinstance(p.item, Tuple) for p in parcels) else "S3"
        items = ", ".join(type(p.item).__name__ for p in parcels)
        sender = parcels[0].sender
        return f"{number}: {items} from {sender} under way to {site.me}, which terminates"

    def _run(self, driver: Driver, node: Node, event: Any, born: tuple[InstanceId, ...]) -> Outcome:
        if event is OVERRUN:
            raise Fault(f"duty 6: {driver.me} reads on, and has given back what it had claimed")
        if isinstance(event, Blocking):
            return Outcome(node._replace(sending=event.targets))
        outcome = driver.run(node, event)
        if outcome.spawn and born and not isinstance(event, events.ChildrenReady):
            ready = driver.run(outcome.node, events.ChildrenReady(frozenset(born)))
            return ready._replace(sends=outcome.sends + ready.sends)
        return outcome


def _is_idle(site: int, move: Move) -> bool:
    """A death that changes nothing is none."""
    return isinstance(move.what, Died) and move.site == site and not move.sends
