"""One channel over connections that break and processes that die: the shipped handshake, session
and credit in every interleaving of a small scope, and in walks through large ones."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.broken_protocols.channels import (
    BROKEN_CHANNELS,
    BrokenChannel,
    KeepsOldConnections,
    TakesAnyNumber,
)
from anabranch.runtime.explorer.cuts import (
    SHIPPED,
    ChannelParts,
    CutChannel,
    CutScope,
    explore_cuts,
)
from anabranch.runtime.explorer.scopes import CUTS_SMALL


@pytest.mark.parametrize("scope", CUTS_SMALL, ids=str)
def test_frames_arrive_once_in_order_and_nothing_is_kept(scope: CutScope) -> None:
    found = explore_cuts(scope)
    assert found.fault == ""
    assert found.complete
    assert found.quiescent


@pytest.mark.parametrize(
    "parts",
    [
        replace(SHIPPED, session=TakesAnyNumber),
        replace(SHIPPED, handshake=KeepsOldConnections),
        replace(SHIPPED, acknowledges_repeated=False),
    ],
    ids=["takes any number", "keeps old connections", "acknowledges no repeated frame"],
)
def test_one_habit_alone_is_not_missed_for_the_others_stand_in(parts: ChannelParts) -> None:
    """`docs/protocol.md` 7: numbers are enough while the old connection is abandoned, and the other
    way round; keep all of them."""
    assert explore_cuts(CutScope(2, 0, 1), parts).fault == ""


def test_repeating_everything_and_taking_any_number_doubles_frames() -> None:
    (broken,) = (b for b in BROKEN_CHANNELS if b.what.startswith("all that is kept"))
    found = explore_cuts(broken.scope, broken.parts)
    assert found.fault == "N1: listener delivers 1 after 1"
    assert any("connection 1 is cut" in move.what for _, move in found.path)


def test_without_cuts_a_channel_is_simple() -> None:
    assert explore_cuts(CutScope(2, 1, 0)).states < 1000


SCOPES = st.builds(
    CutScope,
    batches=st.integers(0, 12),
    messages=st.integers(0, 8),
    cuts=st.integers(0, 8),
    window=st.integers(1, 4),
    deaths=st.integers(0, 5),
)


def walk(scope: CutScope, seed: int, parts: ChannelParts = SHIPPED) -> str:
    """One way through a scope until nothing is left to happen; the fault, if there is one."""
    model, rng = CutChannel(scope, parts), Random(seed)
    state = model.initial()
    while True:
        moves = list(model.successors(state))
        if all(move.optional for move, _ in moves):
            return model.unsettled(state)
        accidents = rng.random() < 0.2
        move, after = rng.choice([m for m in moves if accidents or not m[0].optional])
        if after is None:
            return move.fault
        state = after


@given(SCOPES, st.integers(0, 10**6))
def test_whatever_breaks_and_dies_frames_arrive_once_in_order_and_nothing_is_kept(
    scope: CutScope, seed: int
) -> None:
    assert walk(scope, seed) == ""


@pytest.mark.parametrize("broken", BROKEN_CHANNELS, ids=lambda b: b.what)
def test_a_walk_finds_out_a_broken_channel(broken: BrokenChannel) -> None:
    """Otherwise the walks above would prove little."""
    scope = CutScope(6, 4, 6, window=2, deaths=3)
    assert any(walk(scope, seed, broken.parts) for seed in range(200))
