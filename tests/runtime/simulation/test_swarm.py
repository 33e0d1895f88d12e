"""Seeded worlds: the shipped core survives them, a broken one does not, and a seed is a world."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace

import pytest

from anabranch.protocol.table import TABLE
from anabranch.runtime.broken_protocols.variants import VARIANTS, Variant
from anabranch.runtime.simulation import audit
from anabranch.runtime.simulation.deadly_scene import Crashes
from anabranch.runtime.simulation.happenings import Decision, Trouble
from anabranch.runtime.simulation.scene import Scene
from anabranch.runtime.simulation.scene_drawing import draw
from anabranch.runtime.simulation.story import told
from anabranch.runtime.simulation.swarm import Chunk, Tally, over_processes, swarm
from anabranch.runtime.simulation.trial import Outcome, Trial, Verdict

SEEDS = 150
BROKEN_SEEDS = 160
CAUGHT_LATE = {
    "R3': START leaves out a successor whose LEAVE has told the children",
    "R3': START leaves out a predecessor whose EOS has told the children",
    "R6: LEAVE does not say which others have been told",
    "R9: EOS does not say which others have been told",
    "R10: an idle newcomer acknowledges EOS, but does not remember it",
    "R13: a leaving neighbour relays an offer",
    "R14: a leaving sibling accepts the role",
    "R14: a keeper accepts another's role while it offers its own",
    "R14: the answer goes back through the relay",
    "E3: children that know the end already are told again",
    "E6: a finished instance still waits for a successor that has left",
    "M2: a leaving neighbour relays an offer",
    "M3: at the end of the stream a new owner still promises",
    "M3: a new owner makes a second promise before the first state has come",
    "M5: a router that leaves does not switch",
    "M8: the new owner owns the groups before it knows the routes of their old owner",
    "R3': START to children that get key groups leaves out a successor met late",
    "R3': START to children that get key groups leaves out a predecessor met late",
    "R5: a keeper keeps the role that its child has",
    "R14: a keeper accepts the role again while its successor is on its way",
    "R14: an owner that gives its key groups away in order to go accepts the role",
    "R15: a keeper keeps the role that a sibling has taken",
    "M4: groups that go to children are not brought to rest",
    "M7: the last word leaves out owners of groups that have moved more than once",
    "Z1: an idle newcomer has forgotten what it was told",
    "Z2: groups that were announced are processed again",
    "Z2: groups are not frozen again",
    "Z2: state is sent again to one of its receivers only",
    "Z3: a source that leaves reads on",
    "Z3: a draining instance does not work off its queue",
}
"""They need hundreds of seeds or more; `scripts/swarm.py --break` finds them in minutes, and the
explorer at once."""


def quiet(seed: int) -> Scene:
    """A world without trouble and without decisions."""
    scene = draw(seed)
    births = replace(scene.births, slow=0.0, few=0.0, failing=0.0)
    knobs = replace(scene.knobs, commit_s=None)
    return replace(scene, decisions=(), troubles=(), policy=False, births=births, knobs=knobs)


def run(scene: Scene) -> Outcome:
    return Trial(scene).run()


def decision(at_s: float, operator: str, action: str, n: int = 1) -> Decision:
    return Decision(at_s=at_s, operator=operator, action=action, n=n, whom=0.0, fit=True)  # type: ignore[arg-type]


def test_every_world_is_valid_and_most_prove_something() -> None:
    tally = Chunk(0, SEEDS, "small", TABLE).run()
    assert tally.failing == []
    assert tally.verdicts[Verdict.VALID] > 0.8 * SEEDS
    assert min(tally.sums[n] for n in ("joins", "leaves", "hand_overs", "troubles")) > SEEDS / 4


def test_a_large_world_is_valid() -> None:
    outcome = run(draw(22, "large"))
    assert (outcome.verdict, outcome.reason) == (Verdict.VALID, "")
    assert outcome.joins + outcome.leaves > 10


CAUGHT_SOON = [v for v in VARIANTS if v.name not in CAUGHT_LATE and not v.broken_duty]
"""A driver's duties are those of this driver: `test_swarm_keys`."""


@pytest.mark.parametrize("variant", CAUGHT_SOON, ids=lambda v: v.name)
def test_a_broken_rule_is_caught_within_a_few_seeds(variant: Variant) -> None:
    table = {**TABLE, **variant.patch}
    crashes: Crashes = "all" if variant.name.startswith("Z") else "none"
    scenes = (draw(seed, crashes=crashes) for seed in range(BROKEN_SEEDS))
    outcomes = (Trial(scene, table=table).run() for scene in scenes)
    found = next((o for o in outcomes if o.verdict is Verdict.INVALID), None)
    assert found is not None
    assert not found.reason.startswith("crash")


def test_what_is_caught_late_is_still_called_so() -> None:
    assert {v.name for v in VARIANTS} >= CAUGHT_LATE


STORY = """
from anabranch.runtime.simulation.scene_drawing import draw
from anabranch.runtime.simulation.story import told
print(*(told(draw(seed))[1].digest for seed in range(5)))
"""


def test_a_seed_tells_the_same_story_in_every_process() -> None:
    here = [told(draw(seed))[1].digest for seed in range(5)]
    done = subprocess.run(
        [sys.executable, "-c", STORY],
        env={"PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == here, done.stderr
    assert len(set(here)) == len(here)


def test_being_watched_changes_nothing() -> None:
    for seed in range(10):
        outcome, story = told(draw(seed))
        assert outcome == run(draw(seed))
        assert story.rows


def test_a_world_without_trouble_in_which_somebody_joins_and_leaves_is_valid() -> None:
    scene = quiet(1)
    source = scene.sources[0]
    below = next(b for a, b in scene.edges if a == source)
    decisions = (decision(0.01, below, "duplicate"), decision(0.3, below, "leave"))
    outcome = run(replace(scene, decisions=decisions, ends=False, safety_s=2.0))
    assert (outcome.verdict, outcome.reason) == (Verdict.VALID, "")
    assert (outcome.joins, outcome.leaves, outcome.troubles) == (1, 1, 0)


def test_a_world_in_which_nothing_scaled_is_unknown() -> None:
    outcome = run(quiet(1))
    assert (outcome.verdict, outcome.reason) == (Verdict.UNKNOWN, "nothing scaled")
    assert outcome.tuples > 0


def test_a_world_in_which_nothing_moved_is_unknown() -> None:
    scene = draw(1)
    outcome = run(replace(scene, arrivals=dict.fromkeys(scene.sources, ((0.0, 0),))))
    assert (outcome.verdict, outcome.reason) == (Verdict.UNKNOWN, "no tuple was delivered")


@pytest.mark.parametrize("damage", ["cut", "hang_up", "clog", "deafen", "slow"])
def test_no_trouble_loses_or_doubles_a_tuple(damage: str) -> None:
    made = 0
    for seed in range(15):
        scene = draw(seed)
        step_s = scene.safety_s / 20
        troubles = tuple(
            Trouble(at_s=i * step_s, damage=damage, whom=i * 0.37 % 1, last_s=3 * step_s, factor=9)  # type: ignore[arg-type]
            for i in range(1, 16)
        )
        outcome = run(replace(scene, troubles=troubles))
        assert outcome.reason in ("", "nothing scaled"), (seed, outcome.reason)
        made += outcome.troubles
    assert made > 100


def finished(seed: int) -> Trial:
    trial = Trial(draw(seed))
    assert trial.run().verdict is Verdict.VALID
    return trial


@pytest.mark.parametrize("harm", ["lost", "doubled", "unexpected"])
def test_the_audit_misses_no_tuple(harm: str) -> None:
    world = finished(2).world
    sink, values = next((s, v) for s, v in sorted(world.results.items()) if v)
    match harm:
        case "lost":
            values.pop()
        case "doubled":
            values.append(values[0])
        case "unexpected":
            values.append(-1)
    (sentence,) = audit.tuples(world)
    assert harm in sentence
    assert sink in sentence


def test_the_audit_sees_two_tuples_that_changed_places_on_a_channel() -> None:
    world = finished(2).world
    channels = [c for i in world.instances.values() for c in i.neighbours.all]
    long = next(c for c in channels if len(c.received) > 1)
    long.received.reverse()
    assert any("order" in sentence for sentence in audit.tuples(world))


def test_a_driver_that_crashes_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(draw(1))

    def crash(*_: object) -> None:
        raise ZeroDivisionError("in the driver")

    monkeypatch.setattr(trial.world, "observe", crash)
    outcome = trial.run()
    assert outcome.verdict is Verdict.INVALID
    assert "ZeroDivisionError('in the driver') in crash" in outcome.reason


def test_several_processes_find_what_one_finds() -> None:
    broken = next(v for v in VARIANTS if v.name.startswith("R11: a leaver ends without"))
    table = {**TABLE, **broken.patch}
    heard: list[int] = []

    def note(tally: Tally) -> None:
        heard.append(tally.seeds)

    one = swarm(
        first=5, seeds=130, deadline_s=None, over=over_processes(1), table=table, progress=note
    )
    two = swarm(first=5, seeds=130, deadline_s=None, over=over_processes(2), table=table)
    assert one.failing == two.failing != []
    assert (one.verdicts, one.sums, heard) == (two.verdicts, two.sums, [100, 130])


def test_a_swarm_without_time_does_nothing() -> None:
    tally = swarm(first=0, seeds=None, deadline_s=time.monotonic(), over=over_processes(1))
    assert tally.seeds == 0
