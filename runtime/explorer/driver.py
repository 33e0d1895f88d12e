"""All that may happen to one instance: its tuples, its deaths, and what is fed to its core.

What the core asks for is performed in `anabranch.runtime.explorer.core`; which key group belongs to
which instance, and how it goes elsewhere, is in `anabranch.runtime.explorer.group_duties`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import Join
from anabranch.protocol.ownership import Assignment, Group
from anabranch.protocol.rules.context import Context
from anabranch.runtime.explorer.core import Core
from anabranch.runtime.explorer.deaths import Died, QueuedItem, aged, divided
from anabranch.runtime.explorer.group_duties import GroupDuties, less
from anabranch.runtime.explorer.items import NO_GROUP, Again, GroupState, Item, Marks, Parcel, Tuple
from anabranch.runtime.explorer.machine import Machine
from anabranch.runtime.explorer.node import UNASKED, EventOutcome, Fault, Node
from anabranch.runtime.explorer.scope import Scope


@dataclass(frozen=True, slots=True)
class TupleProcessed:
    """Event: this tuple is taken from the queue, its results go to these receivers."""

    item: Tuple
    targets: tuple[InstanceId, ...]


@dataclass(frozen=True, slots=True)
class TupleRead:
    """Event: a tuple of this group has been read."""

    group: Group
    targets: tuple[InstanceId, ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """Event: there was room at last for what a blocking send held."""

    targets: tuple[InstanceId, ...]


@dataclass(frozen=True, slots=True)
class StateBegun:
    """Event: the first part of the state for a new owner is under way."""

    to: InstanceId


@dataclass(frozen=True, slots=True)
class Birth:
    """Event: a decision to create instances, which are there at once, and what they are to own."""

    decision: events.Event
    new: tuple[InstanceId, ...]
    moved: Assignment = ()


@dataclass(frozen=True, slots=True)
class Overrun:
    """Event, which must not happen: a source reads after `StopIntake`."""


class Driver:
    """One instance of a scope: a node and an event give the node after it and what it sends."""

    def __init__(self, machine: Machine, me: InstanceId, scope: Scope) -> None:
        self.me = me
        self.machine = machine
        self.scope = scope
        self.topology = scope.topology
        self._groups = GroupDuties(me, scope, machine.broken_duty)
        self.core = Core(machine, Context(me, scope.topology), self._groups)
        self.keyed = scope.is_keyed(me.operator)
        upstream = scope.topology.upstream(me.operator)
        self._watches = not self.keyed and any(map(scope.is_keyed, upstream))
        self._alone = scope.is_alone(me.operator)
        self._broken = machine.broken_duty

    @property
    def is_source(self) -> bool:
        return self.core.context.is_source

    def newborn(self) -> Node:
        return Node(self.machine.newborn())

    def run(self, node: Node, event: Any) -> EventOutcome:
        match event:
            case Parcel(sender, item):
                return self._receive(node, sender, item)
            case TupleProcessed(item, targets):
                return self._process(node, item, targets)
            case TupleRead(group, targets):
                return self._emit(node, group, targets)
            case Sent(targets):
                return self._send(node._replace(sending=()), Tuple(), targets)
            case StateBegun(to):
                return self._groups.send_first_part(node, to)
            case Birth(decision, new, moved):
                return self._give_birth(node, decision, events.ChildrenReady(frozenset(new), moved))
            case Died():
                return self._resume(self._left_of(node, event))
            case Overrun():
                raise Fault(f"duty 6: {self.me} reads on, and has given back what it had claimed")
        return self._answer(self._meet(node, event))

    def _give_birth(
        self, node: Node, decision: events.Event, ready: events.ChildrenReady
    ) -> EventOutcome:
        decided = self.run(node, decision)
        if not decided.spawn:
            return decided
        born = self.run(decided.node, ready)
        return born._replace(sends=decided.sends + born.sends)

    def _receive(self, node: Node, sender: InstanceId, item: Item) -> EventOutcome:
        match item:
            case Tuple():
                outcome = self.core.handle(node, events.BatchReceived(sender, 1))
                # A tuple without a name is not lost by a death: it would be there again, and
                # nothing determines when.
                repeats = sender if self.scope.crashes and self.scope.keyed else None
                return outcome._replace(node=self._queued(outcome.node, QueuedItem(item, repeats)))
            case Again(tuple_, age):
                return EventOutcome(self._queued(node, QueuedItem(tuple_, sender, age)))
            case GroupState():
                return EventOutcome(self._groups.put_in(node, sender, item))
        return self._answer(self._meet(node, events.MessageReceived(sender, item)))

    def _meet(self, node: Node, event: events.Event) -> EventOutcome:
        """An event of the core, and what the driver remembers of it."""
        before = EventOutcome(node)
        match event:
            case events.GroupsFrozen():
                node = node._replace(freezing=False)
            case events.GroupsTransferred(to) if self._groups.in_parts:
                before = self._groups.send_last_part(node, to)
                node = before.node
            case events.GroupsTransferred(to):
                node = node._replace(transferring=less(node.transferring, to))
            case events.MessageReceived(sender, message) if self.gives_away(sender, message):
                node = node._replace(queue=aged(node.queue))
        outcome = self.core.handle(node, event)
        return outcome._replace(sends=before.sends + outcome.sends)

    def _answer(self, outcome: EventOutcome) -> EventOutcome:
        """Feed the events that follow at once, unless it takes time."""
        while outcome.answers:
            first, *rest = outcome.answers
            more = self.run(outcome.node, first)
            outcome = more._replace(
                sends=outcome.sends + more.sends,
                spawn=outcome.spawn,
                answers=(*rest, *more.answers),
            )
        return outcome

    def gives_away(self, sender: InstanceId, message: Item) -> bool:
        """Whether a message names new owners, whose tuples follow those that came before."""
        given = isinstance(message, Join) and bool(message.moved)
        return bool(self.scope.crashes) and given and self.core.context.is_upstream(sender)

    # -- tuples ------------------------------------------------------------------------------

    def next_tuple(self, node: Node) -> Tuple | None:
        """The first that may be processed (duty 9)."""
        if not self.keyed:
            return node.queue[0].item if node.queue else None
        mine = {g for g, _ in node.owned}
        if self._broken != "9":
            mine -= node.frozen
        return next((q.item for q in node.queue if q.item.group in mine), None)

    def ways(self, node: Node, group: Group) -> Iterator[tuple[InstanceId, ...]]:
        """Every choice of one successor for each downstream operator; a keyed one leaves none."""
        table = self.machine.table(node.state)
        owners = {r.owner.operator: r.owner for r in table if r.group == group}
        succs = sorted(self.machine.succs(node.state))
        sides = []
        for operator in self.topology.downstream(self.me.operator):
            if self.scope.is_keyed(operator):
                sides.append([owners[operator]])
            else:
                sides.append([y for y in succs if y.operator == operator])
        yield from product(*sides)

    def _queued(self, node: Node, one: QueuedItem) -> Node:
        # A leaver may get what overtakes: a predecessor that has sent LEAVE_ACK cannot ask it any
        # more whether all is in, while the next owner still counts it among its successors.
        if self._watches and (self._alone or not self._leaves(node.state)):
            node = node._replace(seen=self._followed(node.seen, one.item, "K2", exact=self._alone))
        return node._replace(queue=(*node.queue, one))

    def _leaves(self, state: Any) -> bool:
        return self.machine.routes(state) and not self.machine.is_active(state)

    def _process(self, node: Node, item: Tuple, targets: tuple[InstanceId, ...]) -> EventOutcome:
        first = next(place for place, q in enumerate(node.queue) if q.item == item)
        node = node._replace(queue=node.queue[:first] + node.queue[first + 1 :])
        if self._broken == "doubles":
            node = node._replace(undone=(QueuedItem(item),))
        if not self.keyed:
            return self._emit(node, item.group, targets)
        states = dict(node.owned)
        states[item.group] = self._followed(states[item.group], item, "K1", exact=True)
        node = node._replace(owned=tuple(sorted(states.items())))
        return self._send(node, replace(item, path=(*item.path, self.me.operator)), targets)

    def _emit(self, node: Node, group: Group, targets: tuple[InstanceId, ...]) -> EventOutcome:
        """A result gets its number here, where tuples have names."""
        if self.scope.blocking:
            return EventOutcome(node._replace(sending=targets))
        if group == NO_GROUP:
            return self._send(node, Tuple(), targets)
        given = dict(node.given)
        number = given[(group,)] = given.get((group,), 0) + 1
        node = node._replace(given=tuple(sorted(given.items())))
        return self._send(node, Tuple(self.me, group, number), targets)

    def _send(self, node: Node, item: Tuple, targets: Iterable[InstanceId]) -> EventOutcome:
        """D2: the results of one tuple, one to each downstream operator."""
        sends: list[tuple[InstanceId, Item]] = []
        for to in targets:
            outcome = self.core.handle(node, events.BatchReady(to, 1))
            node = outcome.node
            sends.extend((to, item) for _ in outcome.sends)
        return EventOutcome(node, tuple(sends))

    def _followed(self, marks: Marks, item: Tuple, code: str, *, exact: bool) -> Marks:
        known = dict(marks)
        last = known.get(item.sequence, 0)
        if item.number <= last or (exact and item.number > last + 1):
            raise Fault(f"{code}: {self.me} meets {item} after #{last}")
        known[item.sequence] = item.number
        return tuple(sorted(known.items()))

    # -- deaths ------------------------------------------------------------------------------

    def deaths(self, node: Node) -> Iterator[Died]:
        """The ways in which its process can die: any number of tuples may have been looked into
        and kept, the first ones first."""
        looks = self.keyed and node.working
        volatile = sum(q.sender is not None for q in node.queue)
        return (divided(node.queue, kept)[1] for kept in range((volatile if looks else 0) + 1))

    def _left_of(self, node: Node, death: Died) -> Node:
        """What the journal has of a node (duty 12). The end of the input is in it, that a leaver
        has stopped is not; whether an instance works matters only where there is work."""
        stays = divided(node.queue, death.kept)[0] + node.undone
        if self._broken == "loses":
            stays = stays[1:]
        return Node(
            node.state,
            () if self._broken == "kept" else stays,
            working=node.working and not self.machine.routes(node.state),
            reading=node.reading or self._leaves(node.state),
            children=node.children,
            owned=node.owned,
            frozen=frozenset(g for g, _ in node.owned),  # until they are resumed
            incoming=node.incoming,
            given=node.given,
            seen=_unseen(node.seen, death) if self._watches else node.seen,
            outgoing=tuple(o._replace(stage=UNASKED) for o in node.outgoing),
        )

    def _resume(self, node: Node) -> EventOutcome:
        """The first event of a new incarnation."""
        outcome = self._answer(self.core.handle(node, events.Restarted()))
        waits = self.machine.spawning(outcome.node.state) and not outcome.spawn
        return outcome._replace(node=outcome.node._replace(forsaken=bool(waits)))


def _unseen(seen: Marks, death: Died) -> Marks:
    """Repeated tuples do not count as processed yet."""
    known = dict(seen)
    for _, again in death.again:
        item = again.item
        known[item.sequence] = min(known.get(item.sequence, 0), item.number - 1)
    return tuple(sorted((s, n) for s, n in known.items() if n > 0))
