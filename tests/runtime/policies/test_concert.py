"""What siblings do who all say the same number: their parts add up to the difference."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.measuring.reading import Figures, Reading
from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.policies.concert import ConcertPart, carried_out, turn_of
from anabranch.runtime.policies.decision import (
    Act,
    Duplicate,
    Hold,
    Leave,
    Move,
    Resize,
    Why,
)
from anabranch.runtime.policies.policy import Scale

SCALE = Scale(max_instances=60, period_s=1.0, actions_per_minute_max=60)


def reading(rank: int | None, n: int, **changes: Any) -> Reading:
    seen = Reading(
        now_s=100.3, instances=n, instances_changed_s=0.0, covered_s=50.0, keeper=rank == 0
    )
    return replace(seen, rank=rank, **changes)


def acts(n: int, target: int, scale: Scale = SCALE, **changes: Any) -> list[Act]:
    rng = random.Random(1)
    return [
        carried_out(Resize(target, "so"), reading(rank, n, **changes), scale, ConcertPart(), rng)[0]
        for rank in range(n)
    ]


@given(n=st.integers(1, 60), target=st.integers(0, 99), now_s=st.floats(0, 1e6))
def test_the_parts_of_all_ranks_add_up_and_the_keeper_stays(
    n: int, target: int, now_s: float
) -> None:
    """PL-P9."""
    done = acts(n, target, now_s=now_s)
    change = sum(a.n for a in done if isinstance(a, Duplicate))
    change -= sum(isinstance(a, Leave) for a in done)
    assert change == min(max(target, 1), 60) - n
    assert not isinstance(done[0], Leave)


def keyed(loads: list[float], target: int) -> list[Act]:
    figures = Figures(9, len(loads), SlotSums(), tuple(loads))
    own = Figures(9, 1, SlotSums())
    return acts(len(loads), target, keyed=True, own=own, operator=figures)


@given(st.lists(st.floats(0, 2), min_size=1, max_size=20), st.integers(1, 60))
def test_by_key_the_parts_add_up_and_the_most_loaded_make_newcomers_first(
    loads: list[float], target: int
) -> None:
    """PL, section 4: a newcomer gets keys of its maker only."""
    made = [a.n if isinstance(a, Duplicate) else 0 for a in keyed(loads, target)]
    assert sum(made) == max(0, target - len(loads))
    assert max(made) - min(made) <= 1
    idle = [load for load, n in zip(loads, made, strict=True) if n == min(made)]
    assert all(load >= max(idle) or n == min(made) for load, n in zip(loads, made, strict=True))


def test_by_key_leavers_give_their_state_to_the_least_loaded_that_stay() -> None:
    """PL, section 4."""
    done = keyed([0.5, 0.2, 0.9, 0.3, 0.4, 0.1], 4)
    assert [a.new_owner if isinstance(a, Leave) else None for a in done] == [None] * 4 + [1, 3]


@given(n=st.integers(1, 20), target=st.integers(1, 20), seed=st.integers(0, 99))
def test_what_is_under_way_is_not_asked_for_twice(n: int, target: int, seed: int) -> None:
    rng, part = random.Random(seed), ConcertPart()
    _, part = carried_out(Resize(target, "so"), reading(n - 1, n), SCALE, part, rng)
    later = reading(n - 1, n, now_s=101.3)
    act, _ = carried_out(Resize(target, "so"), later, SCALE, part, rng)
    assert isinstance(act, Hold)


def test_one_number_per_period_is_carried_out() -> None:
    _, part = carried_out(Resize(2, "so"), reading(0, 2), SCALE, ConcertPart(), random.Random(1))
    act, _ = carried_out(Resize(4, "so"), reading(0, 2), SCALE, part, random.Random(1))
    assert act.explanation.why is Why.NOT_DUE


@given(n=st.integers(2, 6), first=st.integers(0, 1000), every=st.integers(2, 6))
def test_one_that_looks_only_every_few_periods_gets_its_turn(
    n: int, first: int, every: int
) -> None:
    for rank in range(n):
        commits = [turn_of(first + every * look + 0.05, 1.0) for look in range(60)]
        assert any(turn % n == rank for turn in commits)


def test_without_ranks_siblings_draw_with_the_same_expectation() -> None:
    rng = random.Random(5)

    def mean(target: int, kind: type[Act]) -> float:
        drawn = [
            carried_out(Resize(target, "so"), reading(None, 4), SCALE, ConcertPart(), rng)[0]
            for _ in range(20_000)
        ]
        return sum(getattr(a, "n", 1) for a in drawn if isinstance(a, kind)) / len(drawn)

    assert 4 * mean(10, Duplicate) == pytest.approx(6, abs=0.1)
    assert 3 * mean(2, Leave) == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"blocked": 0.3}, Why.BLOCKED),
        ({"cpu_wait": 0.6}, Why.HOST_FULL),
        ({"is_source": True}, Why.SOURCE),
        ({"busy_with_operation": True}, Why.OWN_OPERATION),
    ],
)
def test_guards_hold_against_any_number(changes: dict[str, Any], why: Why) -> None:
    assert {a.explanation.why for a in acts(2, 6, **changes)} == {why}


def test_a_move_waits_for_an_own_operation_and_is_else_carried_out_as_it_is() -> None:
    move = Move(0.3, 1, "so")
    free, busy = (
        carried_out(
            move, reading(0, 2, busy_with_operation=b), SCALE, ConcertPart(), random.Random(1)
        )[0]
        for b in (False, True)
    )
    assert free == move
    assert busy.explanation.why is Why.OWN_OPERATION


def test_the_budget_bounds_what_one_instance_starts() -> None:
    scale = replace(SCALE, actions_per_minute_max=3)
    (act,) = acts(1, 9, scale)
    assert act == Duplicate(3, "so")
