"""Answer 2: what a slot costs, and a step of Q-learning (HI8, HI15)."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.runtime.policies.hierarchical.levels import States
from anabranch.runtime.policies.hierarchical.q_learning import QTables, learnt
from anabranch.runtime.policies.hierarchical.tables import CostWeights, Form

FORM = Form(0, 50, 11, 2)
WEIGHTS = CostWeights(event=0.7, size=0.3)


@pytest.mark.parametrize(
    ("hosts", "action", "refused", "cost"),
    [(3, 1, 0, 0.024), (3, 0, 2, 0.718), (3, -1, 0, 0.012)],
)
def test_answer_2_the_cost_of_a_slot(hosts: int, action: int, refused: int, cost: float) -> None:
    tables = QTables(FORM, [WEIGHTS])
    after = States.of((hosts + action, 4, 0))
    found = tables.cost(np.array([action]), np.array([float(refused > 0)]), after)
    assert found[0] == pytest.approx(cost)


def test_answer_2_a_step_of_q_learning() -> None:
    assert learnt(np.array([0.0]), np.array([0.718 + 0.99 * 0.05]), 0.1)[0] == pytest.approx(
        0.07675, abs=1e-9
    )
    tables = QTables(FORM, [WEIGHTS])
    tables.q_table[0, :, 0, 3, 4] = 0.05
    tables.learn(States.of((3, 2, 0)), np.array([0]), np.array([1.0]), States.of((3, 4, 0)))
    assert tables.q_table[0, 0, 0, 3, 2] == pytest.approx(0.07675, abs=1e-9)
    assert np.count_nonzero(tables.q_table) == 4


@pytest.mark.parametrize(
    ("state", "may"),
    [((0, 0, 1), {0, 1}), ((50, 3, 1), {0, -1}), ((7, 3, 0), {0, 1}), ((7, 3, 1), {0, 1, -1})],
)
def test_what_is_drawn_is_allowed_and_all_that_is_allowed_is_drawn(
    state: tuple[int, int, int], may: set[int]
) -> None:
    tables = QTables(FORM, [WEIGHTS])
    q = tables.q(States.of(state))
    shares = np.linspace(0, 1, 30, endpoint=False)
    drawn = {int(tables.choose(q, np.array([[0.0, share]]))[0]) for share in shares}
    assert drawn == may
    assert tables.choose(q, np.array([[0.99, 0.9]])).tolist() == [0]
