"""What holds for every reading, every setting and every draw."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from hypothesis import event, given
from hypothesis import strategies as st

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.measuring.turns import BATCH_MAX, joining, leaving, settled
from anabranch.runtime.policies.decision import Decision, Duplicate, Hold, Leave, Why
from anabranch.runtime.policies.in_turn import RESERVE
from anabranch.runtime.policies.load import BLOCKED, SATURATED, measure
from anabranch.runtime.policies.memory import Memory
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.policies.probabilistic import decide

NOW_S = 10_000.0
shares = st.floats(0, 1)
rates = st.floats(0, 1000) | st.floats(0, 1e7)
capacities = st.none() | st.floats(100, 1000) | st.floats(0.01, 1e6)
seldom = st.integers(0, 7).map(lambda n: n == 7)


def ages(most_s: float) -> st.SearchStrategy[float]:
    return st.floats(0, most_s).map(lambda age: NOW_S - age)


@st.composite
def scales(draw: st.DrawFn) -> Scale:
    low, target, high = sorted(draw(st.tuples(*[st.floats(0.05, 1)] * 3)))
    least, most = sorted(draw(st.tuples(*[st.integers(1, 40)] * 2)))
    return Scale(
        target=target,
        high=high,
        low=low,
        capacity=draw(capacities),
        min_instances=least,
        max_instances=most,
        period_s=draw(st.floats(0.05, 10)),
        cooldown_s=draw(st.just(0.0) | st.floats(0.001, 20)),
        actions_per_minute_max=draw(st.integers(1, 30)),
    )


@st.composite
def readings(draw: st.DrawFn) -> Reading:
    busy = draw(shares)
    instances = draw(st.integers(1, 60))
    return Reading(
        now_s=NOW_S,
        instances=instances,
        rank=draw(st.none() | st.integers(0, instances - 1)),
        instances_changed_s=draw(ages(100)),
        covered_s=draw(st.floats(0, 1000)),
        keeper=draw(st.booleans()),
        is_source=draw(seldom),
        busy_with_operation=draw(seldom),
        received_per_s=draw(rates),
        processed_per_s=draw(rates),
        capacity=draw(capacities),
        queued=draw(st.integers(0, 1000) | st.integers(0, 100_000)),
        held_upstream=draw(st.just(0.0) | st.floats(0, 1e5)),
        busy=busy,
        starved=1 - busy,
        blocked=draw(st.floats(0, min(0.25, 1 - busy))),
        cpu_wait=draw(shares),
        demand_per_s=draw(st.none() | rates),
    )


underways = st.tuples(ages(6).map(lambda t: t + 3), st.integers(-5, 5).filter(bool))
memories = st.builds(
    Memory,
    due_s=st.just(0.0) | ages(1).map(lambda t: t + 0.5),
    actions=(st.just([]) | st.lists(ages(120), max_size=30)).map(lambda t: tuple(sorted(t))),
    instances=st.integers(0, 60),
    throughput=rates,
    failed_steps=st.integers(0, 100),
    backoff_until_s=st.just(0.0) | ages(10).map(lambda t: t + 5),
    coming=st.just(()) | st.lists(underways, max_size=4).map(tuple),
    overloaded_since_s=st.just(math.inf) | ages(10),
)
decisions = st.tuples(readings(), scales(), memories, st.integers(0, 2**32))


def decided(case: tuple[Reading, Scale, Memory, int]) -> tuple[Decision, Memory]:
    seen, scale, memory, seed = case
    return decide(seen, scale, memory, random.Random(seed))


@given(decisions)
def test_a_decision_is_a_pure_function_of_its_arguments(
    case: tuple[Reading, Scale, Memory, int],
) -> None:
    first, second = decided(case), decided(case)
    assert first == second
    assert first[0].explanation == second[0].explanation
    assert first[0].text == second[0].text


@given(decisions)
def test_bounds_hold_as_far_as_the_instance_sees(
    case: tuple[Reading, Scale, Memory, int],
) -> None:
    seen, scale, memory, _ = case
    decision, after = decided(case)
    recent = [t for t in memory.actions if seen.now_s - t < 60]
    spent = len(after.actions) - len(recent)
    match decision:
        case Duplicate(n=n):
            assert n >= 1
            assert seen.instances + n <= scale.max_instances
            assert spent == n
        case Leave():
            assert not seen.keeper
            assert seen.instances - 1 >= scale.min_instances
            assert seen.busy < SATURATED
            assert spent == 1
        case Hold():
            pass
    if not isinstance(decision, Hold):
        assert len(after.actions) <= scale.actions_per_minute_max


@given(decisions)
def test_nothing_is_decided_too_early(case: tuple[Reading, Scale, Memory, int]) -> None:
    seen, scale, memory, _ = case
    decision, after = decided(case)
    if seen.busy_with_operation or seen.now_s < memory.due_s:
        assert isinstance(decision, Hold)
        assert after == memory
    if seen.now_s - seen.instances_changed_s < scale.cooldown_s:
        assert not isinstance(decision, Leave)
        assert seen.rank is not None or isinstance(decision, Hold)


@given(decisions)
def test_within_bounds_the_load_alone_gives_the_direction(
    case: tuple[Reading, Scale, Memory, int],
) -> None:
    seen, scale, _, _ = case
    decision, _ = decided(case)
    ratio = measure(seen, scale).ratio
    by_bounds = decision.explanation.why in (Why.BELOW_MINIMUM, Why.ABOVE_MAXIMUM)
    if by_bounds or isinstance(decision, Hold):
        return
    assert ratio is not None
    assert not scale.low <= ratio <= scale.high
    assert isinstance(decision, Duplicate) == (ratio > scale.high)
    assert seen.blocked < BLOCKED


@given(readings(), scales(), st.floats(0, 1), st.integers(2, 40), st.integers(0, 2**32))
def test_whoever_leaves_does_not_push_the_others_above_the_target(
    seen: Reading, scale: Scale, load: float, instances: int, seed: int
) -> None:
    """One leaver's load, spread over the others, is at most the target."""
    seen = replace(
        seen,
        instances=instances,
        rank=None,
        instances_changed_s=0.0,
        covered_s=NOW_S,
        busy_with_operation=False,
        keeper=False,
        received_per_s=1000 * load,
        queued=0,
        held_upstream=0.0,
        demand_per_s=None,
    )
    scale = replace(scale, capacity=1000.0, min_instances=1, max_instances=40)
    decision, _ = decide(seen, scale, Memory(), random.Random(seed))
    event(type(decision).__name__)
    if isinstance(decision, Leave):
        assert load * instances / (instances - 1) <= scale.target * (1 + 1e-6)


@given(readings(), scales(), st.integers(0, 2**32))
def test_more_demand_never_means_fewer_duplicates(seen: Reading, scale: Scale, seed: int) -> None:
    """With the same draw, so that only the load differs."""

    def made(queued: int) -> int:
        decision, _ = decide(replace(seen, queued=queued), scale, Memory(), random.Random(seed))
        return decision.n if isinstance(decision, Duplicate) else 0

    assert made(seen.queued) <= made(seen.queued + 50_000)


@given(st.integers(1, 60), st.floats(0.81, 20), st.integers(0, 10**6), st.floats(0.1, 5))
def test_siblings_that_see_the_same_start_exactly_what_is_missing(
    siblings: int, load: float, slot: int, period_s: float
) -> None:
    scale = Scale(capacity=1000.0, max_instances=10**6, period_s=period_s, cooldown_s=0.0,
                  actions_per_minute_max=10**6)  # fmt: skip
    made = [d.n for d in together(siblings, load, scale, slot) if isinstance(d, Duplicate)]
    exact = load * siblings / scale.target - siblings
    if load > 0.9:
        assert sum(made) == math.floor(exact + 0.5)
    else:
        assert made == []  # slight, and only just begun
    assert max(made, default=0) <= max(BATCH_MAX, math.ceil(exact / siblings) + 1)


@given(st.integers(2, 60), st.floats(0, 0.59), st.integers(0, 10**6))
def test_of_siblings_that_see_the_same_the_youngest_leave(
    siblings: int, load: float, slot: int
) -> None:
    scale = Scale(capacity=1000.0, max_instances=60, cooldown_s=0.0)
    leave = [isinstance(d, Leave) for d in together(siblings, load, scale, slot)]
    stay = max(1, math.ceil(load * siblings / scale.target + RESERVE))
    assert leave == [rank >= stay for rank in range(siblings)]


def together(siblings: int, load: float, scale: Scale, slot: int) -> list[Decision]:
    """What all decide in one slot; the keeper is the oldest."""
    now_s = (slot + 0.5) * scale.period_s
    seen = [
        Reading(
            now_s=now_s,
            instances=siblings,
            instances_changed_s=-100.0,
            covered_s=100.0,
            rank=rank,
            keeper=rank == 0,
            received_per_s=load * 1000,
            busy=min(load, 0.9),
        )
        for rank in range(siblings)
    ]
    return [decide(s, scale, Memory(), random.Random(0))[0] for s in seen]


@given(st.lists(st.tuples(st.floats(0, 9), st.integers(-5, 5).filter(bool))), st.integers(-9, 9))
def test_what_is_under_way_shrinks_by_what_came_and_never_turns_round(
    entries: list[tuple[float, int]], change: int
) -> None:
    coming = tuple(entries)
    left = settled(coming, change, 0.0)
    assert 0 <= joining(left) <= joining(coming)
    assert 0 <= leaving(left) <= leaving(coming)
    assert joining(coming) - joining(left) <= max(change, 0) + sum(n > 0 and t <= 0 for t, n in
                                                                   entries) * 5  # fmt: skip
    assert settled(left, 0, 10.0) == ()
