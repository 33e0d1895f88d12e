"""What a driver keeps for key groups, and does about them: duties 9 to 12, as far as they go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from anabranch.protocol import effects as fx
from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.ownership import Group
from anabranch.protocol.rules.context import Context
from anabranch.runtime.explorer.deaths import Queued
from anabranch.runtime.explorer.items import GroupState, Marks, NumberedTuple, Owned
from anabranch.runtime.explorer.node import Doing, Driver, Fault, GroupEffect, Outcome
from anabranch.runtime.explorer.scope import Scope

if TYPE_CHECKING:
    from anabranch.runtime.explorer.machine import Machine

WANTED, BEGUN, UNASKED = range(3)


class Outgoing(NamedTuple):
    """State that goes out in two parts, and is kept until both are under way. `stage`: of the
    transfer; `UNASKED` in a new incarnation, until the core asks for it again."""

    to: InstanceId
    groups: Owned
    stage: int = WANTED


class KeyedNode(NamedTuple):
    """As `Node`, but the queue holds tuples in their order.

    `owned`, `frozen`: key groups that are processed here, and those of them that are not any
    more. `expecting`: senders of state; `incoming`: what has come of it. `freezing`,
    `transferring`: what is yet to be answered. `given`: numbers given, by group. `seen`: the last
    number of each sequence that came in behind a keyed operator. `outgoing`: instead of
    `transferring` where processes may die: some of what belongs to it may have yet to come again.
    """

    state: Any
    queue: tuple[Queued, ...] = ()
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
    ended: bool = False
    forsaken: bool = False
    outgoing: tuple[Outgoing, ...] = ()


class GroupDuties(Driver):
    """A driver, as far as it has to do with key groups."""

    def __init__(self, machine: Machine, context: Context, scope: Scope) -> None:
        super().__init__(machine, context)
        self.scope = scope
        self._broken = machine.broken_duty
        self._in_parts = bool(scope.crashes)

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

    # -- state goes --------------------------------------------------------------------------

    def _transfer(self, node: Any, to: InstanceId, groups: frozenset[Group], doing: Doing) -> Any:
        """Duty 10; the state of frozen groups does not depend on when it is sent."""
        gone = tuple((g, marks) for g, marks in node.owned if g in groups)
        left = node._replace(
            owned=tuple((g, marks) for g, marks in node.owned if g not in groups),
            frozen=node.frozen - groups,
        )
        if self._in_parts:
            return self._begin_transfer(left, to, groups, gone)
        kept, left = self._give_kept(left, groups)
        doing.sends.append((to, GroupState(gone, kept)))
        if not self.scope.slow:
            doing.answers.append(events.GroupsTransferred(to))
        return left._replace(transferring=tuple(sorted((*node.transferring, to))))

    def _give_kept(
        self, node: Any, groups: frozenset[Group]
    ) -> tuple[tuple[NumberedTuple, ...], Any]:
        if self._broken == "10":
            return (), node
        kept = tuple(q.item for q in node.queue if q.item.group in groups)
        return kept, node._replace(queue=tuple(q for q in node.queue if q.item.group not in groups))

    def _begin_transfer(
        self, node: Any, to: InstanceId, groups: frozenset[Group], gone: Owned
    ) -> Any:
        """Duty 12: it is kept until the core knows that it is out."""
        again = [o for o in node.outgoing if o.to == to]
        whole = again[0].groups if again else gone
        if groups != {g for g, _ in whole}:
            raise Fault(f"duty 12: {self.me} is to send {sorted(groups)} to {to}, and has {whole}")
        rest = (o for o in node.outgoing if o.to != to)
        stage = BEGUN if self._broken == "rest" and again else WANTED
        return node._replace(outgoing=tuple(sorted([*rest, Outgoing(to, whole, stage)])))

    def send_first_part(self, node: Any, to: InstanceId) -> Outcome:
        (one,) = (o for o in node.outgoing if o.to == to)
        outgoing = tuple(o._replace(stage=BEGUN) if o is one else o for o in node.outgoing)
        sent = ((to, GroupState(one.groups, ())),)
        return Outcome(node._replace(outgoing=outgoing), sent)

    def send_last_part(self, node: Any, to: InstanceId) -> Outcome:
        (one,) = (o for o in node.outgoing if o.to == to)
        kept, node = self._give_kept(node, frozenset(g for g, _ in one.groups))
        left = node._replace(outgoing=tuple(o for o in node.outgoing if o is not one))
        begins = self._broken == "rest"
        return Outcome(left, ((to, GroupState((), kept, begins)),))

    # -- state comes -------------------------------------------------------------------------

    def put_in(self, node: Any, sender: InstanceId, item: GroupState) -> Any:
        """Duty 12: what begins again takes the place of what had come before."""
        if sender not in node.expecting:
            raise Fault(f"K4: state for {self.me} from {sender}, which it does not expect")
        incoming = node.incoming
        if item.begins and self._broken != "adds":
            incoming = tuple(i for i in incoming if i[0] != sender)
        return node._replace(incoming=(*incoming, (sender, item)))

    def _install(self, node: Any, sender: InstanceId, groups: frozenset[Group]) -> Any:
        """Duty 11: the tuples that came along are older than those that were kept here."""
        came = [state for who, state in node.incoming if who == sender]
        if sorted(groups) != sorted(g for state in came for g, _ in state.groups):
            raise Fault(f"K1: {self.me} is to own {sorted(groups)}, of which no state has come")
        if sender not in node.expecting:
            raise Fault(f"K4: {self.me} has not been told to expect state from {sender}")
        states = dict(node.owned)
        for state in came:
            states.update(state.groups)
        kept = tuple(Queued(t) for state in came for t in state.kept)
        return node._replace(
            queue=(*node.queue, *kept) if self._broken == "11" else (*kept, *node.queue),
            owned=tuple(sorted(states.items())),
            expecting=less(node.expecting, sender),
            incoming=tuple(i for i in node.incoming if i[0] != sender),
        )


def less(members: tuple[InstanceId, ...], one: InstanceId) -> tuple[InstanceId, ...]:
    rest = list(members)
    rest.remove(one)
    return tuple(rest)
