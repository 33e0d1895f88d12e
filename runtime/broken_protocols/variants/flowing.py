"""Broken D1 and D2: what becomes of tuples."""

from __future__ import annotations

from typing import Any

from anabranch.protocol.effects import SendBatch
from anabranch.protocol.events import BatchReady, BatchReceived
from anabranch.protocol.rules.context import Context, Step
from anabranch.protocol.states import Active, ClosingIn, Draining, Idle, State
from anabranch.protocol.table import ILLEGAL
from anabranch.runtime.broken_protocols.variants.variant import Variant
from anabranch.runtime.explorer.scope import Scope


def _drop(ctx: Context, state: State, event: Any) -> Step:
    return state, ()


def _send_twice(ctx: Context, state: State, event: BatchReady) -> Step:
    batch = SendBatch(event.to, event.tuples)
    return state, (batch, batch)


VARIANTS = [
    Variant(
        "D1",
        "an idle newcomer drops tuples",
        Scope((1, 1), joins=1, tuples=1),
        ("S1",),
        {(Idle, BatchReceived): _drop},
        also="PF1",
    ),
    Variant(
        "D1",
        "a leaver drops the tuples that still come",
        Scope((1, 2), leaves=1, tuples=1),
        ("S1",),
        {(ClosingIn, BatchReceived): _drop},
    ),
    Variant(
        "D2",
        "results are sent twice",
        Scope((1, 1), tuples=1),
        ("S2",),
        {(Active, BatchReady): _send_twice},
    ),
    Variant(
        "D2",
        "results are lost",
        Scope((1, 1), tuples=1),
        ("S1",),
        {(Active, BatchReady): _drop},
    ),
    Variant(
        "D2",
        "an instance that drains does not process any more",
        Scope((1, 2, 1), leaves=1, tuples=1),
        ("ILLEGAL", "L2"),
        {(Draining, BatchReady): ILLEGAL},
    ),
]
