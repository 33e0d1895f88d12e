"""Runs on several hosts that are cut off, lose their processes, or lose the host of the agent."""

from __future__ import annotations

from collections import Counter

import pytest

from anabranch.runtime.world.drawing import APART, drawn
from anabranch.runtime.world.drawn_trial import Trial, plain
from anabranch.runtime.world.lapse_list import lapse_named
from anabranch.runtime.world.swarm import Seeds, first_found
from anabranch.runtime.world.trial import WorldVerdict, judged, world_of

SEEDS = 40
TRIED = 10
"""More of them are among the worlds of the swarm's test."""
AT_A_TIME = 5


def trials(first: int, count: int) -> list[Trial]:
    return [drawn(seed, APART, crashes="all") for seed in range(first, first + count)]


@pytest.mark.parametrize("first", range(0, TRIED, AT_A_TIME))
def test_runs_on_several_hosts_lose_and_double_nothing(first: int) -> None:
    outcomes = [judged(trial) for trial in trials(first, AT_A_TIME)]
    assert [one.text for one in outcomes if one.verdict is WorldVerdict.INVALID] == []
    assert sum(one.verdict is WorldVerdict.VALID for one in outcomes) >= AT_A_TIME - 2


def test_hosts_are_cut_off_and_lost_and_the_agent_dies_while_they_live_on() -> None:
    found = trials(0, SEEDS)
    assert any(end.gap_s for trial in found for end in trial.ends)
    assert any(trial.rest_at_s for trial in found)
    happened: Counter[str] = Counter()
    for trial in [t for t in found if t.troubles.host_cuts and t.troubles.host_losses]:
        happened.update(judged(trial).happened)
        if happened["host_cuts"] and happened["host_losses"]:
            return
    pytest.fail(f"not all kinds happen: {happened}")


def test_instances_live_on_hosts_with_workers_of_their_own() -> None:
    there: Counter[str] = Counter()
    for trial in trials(0, 4):
        world = world_of(trial)
        world.run(180.0, 400_000)
        there.update(one.on_host for one in world.processes.all if one.task is not None)
        assert {one.on_host for one in world.processes.all} <= {"", *(h.name for h in trial.hosts)}
    assert there[""]
    assert there.total() > 1.3 * there[""]


def test_a_seed_is_always_the_same_world() -> None:
    first, second = trials(3, 1), trials(3, 1)
    assert plain(first[0]) == plain(second[0])
    assert judged(first[0]).trace == judged(second[0]).trace


KNOWN = {
    "takes messages twice after a break": 5,
    "repeats nothing after a break": 1,
    "waits for processes of a lost worker": 15,
    "goes on with the worker of another epoch": 59,
    "sends what no other host has": 10,
    "listens to an incarnation that was given up": 55,
    "does not say where an instance is now": 10,
}
"""Lapses, each with a seed that has shown it."""


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_neglected_between_hosts_is_found_out(name: str) -> None:
    lapse = lapse_named(name)
    assert lapse is not None
    known = Seeds(KNOWN[name], 1, crashes=lapse.crashes, scene=lapse.scene, lapse=name)
    assert known.run().failing or first_found(lapse, SEEDS) is not None
