"""EL17: answer 5's threshold, and what a learner makes of courses."""

from __future__ import annotations

from random import Random

import pytest

from anabranch.runtime.policies.elysium.learnt_bounds import (
    SHARES,
    BoundLearner,
    best_share,
    reward,
)
from anabranch.runtime.values.checks import PipelineError

TABLE_1 = dict(zip(SHARES, (0.53, 0.57, 0.62, 0.66, 0.71, 0.65, 0.43), strict=True))


def test_answer_5_the_best_of_table_1() -> None:
    assert best_share(TABLE_1) == 0.80
    assert best_share({0.7: 0.5, 0.6: 0.5}) == 0.6
    with pytest.raises(PipelineError, match="at least one share"):
        best_share({})


def test_a_value_is_the_mean_of_its_rewards() -> None:
    learner = BoundLearner()
    for degradation in (0.1, 0.2, 0.6):
        learner.learn(0.8, degradation)
    assert learner.values == {0.8: pytest.approx(0.8 - 0.3)}


@pytest.mark.parametrize("seed", range(5))
def test_a_learner_finds_what_a_sweep_finds(seed: int) -> None:
    rng, learner = Random(seed), BoundLearner()
    for _ in range(500):
        share = learner.choose(rng)
        learner.learn(share, share - TABLE_1[share] + rng.gauss(0, 0.05))
    assert best_share(learner.values) == best_share(TABLE_1)
    assert set(learner.counts) == set(SHARES)
    assert learner.counts[0.80] > 300


def test_it_explores_less_and_less() -> None:
    rng, learner = Random(1), BoundLearner()
    tries = []
    for _ in range(2000):
        share = learner.choose(rng)
        tries.append(share != 0.80)
        learner.learn(share, share - TABLE_1[share])
    assert sum(tries[:500]) > 2 * sum(tries[-500:])
    assert sum(tries[500:]) > 0


def test_the_reward_weighs_usage_against_degradation() -> None:
    assert reward(0.8, 0.09) == pytest.approx(TABLE_1[0.80])
