"""One instance of a scope with keyed operators: which tuple it is matters, and what it follows.

Tuples have names here (`anabranch.runtime.explorer.items`), and queues an order. Which group is
whose, and how it goes elsewhere, is in `anabranch.runtime.explorer.group_duties`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from anabranch.protocol import effects as fx
from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import Join
from anabranch.protocol.ownership import Group, groups_of
from anabranch.protocol.rules.context import Context
from anabranch.runtime.explorer.deaths import Died, Queued, aged, divided
from anabranch.runtime.explorer.group_duties import UNASKED, GroupDuties, KeyedNode, less
from anabranch.runtime.explorer.items import Again, GroupState, Item, Marks, NumberedTuple, Owned
from anabranch.runtime.explorer.node import Doing, Fault, Outcome
from anabranch.runtime.explorer.scope import Scope

if TYPE_CHECKING:
    from anabranch.runtime.explorer.machine import Machine


@dataclass(frozen=True, slots=True)
class ItemReceived:
    """Event: a tuple, or the state of key groups, has come in."""

    sender: InstanceId
    item: NumberedTuple | Again | GroupState


@dataclass(frozen=True, slots=True)
class TupleProcessed:
    """Event: this tuple is taken from the queue, its results go to these receivers."""

    item: NumberedTuple
    targets: tuple[InstanceId, ...]


@dataclass(frozen=True, slots=True)
class TupleRead:
    """Event: a tuple of this group has been read."""

    group: Group
    targets: tuple[InstanceId, ...]


@dataclass(frozen=True, slots=True)
class StateBegun:
    """Event: the first part of the state for a new owner is under way."""

    to: InstanceId


class KeyedDriver(GroupDuties):
    """A driver of instances of any operator in a scope where some are keyed."""

    def __init__(self, machine: Machine, context: Context, scope: Scope) -> None:
        super().__init__(machine, context, scope)
        operator, topology = context.me.operator, scope.topology
        self.keyed = scope.is_keyed(operator)
        self._watches = not self.keyed and any(map(scope.is_keyed, topology.upstream(operator)))
        self._alone = scope.is_alone(operator)

    def newborn(self) -> Any:
        return KeyedNode(self.machine.newborn())

    def arrival(self, sender: InstanceId, item: Item) -> Any:
        if isinstance(item, NumberedTuple | Again | GroupState):
            return ItemReceived(sender, item)
        return super().arrival(sender, item)

    # -- what happens ------------------------------------------------------------------------

    def run(self, node: Any, event: Any) -> Outcome:
        match event:
            case ItemReceived(sender, NumberedTuple() as item):
                outcome = self.handle(node, events.BatchReceived(sender, 1))
                repeats = sender if self.scope.crashes else None
                return outcome._replace(node=self._queued(outcome.node, Queued(item, repeats)))
            case ItemReceived(sender, Again(item, age)):
                return Outcome(self._queued(node, Queued(item, sender, age)))
            case ItemReceived(sender, GroupState() as item):
                return Outcome(self.put_in(node, sender, item))
            case TupleProcessed(item, targets):
                return self._process(node, item, targets)
            case TupleRead(group, targets):
                return self._emit(node, group, targets)
            case StateBegun(to):
                return self.send_first_part(node, to)
            case Died():
                return self.resume(self.left_of(node, event))
        return self._answer(self._meet(node, event))

    def _meet(self, node: Any, event: events.Event) -> Outcome:
        """An event of the core, and what the driver remembers of it."""
        before: Outcome = Outcome(node)
        match event:
            case events.GroupsFrozen():
                node = node._replace(freezing=False)
            case events.GroupsTransferred(to) if self._in_parts:
                before = self.send_last_part(node, to)
                node = before.node
            case events.GroupsTransferred(to):
                node = node._replace(transferring=less(node.transferring, to))
            case events.MessageReceived(sender) if self._broken == "only new wait":
                node = node._replace(queue=tuple(_before_a_word(q, sender) for q in node.queue))
            case events.MessageReceived() if self.gives_away(event):
                node = node._replace(queue=aged(node.queue))
        outcome = self.handle(node, event)
        return outcome._replace(sends=before.sends + outcome.sends)

    def gives_away(self, event: Any) -> bool:
        """Whether new owners are told of, whose tuples follow those that came before."""
        if not (self.scope.crashes and isinstance(event, events.MessageReceived)):
            return False
        if self._broken == "only new wait":
            return False
        message = event.message
        given = isinstance(message, Join) and bool(message.moved)
        return given and self.context.is_upstream(event.sender)

    def handle(self, node: Any, event: events.Event) -> Outcome:
        outcome = super().handle(node, event)
        after: Any = outcome.node
        owned = groups_of(self.machine.owned(after.state))
        if self.machine.routes(after.state) and owned != {g for g, _ in after.owned}:
            code = "K5" if self.machine.is_active(after.state) else "K4"
            raise Fault(f"{code}: the core of {self.me} owns {sorted(owned)}, not {after.owned}")
        return outcome

    def _queued(self, node: Any, one: Queued) -> Any:
        # A leaver may get what overtakes: a predecessor that has sent LEAVE_ACK cannot ask it any
        # more whether all is in, while the next owner still counts it among its successors.
        if self._watches and (self._alone or not self._leaves(node.state)):
            node = node._replace(seen=self._followed(node.seen, one.item, "K2", exact=self._alone))
        return node._replace(queue=(*node.queue, one))

    def _leaves(self, state: Any) -> bool:
        return self.machine.routes(state) and not self.machine.is_active(state)

    def _process(self, node: Any, item: NumberedTuple, targets: tuple[InstanceId, ...]) -> Outcome:
        first = next(place for place, q in enumerate(node.queue) if q.item == item)
        node = node._replace(queue=node.queue[:first] + node.queue[first + 1 :])
        if not self.keyed:
            return self._emit(node, item.group, targets)
        states = dict(node.owned)
        states[item.group] = self._followed(states[item.group], item, "K1", exact=True)
        node = node._replace(owned=tuple(sorted(states.items())))
        return self._send(node, replace(item, path=(*item.path, self.me.operator)), targets)

    def _emit(self, node: Any, group: Group, targets: tuple[InstanceId, ...]) -> Outcome:
        """A result gets its number here."""
        given = dict(node.given)
        number = given[(group,)] = given.get((group,), 0) + 1
        node = node._replace(given=tuple(sorted(given.items())))
        return self._send(node, NumberedTuple(self.me, group, number), targets)

    def _send(self, node: Any, item: NumberedTuple, targets: Iterable[InstanceId]) -> Outcome:
        sends: list[tuple[InstanceId, Item]] = []
        for to in targets:
            outcome = self.handle(node, events.BatchReady(to, 1))
            node = outcome.node
            sends.extend((to, item) for _ in outcome.sends)
        return Outcome(node, tuple(sends))

    def _followed(self, marks: Marks, item: NumberedTuple, code: str, *, exact: bool) -> Marks:
        known = dict(marks)
        last = known.get(item.sequence, 0)
        if item.number <= last or (exact and item.number > last + 1):
            raise Fault(f"{code}: {self.me} meets {item} after #{last}")
        known[item.sequence] = item.number
        return tuple(sorted(known.items()))

    # -- deaths ------------------------------------------------------------------------------

    def deaths(self, node: Any) -> Iterable[Died]:
        """Any number of tuples may have been looked into and kept, the first ones first."""
        looks = self.keyed and node.working
        volatile = sum(q.sender is not None for q in node.queue)
        return (divided(node.queue, kept)[1] for kept in range((volatile if looks else 0) + 1))

    def left_of(self, node: Any, death: Died) -> Any:
        stays, _ = divided(node.queue, death.kept)
        working, reading = self._habits(node)
        return KeyedNode(
            node.state,
            () if self._broken == "kept" else stays,
            working,
            reading=reading,
            children=node.children,
            owned=node.owned,
            frozen=frozenset(g for g, _ in node.owned),  # until they are resumed
            incoming=node.incoming,
            given=node.given,
            seen=_unseen(node.seen, death) if self._watches else node.seen,
            outgoing=tuple(o._replace(stage=UNASKED) for o in node.outgoing),
        )

    # -- effects -----------------------------------------------------------------------------

    def _perform_one(self, node: Any, effect: fx.Effect, doing: Doing) -> Any:
        if isinstance(effect, fx.AcceptBatch):
            return node  # the tuple itself comes behind the event
        return super()._perform_one(node, effect, doing)

    def _end(self, node: Any, effect: fx.Terminate) -> Any:
        if node.queue or node.incoming or node.outgoing:
            raise Fault(f"I11: {self.me} terminates with tuples or state that it has not worked in")
        if effect.reason == "left" and node.owned:
            raise Fault(f"K4: {self.me} terminates and owns {_named(node.owned)}")
        return KeyedNode(node.state, reading=False, ended=True)

    # -- what could happen -------------------------------------------------------------------

    def next_tuple(self, node: Any) -> NumberedTuple | None:
        """The first that may be processed (duty 9)."""
        if not self.keyed:
            return node.queue[0].item if node.queue else None
        mine = {g for g, _ in node.owned}
        if self._broken != "9":
            mine -= node.frozen
        return next((q.item for q in node.queue if q.item.group in mine), None)

    def ways(self, node: Any, group: Group) -> Iterator[tuple[InstanceId, ...]]:
        """Every choice of one successor for each downstream operator; a keyed one leaves none."""
        table = self.machine.table(node.state)
        owners = {r.owner.operator: r.owner for r in table if r.group == group}
        succs = sorted(self.machine.succs(node.state))
        sides = []
        for operator in self.context.topology.downstream(self.me.operator):
            if self.scope.is_keyed(operator):
                sides.append([owners[operator]])
            else:
                sides.append([y for y in succs if y.operator == operator])
        yield from product(*sides)


def _before_a_word(one: Queued, sender: InstanceId) -> Queued:
    """Only that the core has had something behind it on its channel makes a tuple older."""
    return one._replace(age=1) if one.sender == sender else one


def _unseen(seen: Marks, death: Died) -> Marks:
    """What comes again has not been met yet."""
    known = dict(seen)
    for _, again in death.again:
        item = again.item
        known[item.sequence] = min(known.get(item.sequence, 0), item.number - 1)
    return tuple(sorted((s, n) for s, n in known.items() if n > 0))


def _named(owned: Owned) -> str:
    return "key groups " + ", ".join(str(g) for g, _ in owned)
