"""Key groups move to even out loads: PL16 over instances, PL17, and what a share is in groups."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.runtime.keyed.placement import of_share
from anabranch.runtime.measuring.reading import Figures, Reading
from anabranch.runtime.measuring.slot_meter import added
from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.policies.decision import Decision, Hold, Move, Resize
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.policies.predictive.balance import evened
from anabranch.runtime.policies.predictive.policy import Predictive
from anabranch.runtime.policies.predictive.rebalancing import Evenness

SCALE = Scale(max_instances=16)
loads = st.lists(st.floats(0.01, 3), min_size=1, max_size=12)


def after(before: list[float], moves: dict[int, tuple[int, float]]) -> list[float]:
    found = list(before)
    for donor, (receiver, share) in moves.items():
        found[donor] -= before[donor] * share
        found[receiver] += before[donor] * share
    return found


def test_pl16_the_most_loaded_gives_to_the_least_loaded_and_so_on() -> None:
    assert evened([0.25, 1.0, 0.5, 0.75], 0.1) == {1: (0, 0.375), 3: (2, 0.125 / 0.75)}
    assert evened([0.5, 0.54], 0.1) == {}
    assert evened([0.5], 0.1) == {}


@given(loads, st.floats(0.01, 0.5))
def test_p8_moves_never_raise_the_highest_load_and_lower_the_sum_of_squares(
    before: list[float], spread: float
) -> None:
    moves = evened(before, spread)
    partners = [*moves, *(receiver for receiver, _ in moves.values())]
    assert len(set(partners)) == len(partners)
    found = after(before, moves)
    assert max(found) <= max(before) + 1e-9
    assert not moves or sum(x * x for x in found) < sum(x * x for x in before)


@given(loads, st.floats(0.05, 0.5))
def test_p8_moves_come_to_an_end_with_loads_that_are_close(
    before: list[float], spread: float
) -> None:
    found = before
    for _ in range(40):
        found = after(found, evened(found, spread))
    assert max(found) <= (1 + spread) * min(found) + 1e-9


def test_a_difference_that_may_be_chance_moves_nothing() -> None:
    """25 and 18 tuples of 20 ms in a second."""
    assert evened([0.50, 0.36], 0.1, 0.02) == {}
    assert evened([0.50, 0.36], 0.1, 0.02 / 30) != {}


groups = st.dictionaries(st.integers(0, 99), st.floats(0, 10), min_size=1, max_size=40)


@given(groups, st.floats(0.01, 1))
def test_pl16_a_share_in_groups_comes_no_further_from_it_than_nothing_does(
    heat: dict[int, float], share: float
) -> None:
    given_ = of_share(heat, share)
    known = heat if any(heat.values()) else dict.fromkeys(heat, 1.0)
    wanted = share * sum(known.values())
    assert given_ <= heat.keys()
    assert abs(sum(known[g] for g in given_) - wanted) <= wanted + 1e-9


def test_one_heavy_group_stays_where_it_is_and_light_ones_go() -> None:
    assert of_share({0: 10.0}, 0.4) == set()
    assert of_share({0: 10.0, 1: 1.0, 2: 1.0}, 0.2) == {1, 2}
    assert of_share({0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0}, 0.5) == {0, 1}


# -- when ------------------------------------------------------------------------------------------


def sums(load: float, seconds: float = 1.0) -> SlotSums:
    """Of tuples of 1 ms."""
    tuples = load * seconds * 1000
    return SlotSums(seconds, tuples, tuples, load * seconds)


def told(slot: int, *of: float) -> Figures:
    return added([Figures(slot, 1, sums(load)) for load in of])


def seen(evenness: Evenness, *of: float) -> Evenness:
    return evenness.after(told(1, *of))


def test_loads_by_rank_are_what_each_was_offered() -> None:
    assert told(1, 0.25, 0.5).loads == pytest.approx((0.25, 0.5))
    held = Figures(1, 1, replace(sums(0.4), backlog=200.0))
    silent = Figures(1, 1, SlotSums(1.0, arrived=100.0))
    assert added([held, silent]).loads == pytest.approx((0.6, 0.1))


def test_pl17_keys_move_right_after_a_change_and_then_only_where_loads_stay_apart() -> None:
    fresh = seen(Evenness(), 0.5, 0.6)
    assert fresh.moves(SCALE)
    second = seen(seen(Evenness(), 0.5, 0.6), 0.5, 0.6)
    assert not second.moves(SCALE)
    third = seen(second, 0.5, 0.6)
    assert not third.moves(SCALE)
    apart = seen(seen(seen(Evenness(), 0.5, 0.7), 0.5, 0.7), 0.5, 0.7)
    assert apart.moves(SCALE).keys() == {1}


def test_pl17_a_change_of_the_number_begins_anew_and_a_move_gives_two_slots_of_rest() -> None:
    apart = seen(seen(seen(Evenness(), 0.5, 0.9), 0.5, 0.9), 0.5, 0.9)
    assert seen(apart, 0.5, 0.6, 0.5).slots == 1
    rest = apart.moved
    for _ in range(2):
        rest = seen(rest, 0.5, 0.9)
        assert not rest.moves(SCALE)
    assert seen(rest, 0.5, 0.9).moves(SCALE)


def test_unevenness_that_may_be_chance_does_not_count() -> None:
    assert Evenness().uneven == 1.0
    assert seen(Evenness(), 0.50, 0.52).uneven == 1.0
    assert 1.2 < seen(Evenness(), 0.4, 0.8).uneven < 0.8 / 0.6


# -- what an instance says -------------------------------------------------------------------------


def said(rank: int, *of: float, keyed: bool = True, policy: Predictive | None = None) -> Decision:
    """In the first slot with these loads, where the number of instances fits them."""
    figures = told(9, *of)
    reading = Reading(
        now_s=10.2, instances=len(of), instances_changed_s=0.0, covered_s=9.0, rank=rank,
        keyed=keyed, own=Figures(9, 1, sums(of[rank])), operator=figures,
    )  # fmt: skip
    policy = policy or Predictive(latency_ms=250, change_weight=100.0)
    return policy.decide(reading, SCALE, policy.begin(), random.Random(1))[0]


def test_every_sibling_finds_the_same_moves_and_donors_make_theirs() -> None:
    first, second, third, fourth = (said(rank, 0.25, 1.0, 0.5, 0.75) for rank in range(4))
    assert first == third == Hold("so")
    assert isinstance(second, Move)
    assert isinstance(fourth, Move)
    assert (second.to_rank, fourth.to_rank) == (0, 2)
    assert (second.share, fourth.share) == pytest.approx((0.375, 0.125 / 0.75))


@pytest.mark.parametrize(
    "changes", [{"keyed": False}, {"policy": Predictive(change_weight=100.0, rebalance=False)}]
)
def test_without_keys_or_when_told_so_nothing_moves(changes: dict[str, Any]) -> None:
    assert said(1, 0.2, 0.9, **changes) == Resize(2, "so")


def test_loads_of_other_instances_than_there_are_now_count_for_nothing() -> None:
    reading = Reading(
        now_s=10.2, instances=2, instances_changed_s=0.0, covered_s=9.0, rank=0, keyed=True,
        own=Figures(9, 1, sums(0.5)), operator=told(9, 0.5, 0.6),
    )  # fmt: skip
    assert reading.loads == pytest.approx((0.5, 0.6))
    assert replace(reading, instances=3).loads == ()
    assert replace(reading, rank=None).loads == ()
    assert replace(reading, operator=told(8, 0.5, 0.6)).loads == ()


def waiting(*, rebalance: bool) -> float:
    """The mean in the second half of a minute in which four instances are busy for four fifths of
    it, on average."""
    pipeline = ab.Pipeline("skewed", groups=32)
    policy = Predictive(latency_ms=250, rebalance=rebalance)
    scale = ab.Scale(min_instances=4, max_instances=4, policy=policy)
    words = pipeline.source("words", ab.items([1])).key_by(str)
    words.fold("count", 0, lambda n, _: n + 1, scale=scale).sink("out", ab.discard())
    found = ab.testing.scaled(pipeline, 32, capacity={"count": 10}, skew={"count": 1.0}, seconds=60)
    course = found.courses["count"].waiting
    return mean(course[len(course) // 2 :])


def test_in_virtual_time_the_queue_of_the_most_loaded_instance_goes_away() -> None:
    assert waiting(rebalance=True) < waiting(rebalance=False) / 2
