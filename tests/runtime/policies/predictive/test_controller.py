"""The controller of one operator: PL1, PL6, PL7 and PL9 together, with PL-K3, PL-K5 and PL-P7."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.policies.predictive.controller import (
    ControllerMemory,
    Decision,
    Settings,
    Slot,
    step,
)
from anabranch.runtime.policies.predictive.queueing import QueueLoad, wait_as_one, wait_split

MS = 1e-3
WORK_S = 10 * MS


def sums(rate: float, *, work_cv2: float = 0.5, cv2: float = 1.0, backlog: float = 0) -> SlotSums:
    """Of three seconds with slices of one tuple; 30 counts of that variance over their mean."""
    arrived = rate * 3
    mean = arrived / 30
    busy_s = arrived * WORK_S
    return SlotSums(
        seconds=3.0,
        arrived=arrived,
        processed=arrived,
        busy_s=busy_s,
        squares=busy_s * WORK_S + work_cv2 * WORK_S**2 * (arrived - 1),
        slices=round(arrived),
        counts=arrived,
        counts2=30 * mean**2 + 29 * cv2 * mean,
        ticks=30,
        backlog=backlog,
    )


def settings(change: float = 0.4, horizon: int = 1, most: int = 16) -> Settings:
    return Settings(25, most, horizon, change_weight=change, as_one=True)


def after(chosen: Settings, *slots: Slot) -> tuple[ControllerMemory, Decision]:
    memory = ControllerMemory.of(chosen)
    for slot in slots:
        memory, decision = step(chosen, memory, slot)
    return memory, decision


def as_modelled(rate: float, n: int) -> Slot:
    """A slot whose latency is the model's."""
    wait = wait_as_one(QueueLoad(rate, WORK_S, 1, 0.5), n)
    return Slot(sums(rate), n, WORK_S + wait)


@pytest.mark.parametrize(("change", "target"), [(0.0, 7), (0.4, 6)])
def test_k5_the_figures_of_a_slot_become_the_instances_of_the_next(
    change: float, target: int
) -> None:
    _, decision = after(settings(change), as_modelled(500, 6))
    assert decision.target == target
    assert decision.latency_s is not None
    assert f"{target} instances, busy {5 / target:.0%}" in decision.why
    assert "bound 25 ms, feedback 1)" in decision.why


def test_k5_growth_begins_before_it_is_needed() -> None:
    """Demand of 100/s and then 300/s: 500/s and 700/s are expected."""
    slots = (as_modelled(100, 6), as_modelled(300, 6))
    targets = [after(settings(horizon=h), *slots)[1].target for h in (1, 2)]
    assert targets == [6, 7]


def test_k3_latency_that_the_model_does_not_explain_is_learnt() -> None:
    slot = Slot(sums(900), 10, 31 * MS)
    memory, _ = after(settings(), slot)
    assert memory.feedback.factor == pytest.approx(3.1111, abs=1e-4)


def test_without_measured_latency_the_integral_of_the_queue_says_it() -> None:
    slot = Slot(replace(sums(900), queue_s=2700 * 21 * MS), 10)
    memory, _ = after(settings(), slot)
    assert memory.feedback.factor == pytest.approx(3.1111, abs=1e-4)


def test_p7_where_the_model_is_right_nothing_changes_after_three_steps() -> None:
    free, n, seen = settings(0.0), 12, []
    memory = ControllerMemory.of(free)
    for _ in range(8):
        memory, decision = step(free, memory, as_modelled(500, n))
        n = decision.target
        seen.append(n)
    assert memory.feedback.factor == pytest.approx(1.0)
    assert set(seen[2:]) == {7}


def test_p4_more_than_all_can_bear_gets_all() -> None:
    _, decision = after(settings(), as_modelled(500, 6), Slot(sums(3000), 6, 2.0))
    assert decision.target == 16
    assert decision.latency_s == math.inf
    assert "even 16 instances would be busy" in decision.why


def test_what_waits_is_demand() -> None:
    """A saturated operator takes in no more than it serves (PL-G7)."""
    slot = Slot(sums(570, backlog=900), 6, 100 * MS)
    memory, decision = after(settings(0.0), slot)
    assert memory.demand.level == 870
    assert decision.target >= 10


def test_before_the_first_tuple_everything_stays() -> None:
    memory, decision = after(settings(), Slot(SlotSums(seconds=3.0), 5))
    assert decision == Decision(5, "nothing was processed yet: no forecast")
    assert memory.last is None


def test_a_slot_without_tuples_keeps_what_is_known_of_the_work() -> None:
    memory, decision = after(
        settings(0.0), as_modelled(500, 7), *[Slot(SlotSums(seconds=3.0), 7)] * 6
    )
    assert memory.last is not None
    assert memory.last.rate == 0
    assert memory.last.work_s == pytest.approx(WORK_S)
    assert memory.last.work_cv2 == pytest.approx(0.5)
    assert decision.target == 1
    assert len(memory.feedback.factors) == 1


def test_the_step_is_pure() -> None:
    memory = ControllerMemory.of(settings())
    slot = as_modelled(500, 6)
    assert step(settings(), memory, slot) == step(settings(), memory, slot)
    assert memory == ControllerMemory.of(settings())


def test_counts_of_siblings_say_what_counts_of_all_say() -> None:
    """Of four siblings each sees a variability of 1.11 where all together have 1.44 (PL4b)."""
    at_each = replace(sums(320, cv2=1.44), counts2=0)
    mean = 320 * 3 / 30 / 4
    at_each = replace(at_each, ticks=120, counts2=120 * mean**2 + 119 * 1.11 * mean)
    together, _ = after(settings(), Slot(sums(320, cv2=1.44), 4, 30 * MS))
    apart, _ = after(settings(), Slot(at_each, 4, 30 * MS, streams=4))
    assert together.last is not None
    assert apart.last is not None
    assert apart.last.arrivals_cv2 == pytest.approx(together.last.arrivals_cv2)


@pytest.mark.parametrize(("at", "cv2"), [(1, 1.44), (4, 1.11), (2, 1.22)])
def test_k1_variability_measured_at_some_is_that_at_others(at: int, cv2: float) -> None:
    assert wait_split(at)(QueueLoad(320, WORK_S, cv2, 0.25), 4) == pytest.approx(27.2 * MS)


def test_an_uneven_load_counts_as_that_of_the_busiest() -> None:
    even, uneven = (
        after(settings(0.0), Slot(sums(500), 8, 15 * MS, uneven=u))[1].target for u in (1.0, 1.5)
    )
    busy_as_one_half_more = after(settings(0.0), Slot(sums(750), 8, 15 * MS))[1].target
    assert even < uneven <= busy_as_one_half_more


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"latency_ms": 0}, "latency_ms: expected above 0, got 0"),
        ({"latency_ms": math.nan}, "latency_ms: expected above 0"),
        ({"instances_max": 0}, "instances_max: expected 1 or more, got 0"),
        ({"horizon": 11}, "horizon: expected 1 to 10, got 11"),
        ({"qos_weight": -1}, "qos_weight: expected 0 or more"),
        ({"change_weight": math.nan}, "change_weight: expected 0 or more"),
        ({"trend": 1.5}, "trend: expected 0 to 1, got 1.5"),
        ({"load_max": 1}, "load_max: expected between 0 and 1, got 1"),
    ],
)
def test_settings_that_make_no_sense_are_named(change: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        replace(Settings(250, 8), **change)  # type: ignore[arg-type]
