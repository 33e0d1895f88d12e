"""HI16, HI17 and answer 8: who is granted what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.policies.hierarchical.budgeting import (
    Consolidate,
    HostBudget,
    HostRequest,
    grant_hosts,
    post_actions,
)
from anabranch.runtime.policies.hierarchical.granting import (
    GrantAnswer,
    InstanceRequest,
    Tokens,
    grant,
    grant_by_tokens,
)
from anabranch.runtime.values.checks import PipelineError

REQUESTS = st.lists(
    st.builds(
        InstanceRequest,
        operator=st.integers(0, 9),
        action=st.sampled_from([-1, 1]),
        region=st.sampled_from(["dc1", "dc2"]),
        response_s=st.sampled_from([0.001, 0.02, float("inf")]),
        gain=st.sampled_from([0.0, 0.1, 2.0]),
    ),
    max_size=8,
    unique_by=lambda r: r.operator,
)
SLOTS = st.fixed_dictionaries({"dc1": st.integers(0, 3), "dc2": st.integers(0, 3)})


def operators(answers: list[tuple[InstanceRequest, GrantAnswer]], answer: GrantAnswer) -> list[int]:
    return [request.operator for request, given in answers if given is answer]


def test_leaves_free_slots_for_the_slowest_and_ties_go_by_the_graph() -> None:
    answers = grant(
        [
            InstanceRequest(0, 1, "dc", 0.005),
            InstanceRequest(1, 1, "dc", float("inf")),
            InstanceRequest(2, 1, "dc", float("inf")),
            InstanceRequest(3, -1, "dc", 0.001),
            InstanceRequest(4, 1, "elsewhere", 9.0),
        ],
        {"dc": 0},
    )
    assert operators(answers, GrantAnswer.GRANTED) == [3, 1]
    assert operators(answers, GrantAnswer.NO_SLOT) == [2, 4, 0]


@given(REQUESTS, SLOTS)
def test_grants_are_at_most_free_slots_and_leaves(
    requests: list[InstanceRequest], slots: dict[str, int]
) -> None:
    answers = grant(requests, slots)
    assert {r.operator for r, _ in answers} == {r.operator for r in requests}
    for region, free in slots.items():
        here = [r.action for r, a in answers if r.region == region and a is GrantAnswer.GRANTED]
        assert sum(here) <= free
        refused = [r for r, a in answers if r.region == region and a is GrantAnswer.NO_SLOT]
        assert not refused or sum(here) == free
    assert all(a is GrantAnswer.GRANTED for r, a in answers if r.action < 0)


def test_answer_8_a_bucket_of_tokens() -> None:
    tokens = Tokens.full(2, 0.5)
    waiting = [InstanceRequest(n, 1, "dc") for n in range(3)]
    granted = []
    for _ in range(3):
        answers, tokens = grant_by_tokens(waiting, {"dc": 9}, tokens, too_slow=False)
        done = operators(answers, GrantAnswer.GRANTED)
        granted.append(len(done))
        waiting = [r for r in waiting if r.operator not in done]
        tokens = tokens.next_slot()
    assert granted == [2, 0, 1]


def test_while_the_bound_is_missed_none_leaves_and_gain_comes_first() -> None:
    asked = [InstanceRequest(0, 1, "dc", 0.01, 0.1), InstanceRequest(1, 1, "dc", 0.01, 0.5),
             InstanceRequest(2, -1, "dc", 0.01, 9.0)]  # fmt: skip
    slow, _ = grant_by_tokens(asked, {"dc": 9}, Tokens(2, 1, 1), too_slow=True)
    assert operators(slow, GrantAnswer.GRANTED) == [1]
    assert operators(slow, GrantAnswer.NOT_NOW) == [2]
    assert operators(slow, GrantAnswer.NO_TOKEN) == [0]
    fine, _ = grant_by_tokens(asked, {"dc": 9}, Tokens(2, 1, 1), too_slow=False)
    assert operators(fine, GrantAnswer.GRANTED) == [2]


@given(st.lists(st.tuples(REQUESTS, SLOTS, st.booleans()), max_size=12), st.integers(1, 3),
       st.sampled_from([0.25, 0.5, 1.0]))  # fmt: skip
def test_tokens_bound_the_grants(
    slots: list[tuple[list[InstanceRequest], dict[str, int], bool]], size: int, rate: float
) -> None:
    tokens, granted = Tokens.full(size, rate), 0
    for t, (requests, free, too_slow) in enumerate(slots):
        answers, tokens = grant_by_tokens(requests, free, tokens, too_slow)
        granted += len(operators(answers, GrantAnswer.GRANTED))
        assert granted <= size + rate * t
        for region, left in free.items():
            here = [r.action for r, a in answers if r.region == region and a is GrantAnswer.GRANTED]
            assert sum(here) <= left
        tokens = tokens.next_slot()


@pytest.mark.parametrize(("size", "rate"), [(0.5, 1.0), (2, 0.0)])
def test_tokens_that_never_grant_are_refused(size: float, rate: float) -> None:
    with pytest.raises(PipelineError, match="tokens: expected"):
        Tokens.full(size, rate)


ASKED = [HostRequest("a", 1, 0.1), HostRequest("b", 1, 0.9), HostRequest("c", -1)]


def granted_regions(hosts: int, budget: HostBudget) -> list[str]:
    return [r.region for r, granted in grant_hosts(ASKED, hosts, budget) if granted]


def test_without_a_budget_all_hosts_are_granted() -> None:
    assert granted_regions(9, HostBudget()) == ["c", "b", "a"]


def test_a_budget_bounds_hosts_in_all_and_those_opened_in_a_slot() -> None:
    assert granted_regions(9, HostBudget(hosts_max=9)) == ["c", "b"]
    assert granted_regions(8, HostBudget(opened_max=1)) == ["c", "b"]
    assert granted_regions(10, HostBudget(hosts_max=9)) == ["c"]
    with pytest.raises(PipelineError, match="budget: expected hosts_max"):
        HostBudget(hosts_max=0)


@given(
    st.lists(st.builds(HostRequest, st.sampled_from("abc"), st.sampled_from([-1, 1]),
                       st.floats(0, 1)), max_size=6),
    st.integers(6, 12), st.integers(6, 12), st.integers(1, 3),
)  # fmt: skip
def test_hosts_stay_within_the_budget(
    asked: list[HostRequest], hosts: int, most: int, opened: int
) -> None:
    answers = grant_hosts(asked, hosts, HostBudget(most, opened))
    actions = [r.action for r, granted in answers if granted]
    assert hosts + sum(actions) <= max(hosts, most)
    assert actions.count(1) <= opened
    assert all(granted for r, granted in answers if r.action < 0)


def test_a_region_with_much_that_is_free_is_consolidated_unless_it_opens_hosts() -> None:
    free = {"a": 0.5, "b": 0.5, "c": 0.1}
    assert post_actions([HostRequest("b", 1)], free) == []
    assert post_actions([HostRequest("b", 1)], free, above=0.4) == [Consolidate("a")]
