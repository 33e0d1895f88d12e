"""Batches as the core sees them: D1, and its counterpart at the sender."""

from __future__ import annotations

from anabranch.protocol.effects import AcceptBatch, SendBatch
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.events import BatchReady, BatchReceived
from anabranch.protocol.rules.context import Context, Step, require
from anabranch.protocol.states import Active, ClosingIn, Draining, Idle


def buffer_batch(ctx: Context, state: Idle, event: BatchReceived) -> Step:
    """D1 while idle: predecessors may send as soon as they have acknowledged JOIN."""
    return state, (AcceptBatch(event.sender, event.tuples),)


def accept_batch(ctx: Context, state: Active | ClosingIn, event: BatchReceived) -> Step:
    """D1."""
    require(event.sender in state.preds, f"a batch from {event.sender}, unknown to me (I8)")
    return state, (AcceptBatch(event.sender, event.tuples),)


def send_batch(ctx: Context, state: Active | ClosingIn | Draining, event: BatchReady) -> Step:
    if event.to not in state.succs:
        raise LocalProtocolError(f"a batch for {event.to}, which is not a successor (I1)")
    return state, (SendBatch(event.to, event.tuples),)
