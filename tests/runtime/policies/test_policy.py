"""The rules of the probabilistic policy, one claim each."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.decision import Decision, Duplicate, Hold, Leave, Why
from anabranch.runtime.policies.fixed import Fixed
from anabranch.runtime.policies.load import DRAIN_S, measure
from anabranch.runtime.policies.memory import Memory
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.policies.probabilistic import Probabilistic, decide

SCALE = Scale(target=0.7, high=0.8, low=0.6, capacity=1000.0, max_instances=8)


def reading(load: float = 0.7, **changes: Any) -> Reading:
    """An instance at `load` of a capacity of 1,000 tuples/s, long after the last change."""
    rate = load * 1000.0
    values: dict[str, Any] = {
        "now_s": 100.0,
        "instances": 1,
        "instances_changed_s": 0.0,
        "covered_s": 100.0,
        "received_per_s": rate,
        "processed_per_s": min(rate, 1000.0),
        "capacity": 1000.0,
        "busy": min(load, 0.94),
    }
    return Reading(**(values | changes))


def decided(
    seen: Reading, scale: Scale = SCALE, memory: Memory | None = None, seed: int = 1
) -> Decision:
    return decide(seen, scale, memory or Memory(), random.Random(seed))[0]


def why(decision: Decision) -> Why | str:
    return decision.explanation.why


def mean_duplicates(seen: Reading, scale: Scale = SCALE, draws: int = 20_000) -> float:
    rng = random.Random(7)
    results = (decide(seen, scale, Memory(), rng)[0] for _ in range(draws))
    return sum(d.n for d in results if isinstance(d, Duplicate)) / draws


def share_leaving(seen: Reading, scale: Scale = SCALE, draws: int = 20_000) -> float:
    rng = random.Random(7)
    results = (decide(seen, scale, Memory(), rng)[0] for _ in range(draws))
    return sum(isinstance(d, Leave) for d in results) / draws


@pytest.mark.parametrize("load", [0.6, 0.65, 0.7, 0.79, 0.8])
def test_within_the_thresholds_nothing_happens(load: float) -> None:
    decision = decided(reading(load, instances=3))
    assert decision == Hold(decision.explanation)
    assert why(decision) is Why.DEAD_BAND


@pytest.mark.parametrize("load", [0.85, 1.0, 1.75, 2.9, 4.3])
def test_an_overloaded_instance_makes_p_duplicates_in_expectation(load: float) -> None:
    p = load / 0.7 - 1
    assert mean_duplicates(reading(load)) == pytest.approx(p, abs=0.015)


def test_the_certain_part_of_p_is_always_made_and_at_most_one_more() -> None:
    rng = random.Random(3)
    made = {decide(reading(2.0), SCALE, Memory(), rng)[0] for _ in range(200)}
    assert {d.n for d in made if isinstance(d, Duplicate)} == {1, 2}
    assert not any(isinstance(d, Hold) for d in made)


def test_a_fractional_p_can_make_one_duplicate() -> None:
    """Erratum PE1: with `n > 1` a single duplication would never happen."""
    rng = random.Random(3)
    made = [decide(reading(0.9), SCALE, Memory(), rng)[0] for _ in range(200)]
    assert {d.n for d in made if isinstance(d, Duplicate)} == {1}
    assert any(isinstance(d, Hold) and why(d) is Why.OVERLOADED for d in made)


@pytest.mark.parametrize(
    ("load", "instances", "surplus"),
    [(0.35, 2, 1), (0.5, 4, 1), (0.35, 4, 2), (0.1, 8, 6), (0.0, 3, 3), (0.55, 8, 1)],
)
def test_the_surplus_is_shared_by_those_that_may_leave(
    load: float, instances: int, surplus: int
) -> None:
    """Errata PE3 and PE5: the absolute value, over the n - 1 instances without the keeper."""
    scale = replace(SCALE, min_instances=1)
    expected = min(1.0, min(surplus, instances - 1) / (instances - 1))
    share = share_leaving(reading(load, instances=instances), scale)
    assert share == pytest.approx(expected, abs=0.015)


@pytest.mark.parametrize(("load", "instances"), [(0.5, 2), (0.4, 2), (0.55, 4), (0.48, 3)])
def test_less_than_a_whole_superfluous_instance_stays(load: float, instances: int) -> None:
    """Erratum PE4: rounding away from zero would leave the others overloaded."""
    decision = decided(reading(load, instances=instances))
    assert why(decision) is Why.NO_SURPLUS
    assert share_leaving(reading(load, instances=instances), draws=500) == 0


def test_the_keeper_never_leaves() -> None:
    decision = decided(reading(0.0, instances=5, keeper=True))
    assert why(decision) is Why.KEEPER


def test_an_idle_newcomer_without_a_measured_capacity_can_leave() -> None:
    scale = replace(SCALE, capacity=None)
    seen = reading(0.0, instances=2, capacity=None, busy=0.0)
    assert isinstance(decided(seen, scale), Leave)


def test_an_unknown_capacity_decides_nothing() -> None:
    scale = replace(SCALE, capacity=None)
    assert why(decided(reading(3.0, capacity=None, busy=0.5), scale)) is Why.NO_CAPACITY


def test_a_given_capacity_wins_over_the_measured_one() -> None:
    assert measure(reading(0.7, capacity=10.0), SCALE).ratio == pytest.approx(0.7)
    assert measure(reading(0.7, capacity=10.0), replace(SCALE, capacity=None)).ratio == 70.0


def test_demand_counts_the_queue_and_what_predecessors_hold() -> None:
    """Under backpressure the arrival rate equals the service rate and hides the load."""
    seen = reading(0.75, queued=1000, held_upstream=2000.0)
    load = measure(seen, SCALE)
    assert load.demand_per_s == pytest.approx(750 + 3000 / DRAIN_S)
    assert isinstance(decided(replace(seen, queued=5000)), Duplicate)


def test_four_long_items_do_not_become_a_crowd() -> None:
    """P13: items of ten seconds in the queue are worth their service times, not five seconds."""
    scale = replace(SCALE, capacity=0.1, max_instances=100)
    seen = reading(received_per_s=0.0, processed_per_s=0.0, queued=4, busy=0.5)
    assert mean_duplicates(seen, scale, draws=2000) < 1


def test_an_instance_busy_all_the_time_never_leaves_and_counts_as_overloaded() -> None:
    """P13: rates that say otherwise are wrong."""
    seen = reading(0.05, instances=4, busy=1.0)
    assert not isinstance(decided(seen), Leave)
    assert measure(seen, SCALE).ratio == 1.0
    assert mean_duplicates(seen) == pytest.approx(1 / 0.7 - 1, abs=0.015)


def test_an_instance_blocked_by_its_successors_decides_nothing() -> None:
    for load in (0.1, 0.7, 3.0):
        seen = reading(load, instances=3, blocked=0.5, busy=0.4, blocked_by="count.0")
        assert why(decided(seen)) is Why.BLOCKED


def test_a_full_host_gets_no_more_processes_if_the_capacity_is_measured() -> None:
    seen = reading(1.5, cpu_wait=0.6)
    assert why(decided(seen, replace(SCALE, capacity=None))) is Why.HOST_FULL
    assert isinstance(decided(seen, SCALE, seed=2), Duplicate)


def test_a_source_that_is_always_ready_decides_nothing() -> None:
    for busy in (0.0, 1.0):
        assert why(decided(reading(5.0, instances=2, is_source=True, busy=busy))) is Why.SOURCE


def test_a_paced_source_that_lags_scales() -> None:
    seen = reading(0.2, is_source=True, demand_per_s=2100.0)
    assert decided(seen) == Duplicate(2, decided(seen).explanation)


def test_no_decision_while_an_own_operation_is_open() -> None:
    assert why(decided(reading(5.0, busy_with_operation=True))) is Why.OWN_OPERATION


def test_no_decision_until_the_change_of_instances_is_a_cool_down_ago() -> None:
    seen = reading(5.0, instances_changed_s=97.5, covered_s=2.5)
    assert why(decided(seen)) is Why.COOLING_DOWN
    assert decided(seen).explanation.wait_s == pytest.approx(0.5)
    assert isinstance(decided(replace(seen, instances_changed_s=97.0)), Duplicate)


def test_where_ranks_are_told_the_cool_down_holds_leaves_only() -> None:
    grows = reading(5.0, rank=0, instances_changed_s=97.5, covered_s=2.5)
    assert isinstance(decided(grows), Duplicate)
    leaves = reading(0.0, rank=1, instances=2, instances_changed_s=97.5, covered_s=2.5)
    held = decided(leaves)
    assert why(held) is Why.COOLING_DOWN
    assert held.explanation.wait_s == pytest.approx(0.5)
    assert isinstance(decided(replace(leaves, instances_changed_s=97.0)), Leave)


@pytest.mark.parametrize("n", [3, 6, 9])
def test_siblings_that_count_on_each_other_in_vain_agree_soon(n: int) -> None:
    """Each expects instances that do not come, until a moment of its own in which it is not its
    turn: then it counts on the one whose turn it is, which counts on another."""
    memories = {rank: Memory(coming=((102.0 + (rank + 1) % 3, n),)) for rank in range(n)}
    for slot, rank in itertools.product(range(102, 102 + 3 * 3), memories):
        overloaded = reading(1.0, now_s=float(slot), instances=n, rank=rank)
        decision, memories[rank] = decide(
            overloaded, replace(SCALE, max_instances=30), memories[rank], random.Random(1)
        )
        if isinstance(decision, Duplicate):
            return
    pytest.fail("each of them still counts on another")


def test_no_decision_on_samples_shorter_than_the_period_or_four_tuples() -> None:
    scale = replace(SCALE, cooldown_s=0.0)
    assert why(decided(reading(5.0, covered_s=0.9), scale)) is Why.FEW_SAMPLES
    slow = replace(scale, capacity=0.1)
    assert why(decided(reading(0.0, covered_s=30.0), slow)) is Why.FEW_SAMPLES
    assert why(decided(reading(0.0, covered_s=40.0), slow)) is not Why.FEW_SAMPLES


def test_decisions_come_once_per_period_with_jitter() -> None:
    rng = random.Random(5)
    memory, seen, times = Memory(), reading(0.7), []
    for tick in range(4000):
        seen = replace(seen, now_s=100 + tick / 100)
        decision, memory = decide(seen, SCALE, memory, rng)
        if why(decision) is not Why.NOT_DUE:
            times.append(seen.now_s)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert min(gaps) >= 0.9
    assert max(gaps) <= 1.12
    assert len({round(g, 2) for g in gaps}) > 5


def test_own_actions_start_a_cool_down() -> None:
    rng = random.Random(1)
    decision, memory = decide(reading(3.0), SCALE, Memory(), rng)
    assert isinstance(decision, Duplicate)
    later, _ = decide(reading(3.0, now_s=102.0), SCALE, memory, rng)
    assert why(later) is Why.COOLING_DOWN


def test_actions_per_minute_are_bounded() -> None:
    scale = replace(SCALE, max_instances=1000, actions_per_minute_max=3)
    decision, memory = decide(reading(9.0), scale, Memory(), random.Random(1))
    assert decision == Duplicate(3, decision.explanation)
    again, memory = decide(reading(9.0, now_s=110.0), scale, memory, random.Random(1))
    assert why(again) is Why.BUDGET
    assert again.explanation.wait_s == pytest.approx(50.0)
    afterwards, _ = decide(reading(9.0, now_s=161.0), scale, memory, random.Random(1))
    assert isinstance(afterwards, Duplicate)


def test_the_maximum_is_honoured_by_all_siblings_together() -> None:
    """Eight overloaded siblings that decide at once leave the expectation at the maximum."""
    scale = replace(SCALE, max_instances=10)
    assert mean_duplicates(reading(3.0, instances=8), scale) == pytest.approx(2 / 8, abs=0.015)
    assert why(decided(reading(3.0, instances=10), scale)) is Why.AT_MAXIMUM


def test_above_the_maximum_instances_leave_unless_busy_all_the_time() -> None:
    scale = replace(SCALE, max_instances=3)
    seen = reading(0.75, instances=5)
    assert share_leaving(seen, scale) == pytest.approx(2 / 4, abs=0.015)
    assert why(decided(replace(seen, busy=1.0), scale)) is Why.SATURATED
    assert why(decided(replace(seen, keeper=True), scale)) is Why.DEAD_BAND


def test_below_the_minimum_the_keeper_alone_refills_at_once() -> None:
    scale = replace(SCALE, min_instances=4)
    seen = reading(0.0, instances=2, covered_s=0.0, keeper=True)
    assert decided(seen, scale) == Duplicate(2, decided(seen, scale).explanation)
    other = decided(replace(seen, keeper=False, covered_s=50.0), scale)
    assert why(other) is Why.AT_MINIMUM


def test_the_minimum_limits_the_surplus() -> None:
    scale = replace(SCALE, min_instances=3)
    share = share_leaving(reading(0.0, instances=5), scale)
    assert share == pytest.approx(2 / 4, abs=0.015)


def grown(throughput_each: float, load: float = 1.5, **changes: Any) -> tuple[Decision, Memory]:
    """The decision after a growth from 2 to 3 instances which were 1,000/s each before."""
    before = Memory(instances=2, throughput=2000.0)
    values = {"instances": 3, "processed_per_s": throughput_each} | changes
    return decide(reading(load, **values), SCALE, before, random.Random(2))


def test_a_step_that_did_not_help_is_not_repeated_at_once() -> None:
    decision, memory = grown(2000.0 / 3)
    assert why(decision) is Why.BACKING_OFF
    assert memory.backoff_until_s == pytest.approx(100 + 2 * SCALE.cooldown_s)


def test_a_step_that_helped_may_be_repeated() -> None:
    decision, memory = grown(1000.0)
    assert why(decision) is Why.OVERLOADED
    assert memory.failed_steps == 0


def test_the_wait_doubles_with_every_step_that_did_not_help() -> None:
    memory = Memory()
    waits = []
    for instances in range(2, 7):
        seen = reading(1.5, now_s=1000.0 * instances, instances=instances)
        seen = replace(seen, processed_per_s=1000.0 / instances)
        _, memory = decide(seen, SCALE, memory, random.Random(1))
        if memory.failed_steps:
            waits.append(memory.backoff_until_s - seen.now_s)
    assert waits == [6.0, 12.0, 24.0, 48.0]


def test_a_step_that_ended_the_overload_is_not_held_against_anybody() -> None:
    decision, memory = grown(500.0, load=0.75)
    assert why(decision) is Why.DEAD_BAND
    assert memory.failed_steps == 0


def test_a_newcomer_inherits_what_its_maker_learnt() -> None:
    """Without that every newcomer would repeat the experiment that made it."""
    chosen = Probabilistic()
    _, memory = grown(2000.0 / 3)
    child = chosen.born(chosen.heritage(memory, 100.0), 5000.0)
    assert child.failed_steps == 1
    assert child.backoff_until_s == pytest.approx(5006.0)
    assert child.instances == 3
    assert child.throughput == pytest.approx(2000.0)
    assert chosen.born({}, 7.0) == Memory(backoff_until_s=7.0)


def test_the_decision_tells_its_numbers_in_one_line() -> None:
    decision = decided(reading(1.0, instances=2, queued=500))
    numbers = decision.explanation
    assert numbers.demand_per_s == 1100.0
    assert numbers.load == pytest.approx(1.1)
    assert numbers.p == pytest.approx(1.1 / 0.7 - 1)
    assert numbers.probability == pytest.approx(0.571, abs=0.001)
    assert "overloaded; load 1.10 (demand 1,100 of 1,000/s); p = +0.57" in decision.text
    assert "\n" not in decision.text


def test_the_fixed_policy_never_scales() -> None:
    decision, _ = Fixed().decide(reading(9.0), SCALE, None, random.Random(1))
    assert why(decision) is Why.FIXED
