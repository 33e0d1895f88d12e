"""Processes of a world that say nothing any more: stopped, at work, or waiting for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.runtime.live.agent.deaths import Deaths
from anabranch.runtime.values.kinds import Cause, Ending
from anabranch.runtime.world.drawing import drawn
from anabranch.runtime.world.drawn_trial import Trial
from anabranch.runtime.world.load import InputLoad
from anabranch.runtime.world.scenes import DEADLOCK, SCENES, Scene
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.trial import HANG_S, WorldOutcome, WorldVerdict, judged
from anabranch.runtime.world.troubles import Troubles


def found_with(troubles: Troubles, scene: Scene = SCENES["chain"]) -> WorldOutcome:
    """What a world comes to in which nothing else goes wrong."""
    return judged(
        Trial(
            seed=1,
            size="small",
            scene=scene,
            load=InputLoad(count=100, span_s=0.5, bursts=()),
            decisions=(),
            conditions=Conditions(),
            troubles=troubles,
        )
    )


@pytest.mark.parametrize(
    "troubles",
    [
        Troubles(until_s=0.5, halts=6.0, kills_each_max=1),
        Troubles(until_s=0.5, hangs=6.0, kills_each_max=1),
    ],
    ids=["stopped", "hanging"],
)
def test_a_process_that_will_never_go_on_is_ended_and_resumed(troubles: Troubles) -> None:
    found = found_with(troubles)
    assert (found.verdict, found.reason) == (WorldVerdict.VALID, "")
    assert found.happened["deaths"] > 0
    assert found.virtual_s > HANG_S


def test_a_process_that_computes_for_long_is_left_alone() -> None:
    found = found_with(Troubles(until_s=0.5, spins=6.0, spin_s=20.0))
    assert (found.verdict, found.reason) == (WorldVerdict.VALID, "")
    assert found.virtual_s > 2 * HANG_S
    assert found.happened["spins"] > 0
    assert found.happened["deaths"] == 0


def test_a_stopped_template_process_goes_on() -> None:
    troubles = Troubles(until_s=0.5, kills=6.0, parent_stops=20.0, kills_each_max=1)
    found = found_with(troubles)
    assert (found.verdict, found.reason) == (WorldVerdict.VALID, "")
    assert found.happened["parent_stops"] > 0
    assert found.happened["deaths"] > 0


def test_a_tuple_on_which_a_function_waits_for_ever_becomes_a_dead_letter() -> None:
    found = found_with(Troubles(), DEADLOCK)
    assert (found.verdict, found.reason) == (WorldVerdict.VALID, "")
    assert found.happened["deaths"] > 2


def test_a_newcomer_that_waits_for_its_start_does_not_hang() -> None:
    """Its creator does: the newcomer of this world was ended six times, and the run with it."""
    found = judged(replace(drawn(16, "poison"), scene=DEADLOCK))
    assert (found.verdict, found.reason) == (WorldVerdict.VALID, "")


def test_an_instance_that_waits_at_its_end_does_not_hang() -> None:
    """The one behind it waits for newcomers, and two of its predecessors have nothing to do but to
    hear that it knows of their end: they were ended six times, and the run with them."""
    found = judged(drawn(188))
    assert (found.verdict, found.reason) == (WorldVerdict.VALID, "")
    assert found.happened["halts"] > 0


@pytest.mark.parametrize(
    "seed",
    [
        53,  # a newcomer hangs before it gets its START
        185,  # the template process is stopped before the run has begun
    ],
)
def test_hangs_at_any_moment_are_seen(seed: int) -> None:
    found = judged(drawn(seed))
    assert (found.verdict, found.reason) == (WorldVerdict.VALID, "")
    assert found.happened["hangs"] + found.happened["parent_stops"] > 0


def test_hangs_count_as_deaths_however_long_they_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the last word of the process was that it had nothing to do."""
    now_s = 0.0
    monkeypatch.setattr("anabranch.runtime.ports.clock.monotonic", lambda: now_s)
    deaths = Deaths()
    for _ in range(2):
        now_s += 600.0
        deaths.note(Ending(Cause.HANG, "hung for 600 s"), 7, 600.0, busy=False)
    assert len(deaths.ends) == 2
    deaths.note(Ending(Cause.HANG, "hung for 600 s"), 8, 600.0, busy=False)
    assert len(deaths.ends) == 1
