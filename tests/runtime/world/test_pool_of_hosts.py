"""Worlds in which a controller scales operators and hosts open and close: hosts and the agent die,
nothing is lost, no host closes with an instance, and controllers know what the last ones knew."""

from __future__ import annotations

from collections import Counter

import pytest

from anabranch.runtime.world.drawing import drawn
from anabranch.runtime.world.lapse_list import lapse_named
from anabranch.runtime.world.pooled import POOL, PooledScene
from anabranch.runtime.world.swarm import Seeds, first_found
from anabranch.runtime.world.trial import WorldVerdict, judged

WORLDS = 4
LAPSE_SEEDS = 40
RESUMED = 6
"""A world in which another agent goes on."""


@pytest.mark.parametrize("seed", range(WORLDS))
def test_nothing_is_lost_and_no_host_closes_with_an_instance(seed: int) -> None:
    outcome = judged(drawn(seed, POOL, crashes="all"))
    assert outcome.verdict is not WorldVerdict.INVALID, outcome.text


def test_hosts_open_and_close_and_are_refused() -> None:
    happened: Counter[str] = Counter()
    for seed in range(3):
        happened.update(judged(drawn(seed, POOL, crashes="none")).happened)
    wanted = {"hosts opened", "hosts closed", "refusals of hosts", "joins", "leaves"}
    assert wanted - (+happened).keys() == set()


def test_the_controller_of_the_next_agent_knows_what_the_last_one_learnt() -> None:
    for seed in (RESUMED, *range(LAPSE_SEEDS)):
        trial = drawn(seed, POOL, crashes="all")
        assert judged(trial).verdict is not WorldVerdict.INVALID
        assert isinstance(trial.scene, PooledScene)
        if trial.scene.heirlooms.inherited:
            return
    pytest.fail("no agent dies once a controller has planned")


KNOWN = {
    "closes hosts unchecked": 0,
    "forgets what controllers have left": 6,
}
"""Lapses, each with a seed that has shown it."""


@pytest.mark.parametrize("name", KNOWN)
def test_what_a_pool_or_a_controller_neglects_is_found_out(name: str) -> None:
    lapse = lapse_named(name)
    assert lapse is not None
    known = Seeds(KNOWN[name], 1, crashes=lapse.crashes, scene=POOL, lapse=name)
    assert known.run().failing or first_found(lapse, LAPSE_SEEDS) is not None
