"""EL10: both stages at once, and when what they say is worth a reconfiguration."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.policies.elysium.allocating import first_fit
from anabranch.runtime.policies.elysium.assessing import (
    AssessmentRules,
    PoolProfile,
    Target,
    assess,
    is_due,
    overloaded,
)
from anabranch.runtime.policies.elysium.costs import HostCost, InstanceCost
from anabranch.runtime.policies.elysium.rates import RatedStream
from anabranch.runtime.policies.elysium.sizing import CoreBounds

COSTS = {"A": InstanceCost(0, 0.0001), "B": InstanceCost(0, 0.0008), "C": InstanceCost(0, 0.0004)}
CHAIN = PoolProfile(
    {name: cost.cores for name, cost in COSTS.items()},
    [RatedStream("A", "B", 1.0), RatedStream("B", "C", 0.5)],
    HostCost(0.1, 1.2, 1),
)
ONES = {"A": 1, "B": 1, "C": 1}
FIT = AssessmentRules(allocate=first_fit)


def test_answer_1_in_one_step() -> None:
    found = assess(CHAIN, AssessmentRules(), {"A": 1000.0}, ONES)
    assert found.sizes == {"A": 1, "B": 2, "C": 1}
    assert (found.hosts, found.feasible) == (3, True)
    assert found.placement == {("A", 0): 0, ("B", 0): 1, ("B", 1): 2, ("C", 0): 0}


def test_answer_2_from_where_it_stands() -> None:
    two = {"A": 1, "B": 2, "C": 1}
    rules = AssessmentRules()
    sizes = [
        assess(CHAIN, replace(rules, start=start), {"A": x}, two).sizes["B"]
        for x in (750.0, 600.0)
        for start in ("current", "one", "letter")
    ]
    assert sizes == [2, 1, 1, 1, 1, 1]


def test_an_operator_may_have_bounds_of_its_own() -> None:
    rules = AssessmentRules(bounds_of={"B": CoreBounds(instances_max=1)})
    assert assess(CHAIN, rules, {"A": 1000.0}, ONES).sizes["B"] == 1


def test_what_no_hosts_bear_is_infeasible() -> None:
    found = assess(CHAIN, AssessmentRules(hosts_max=2), {"A": 1000.0}, ONES)
    assert (found.hosts, found.feasible) == (2, False)


@given(st.floats(0, 3000), st.sampled_from([AssessmentRules(), FIT]))
def test_what_an_assessment_has_said_is_not_due_again(x: float, rules: AssessmentRules) -> None:
    first = assess(CHAIN, rules, {"A": x}, ONES)
    again = assess(CHAIN, rules, {"A": x}, first.sizes)
    assert not is_due(CHAIN, rules, {"A": x}, first, again)


def test_another_placement_is_due_only_if_the_present_one_overloads_a_host() -> None:
    here = {("A", 0): 0, ("B", 0): 0, ("B", 1): 1, ("C", 0): 1}
    there = {("A", 0): 1, ("B", 0): 0, ("B", 1): 1, ("C", 0): 0}
    sizes = {"A": 1, "B": 2, "C": 1}
    present, wanted = Target(sizes, 2, here), Target(sizes, 2, there)
    # At 800/s: B 0.32 each, C 0.16, A 0.08; of one core 0.58 and 0.68.
    assert not is_due(CHAIN, FIT, {"A": 800.0}, present, wanted)
    rates = CHAIN.rates({"A": 1100.0})
    assert overloaded(CHAIN, FIT, rates, present)
    assert is_due(CHAIN, FIT, {"A": 1100.0}, present, wanted)
    assert not is_due(CHAIN, FIT, {"A": 1100.0}, present, replace(wanted, feasible=False))
    assert is_due(CHAIN, FIT, {"A": 800.0}, present, replace(wanted, hosts=3))
