"""Balanced placements are even; those of flux are even enough, with few moves."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.runtime.keyed.placement import balanced, flux

loads_of_groups = st.dictionaries(
    st.integers(0, 63), st.one_of(st.just(0.0), st.integers(1, 100).map(float)), max_size=40
)
receivers = st.integers(1, 6)


def carried(loads: dict[int, float], shares: list[set[int]]) -> list[float]:
    """By the giver, then by each receiver."""
    return [sum(loads[g] for g in share) for share in everybody(loads, shares)]


def everybody(loads: dict[int, float], shares: list[set[int]]) -> list[set[int]]:
    return [loads.keys() - set().union(*shares), *shares]


def moved(shares: list[set[int]]) -> int:
    return sum(map(len, shares))


@given(loads_of_groups, receivers)
def test_no_group_gets_two_owners(loads: dict[int, float], n: int) -> None:
    for shares in (balanced(loads, n), flux(loads, n, 0.2)):
        assert len(shares) == n
        assert moved(shares) == len(set().union(*shares))
        assert loads.keys() >= set().union(*shares)


@given(loads_of_groups, receivers)
def test_placements_depend_on_loads_only(loads: dict[int, float], n: int) -> None:
    backwards = dict(reversed(loads.items()))
    assert balanced(loads, n) == balanced(backwards, n)
    assert flux(loads, n, 0.2) == flux(backwards, n, 0.2)


# -- balanced --------------------------------------------------------------------------------


def test_groups_of_the_same_load_are_dealt_evenly_and_the_giver_keeps_its_share() -> None:
    shares = balanced(dict.fromkeys(range(8), 1.0), 3)
    assert [len(s) for s in everybody(dict.fromkeys(range(8), 1.0), shares)] == [2, 2, 2, 2]


def test_heavy_groups_are_weighed_against_several_light_ones() -> None:
    loads = {0: 4.0, 1: 3.0, 2: 3.0, 3: 2.0}
    assert carried(loads, balanced(loads, 1)) == [6.0, 6.0]


@given(loads_of_groups, receivers)
def test_nobody_is_ahead_of_another_by_more_than_one_of_its_groups(
    loads: dict[int, float], n: int
) -> None:
    """Who got its last group had least before: greedy placement never leaves a gap that one move
    of any loaded group could close."""
    shares = everybody(loads, balanced(loads, n))
    least = min(carried(loads, shares[1:]))
    for share in shares:
        loaded = [loads[g] for g in share if loads[g]]
        if loaded:
            assert sum(loaded) - min(loaded) <= least


@given(st.lists(st.integers(1, 20).map(float), max_size=7), st.integers(1, 2))
@example([3.0, 3.0, 2.0, 2.0, 2.0], 1)
def test_the_heaviest_load_is_near_the_best_that_there_is(of_groups: list[float], n: int) -> None:
    """Graham 1969: heaviest first is at most 4/3 - 1/3m of the optimum for m owners."""
    loads = dict(enumerate(of_groups))
    best = min(
        max(
            sum(load for load, o in zip(of_groups, owners, strict=True) if o == i)
            for i in range(n + 1)
        )
        for owners in product(range(n + 1), repeat=len(of_groups))
    )
    assert max(carried(loads, balanced(loads, n))) <= (4 / 3 - 1 / (3 * (n + 1))) * best + 1e-9


def test_groups_without_load_go_to_whoever_has_fewest() -> None:
    loads = {0: 10.0, 1: 5.0, **dict.fromkeys(range(2, 12), 0.0)}
    assert [len(s) for s in everybody(loads, balanced(loads, 1))] == [6, 6]


@given(st.integers(0, 64), receivers)
def test_without_any_load_numbers_are_even(groups: int, n: int) -> None:
    loads = dict.fromkeys(range(groups), 0.0)
    sizes = [len(s) for s in everybody(loads, balanced(loads, n))]
    assert max(sizes) - min(sizes) <= 1


def test_a_single_group_stays_with_its_giver() -> None:
    assert balanced({7: 3.0}, 2) == [set(), set()]
    assert flux({7: 3.0}, 2, 0.2) == [set(), set()]


# -- flux ------------------------------------------------------------------------------------


def test_one_heavy_group_is_moved_where_balance_would_move_many() -> None:
    loads = {0: 50.0, **dict.fromkeys(range(1, 51), 1.0)}
    assert flux(loads, 1, 0.1) == [{0}]
    assert moved(balanced(loads, 1)) == 50


def test_a_looser_bound_moves_fewer_groups() -> None:
    loads = dict.fromkeys(range(20), 1.0)
    assert [moved(flux(loads, 1, bound)) for bound in (0.0, 0.2, 0.5, 1.0)] == [10, 8, 5, 0]


def test_a_group_heavier_than_the_bound_goes_alone() -> None:
    loads = {0: 90.0, 1: 5.0, 2: 5.0}
    assert flux(loads, 1, 0.2) == [{0}]
    assert flux({0: 60.0, 1: 60.0, 2: 60.0}, 1, 0.1) == [{0}]


def test_groups_without_load_stay() -> None:
    assert flux({0: 1.0, 1: 1.0, 2: 0.0}, 1, 0.0) == [{0}]
    assert flux(dict.fromkeys(range(4), 0.0), 2, 0.2) == [set(), set()]


@given(loads_of_groups, receivers, st.sampled_from([0.0, 0.1, 0.2, 0.5]))
@example({0: 100.0}, 1, 0.2)
def test_flux_ends_within_its_bound_or_where_no_group_fits(
    loads: dict[int, float], n: int, imbalance_max: float
) -> None:
    shares = flux(loads, n, imbalance_max)
    giver, *receiving = carried(loads, shares)
    most = (1 + imbalance_max) * sum(loads.values()) / (n + 1)
    for load, share in zip(receiving, shares, strict=True):
        assert load <= most or len(share) == 1
    if giver > most:
        kept = [loads[g] for g in everybody(loads, shares)[0] if loads[g]]
        least = min(receiving)
        assert len(kept) == 1 or all(least + load > most for load in kept)
        assert len(kept) == 1 or least > 0


@given(loads_of_groups, receivers)
def test_flux_stops_as_soon_as_the_giver_is_within_the_bound(
    loads: dict[int, float], n: int
) -> None:
    shares = flux(loads, n, 0.2)
    most = 1.2 * sum(loads.values()) / (n + 1)
    giver = carried(loads, shares)[0]
    last = min((loads[g] for share in shares for g in share), default=None)
    if last is not None:
        assert giver + last > most


@pytest.mark.parametrize("place", [balanced, lambda loads, n: flux(loads, n, 0.2)])
def test_more_receivers_than_groups_leave_some_with_nothing(place: object) -> None:
    shares = place({0: 1.0, 1: 1.0}, 3)  # type: ignore[operator]
    assert sorted(map(len, shares)) == [0, 0, 1]
