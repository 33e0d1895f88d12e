"""One instance of a scope with keyed operators: which tuple it is matters, and what it follows.

A tuple carries who gave it its number, its key group and that number. Sources and operators that
are not keyed give numbers, one sequence for each group; a keyed operator passes them on. So the
state of a group is simply the last number of each giver that was processed in it, and there is
one right next tuple (K1). Whoever stands behind a keyed operator sees each sequence in its order
(K2), each of several instances what it gets of it, until it leaves.

This performs the duties 9 to 11 of `anabranch.protocol.effects`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from anabranch.protocol import effects as fx
from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.ownership import Group, groups_of
from anabranch.protocol.rules.context import Context
from anabranch.runtime.explorer.node import (
    Doing,
    Driver,
    Fault,
    GroupEffect,
    Item,
    Outcome,
    Tuple,
)
from anabranch.runtime.explorer.scope import Scope

if TYPE_CHECKING:
    from anabranch.runtime.explorer.machine import Machine


@dataclass(frozen=True, slots=True, order=True)
class NumberedTuple(Tuple):
    """`path`: the keyed operators it has passed since it got its number."""

    giver: InstanceId
    group: Group
    number: int
    path: tuple[OperatorName, ...] = ()

    @property
    def sequence(self) -> Sequence:
        return (self.giver, self.group, *self.path)

    def __str__(self) -> str:
        return f"tuple({self.giver} g{self.group} #{self.number})"


Sequence = tuple[Any, ...]
"""Giver, group and path: tuples of one sequence are numbered from 1."""
Marks = tuple[tuple[Sequence, int], ...]
"""The last number met of each sequence."""
Owned = tuple[tuple[Group, Marks], ...]
"""Groups with their state."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """What an old owner sends to a new one: the groups, and their tuples that were kept."""

    groups: Owned
    kept: tuple[NumberedTuple, ...]

    def __str__(self) -> str:
        kept = "".join(f", {t}" for t in self.kept)
        return f"STATE(g{',g'.join(str(g) for g, _ in self.groups)}{kept})"


class KeyedNode(NamedTuple):
    """As `Node`, but the queue holds tuples in their order.

    `owned`, `frozen`: key groups that are processed here, and those of them that are not any
    more. `expecting`: senders of state; `incoming`: what has come of it. `freezing`,
    `transferring`: what is yet to be answered. `given`: numbers given, by group. `seen`: the last
    number of each sequence that came in behind a keyed operator.
    """

    state: Any
    queue: tuple[NumberedTuple, ...] = ()
    working: bool = False
    asked: bool = False
    reading: bool = True
    children: int = 0
    sending: tuple[InstanceId, ...] = ()
    owned: Owned = ()
    frozen: frozenset[Group] = frozenset()
    expecting: tuple[InstanceId, ...] = ()
    incoming: tuple[tuple[InstanceId, GroupState], ...] = ()
    freezing: bool = False
    transferring: tuple[InstanceId, ...] = ()
    given: Marks = ()
    seen: Marks = ()


@dataclass(frozen=True, slots=True)
class ItemReceived:
    """Event: a tuple, or the state of key groups, has come in."""

    sender: InstanceId
    item: NumberedTuple | GroupState


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


class KeyedDriver(Driver):
    """A driver of instances of any operator in a scope where some are keyed."""

    def __init__(self, machine: Machine, context: Context, scope: Scope) -> None:
        super().__init__(machine, context)
        operator, topology = context.me.operator, scope.topology
        self.scope = scope
        self.keyed = scope.is_keyed(operator)
        self._watches = not self.keyed and any(map(scope.is_keyed, topology.upstream(operator)))
        self._broken = machine.broken_duty
        self._alone = scope.is_alone(operator)

    def newborn(self) -> Any:
        return KeyedNode(self.machine.newborn())

    def arrival(self, sender: InstanceId, item: Item) -> Any:
        if isinstance(item, NumberedTuple | GroupState):
            return ItemReceived(sender, item)
        return super().arrival(sender, item)

    # -- what happens ------------------------------------------------------------------------

    def run(self, node: Any, event: Any) -> Outcome:
        match event:
            case ItemReceived(sender, NumberedTuple() as item):
                outcome = self.handle(node, events.BatchReceived(sender, 1))
                return outcome._replace(node=self._queued(outcome.node, item))
            case ItemReceived(sender, GroupState() as item):
                if sender not in node.expecting:
                    raise Fault(f"K4: state for {self.me} from {sender}, which it does not expect")
                return Outcome(node._replace(incoming=(*node.incoming, (sender, item))))
            case TupleProcessed(item, targets):
                return self._process(node, item, targets)
            case TupleRead(group, targets):
                return self._emit(node, group, targets)
            case events.GroupsFrozen():
                node = node._replace(freezing=False)
            case events.GroupsTransferred(to):
                node = node._replace(transferring=_less(node.transferring, to))
        return self._answer(self.handle(node, event))

    def handle(self, node: Any, event: events.Event) -> Outcome:
        outcome = super().handle(node, event)
        after: Any = outcome.node
        owned = groups_of(self.machine.owned(after.state))
        if self.machine.routes(after.state) and owned != {g for g, _ in after.owned}:
            code = "K5" if self.machine.is_active(after.state) else "K4"
            raise Fault(f"{code}: the core of {self.me} owns {sorted(owned)}, not {after.owned}")
        return outcome

    def _answer(self, outcome: Outcome) -> Outcome:
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

    def _queued(self, node: Any, item: NumberedTuple) -> Any:
        # A leaver may get what overtakes: who has sent it LEAVE_ACK cannot ask it any more whether
        # all is in, while the next owner still counts it among its successors.
        if self._watches and (self._alone or not self._leaves(node.state)):
            node = node._replace(seen=self._followed(node.seen, item, "K2", exact=self._alone))
        return node._replace(queue=(*node.queue, item))

    def _leaves(self, state: Any) -> bool:
        return self.machine.routes(state) and not self.machine.is_active(state)

    def _process(self, node: Any, item: NumberedTuple, targets: tuple[InstanceId, ...]) -> Outcome:
        rest = list(node.queue)
        rest.remove(item)
        node = node._replace(queue=tuple(rest))
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

    # -- effects -----------------------------------------------------------------------------

    def _perform_one(self, node: Any, effect: fx.Effect, doing: Doing) -> Any:
        if isinstance(effect, fx.AcceptBatch):
            return node  # the tuple itself comes behind the event
        return super()._perform_one(node, effect, doing)

    def _end(self, node: Any, effect: fx.Terminate) -> Any:
        if node.queue or node.incoming:
            raise Fault(f"I11: {self.me} terminates with tuples or state that it has not worked in")
        if effect.reason == "left" and node.owned:
            raise Fault(f"K4: {self.me} terminates and owns {_named(node.owned)}")
        return KeyedNode(node.state, reading=False)

    def _perform_for_groups(self, node: Any, effect: GroupEffect, doing: Doing) -> Any:
        match effect:
            case fx.OwnGroups(groups):
                return node._replace(owned=tuple((g, ()) for g in sorted(groups)))
            case fx.ResumeGroups(owned, frozen):
                if missing := owned - {g for g, _ in node.owned}:
                    raise Fault(f"duty 12: {self.me} resumes {sorted(missing)} without their state")
                return node._replace(frozen=frozen)
            case fx.FreezeGroups(groups):
                if not self.scope.slow:
                    doing.answers.append(events.GroupsFrozen())
                return node._replace(frozen=node.frozen | groups, freezing=self.scope.slow)
            case fx.TransferGroups(to, groups):
                return self._transfer(node, to, groups, doing)
            case fx.ExpectState(sender):
                return node._replace(expecting=tuple(sorted((*node.expecting, sender))))
            case fx.StateComplete(sender, groups):
                return self._install(node, sender, groups)
            case _ as unknown:
                assert_never(unknown)

    def _transfer(self, node: Any, to: InstanceId, groups: frozenset[Group], doing: Doing) -> Any:
        """Duty 10; the state of frozen groups does not depend on when it is sent."""
        gone = tuple((g, marks) for g, marks in node.owned if g in groups)
        kept = tuple(t for t in node.queue if t.group in groups)
        if self._broken == 10:
            kept = ()
        doing.sends.append((to, GroupState(gone, kept)))
        if not self.scope.slow:
            doing.answers.append(events.GroupsTransferred(to))
        return node._replace(
            transferring=tuple(sorted((*node.transferring, to))),
            queue=tuple(t for t in node.queue if t.group not in groups or self._broken == 10),
            owned=tuple((g, marks) for g, marks in node.owned if g not in groups),
            frozen=node.frozen - groups,
        )

    def _install(self, node: Any, sender: InstanceId, groups: frozenset[Group]) -> Any:
        """Duty 11: the tuples that came along are older than those that were kept here."""
        came = [state for who, state in node.incoming if who == sender]
        if sorted(groups) != sorted(g for state in came for g, _ in state.groups):
            raise Fault(f"K1: {self.me} is to own {sorted(groups)}, of which no state has come")
        states = dict(node.owned)
        for state in came:
            states.update(state.groups)
        kept = tuple(t for state in came for t in state.kept)
        return node._replace(
            queue=(*node.queue, *kept) if self._broken == 11 else (*kept, *node.queue),
            owned=tuple(sorted(states.items())),
            expecting=_less(node.expecting, sender),
            incoming=tuple(i for i in node.incoming if i[0] != sender),
        )

    # -- what could happen -------------------------------------------------------------------

    def next_tuple(self, node: Any) -> NumberedTuple | None:
        """The first that may be processed (duty 9)."""
        if not self.keyed:
            return node.queue[0] if node.queue else None
        mine = {g for g, _ in node.owned}
        if self._broken != 9:
            mine -= node.frozen
        return next((t for t in node.queue if t.group in mine), None)

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


def _less(members: tuple[InstanceId, ...], one: InstanceId) -> tuple[InstanceId, ...]:
    rest = list(members)
    rest.remove(one)
    return tuple(rest)


def _named(owned: Owned) -> str:
    return "key groups " + ", ".join(str(g) for g, _ in owned)
