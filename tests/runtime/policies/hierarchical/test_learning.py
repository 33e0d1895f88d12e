"""Answers 4 to 6: sweeps, learning, and the two learners as managers; what is broken is caught."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from anabranch.runtime.policies.hierarchical.learning import (
    Learnt,
    OperatorLearner,
    OperatorView,
    RegionLearner,
    RegionView,
    begin,
    step,
)
from anabranch.runtime.policies.hierarchical.levels import Figures, States, Whole
from anabranch.runtime.policies.hierarchical.tables import LESS, Form, Tables, greedy
from anabranch.runtime.values.checks import PipelineError
from tests.runtime.policies.hierarchical.tiny import (
    REGION,
    REGION_ACTIONS,
    REGION_VALUES,
    REGION_WEIGHTS,
    operator,
    region,
    swept,
)


def check_answer_4(kind: type[Tables]) -> None:
    one, two = swept(region(kind), 1), swept(region(kind), 2)
    assert one[[0, 2], 0, 1, 1] == pytest.approx([0.5847, 0.31176], abs=1e-9)
    assert two[[0, 2], 0, 1, 1] == pytest.approx([0.861041, 0.597023], abs=1e-6)
    last = swept(region(kind), 500)
    values = last.min(axis=0).transpose(1, 2, 0).reshape(6, 2)
    assert values == pytest.approx(np.array(REGION_VALUES), abs=1e-6)
    actions = greedy(np.moveaxis(last, 0, -1)).transpose(1, 2, 0).reshape(6, 2)
    assert actions.tolist() == REGION_ACTIONS


def check_answer_5(kind: type[Tables]) -> None:
    tables = kind(REGION, [REGION_WEIGHTS])
    history = [
        ((1, 0, 0), 0, 1, (1, 1, 0)),
        ((1, 1, 0), 1, 1, (2, 1, 0)),
        ((2, 1, 0), 0, 0, (2, 0, 1)),
        ((2, 0, 1), -1, 1, (1, 1, 0)),
    ]
    expected = [
        {(0, 1): 0.07, (1, 1): 0.07},
        {(0, 1): 0.07, (1, 1): 0.07, (2, 1): 0.07},
        {(0, 1): 0.07, (1, 1): 0.07, (2, 1): 0.07},
        {(0, 1): 0.133, (1, 1): 0.133, (2, 1): 0.07},
    ]
    for (before, action, event, after), costs in zip(history, expected, strict=True):
        tables.learn(
            States.of(before), np.array([action]), np.array([float(event)]), States.of(after)
        )
        wanted = np.zeros((3, 2))
        for at, cost in costs.items():
            wanted[at] = cost
        assert tables.costs[0, 0] == pytest.approx(wanted)
        assert not tables.costs[0, 1].any()
    assert tables.level_shares[0] == pytest.approx(np.array([[1 / 3, 2 / 3]] * 2))
    assert tables.flag_shares[0, LESS, 1] == pytest.approx([0.5, 0.5])
    assert tables.flag_shares[0, 0, 0] == pytest.approx([2 / 3, 1 / 3])


@pytest.mark.parametrize("check", [check_answer_4, check_answer_5])
def test_answers_4_and_5(check: Callable[[type[Tables]], None]) -> None:
    check(Tables)


class GreatestForLeast(Tables):
    def values(self) -> Figures:
        found: Figures = np.where(np.isinf(self.q_table()), -np.inf, self.q_table()).max(axis=1)
        return found


class AtTheStateBefore(Tables):
    """HI-G9: the letter of Algorithm 2."""

    def learn(self, before: States, actions: Whole, events: Figures, after: States) -> None:
        kept = self.costs.copy()
        super().learn(before, actions, events, after)
        self.costs = kept
        flag, size, level = before.flag[0], before.size[0], before.level[0]
        found = 0.9 * kept[0, flag, size, level] + 0.1 * self._event[0] * events[0]
        self._order(0, int(flag), int(size), int(level), float(found))


class WithoutOrder(Tables):
    def _order(self, b: int, flag: int, size: int, level: int, found: float) -> None:
        self.costs[b, flag, size, level] = found


class WithoutFlag(Tables):
    """A region shrinks though no host is idle."""

    def values(self) -> Figures:
        q = self.q_table()
        q[:, LESS, :, 1:] = self.reached[:, LESS, :, :-1]
        found: Figures = q.min(axis=1)
        return found


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (GreatestForLeast, check_answer_4),
        (AtTheStateBefore, check_answer_5),
        (WithoutOrder, check_answer_5),
        (WithoutFlag, check_answer_4),
    ],
)
def test_each_broken_learner_is_caught(
    broken: type[Tables], check: Callable[[type[Tables]], None]
) -> None:
    with pytest.raises(AssertionError):
        check(broken)


def test_answer_4_no_other_rule_is_better_anywhere() -> None:
    """All rules of the tiny region, each as a linear system."""
    tables = region()
    states = [(k, u, f) for k in range(3) for u in range(2) for f in range(2)]
    best = np.full(12, np.inf)
    allowed = [
        [0] + [-1] * (k > 0 and f == 1) + [1] * (k < 2) for k, _, f in states
    ]  # fmt: skip
    rules = list(itertools.product(*allowed))
    assert len(rules) == 2304
    moves, costs = [], []
    for (k, u, f), actions in zip(states, allowed, strict=True):
        rows, row_costs = [], []
        for a in actions:
            shares = np.zeros(12)
            for to, (k2, u2, f2) in enumerate(states):
                if k2 == k + a:
                    way = tables.flag_shares[0, (2 * a) % 3, f, f2]
                    shares[to] = tables.level_shares[0, u, u2] * way
            unknown = sum(
                p * tables.costs[0, f2, k2, u2]
                for p, (k2, u2, f2) in zip(shares, states, strict=True)
            )
            rows.append(shares)
            row_costs.append(0.3 * (k + a) / 2 + unknown)
        moves.append(rows)
        costs.append(row_costs)
    for rule in rules:
        at = [allowed[s].index(a) for s, a in enumerate(rule)]
        p = np.array([moves[s][i] for s, i in enumerate(at)])
        c = np.array([costs[s][i] for s, i in enumerate(at)])
        best = np.minimum(best, np.linalg.solve(np.eye(12) - 0.9 * p, c))
    values = swept(region(), 500).min(axis=0).transpose(1, 2, 0).reshape(12)
    assert values == pytest.approx(best, abs=1e-12)


def test_answer_6_the_tiny_operator() -> None:
    last = swept(operator(), 500)
    values = last.min(axis=0)[0]
    wanted = [[2.323232, 2.626263], [2.656566, 2.854491], [3.015425, 3.101346]]
    assert values == pytest.approx(np.array(wanted), abs=1e-6)
    assert greedy(np.moveaxis(last, 0, -1))[0].tolist() == [[0, 0], [-1, 0], [-1, 0]]


def forced(learnt: Learnt, history: list[tuple[tuple[int, int, int], bool, int]]) -> Learnt:
    """Through states, with events, where the last proposal was replaced by an action."""
    for state, event, enacted in history:
        _, learnt = step(learnt, state, event, enacted)
    return learnt


def test_answer_5_an_action_pays_with_the_refusals_of_the_next_slot() -> None:
    learnt = forced(
        begin(REGION, REGION_WEIGHTS),
        [
            ((1, 0, 0), False, 0),
            ((1, 1, 0), True, 0),
            ((2, 1, 0), True, 1),
            ((2, 0, 1), False, 0),
            ((1, 1, 0), True, -1),
        ],
    )
    wanted = np.array([[0, 0.133], [0, 0.133], [0, 0.07]])
    assert learnt.tables.costs[0, 0] == pytest.approx(wanted)
    # With the refusals of the same slot, those of another state:
    early = forced(
        begin(REGION, REGION_WEIGHTS),
        [
            ((1, 0, 0), True, 0),
            ((1, 1, 0), True, 0),
            ((2, 1, 0), False, 1),
            ((2, 0, 1), True, 0),
            ((1, 1, 0), False, -1),
        ],
    )
    assert early.tables.costs[0, 0] != pytest.approx(wanted)


def test_a_step_changes_nothing_that_was_known_before() -> None:
    manager = RegionLearner(hosts_max=4)
    memory = manager.begin()
    busy = RegionView(hosts=1, idle=0, free_slots=0, use=0.8, refused=1)
    _, first = manager.decide(busy, memory)
    kept = first.tables.copy()
    _, second = manager.decide(busy, first)
    assert np.array_equal(first.tables.costs, kept.costs)
    assert np.array_equal(first.tables.reached, kept.reached)
    assert second.tables.costs.any()


def test_what_is_not_known_yet_is_worth_a_trial() -> None:
    """HI13: Q begins at 0, and the tie goes to 0; where a refusal costs, one host more is tried."""
    manager = RegionLearner()
    memory, actions = manager.begin(), []
    hosts = 1
    for _ in range(40):
        view = RegionView(hosts, idle=0, free_slots=0, use=0.7, refused=1)
        proposal, memory = manager.decide(view, memory)
        actions.append(proposal.action)
        hosts += proposal.action
    assert actions[0] == 0
    assert hosts > 1


def test_a_refusal_counts_as_nothing_done() -> None:
    manager = OperatorLearner(rate_max=600, response_max_s=0.012)
    learnt = Learnt(manager.begin().tables, (3, 2, 0), 1)
    _, refused = step(learnt, (3, 2, 0), False, enacted=0)
    _, done = step(learnt, (4, 2, 0), False)
    assert refused.tables.levels[0, 2, 2] == done.tables.levels[0, 2, 2] == 2
    view = OperatorView(instances=3, rate=130.0, response_s=0.011)
    assert manager.state(view) == (3, 2, 0)


def test_only_an_idle_host_closes_whatever_is_free() -> None:
    manager = RegionLearner(hosts_max=4, by_free_slots=True)
    memory = manager.begin()
    view = RegionView(hosts=3, idle=0, free_slots=2, use=0.1, refused=0)
    assert manager.state(view) == (3, 1, 2)
    actions = set()
    for _ in range(60):
        proposal, memory = manager.decide(view, memory, enacted=0)
        actions.add(proposal.action)
    assert -1 not in actions
    idle = RegionView(hosts=3, idle=1, free_slots=2, use=0.1, refused=0)
    assert manager.decide(idle, memory, enacted=0)[0].action == -1


def test_counts_that_fade_follow_what_changed() -> None:
    states, held = States.of((1, 0, 0)), np.array([0])
    for fade, share in ((None, 0.4), (10.0, 0.99)):
        tables = Tables(Form(0, 2, 2, 2, fade_slots=fade), [REGION_WEIGHTS])
        for level, times in ((0, 300), (1, 200)):
            for _ in range(times):
                tables.learn(states, held, np.zeros(1), States.of((1, level, 0)))
        assert tables.level_shares[0, 0, 1] == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: RegionLearner(w_d=1.5),
        lambda: OperatorLearner(rate_max=0, response_max_s=1),
        lambda: RegionLearner(gamma=1.0).form,
        lambda: RegionLearner(fade_days=0).form,
        lambda: OperatorLearner(rate_max=1, response_max_s=1, w_rcf=-1).weights,
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(PipelineError, match="learner: expected"):
        wrong()
