"""Section 6 of the specification: what holds of the tables after any history."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.policies.hierarchical.levels import States
from anabranch.runtime.policies.hierarchical.tables import CostWeights, Form, Tables, greedy
from tests.runtime.policies.hierarchical.tiny import operator, region, swept

FORMS = st.builds(
    Form,
    least=st.sampled_from([0, 1]),
    most=st.integers(2, 5),
    levels=st.integers(1, 4),
    flags=st.integers(1, 3),
    gamma=st.sampled_from([0.0, 0.5, 0.9]),
    alpha=st.sampled_from([0.1, 0.5, 1.0]),
    fade_slots=st.sampled_from([None, 3.0]),
)
SEEDS = st.integers(0, 2**32 - 1)
TWO = (CostWeights(event=0.7, size=0.3), CostWeights(event=0.4, size=0.5, change=0.1))


def driven(form: Form, seed: int, slots: int = 40) -> tuple[Tables, States]:
    """Two managers, their own actions, anything else by chance."""
    rng = np.random.default_rng(seed)
    tables = Tables(form, TWO)
    size = rng.integers(form.least, form.most + 1, 2)
    state = States(size, rng.integers(0, form.levels, 2), rng.integers(0, form.flags, 2))
    for _ in range(slots):
        actions = greedy(tables.q(state))
        after = States(
            state.size + actions, rng.integers(0, form.levels, 2), rng.integers(0, form.flags, 2)
        )
        assert np.all((after.size >= form.least) & (after.size <= form.most))
        assert np.all((actions >= 0) | (state.flag == form.flags - 1))
        tables.learn(state, actions, rng.integers(0, 2, 2).astype(float), after)
        tables.sweep()
        state = after
    return tables, state


@given(FORMS, SEEDS)
def test_q_is_within_what_a_slot_costs_for_ever(form: Form, seed: int) -> None:
    tables, _ = driven(form, seed)
    q = tables.q_table()
    assert q.min() >= 0
    assert q[np.isfinite(q)].max() <= 1 / (1 - form.gamma) + 1e-9


@given(FORMS, SEEDS)
def test_shares_of_changes_add_up_to_one(form: Form, seed: int) -> None:
    tables, _ = driven(form, seed)
    assert tables.level_shares.sum(axis=-1) == pytest.approx(1)
    assert tables.flag_shares.sum(axis=-1) == pytest.approx(1)


@given(FORMS, SEEDS)
def test_fewer_more_used_and_not_idle_never_cost_less(form: Form, seed: int) -> None:
    """HI12, over the whole table."""
    costs = driven(form, seed)[0].costs
    assert np.all(np.diff(costs, axis=1) <= 0)
    assert np.all(np.diff(costs, axis=2) <= 0)
    assert np.all(np.diff(costs, axis=3) >= 0)
    assert costs.min() >= 0


@given(FORMS, SEEDS)
def test_managers_side_by_side_learn_as_each_alone(form: Form, seed: int) -> None:
    rng = np.random.default_rng(seed)
    both = Tables(form, TWO)
    alone = [Tables(form, [weights]) for weights in TWO]
    for _ in range(20):
        states = [
            States(
                rng.integers(form.least + 1, form.most, 2, endpoint=False) if form.most
                > form.least + 1 else np.full(2, form.least),
                rng.integers(0, form.levels, 2),
                rng.integers(0, form.flags, 2),
            )
            for _ in range(2)
        ]  # fmt: skip
        events = rng.integers(0, 2, 2).astype(float)
        both.learn(states[0], np.zeros(2, dtype=int), events, states[1])
        both.sweep()
        for b, one in enumerate(alone):
            before, after = (States(*(part[b : b + 1] for part in s)) for s in states)
            one.learn(before, np.zeros(1, dtype=int), events[b : b + 1], after)
            one.sweep()
    for b, one in enumerate(alone):
        assert both.q_table()[b] == pytest.approx(one.q_table()[0], abs=1e-12)


@pytest.mark.parametrize("tables", [region, operator])
def test_sweeps_converge_to_value_iteration(tables: Callable[[], Tables]) -> None:
    """A sweep shrinks the distance to the fixed point by gamma at least."""
    fixed = swept(tables(), 600).min(axis=0)
    off = [np.abs(swept(tables(), n).min(axis=0) - fixed).max() for n in range(1, 40)]
    assert all(b <= 0.9 * a + 1e-12 for a, b in pairwise(off))
    assert np.abs(swept(tables(), 601).min(axis=0) - fixed).max() < 1e-12


@given(FORMS, SEEDS)
def test_the_same_history_gives_the_same_table(form: Form, seed: int) -> None:
    first, second = driven(form, seed)[0], driven(form, seed)[0]
    assert np.array_equal(first.q_table(), second.q_table())
    assert np.array_equal(first.costs, second.costs)
