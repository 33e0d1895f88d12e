"""Hosts of a calm world are lost, or cut off for long, and those with copies of journals give them
up by majority (J8, J9); and what is neglected in that is found out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

import pytest

from anabranch.protocol.copies import CopySet
from anabranch.runtime.live.copies.silence import Silence
from anabranch.runtime.world.drawing import APART, drawn
from anabranch.runtime.world.drawn_losses import FOR_GOOD_S, LATE_S
from anabranch.runtime.world.drawn_trial import SOUND, Trial
from anabranch.runtime.world.trial import WorldVerdict, judged
from anabranch.runtime.world.troubles import NO_TROUBLES
from anabranch.runtime.world.world import Loss

AFTER_S = 5.0
CUT_S = 20.0
SEEDS = (3, 15)
"""Worlds of five hosts, in which instances are on the second one."""


def calm(seed: int) -> Trial:
    trial = drawn(seed, APART, crashes="all")
    assert len(trial.hosts) == 5
    return replace(
        trial,
        troubles=replace(NO_TROUBLES, hosts=len(trial.hosts)),
        delivery="effectively-once",
        ends=(),
        killed=0.0,
        full=0.0,
        drains=(),
        pins=(),
        rest_at_s=None,
        agent_disk=SOUND,
        copies=2,
    )


def lost(trial: Trial, *hosts: int, seconds: float = FOR_GOOD_S, how: str = "") -> Trial:
    """A user gives them up late, so that each world ends."""
    losses = [
        Loss(
            at_s=trial.until_s / 3,
            host=trial.hosts[number].name,
            after_s=LATE_S,
            seconds=seconds,
            is_there=how == "hidden",
            is_cut=how == "cut",
            agreed_s=AFTER_S,
        )
        for number in hosts
    ]
    return replace(trial, losses=tuple(losses))


def happens(trial: Trial) -> Counter[str]:
    outcome = judged(trial)
    assert outcome.verdict is WorldVerdict.VALID, outcome.text
    return outcome.happened


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lost_host_is_given_up_by_majority(seed: int) -> None:
    happened = happens(lost(calm(seed), 1))
    assert (happened["given up by majority"], happened["given up"]) == (1, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_host_that_is_cut_off_for_long_lives_on_and_disturbs_nothing(seed: int) -> None:
    happened = happens(lost(calm(seed), 1, seconds=CUT_S, how="cut"))
    assert (happened["given up by majority"], happened["given up"]) == (1, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_host_that_only_home_does_not_reach_is_not_given_up(seed: int) -> None:
    """Until a user does so."""
    happened = happens(lost(calm(seed), 1, how="hidden"))
    assert (happened["given up by majority"], happened["given up"]) == (0, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_home_alone_is_no_majority(seed: int) -> None:
    """Hosts reach each other, and home reaches none of them."""
    happened = happens(lost(calm(seed), 1, 2, 3, 4, seconds=60.0, how="hidden"))
    assert happened["given up by majority"] == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_without_a_majority_of_the_holders_nothing_goes_on(seed: int) -> None:
    """The second host that is lost has one of the two copies."""
    happened = happens(lost(calm(seed), 1, 2))
    assert (happened["given up by majority"], happened["given up"]) == (0, 2)


# -- what is neglected -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_keeper_that_does_not_note_whom_it_hears_is_found_out(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Silence, "heard", lambda _silence, _instance: None)
    happened = happens(lost(calm(seed), 1, how="hidden"))
    assert happened["given up by majority"] == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_minority_that_gives_up_a_host_is_found_out(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_majority(copies: CopySet, those: Collection[str]) -> bool:
        return bool(copies.complete & frozenset(those))

    monkeypatch.setattr(CopySet, "is_majority", is_majority)
    happened = happens(lost(calm(seed), 1, 2))
    assert happened["given up by majority"] > 0
