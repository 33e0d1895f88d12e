"""The step model: answers 1 and 7, and what holds of every course (HI1 to HI3, HI18 to HI20)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.runtime.policies.hierarchical.thresholds import by_idle_hosts, by_threshold
from anabranch.workloads.russorusso2018.bound import fewest
from anabranch.workloads.russorusso2018.hosts import Fleet
from anabranch.workloads.russorusso2018.loads import SLOTS, drawn, recorded
from anabranch.workloads.russorusso2018.managing import simple, threshold
from anabranch.workloads.russorusso2018.model import StepModel, simulate
from anabranch.workloads.russorusso2018.rows import LEARNS, ROWS, STATIC, THRESHOLD, Row
from anabranch.workloads.russorusso2018.setup import (
    CAPACITY,
    FACTORS,
    INSTANCES_MAX,
    NETWORK_S,
    OPERATORS,
    REGION_OF,
    REGIONS,
    response_times,
)
from tests.workloads.russorusso2018.taxi import TAXI, first_day

whole_recording = pytest.mark.skipif(TAXI is None, reason="the recording is not here")


def test_answer_1_response_times() -> None:
    of_one = response_times(CAPACITY * np.array([0.5, 0.75, 0.9, 1.0]), np.ones(4))
    assert 1000 * of_one == pytest.approx([4.5455, 7.5758, 16.6667, np.inf], abs=1e-4)
    all_of_them = response_times(600 * FACTORS, np.array([3, 13, 5, 5]))
    assert 1000 * (all_of_them.sum() + NETWORK_S) == pytest.approx(29.0566, abs=1e-4)


def test_answer_7_the_first_minutes_of_the_load() -> None:
    assert first_day()[[0, 29, 30]] == pytest.approx([249.6959, 219.4575, 217.3721], abs=1e-4)


def check_answer_7(row: Row) -> None:
    course = simulate([row], first_day(), 0)[0]
    found = course.violated.sum(), course.changed.sum(), course.instances.sum(dtype=int)
    assert found == (3, 28, 25_809)


def test_answer_7_threshold_managers_on_the_first_day() -> None:
    check_answer_7(Row(STATIC, THRESHOLD))


def test_answer_7_is_of_no_other_row() -> None:
    with pytest.raises(AssertionError):
        check_answer_7(Row(LEARNS, THRESHOLD))


@whole_recording
def test_answer_7_the_load_of_the_recording() -> None:
    assert TAXI is not None
    means = recorded(TAXI)
    assert means[:1440] == pytest.approx(first_day())
    assert (len(means), means.mean()) == (SLOTS, pytest.approx(341.5, abs=1e-6))
    load = drawn(means, 1)
    assert np.percentile(load, [50, 99]) == pytest.approx([376, 608], abs=3)
    assert np.abs(np.diff(load)).mean() == pytest.approx(20.1, abs=0.1)


@whole_recording
@pytest.mark.slow
def test_answer_7_threshold_managers_on_the_whole_load() -> None:
    assert TAXI is not None
    course = simulate([Row(STATIC, THRESHOLD)], recorded(TAXI), 0)[0]
    found = course.violated.sum(), course.changed.sum(), course.instances.sum(dtype=int)
    assert found == (3, 1_665, 1_720_019)


@given(st.floats(0, 3000), st.integers(1, INSTANCES_MAX))
def test_thresholds_of_all_operators_at_once_are_those_of_one(rate: float, n: int) -> None:
    use = min(1.0, rate / (n * CAPACITY))
    together = threshold(np.full((1, 4), use), np.full((1, 4), n))
    alone = by_threshold([use] * n, INSTANCES_MAX)
    near = n > 1 and use * n / (n - 1) == pytest.approx(0.5625, rel=1e-12)
    assert near or set(together[0].tolist()) == {alone}


@given(st.integers(0, 50), st.integers(0, 5))
def test_simple_regions_at_once_are_those_of_one(hosts: int, idle: int) -> None:
    found = simple(np.array([[hosts]]), np.array([[min(idle, hosts)]]))
    assert found.item() == by_idle_hosts(hosts, min(idle, hosts), 50)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=60),
       st.integers(0, 2**16))  # fmt: skip
def test_hosts_have_two_slots_and_none_closes_with_an_instance_on_it(
    changes: list[tuple[int, bool, bool]], seed: int
) -> None:
    fleet, rng = Fleet([None, 3], [1, 0]), Random(seed)
    instances = [1] * len(OPERATORS)
    for operator, grows, opens in changes:
        region = REGION_OF[operator]
        free = int(fleet.free_slots[0, region])
        if grows:
            placed = fleet.place(0, operator)
            assert placed == (free > 0)
            instances[operator] += placed
        elif instances[operator] > 1:
            fleet.remove(0, operator, rng, emptiest=opens)
            instances[operator] -= 1
        actions = np.zeros_like(fleet.hosts)
        actions[0, region] = 1 if opens else -min(1, int(fleet.idle[0, region]))
        fleet.change(actions)
        for number in range(len(REGIONS)):
            here = [n for n, r in zip(instances, REGION_OF, strict=True) if r == number]
            assert fleet.taken[0, number] == sum(here)
        assert np.all(fleet.free_slots >= 2 * fleet.idle)
        assert np.all(fleet.idle >= 0)
        assert fleet.hosts[1].tolist() == [3, 3, 3]
    if not fleet.idle[0].all():
        with pytest.raises(ValueError, match="never closes"):
            fleet.change(np.array([[-1, -1, -1], [0, 0, 0]]))


def test_the_emptiest_host_is_freed_first() -> None:
    """HI-G23: three instances of the splitter on two hosts; the one that is alone leaves."""
    for seed in range(5):
        fleet = Fleet([2], [0])
        fleet.place(0, 0)
        fleet.place(0, 0)
        fleet.remove(0, 0, Random(seed), emptiest=True)
        assert fleet.idle[0].tolist() == [1, 1, 1]


@settings(max_examples=15)
@given(st.integers(0, 2**16))
def test_every_row_keeps_its_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = StepModel(ROWS, seed)
    for t, rate in enumerate(rng.uniform(0, 900, 80).tolist()):
        model.step(t, rate)
        assert np.all((model.instances >= 1) & (model.instances <= INSTANCES_MAX))
        assert np.all((model.fleet.hosts >= 0) & (model.fleet.hosts <= 50))
        assert np.all(model.fleet.free_slots >= 0)
        in_region = [
            sum(model.instances[:, o] for o in range(4) if REGION_OF[o] == r) for r in range(3)
        ]
        assert np.array_equal(model.fleet.taken.T, np.array(in_region))


def test_the_same_seed_gives_the_same_course_whatever_runs_beside_it() -> None:
    load = drawn(first_day()[:300], 5)
    together = dict(zip([r.name for r in ROWS], simulate(ROWS, load, 5), strict=True))
    for row in (Row(LEARNS, LEARNS), Row(LEARNS, LEARNS, emptiest=True, free_slots=True)):
        alone, beside = simulate([row], load, 5)[0], together[row.name]
        assert np.array_equal(alone.instances, beside.instances)
        assert np.array_equal(alone.hosts, beside.hosts)
        assert alone.cost == pytest.approx(beside.cost)


def test_an_action_of_a_region_pays_with_the_refusals_of_the_next_slot() -> None:
    """HI19: without hosts nothing is granted, and the costs are learnt where that was seen."""
    model = StepModel([Row(LEARNS, THRESHOLD)], 0)
    learners = model._regions[0][1]
    model.step(0, 600.0)
    assert not learners._tables.costs.any()  # type: ignore[attr-defined]
    model.step(1, 600.0)
    costs = learners._tables.costs  # type: ignore[attr-defined]
    assert costs[:, 0, 1, 10] == pytest.approx([0.07] * 3)
    assert not costs[:, 1].any()


def test_who_knows_the_load_needs_the_fewest() -> None:
    assert fewest(np.array([100.0, 0.0])) == ((5 + 4) / 2, 3)
    load = np.array([600.0] * 3)
    instances, hosts = fewest(load)
    assert (instances, hosts) == (22, 11)  # with 20 each queue takes 18 ms, with 21 all 63
    course = simulate([Row(STATIC, THRESHOLD)], np.full(60, 600.0), 0)[0]
    assert fewest(load, of_operators=True)[0] <= course.instances[-1]


@whole_recording
def test_who_knows_the_load_of_the_recording() -> None:
    """Clairvoyant, with the bound of each operator: 14.08 and 7.45."""
    assert TAXI is not None
    load = drawn(recorded(TAXI), 0)
    assert fewest(load, of_operators=True) == pytest.approx((14.08, 7.45), abs=0.01)
    assert fewest(load) == pytest.approx((13.13, 6.97), abs=0.01)


def test_names_of_rows_are_names() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert replace(ROWS[0], w_d=0.1).name == "static, threshold, w_d 0.1"
