"""The gate before both bounds: whatever is asked for, by however many at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.bounds import is_asked, leaves, places
from anabranch.runtime.policies.policy import Scale


@given(st.lists(st.integers(1, 9), max_size=20), st.integers(1, 16), st.integers(0, 20))
def test_all_that_is_granted_together_never_exceeds_the_bound(
    wishes: list[int], most: int, living: int
) -> None:
    """`living` may be above the bound: a resumed run may have a lower one."""
    began = living
    for wanted in wishes:
        granted, reason = places(wanted, living, "work", Scale(max_instances=most))
        assert (granted < wanted) is (reason == f"at most {most} instances of work")
        living += granted
    assert living <= max(began, most)
    assert living == max(began, min(most, began + sum(wishes)))


@given(st.integers(0, 20), st.integers(1, 16), st.integers(0, 20))
def test_those_that_may_leave_together_never_take_what_is_to_stay(
    wishes: int, least: int, active: int
) -> None:
    """There may be fewer already: a resumed run may have a higher bound."""
    staying = active
    for _ in range(min(wishes, active)):
        granted, reason = leaves(staying - 1, "work", Scale(min_instances=least, max_instances=16))
        assert granted is (reason != f"at least {least} instances of work")
        staying -= granted
    assert staying == (max(least, active - wishes) if active > least else active)


def test_where_the_keeper_is_enough_nobody_is_asked() -> None:
    assert [is_asked(s) for s in (None, Scale(), Scale(min_instances=2))] == [False, False, True]


def test_a_rank_that_does_not_fit_the_number_of_instances_says_nothing() -> None:
    reading = Reading(now_s=0.0, instances=3, instances_changed_s=0.0, covered_s=0.0)
    assert [reading.with_rank(told).rank for told in (None, 0, 2, 3)] == [None, 0, 2, None]
