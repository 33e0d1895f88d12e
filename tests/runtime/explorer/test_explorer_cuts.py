"""One channel over connections that break, exhaustively, with the shipped session and credit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.runtime.explorer.cut_search import explore_cuts
from anabranch.runtime.explorer.cuts import SOUND, CutScope
from anabranch.runtime.explorer.scopes import CUTS_SMALL


@pytest.mark.parametrize("scope", CUTS_SMALL, ids=str)
def test_frames_arrive_once_in_order_and_nothing_is_kept(scope: CutScope) -> None:
    found = explore_cuts(scope)
    assert found.fault == ""
    assert found.quiescent


@pytest.mark.parametrize("habit", ["only_next", "resumes", "acknowledges_repeated"])
def test_one_habit_alone_is_not_missed_for_the_others_stand_in(habit: str) -> None:
    """`docs/protocol.md` 7: sequence check and resume each suffice while the old connection is
    abandoned; keep all of them."""
    assert explore_cuts(CutScope(2, 0, 1), replace(SOUND, **{habit: False})).fault == ""


def test_repeating_everything_and_taking_any_number_doubles_frames() -> None:
    found = explore_cuts(CutScope(2, 0, 1), replace(SOUND, only_next=False, resumes=False))
    assert found.fault == "N1: listener delivers (1, 1)"
    assert "connection 1 is cut" in " ".join(found.story)


def test_without_cuts_a_channel_is_simple() -> None:
    assert explore_cuts(CutScope(2, 1, 0)).states < 1000
