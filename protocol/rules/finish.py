"""The end of a bounded stream: E1 to E6. FIN runs down the graph behind the last tuples, DONE
comes back, and every instance ends, keepers like all others."""

from __future__ import annotations

from dataclasses import replace

from anabranch.protocol.effects import SendMessage, Terminate
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.events import Drained, InputEnded, MessageReceived
from anabranch.protocol.messages import Done, Fin, LeaveAck
from anabranch.protocol.rules.context import Context, Step, ended, require, tell, view_of
from anabranch.protocol.states import Active, ClosingIn, Finished, Gone, Idle


def end_input(ctx: Context, state: Active, event: InputEnded) -> Step:
    require(ctx.is_source, "the input of an operator ends with FIN from its predecessors")
    return replace(state, input_ended=True), ()


def at_its_end(ctx: Context, state: Active) -> bool:
    """E1 but for the queue: nothing can come in, and nothing is under way."""
    return state.own is None and not state.expects and ended(ctx, state)


def finish(ctx: Context, state: Active, event: Drained) -> Step:
    """E1."""
    if not at_its_end(ctx, state):
        raise LocalProtocolError("drained, but the end of the stream has not come")
    later = Finished(state.succs, state.preds, state.keeper)
    finished, effects = _conclude(later)
    return finished, (*tell(state.succs, Fin()), *effects)


def remember_fin(ctx: Context, state: Idle, event: MessageReceived) -> Step:
    """E2 while idle."""
    return replace(state, finished=state.finished | {event.sender}), ()


def note_fin(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """E2."""
    require(event.sender in state.preds, f"FIN from {event.sender}, unknown to me (I9)")
    return replace(state, finished=state.finished | {event.sender}), ()


def pass_over_fin(ctx: Context, state: ClosingIn, event: MessageReceived) -> Step:
    """A leave under way is completed instead; the finished predecessor answers it (E6)."""
    require(event.sender in state.preds, f"FIN from {event.sender}, unknown to me (I9)")
    return state, ()


def count_done(ctx: Context, state: Finished, event: MessageReceived) -> Step:
    """E5."""
    require(event.sender in state.succs, f"DONE from {event.sender}, which was not awaited (I4)")
    return _conclude(replace(state, succs=state.succs - {event.sender}))


def release_successor_when_finished(ctx: Context, state: Finished, event: MessageReceived) -> Step:
    """E6."""
    require(event.sender in state.succs, f"LEAVE from {event.sender}, unknown to me (I9)")
    later, effects = _conclude(replace(state, succs=state.succs - {event.sender}))
    return later, (SendMessage(event.sender, LeaveAck()), *effects)


def _conclude(state: Finished) -> Step:
    """E4."""
    if state.succs:
        return state, (view_of(state),)
    later = Gone(state.keeper, "finished")
    return later, (*tell(state.preds, Done()), Terminate(later.reason))
