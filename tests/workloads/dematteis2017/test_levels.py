"""The levels beyond the model: the same loads in virtual time and in processes."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.decision import Duplicate, Hold
from anabranch.runtime.policies.policy import Scale
from anabranch.workloads.dematteis2017 import live, telling
from anabranch.workloads.dematteis2017.fit import LEAD_SHARE, LEAD_STEPS, part_of, policy_named
from anabranch.workloads.dematteis2017.levels import LIVE, evaluate_live
from anabranch.workloads.dematteis2017.loads import Scene, jump, walk
from anabranch.workloads.dematteis2017.model import Course, Size
from anabranch.workloads.dematteis2017.moving import (
    DOUBLES_S,
    ENDS_S,
    JUMPS_S,
    DoublingOnce,
    Moved,
    Way,
)
from anabranch.workloads.dematteis2017.simulated import SIZE, drawn, simulate
from anabranch.workloads.experiments.noting import Exactness

STEPS = 6
SMALL = replace(SIZE, instances_max=4)


@cache
def simulated(contestant: str) -> Course:
    return simulate(walk(1000), 1000, contestant, STEPS, SMALL)


def test_all_that_is_due_comes_out_but_for_what_is_under_way() -> None:
    course = simulated("peak")
    due = course.offered.sum() * SIZE.step_s
    assert len(course.ends) == pytest.approx(due, rel=0.02)
    assert 0 <= course.left < 100
    assert np.all(course.instances == SMALL.instances_max)


def test_the_same_seed_is_offered_the_same_whatever_is_decided() -> None:
    part = part_of(walk(7), SMALL, 1.0, STEPS)
    assert drawn(part, 7) == drawn(part, 7)
    assert drawn(part, 7) != drawn(part, 8)
    assert simulated("peak").offered.tolist() == simulated("Sw 1").offered.tolist()


def test_predictive_control_pays_for_fewer_instances_than_all_and_stays_within_the_bound() -> None:
    course = simulated("Sw 1")
    assert course.instances.mean() < 0.95 * SMALL.instances_max
    assert np.median(course.latencies) < SIZE.latency_ms / 1000


def test_a_part_begins_with_a_lead_that_is_not_judged() -> None:
    part = part_of(jump(), Size(8, 0.01, 310.0, 0.5), 6.0, 10)
    assert part.lead_s == pytest.approx(LEAD_STEPS * 0.5)
    assert part.rates[0] == LEAD_SHARE * 800
    assert part.seconds == pytest.approx(part.lead_s + 10 * 0.5, abs=1 / 6)
    assert part.tuples == pytest.approx(part.curve.due(part.seconds), abs=1)


def test_contestants_are_policies_with_the_settings_of_their_load() -> None:
    no_switching, sw = (policy_named(n, walk(0), SIZE) for n in ("NoSw", "Sw 3"))
    assert (no_switching.settings["change_weight"], sw.settings["horizon"]) == (0.0, 3)
    assert sw.settings["qos_weight"] == walk(0).qos_weight
    assert policy_named("rules", walk(0), SIZE).name == "rules"
    assert policy_named("peak", walk(0), SIZE).name == "peak"


def test_a_backlog_is_gone_where_the_latency_stays_low_for_a_second() -> None:
    # One result in each quarter of a second, from the jump on; the fourth bin begins the doubling.
    high = {*range(10), 12}
    done = np.array([JUMPS_S + 0.1 + 0.25 * i for i in range(56)])
    latencies = np.array([0.5 if i in high else 0.05 for i in range(56)])
    latencies[3] = 0.75
    found = Moved.of(done, latencies, Exactness(56, 0, 0))
    assert found.peak_s == 0.75
    assert found.drain_s == (13 - 4) * 0.25
    assert found.later_s == pytest.approx(0.05)
    slow = Moved.of(done, latencies + 0.2, Exactness(56, 0, 0))
    assert slow.drain_s == ENDS_S - DOUBLES_S


def test_each_instance_of_the_beginning_doubles_once_and_newcomers_never() -> None:
    policy, rng = DoublingOnce(at_s=1.0), random.Random(1)
    memory, acts = policy.begin(), []
    for now_s in (5.0, 5.5, 6.0, 9.0):
        reading = Reading(now_s=now_s, instances=4, instances_changed_s=0.0, covered_s=9.0)
        act, memory = policy.decide(reading, Scale(), memory, rng)
        acts.append(isinstance(act, Duplicate))
    assert acts == [False, False, True, False]
    newcomer = policy.born(policy.heritage(memory, 6.0), 0.0)
    act, _ = policy.decide(reading, Scale(), newcomer, rng)
    assert isinstance(act, Hold)


def test_live_runs_are_judged_by_order_and_by_what_is_lost() -> None:
    wrong = {"NoSw": 9, "rules": 5, "Sw 1": 2, "peak": 1}

    def lived(scene: Scene, seed: int, contestant: str, steps: int | None) -> live.Lived:
        late, n = wrong[contestant], 10
        latencies = np.where(np.arange(n) < late, 0.4, 0.1) + (contestant == "NoSw") * (
            0.05 * (np.arange(n) % 2)
        )
        instances = np.where(np.arange(n) % 2, 8.0 if contestant == "NoSw" else 5.0, 4.0)
        ends = np.arange(n, dtype=np.float64) * 0.5 + 0.25
        course = Course(np.ones(n), instances, ends, latencies, 0, 0.5)
        return live.Lived(course, Exactness(100, int(contestant == "rules"), 0))

    peaks = {"Balanced": 0.5, "Flux-5": 0.4, "Flux-10": 0.6}

    def move(way: Way, seed: int) -> Moved:
        return Moved(np.array([0.1, np.nan]), peaks[way], 2.0, 0.05, Exactness(10, 0, 0))

    found = evaluate_live(2, live_run=lived, move=move)
    assert [*found.results["a"].runs] == [*LIVE]
    by_name = {c.what[:2]: c for c in found.criteria["a"]}
    assert by_name["C1"].met
    assert by_name["C3"].met
    assert by_name["C4"].met
    assert by_name["no"].figure == "860 tuples, 2 lost, 0 doubled"
    assert not by_name["no"].met
    peak, drain = found.criteria["5"]
    assert not peak.met
    assert peak.figure == "Balanced 0.50 s, Flux-5 0.40 s, Flux-10 0.60 s"
    assert drain.met
    assert "| Flux-5 | 0.40 s | 2.00 s | 0.05 s |" in telling.whole(found)
    assert json.dumps(telling.numbers(found), allow_nan=False)
    assert telling.whole(found).startswith("Processes of this machine, 2 runs of each")
    assert telling.numbers(found)["level"] == "live"
