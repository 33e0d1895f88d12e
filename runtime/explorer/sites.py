"""Transitions of one instance, computed once by the shipped core and then looked up.

A site is an instance with its node and everything on its way to it (its mail, one FIFO queue for
each sender). What can happen at a site depends on nothing else but the shared budgets, so each
pair of site and event runs the core once; the search then works on small integers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.ownership import belonging_to, leading_to
from anabranch.runtime.explorer.budget import Budgets
from anabranch.runtime.explorer.coverage import Cell
from anabranch.runtime.explorer.deaths import Died
from anabranch.runtime.explorer.driver import Driver
from anabranch.runtime.explorer.interned import Interned
from anabranch.runtime.explorer.items import Again, Parcel, Tuple
from anabranch.runtime.explorer.machine import Machine
from anabranch.runtime.explorer.mail import Mailing
from anabranch.runtime.explorer.node import EventOutcome, Fault, Node
from anabranch.runtime.explorer.options import SiteOptions
from anabranch.runtime.explorer.rank import Ranking
from anabranch.runtime.explorer.scope import Scope
from anabranch.runtime.explorer.site import Option, Site, SiteMove

FULL = -2
OutcomeKey = tuple[InstanceId, int, Any]
"""An instance, the number of its node, and the event or the number of the parcel."""


class Sites:
    """All sites of a scope that the search has reached, and their moves.

    Large because the events that are possible at a site, and the results of the core, share the
    numbers of sites, nodes and parcels, and sites of keyed pipelines override steps of both."""

    def __init__(self, machine: Machine, scope: Scope) -> None:
        self.machine = machine
        self.scope = scope
        self.budgets = Budgets(scope)
        self.sites: Interned[Site] = Interned()
        self.nodes: Interned[Node] = Interned()
        self.views: Interned[Any] = Interned()
        self.view_of: list[int] = []
        self.mailing = Mailing()
        self.options = SiteOptions(machine, self.budgets, self.nodes, self.mailing, self.driver)
        self._moves: list[tuple[SiteMove, ...] | None] = []
        self._arrivals: dict[tuple[int, int], int] = {}
        self._ranking = Ranking(scope) if machine.ranked else None
        self._drivers: dict[InstanceId, Driver] = {}
        self._outcomes: dict[OutcomeKey, tuple[EventOutcome | str, int]] = {}
        self.ways: Interned[tuple[Cell, ...]] = Interned()
        self.aside: set[int] = set()
        """Ways that are no transition: foundings, refused decisions, deaths that change nothing."""

    @property
    def parcels(self) -> Interned[Parcel]:
        return self.mailing.parcels

    def driver(self, me: InstanceId) -> Driver:
        if me not in self._drivers:
            self._drivers[me] = Driver(self.machine, me, self.scope)
        return self._drivers[me]

    def site(self, site: Site) -> int:
        number = self.sites.number(site)
        if number == len(self.view_of):
            self.view_of.append(self.views.number(self.nodes.values[site.node].state))
            self._moves.append(None)
        return number

    def node_at(self, site: int) -> Node:
        return self.nodes.values[self.sites.values[site].node]

    def comes_again(self, site: int) -> bool:
        """Whether repeats of what was accepted before a death are still on their way."""
        return any(self.mailing.coming_again(self.sites.values[site].mail))

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
            node = driver.run(driver.newborn(), event).node
            self.aside.add(self.ways.number(tuple(driver.core.way)))
            sites.append(self.site(Site(me, self.nodes.number(node))))
        return sites

    # -- arrivals ----------------------------------------------------------------------------

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
        sender, item = self.parcels.values[parcel]
        mail = self.mailing.put(site.mail, parcel)
        if self.scope.room and isinstance(item, Tuple):
            waiting = self.mailing.tuples(mail, sender) + len(self.nodes.values[site.node].queue)
            if waiting > self.scope.room:
                return FULL
        return self.site(site._replace(mail=mail))

    def _is_dead(self, site: Site) -> bool:
        node = self.nodes.values[site.node]
        return self.machine.letter_to_the_dead() and self.machine.is_gone(node.state)

    # -- moves -------------------------------------------------------------------------------

    def moves(self, site: int) -> tuple[SiteMove, ...]:
        """Every move at a site, whether or not the budgets allow it at present."""
        found = self._moves[site]
        if found is None:
            options = self.options.at(self.sites.values[site])
            moves = [m for option in options if (m := self.move(option)) is not None]
            self.aside |= {m.way for m in moves if _is_idle(site, m)}
            found = tuple(self._ranked(site, m) for m in moves if not _is_idle(site, m))
            self._moves[site] = found
        return found

    def move(self, option: Option) -> SiteMove | None:
        """Runs the core; None if it vetoes the decision."""
        site, kind, what, born, optional, parcel = option
        number = self.budgets.kinds.number(kind)
        try:
            tag = what if parcel < 0 else parcel
            outcome, way = self._outcome((site.me, site.node, tag), what)
            if outcome.veto:
                self.aside.add(way)
                return None
            after = site._replace(node=self.nodes.number(outcome.node))
            if after.mail and self._is_dead(after):
                raise Fault(self._dead_mail(after))
        except Fault as fault:
            return SiteMove(site.me, number, -1, (), (), optional, what, str(fault))
        ids = self.budgets.ids
        sends = tuple(
            (ids.number(to), self.parcels.number(Parcel(site.me, item)))
            for to, item in outcome.sends
        )
        cradle = self.nodes.number(self.driver(site.me).newborn())
        newborn = tuple((ids.number(c), self.site(Site(c, cradle))) for c in sorted(born))
        return SiteMove(site.me, number, self.site(after), sends, newborn, optional, what, way=way)

    def _outcome(self, key: OutcomeKey, event: Any) -> tuple[EventOutcome, int]:
        """Runs the core once for each node and event, whatever the mail of the site. Also returns
        the number of the way: the cells of the table that the core has gone through."""
        known = self._outcomes.get(key)
        if known is None:
            known = self._outcomes[key] = self._run_once(key, event)
        found, way = known
        if isinstance(found, str):
            raise Fault(found)
        return found, way

    def _run_once(self, key: OutcomeKey, event: Any) -> tuple[EventOutcome | str, int]:
        me, node, _ = key
        driver = self.driver(me)
        way = driver.core.way
        way.clear()
        try:
            found: EventOutcome | str = driver.run(self.nodes.values[node], event)
        except Fault as fault:
            found = str(fault)
        return found, self.ways.number(tuple(dict.fromkeys(way)))

    def _dead_mail(self, site: Site) -> str:
        parcels = [self.parcels.values[p] for p in site.mail[0]]
        number = "S1" if any(isinstance(p.item, Tuple | Again) for p in parcels) else "S3"
        items = ", ".join(type(p.item).__name__ for p in parcels)
        sender = parcels[0].sender
        return f"{number}: {items} from {sender} under way to {site.me}, which terminates"

    def _ranked(self, site: int, move: SiteMove) -> SiteMove:
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


def _is_idle(site: int, move: SiteMove) -> bool:
    """Whether it is a death that changes nothing, which does not count as a move."""
    return isinstance(move.what, Died) and move.site == site and not move.sends
