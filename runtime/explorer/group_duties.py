"""What a driver keeps for key groups, and does about them: duties 9 to 12, as far as they go."""

from __future__ import annotations

from typing import assert_never

from anabranch.protocol import effects as fx
from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.ownership import Group
from anabranch.runtime.explorer.deaths import QueuedItem
from anabranch.runtime.explorer.items import GroupState, Owned, Tuple
from anabranch.runtime.explorer.node import (
    BEGUN,
    WANTED,
    Doing,
    EventOutcome,
    Fault,
    Node,
    OutgoingGroups,
)
from anabranch.runtime.explorer.scope import Scope

GroupEffect = (
    fx.FreezeGroups
    | fx.TransferGroups
    | fx.OwnGroups
    | fx.ResumeGroups
    | fx.ExpectState
    | fx.StateComplete
)


class GroupDuties:
    """What one instance does about key groups. `broken`: the duty that is neglected."""

    def __init__(self, me: InstanceId, scope: Scope, broken: str) -> None:
        self.me = me
        self.scope = scope
        self.in_parts = bool(scope.crashes)
        self._broken = broken

    def perform(self, node: Node, effect: GroupEffect, doing: Doing) -> Node:
        if not self.scope.keyed:
            raise Fault(
                f"{type(effect).__name__} at {self.me}, of which no operator has key groups"
            )
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

    def _transfer(self, node: Node, to: InstanceId, groups: frozenset[Group], doing: Doing) -> Node:
        """Duty 10; the state of frozen groups does not depend on when it is sent."""
        gone = tuple((g, marks) for g, marks in node.owned if g in groups)
        left = node._replace(
            owned=tuple((g, marks) for g, marks in node.owned if g not in groups),
            frozen=node.frozen - groups,
        )
        if self.in_parts:
            return self._begin_transfer(left, to, groups, gone)
        kept, left = self._give_kept(left, groups)
        doing.sends.append((to, GroupState(gone, kept)))
        if not self.scope.slow:
            doing.answers.append(events.GroupsTransferred(to))
        return left._replace(transferring=tuple(sorted((*node.transferring, to))))

    def _give_kept(self, node: Node, groups: frozenset[Group]) -> tuple[tuple[Tuple, ...], Node]:
        if self._broken == "10":
            return (), node
        kept = tuple(q.item for q in node.queue if q.item.group in groups)
        return kept, node._replace(queue=tuple(q for q in node.queue if q.item.group not in groups))

    def _begin_transfer(
        self, node: Node, to: InstanceId, groups: frozenset[Group], gone: Owned
    ) -> Node:
        """Duty 12: it is kept until the core has recorded that it is out."""
        again = [o for o in node.outgoing if o.to == to]
        whole = again[0].groups if again else gone
        if groups != {g for g, _ in whole}:
            raise Fault(f"duty 12: {self.me} is to send {sorted(groups)} to {to}, and has {whole}")
        rest = (o for o in node.outgoing if o.to != to)
        stage = BEGUN if self._broken == "rest" and again else WANTED
        return node._replace(outgoing=tuple(sorted([*rest, OutgoingGroups(to, whole, stage)])))

    def send_first_part(self, node: Node, to: InstanceId) -> EventOutcome:
        (one,) = (o for o in node.outgoing if o.to == to)
        outgoing = tuple(o._replace(stage=BEGUN) if o is one else o for o in node.outgoing)
        sent = ((to, GroupState(one.groups, ())),)
        return EventOutcome(node._replace(outgoing=outgoing), sent)

    def send_last_part(self, node: Node, to: InstanceId) -> EventOutcome:
        (one,) = (o for o in node.outgoing if o.to == to)
        kept, node = self._give_kept(node, frozenset(g for g, _ in one.groups))
        left = node._replace(outgoing=tuple(o for o in node.outgoing if o is not one))
        begins = self._broken == "rest"
        return EventOutcome(left, ((to, GroupState((), kept, begins)),))

    # -- state comes -------------------------------------------------------------------------

    def put_in(self, node: Node, sender: InstanceId, item: GroupState) -> Node:
        """Duty 12: what begins again takes the place of what had come before."""
        if sender not in node.expecting:
            raise Fault(f"K4: state for {self.me} from {sender}, which it does not expect")
        incoming = node.incoming
        if item.begins and self._broken != "adds":
            incoming = tuple(i for i in incoming if i[0] != sender)
        return node._replace(incoming=(*incoming, (sender, item)))

    def _install(self, node: Node, sender: InstanceId, groups: frozenset[Group]) -> Node:
        """Duty 11: the tuples that came along are older than those that were kept here."""
        came = [state for who, state in node.incoming if who == sender]
        if sorted(groups) != sorted(g for state in came for g, _ in state.groups):
            raise Fault(f"K1: {self.me} is to own {sorted(groups)}, of which no state has come")
        if sender not in node.expecting:
            raise Fault(f"K4: {self.me} has not been told to expect state from {sender}")
        states = dict(node.owned)
        for state in came:
            states.update(state.groups)
        kept = tuple(QueuedItem(t) for state in came for t in state.kept)
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
