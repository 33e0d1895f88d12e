"""What every rule may know besides state and event: the own id, and the static graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.protocol.effects import ChangeView, Effect, SendMessage
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.ids import InstanceId, Topology
from anabranch.protocol.messages import Ids, Message
from anabranch.protocol.states import Active, State, preds_of, routes_of, succs_of

Step = tuple[State, tuple[Effect, ...]]


@dataclass(frozen=True, slots=True)
class Context:
    me: InstanceId
    topology: Topology

    def is_downstream(self, other: InstanceId) -> bool:
        return self.topology.feeds(self.me.operator, other.operator)

    def is_upstream(self, other: InstanceId) -> bool:
        return self.topology.feeds(other.operator, self.me.operator)

    @property
    def is_source(self) -> bool:
        return not self.topology.upstream(self.me.operator)


def tell(receivers: Iterable[InstanceId], message: Message) -> tuple[Effect, ...]:
    """Send one message to all, in a defined order."""
    return tuple(SendMessage(to, message) for to in sorted(receivers))


def tell_each_its_own(receivers: Ids, kind: type) -> tuple[Effect, ...]:
    """Send LEAVE or EOS: for each receiver, `told` lists its children among the receivers."""
    return tuple(
        SendMessage(to, kind(frozenset(t for t in receivers if created_by(t, to))))
        for to in sorted(receivers)
    )


def created_by(child: InstanceId, parent: InstanceId) -> bool:
    return child.operator == parent.operator and child.creator == parent.number


def view_of(state: State) -> ChangeView:
    return ChangeView(succs_of(state), preds_of(state), routes_of(state))


def ended(ctx: Context, state: Active) -> bool:
    """Whether no tuple can come in any more: E1's condition but for the queue."""
    if ctx.is_source:
        return state.input_ended
    return bool(state.preds) and state.preds <= state.finished


def why_not_now(ctx: Context, state: Active) -> str:
    """Why this instance takes no decision of its own now; empty if it may."""
    if state.own is not None:
        return f"an operation of this instance is under way ({type(state.own).__name__})"
    if ended(ctx, state):
        return "the stream is ending"
    return ""


def require(condition: bool, what: str) -> None:
    """An invariant that only a peer can break; the caller adds the story."""
    if not condition:
        raise RemoteProtocolError(what)
