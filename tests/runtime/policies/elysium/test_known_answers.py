"""Answers 1 to 3: a chain, its size from two instances, a diamond; and profiles."""

from __future__ import annotations

import pytest

from anabranch.runtime.policies.elysium.allocating import (
    PoolPlan,
    allocated,
    even,
    first_fit,
    placeables,
)
from anabranch.runtime.policies.elysium.costs import (
    HostCost,
    InstanceCost,
    Usage,
    fitted,
    host_cost,
    instance_cost,
    usage,
)
from anabranch.runtime.policies.elysium.rates import (
    RatedStream,
    expected_load,
    input_rates,
    selectivity,
)
from anabranch.runtime.policies.elysium.sizing import CoreBounds, sized, sized_to_the_letter
from anabranch.runtime.values.checks import PipelineError

BOUNDS = CoreBounds()
COSTS = {"A": InstanceCost(0, 0.0001), "B": InstanceCost(0, 0.0008), "C": InstanceCost(0, 0.0004)}
STREAMS = [RatedStream("A", "B", 1.0), RatedStream("B", "C", 0.5)]


def chain_plan(cores: float, allocate=even) -> PoolPlan:  # type: ignore[no-untyped-def]
    rates = input_rates({"A": 1000.0}, STREAMS)
    sizes = {name: sized(COSTS[name].cores, rate, BOUNDS, None) for name, rate in rates.items()}
    assert sizes == {"A": 1, "B": 2, "C": 1}
    taken = {name: COSTS[name].cores(rates[name], p) for name, p in sizes.items()}
    return allocated(placeables(sizes, taken), 4, HostCost(0.1, 1.2, cores), allocate=allocate)


def test_answer_1_a_chain() -> None:
    rates = input_rates({"A": 1000.0}, STREAMS)
    assert rates == {"A": 1000.0, "B": 1000.0, "C": 500.0}
    alone = [COSTS[name].cores(rate) for name, rate in rates.items()]
    assert alone == pytest.approx([0.1, 0.8, 0.2])
    assert chain_plan(4).usage == pytest.approx([0.355])


def test_answer_1_hosts_of_one_core() -> None:
    by_even, by_fit = chain_plan(1), chain_plan(1, first_fit)
    assert by_even.usage == pytest.approx([0.46, 0.58, 0.58])
    assert by_fit.usage == pytest.approx([0.70, 0.58, 0.34])
    assert by_even.feasible
    assert by_fit.feasible


@pytest.mark.parametrize(("rate", "instances", "letter"), [(750, 2, 1), (600, 1, 1)])
def test_answer_2_from_two_instances(rate: float, instances: int, letter: int) -> None:
    """By the present number there is hysteresis; from 1 there is none (EL-G1)."""
    cores_of = COSTS["B"].cores
    assert sized(cores_of, rate, BOUNDS, 2) == instances
    assert sized_to_the_letter(cores_of, rate, BOUNDS) == letter


def test_the_rest_is_not_stressed_by_one_that_leaves() -> None:
    """EL-G2: 0.7 at 100 tuples/s and 0.2 at 50; as printed it ends where it is stressed."""

    def cores_of(rate: float) -> float:
        return 0.7 if rate > 75 else 0.2

    assert sized_to_the_letter(cores_of, 100, BOUNDS) == 1
    assert sized(cores_of, 100, BOUNDS, None) == 2
    assert sized(cores_of, 100, BOUNDS, 2) == 2


def test_answer_3_a_diamond() -> None:
    streams = [RatedStream("S", "A", 1), RatedStream("S", "B", 1), RatedStream("A", "D", 0.5),
               RatedStream("B", "D", 2)]  # fmt: skip
    for order in (streams, streams[::-1]):
        assert input_rates({"S": 100.0}, order)["D"] == 250


def test_streams_in_a_circle_are_refused() -> None:
    with pytest.raises(PipelineError, match="circle"):
        input_rates({"S": 1.0}, [RatedStream("A", "B", 1), RatedStream("B", "A", 1)])


def test_a_selectivity_is_all_results_over_all_tuples() -> None:
    assert selectivity([(10, 5), (30, 35)]) == 1.0
    assert selectivity([(0, 0)]) is None


def test_the_expected_load_is_the_highest_of_the_next_minutes() -> None:
    forecast = [80.0, 120.0, 90.0, 200.0, 0.0]
    assert expected_load(100, forecast, 3) == 120
    assert expected_load(100, forecast, 1) == 100
    assert expected_load(100, forecast, 1, letter=True) == 80
    assert expected_load(100, [], 5) == 100


def test_usage_has_three_states() -> None:
    assert [usage(share, 0.25, 0.65) for share in (0.24, 0.25, 0.65, 0.66)] == [
        Usage.LOW, Usage.AVERAGE, Usage.AVERAGE, Usage.STRESS,
    ]  # fmt: skip


def test_profiles_are_lines_that_do_not_fall() -> None:
    assert fitted([(0, 0.1), (100, 0.2), (200, 0.3)]) == pytest.approx((0.1, 0.001))
    assert fitted([(0, 0.3), (100, 0.1)]) == pytest.approx((0.2, 0))
    assert fitted([(50, 0.3)]) == pytest.approx((0.3, 0))
    assert instance_cost([(0, 0.5), (100, 1.0)]).cores(1000) == 1.0
    host = host_cost([(1, 2.22), (0.5, 1.165)], 4)
    assert (host.base, host.times) == pytest.approx((0.11, 2.11))
    assert (host.share(0), host.share(1.9)) == (0, 1.0)
    with pytest.raises(PipelineError, match="at least one record"):
        fitted([])
