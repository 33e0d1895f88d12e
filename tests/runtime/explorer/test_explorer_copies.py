"""Copies of one journal on other hosts: the shipped rules in every interleaving of small scopes, in
walks through larger ones, and each of them broken (Q1 to Q5)."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.broken_protocols.copies import BROKEN_COPIES, BrokenCopies
from anabranch.runtime.explorer.copies import CopiesModel, explore_copies
from anabranch.runtime.explorer.copies_state import SHIPPED, CopyRules, CopyScope
from anabranch.runtime.explorer.scopes import COPIES_DEEP, COPIES_SMALL

LARGE = 20_000
"""States that take a while."""


@pytest.mark.parametrize("scope", COPIES_SMALL, ids=str)
def test_two_incarnations_never_act_together_and_nothing_that_counts_is_lost(
    scope: CopyScope,
) -> None:
    found = explore_copies(scope)
    assert found.fault == ""
    assert found.complete
    assert found.quiescent
    assert found.states < LARGE


LARGE_SCOPES = {*COPIES_DEEP} - {*COPIES_SMALL}


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(b, id=b.what, marks=[pytest.mark.slow] if b.scope in LARGE_SCOPES else [])
        for b in BROKEN_COPIES
    ],
)
def test_each_broken_rule_is_found_out(broken: BrokenCopies) -> None:
    found = explore_copies(broken.scope, broken.rules)
    assert re.match(r"Q\d:", found.fault)
    assert found.path


def test_all_rules_are_broken_and_the_scopes_are_searched_unbroken() -> None:
    assert {broken.rule for broken in BROKEN_COPIES} == {f"J{n}" for n in range(1, 10)}
    for scope in {broken.scope for broken in BROKEN_COPIES} - {*COPIES_DEEP}:
        assert explore_copies(scope).fault == ""


def walk(scope: CopyScope, seed: int, rules: CopyRules = SHIPPED) -> str:
    """One way through a scope until nothing is left to happen; the fault, if there is one."""
    model, rng = CopiesModel(scope, rules), Random(seed)
    state = model.initial()
    for _ in range(400):
        moves = list(model.successors(state))
        if all(move.optional for move, _ in moves):
            return model.unsettled(state)
        accidents = rng.random() < 0.2
        move, after = rng.choice([m for m in moves if accidents or not m[0].optional])
        if after is None:
            return move.fault
        state = after
    return "it does not come to rest"


SCOPES = st.builds(
    CopyScope,
    records=st.integers(1, 12),
    holders=st.integers(1, 3),
    spares=st.integers(0, 2),
    **{
        name: st.integers(0, 3)
        for name in (
            "rolls",
            "give_ups",
            "majorities",
            "deaths",
            "losses",
            "power",
            "cuts",
            "changes",
        )
    },
    home_deaths=st.integers(0, 2),
)


@given(SCOPES, st.integers(0, 10**6))
def test_whatever_is_lost_what_counts_is_not(scope: CopyScope, seed: int) -> None:
    assert walk(scope, seed) == ""
