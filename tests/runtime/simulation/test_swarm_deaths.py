"""Worlds in which processes die: each next incarnation goes on where the last one had committed,
and every duty about that which a driver neglects is found out."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from anabranch.protocol.states import Active
from anabranch.runtime.simulation import audit
from anabranch.runtime.simulation.channel import Channel
from anabranch.runtime.simulation.deaths import SUSPECTED_S
from anabranch.runtime.simulation.happenings import Damage, Trouble
from anabranch.runtime.simulation.instance import Instance
from anabranch.runtime.simulation.lapses import LAPSES, Lapse, lapse_named, neglected
from anabranch.runtime.simulation.scene import Scene
from anabranch.runtime.simulation.scene_drawing import draw
from anabranch.runtime.simulation.story import told
from anabranch.runtime.simulation.swarm import first_found
from anabranch.runtime.simulation.trial import Outcome, Trial, Verdict
from anabranch.runtime.simulation.work import SourceWork

SEEDS = 120
LAPSE_SEEDS = 80
SHOWN_IN = {
    "ends while a neighbour is dead": 127,
    "takes what is new before repeats": 1197,
    "takes repeats channel by channel": 1739,
    "is drained before repeats": 230,
    "adds state sent again to its part": 203,
    "says event time before Restarted": 309,
    "keeps children that nobody knows": 1355,
    "does not wait for repeats": 186,
    "puts words before repeats": 2428,
}
"""Rarer ones, and the first seed that shows each; `scripts/swarm.py --mutants` finds them anew."""


def trouble(
    damage: Damage, at_s: float, whom: float, last_s: float, factor: float = 0.0
) -> Trouble:
    return Trouble(at_s=at_s, damage=damage, whom=whom, last_s=last_s, factor=factor)


def deadly(seed: int, *troubles: Trouble) -> Scene:
    """The world of a seed with these troubles only."""
    scene = draw(seed, crashes="none")
    knobs = replace(scene.knobs, commit_s=scene.net.latency_s)
    return replace(scene, troubles=troubles, knobs=knobs)


def test_worlds_in_which_processes_die_are_valid_and_most_prove_something() -> None:
    outcomes = [Trial(draw(seed, crashes="all")).run() for seed in range(SEEDS)]
    assert [o for o in outcomes if o.verdict is Verdict.INVALID] == []
    assert sum(o.verdict is Verdict.VALID for o in outcomes) > 0.8 * SEEDS
    assert sum(o.deaths for o in outcomes) > 5 * SEEDS
    assert sum(o.joins for o in outcomes) > SEEDS
    assert sum(o.moves for o in outcomes) > SEEDS / 2


def test_what_a_source_had_claimed_before_its_first_commit_is_read_by_its_next_incarnation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = draw(485251)
    assert Trial(scene).run().verdict is Verdict.VALID
    monkeypatch.setattr(SourceWork, "claim_again", lambda _work, _earlier: None)
    assert Trial(scene).run().reason.startswith("S1: ")


def test_a_giver_may_end_while_its_state_waits_for_word_from_others_at_its_new_owner() -> None:
    assert Trial(draw(551951)).run().verdict is Verdict.VALID


def test_a_large_world_in_which_processes_die_is_valid() -> None:
    outcome = Trial(draw(3, "large", "all")).run()
    assert (outcome.verdict, outcome.reason) == (Verdict.VALID, "")
    assert outcome.deaths > 40


def test_some_of_the_seeds_have_deaths_and_the_others_are_what_they_were() -> None:
    scenes = [(draw(seed), draw(seed, crashes="none")) for seed in range(200)]
    assert 50 < sum(some != none for some, none in scenes) < 110
    assert all(none.knobs.commit_s is None for _, none in scenes)
    kinds = {t.damage for some, _ in scenes for t in some.troubles}
    assert kinds >= {"crash", "host", "power", "stop"}


@pytest.mark.parametrize("damage", ["crash", "host", "power"])
def test_no_death_loses_or_doubles_a_tuple(damage: Damage) -> None:
    deaths = 0
    for seed in range(12):
        step_s = draw(seed).safety_s / 12
        troubles = (trouble(damage, i * step_s, i * 0.37 % 1, 0.3 * step_s) for i in range(1, 12))
        outcome = Trial(deadly(seed, *troubles)).run()
        assert outcome.reason in ("", "nothing scaled"), (seed, outcome.reason)
        deaths += outcome.deaths
    assert deaths > 100


def test_who_dies_while_it_is_resumed_is_resumed_later() -> None:
    again = [trouble("crash", 0.05 + 0.001 * i, 0.0, 0.02) for i in range(5)]
    _, story = told(deadly(1, *again))
    incarnations = [row.text for row in story.rows if " is resumed, incarnation " in row.text]
    assert incarnations == ["O0.0 is resumed, incarnation 6"]


def accepted_by(me: Instance) -> list[Channel]:
    return list(me.neighbours.accepted.values())


def stopped(last_s: float) -> tuple[Trial, Outcome]:
    scene = deadly(1, trouble("stop", 0.05, 0.0, 0.1, factor=last_s))
    trial = Trial(replace(scene, decisions=()))
    return trial, trial.run()


def test_who_is_stopped_for_long_is_killed_and_resumed() -> None:
    trial, outcome = stopped(30.0)
    assert outcome.reason in ("", "nothing scaled")
    assert (outcome.deaths, trial.troubles.deaths.suspected) == (1, 1)
    assert outcome.at_s < 300


def test_who_is_stopped_for_a_short_while_goes_on() -> None:
    trial, outcome = stopped(0.8 * SUSPECTED_S)
    assert outcome.reason in ("", "nothing scaled")
    assert (trial.troubles.made, outcome.deaths) == (1, 0)


def test_who_is_slow_is_not_suspected() -> None:
    slow = trouble("slow", 0.0, 0.0, 10.0, factor=1000.0)
    scene = replace(deadly(1, slow), hosts=((1.0, math.inf),), decisions=())
    outcome = Trial(scene).run()
    assert outcome.reason in ("", "nothing scaled")
    assert outcome.deaths == 0


def test_who_was_stopped_itself_suspects_nobody() -> None:
    """Everybody is stopped for as long: they all find each other silent, and wrongly so."""
    scene = deadly(1, *(trouble("stop", 0.05, whom / 16, 0.1, factor=30.0) for whom in range(16)))
    outcome = Trial(replace(scene, decisions=())).run()
    assert outcome.reason in ("", "nothing scaled")
    assert outcome.deaths == 0


def test_the_audit_sees_a_process_that_is_not_resumed() -> None:
    trial = Trial(replace(draw(1, crashes="all"), decisions=()))
    world = trial.world
    world.found(trial.scene.counts)
    assert world.clock.run(until_s=0.05, events_max=10_000)
    me = next(i for i in world.instances.values() if isinstance(i.core.state, Active))
    trial.troubles.deaths.kill(me, "a test", math.inf, abrupt=True)
    assert f"L1: {me.me} is dead for ever" in list(audit.at_rest(world))


def test_who_is_dead_reads_nothing_when_its_connections_are_hung_up() -> None:
    trial = Trial(replace(draw(1, crashes="all"), decisions=()))
    world = trial.world
    world.found(trial.scene.counts)
    assert world.clock.run(until_s=0.05, events_max=10_000)
    me = next(i for i in world.instances.values() if any(c.wire for c in accepted_by(i)))
    wires = [c.wire for c in accepted_by(me) if c.wire is not None]
    trial.troubles.deaths.kill(me, "a test", math.inf, abrupt=False)
    while trial.troubles.made < 100 and any(wire.back.end.wire is wire for wire in wires):
        trial.troubles.make(trouble("hang_up", 0.05, 0.0, 0.1))
    assert all(wire.back.cut and wire.forth.cut for wire in wires)


def test_a_world_in_which_a_connection_to_the_dead_is_hung_up_is_valid() -> None:
    """A word to an incarnation that is over, still on its way then, must not come to it."""
    assert Trial(draw(54153)).run().verdict is Verdict.VALID


@pytest.mark.parametrize(
    "lapse", [x for x in LAPSES if x.name not in SHOWN_IN], ids=lambda lapse: lapse.name
)
def test_a_lapse_is_found_out_within_a_few_seeds(lapse: Lapse) -> None:
    assert first_found(lapse, LAPSE_SEEDS) is not None


@pytest.mark.parametrize(("name", "seed"), SHOWN_IN.items(), ids=list(SHOWN_IN))
def test_a_rare_lapse_shows_in_a_world_that_is_not_invalid_without_it(name: str, seed: int) -> None:
    scene = draw(seed, crashes="all")
    assert Trial(scene).run().verdict is not Verdict.INVALID
    with neglected(lapse_named(name)):
        outcome = Trial(scene).run()
    assert outcome.verdict is Verdict.INVALID
    assert not outcome.reason.startswith("crash")


def test_a_lapse_ends_with_what_it_was_wanted_for() -> None:
    lapse = lapse_named("acknowledges on receipt")
    assert lapse is not None
    right = vars(lapse.where)[lapse.attribute]
    with neglected(lapse):
        assert vars(lapse.where)[lapse.attribute] is lapse.broken
    assert vars(lapse.where)[lapse.attribute] is right


def test_lapses_are_named_by_any_part_that_only_one_has() -> None:
    assert lapse_named("ON RECEIPT") == LAPSES[0]
    assert lapse_named("acknowledges") is None
    assert lapse_named("R7") is None
    assert {lapse.name for lapse in LAPSES} >= SHOWN_IN.keys()
