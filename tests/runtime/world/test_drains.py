"""Instances of a world on several hosts, which are drained and die."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from anabranch.runtime.world.drawing import drawn
from anabranch.runtime.world.drawn_trial import Trial, plain
from anabranch.runtime.world.trial import WorldVerdict, judged
from anabranch.runtime.world.variants import spread
from anabranch.runtime.world.world import HostDrain

RESTING = tuple(
    trial for seed in range(400) if (trial := drawn(seed, "graph", crashes="none")).rest_at_s
)
"""Worlds that come to rest, so that it is seen where their instances are then."""


def on_three_hosts(trial: Trial) -> Trial:
    spread_ = next(
        found for n in range(100) if len((found := spread(replace(trial, seed=n))).hosts) == 3
    )
    drains = tuple(HostDrain(at_s, f"host-{n}") for n, at_s in enumerate((0.05, 0.1)))
    return replace(spread_, seed=trial.seed, drains=drains)


@pytest.mark.parametrize("trial", RESTING[:3], ids=lambda trial: str(trial.seed))
def test_hosts_that_are_drained_are_empty_and_nothing_is_lost(trial: Trial) -> None:
    outcome = judged(on_three_hosts(trial))
    assert outcome.verdict is WorldVerdict.VALID, outcome.text


def test_instances_relocate_in_worlds_with_hosts() -> None:
    happened: Counter[str] = Counter()
    for trial in RESTING[3:9]:
        happened.update(judged(on_three_hosts(trial)).happened)
    assert happened["relocations"]


def test_some_worlds_are_on_several_hosts_and_a_seed_is_always_the_same_world() -> None:
    found = [drawn(seed) for seed in range(60)]
    several = [trial for trial in found if trial.hosts]
    assert 0 < len(several) < len(found)
    assert all(len(trial.drains) < len(trial.hosts) for trial in several)
    again = [drawn(trial.seed) for trial in several]
    assert [plain(trial) for trial in several] == [plain(trial) for trial in again]
