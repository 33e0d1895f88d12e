"""Section 5 of the specification: what holds of sizes, allocations and the baseline."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.policies.elysium.allocating import (
    Allocate,
    Placeable,
    allocated,
    even,
    first_fit,
)
from anabranch.runtime.policies.elysium.costs import HostCost, InstanceCost
from anabranch.runtime.policies.elysium.joint import joint
from anabranch.runtime.policies.elysium.rates import RatedStream, after_a_hop, input_rates
from anabranch.runtime.policies.elysium.sizing import CoreBounds, sized, sized_to_the_letter

COSTS = st.builds(InstanceCost, st.sampled_from([0.0, 0.02, 0.2]), st.floats(0, 0.01))
RATES = st.floats(0, 2000)
BOUNDS = st.builds(
    CoreBounds, st.sampled_from([0.1, 0.25, 0.5]), st.sampled_from([0.55, 0.65, 0.9]),
    st.integers(1, 8),
)  # fmt: skip
INSTANCES = st.lists(
    st.builds(Placeable, st.sampled_from("abc"), st.integers(0, 99), st.floats(0.001, 1)),
    unique_by=lambda i: (i.operator, i.number),
    max_size=14,
)
HOST = HostCost(0.11, 2.11, 4)


@given(COSTS, RATES, BOUNDS)
def test_from_one_it_is_the_least_that_is_not_stressed(
    cost: InstanceCost, rate: float, bounds: CoreBounds
) -> None:
    p = sized(cost.cores, rate, bounds, None)
    enough = [n for n in range(1, bounds.instances_max + 1) if cost.cores(rate, n) <= bounds.most]
    assert p == (enough[0] if enough else bounds.instances_max)


@given(COSTS, RATES, RATES, BOUNDS)
def test_from_one_more_load_never_takes_fewer(
    cost: InstanceCost, one: float, other: float, bounds: CoreBounds
) -> None:
    low, high = sorted((one, other))
    assert sized(cost.cores, low, bounds, None) <= sized(cost.cores, high, bounds, None)


@given(st.floats(0, 0.01), RATES, st.integers(1, 8))
def test_from_one_it_is_the_letter_where_bounds_are_apart(
    per_tuple: float, rate: float, most: int
) -> None:
    cost, bounds = InstanceCost(0, per_tuple), CoreBounds(0.25, 0.65, most)
    assert sized(cost.cores, rate, bounds, None) == sized_to_the_letter(cost.cores, rate, bounds)


@given(COSTS, RATES, BOUNDS, st.integers(1, 8))
def test_from_the_present_number_it_rests(
    cost: InstanceCost, rate: float, bounds: CoreBounds, present: int
) -> None:
    p = sized(cost.cores, rate, bounds, present)
    assert 1 <= p <= bounds.instances_max
    assert sized(cost.cores, rate, bounds, p) == p
    if present <= bounds.instances_max and (
        bounds.least <= cost.cores(rate, present) <= bounds.most
    ):
        assert p == present


@given(INSTANCES, st.integers(1, 5), st.sampled_from([even, first_fit]))
def test_hosts_are_the_fewest_that_none_of_them_is_overloaded(
    instances: list[Placeable], hosts_max: int, allocate: Allocate
) -> None:
    found = allocated(instances, hosts_max, HOST, 0.8, allocate)
    placed = [(one.operator, one.number) for host in found.hosts for one in host]
    assert sorted(placed) == sorted((one.operator, one.number) for one in instances)
    sums = [sum(one.cores for one in host) for host in found.hosts]
    assert found.feasible == all(HOST.bears(s, 0.8) for s in sums)
    assert found.feasible or len(found.hosts) == hosts_max
    if len(found.hosts) > 1:
        fewer = allocated(instances, len(found.hosts) - 1, HOST, 0.8, allocate)
        assert not fewer.feasible


@given(INSTANCES, st.integers(1, 5))
def test_even_hosts_differ_by_at_most_one_instance(instances: list[Placeable], hosts: int) -> None:
    counts = [len(host) for host in even(instances, hosts, HOST, 0.8)]
    assert max(counts) - min(counts) <= 1


@given(
    st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(1, 4), st.floats(0, 1)),
                    min_size=1),
    st.lists(st.floats(0, 1), min_size=1, max_size=4),
)  # fmt: skip
def test_the_baseline_moves_by_one_and_stays_in_bounds(
    operators: dict[str, tuple[int, float]], hosts: list[float]
) -> None:
    before = {name: p for name, (p, _) in operators.items()}
    used = {name: share for name, (_, share) in operators.items()}
    after, k = joint(before, used, hosts, 4, CoreBounds())
    assert all(abs(after[name] - p) <= 1 and 1 <= after[name] <= 4 for name, p in before.items())
    assert abs(k - len(hosts)) <= 1
    assert 1 <= k <= 4
    if any(after[name] > p for name, p in before.items()):
        assert k == min(4, len(hosts) + 1)


def test_the_baseline_grows_both_and_shrinks_hosts_by_their_own_usage() -> None:
    bounds = CoreBounds()
    assert joint({"a": 1, "b": 2}, {"a": 0.7, "b": 0.1}, [0.5], 4, bounds) == ({"a": 2, "b": 1}, 2)
    assert joint({"a": 2}, {"a": 0.1}, [0.5, 0.3], 4, bounds) == ({"a": 1}, 2)
    assert joint({"a": 2}, {"a": 0.5}, [0.3, 0.3], 4, bounds) == ({"a": 2}, 1)
    assert joint({"a": 2}, {"a": 0.5}, [0.3, 0.9], 4, bounds) == ({"a": 2}, 3)


@given(st.lists(st.floats(0, 5), min_size=5, max_size=5), st.floats(0, 1000),
       st.permutations(range(5)))  # fmt: skip
def test_rates_are_linear_and_go_by_no_order_of_streams(
    each: list[float], offered: float, order: list[int]
) -> None:
    pairs = [("S", "A"), ("S", "B"), ("A", "B"), ("A", "D"), ("B", "D")]
    streams = [RatedStream(a, b, s) for (a, b), s in zip(pairs, each, strict=True)]
    one = input_rates({"S": 1.0}, streams)
    found = input_rates({"S": offered}, [streams[at] for at in order])
    for name, rate in found.items():
        assert abs(rate - offered * one[name]) <= 1e-9 * max(1.0, rate)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3), st.floats(0, 3)), max_size=14,
             unique_by=lambda e: (e[0], e[0] + e[1])),
    st.floats(0, 1000), st.floats(0, 1000),
)  # fmt: skip
def test_announced_rates_are_those_of_the_whole_graph_after_its_depth(
    edges: list[tuple[int, int, float]], one: float, other: float
) -> None:
    streams = [RatedStream(str(a), str(a + step), s) for a, step, s in edges]
    offered = {"0": one, "1": other}
    wanted = input_rates(offered, streams)
    depths = dict.fromkeys(range(11), 0)
    for a, step, _ in sorted(edges):
        depths[a + step] = max(depths[a + step], depths[a] + 1)
    found: dict[str, float] = dict(offered)
    for _ in range(max(depths.values())):
        found = after_a_hop(found, offered, streams)
    for name, rate in found.items():
        assert abs(rate - wanted[name]) <= 1e-9 * max(1.0, rate)
