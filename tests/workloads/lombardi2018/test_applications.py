"""Answers 4 and 5: the applications of the paper, and the figures of a course."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.policies.elysium.allocating import Allocate, even, first_fit
from anabranch.runtime.policies.elysium.sizing import CoreBounds
from anabranch.workloads.lombardi2018.applications import T1, T2, ProfiledChain
from anabranch.workloads.lombardi2018.scores import degradation, fair_shares, nodes_saved

BOUNDS = CoreBounds()


def test_answer_4_tuples_per_tweet() -> None:
    rates = [*T1.rates(1.0).values()]
    assert rates == pytest.approx([1, 1, 17.86, 12.1448, 4.979, 0.0498], abs=1e-3)


@pytest.mark.parametrize(
    ("application", "offered", "allocate", "sizes", "usage"),
    [
        (T1, 400, even, [1, 1, 1, 1, 1, 1], [0.717]),
        (T1, 600, even, [1, 1, 2, 1, 1, 1], [0.752, 0.327]),
        (T1, 1000, even, [1, 1, 3, 2, 1, 1], [0.567, 0.603, 0.607]),
        (T1, 1000, first_fit, [1, 1, 3, 2, 1, 1], [0.731, 0.794, 0.251]),
        (T1, 1200, even, [1, 2, 3, 2, 1, 1], [0.801, 0.801, 0.352, 0.174]),
        (T1, 1200, first_fit, [1, 2, 3, 2, 1, 1], [0.769, 0.667, 0.664]),
        (T2, 1000, even, [1, 1, 1, 3, 1, 1], [0.402, 0.553, 0.608, 0.588]),
        (T2, 1000, first_fit, [1, 1, 1, 3, 1, 1], [0.790, 0.749, 0.553]),
    ],
)
def test_answer_4_sizes_and_hosts(
    application: ProfiledChain,
    offered: float,
    allocate: Allocate,
    sizes: list[int],
    usage: list[float],
) -> None:
    found, plan = application.plan(offered, BOUNDS, allocate)
    assert [*found.values()] == sizes
    assert plan.usage == pytest.approx(usage, abs=6e-4)
    assert plan.feasible == (max(usage) <= 0.8)


def test_from_the_present_sizes_nothing_changes_at_the_same_load() -> None:
    present = T1.sizes(1000, BOUNDS)
    assert T1.sizes(1000, BOUNDS, present) == present
    assert T1.sizes(900, BOUNDS, present) == present
    assert T1.sizes(200, BOUNDS, present)["counter"] == 1


def test_answer_5_degradation_and_nodes_saved() -> None:
    assert degradation([100] * 4, [100, 0, 250, 50]) == pytest.approx(0.75)
    assert degradation([100, 0], [50, 9]) == pytest.approx(0.5)
    assert nodes_saved([1, 1, 2, 3]) == pytest.approx(0.5625)


def test_answer_5_fair_shares() -> None:
    assert fair_shares(1.84, [1, 0.2, 0.9]) == pytest.approx([0.82, 0.2, 0.82])


@given(st.floats(0, 8), st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_shares_use_all_that_is_wanted_and_there(cores: float, wanted: list[float]) -> None:
    found = fair_shares(cores, wanted)
    assert all(0 <= got <= want for got, want in zip(found, wanted, strict=True))
    assert sum(found) == pytest.approx(min(cores, sum(wanted)))
    short = [got for got, want in zip(found, wanted, strict=True) if got < want - 1e-9]
    assert not short or min(short) >= max(found) - 1e-9
