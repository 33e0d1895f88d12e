"""Whole runs on virtual time: the agent and its instances as they are, in one process."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from dataclasses import replace

import pytest

from anabranch.runtime.pipeline.definition import Delivery
from anabranch.runtime.ports import clock
from anabranch.runtime.world.drawing import DELIVERIES, drawn
from anabranch.runtime.world.drawn_trial import Trial
from anabranch.runtime.world.load import InputLoad
from anabranch.runtime.world.scenes import SCENES, Single, numbers
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.trial import WorldVerdict, judged, results, world_of
from anabranch.runtime.world.troubles import Troubles

LOSING_SEEDS = 60

DEADLY = Troubles(until_s=0.8, kills=15.0)


def quiet(scene: str) -> Trial:
    """Nothing goes wrong, and nothing is decided."""
    load = InputLoad(count=100, span_s=0.2, bursts=())
    return Trial(
        seed=1,
        size="small",
        scene=SCENES[scene],
        load=load,
        decisions=(),
        conditions=Conditions(),
    )


@pytest.fixture
def nothing_real(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time may be slept away, no thread begun, no socket had."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a world has reached for something real")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(socket.socket, "__init__", refuse)
    monkeypatch.setattr(time, "sleep", refuse)


@pytest.mark.usefixtures("nothing_real")
@pytest.mark.parametrize("scene", SCENES)
def test_a_quiet_world_gives_what_its_oracle_says(scene: str) -> None:
    found = judged(quiet(scene))
    assert (found.verdict, found.reason) == (WorldVerdict.VALID, "")
    assert (+found.happened).keys() == ({"deaths"} if scene == "poison" else set())
    assert found.virtual_s > 0.2 or scene == "texts"


def test_an_oracle_finds_a_wrong_function() -> None:
    scene = SCENES["chain"]
    assert isinstance(scene, Single)
    wrong = replace(scene, make=lambda p, load: numbers(p, load).map("double", lambda n: 2 * n))
    assert "unexpected" in judged(replace(quiet("chain"), scene=wrong)).reason


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_of_three_deliveries_each_keeps_its_promise(delivery: Delivery) -> None:
    deaths = 0
    for seed in range(4):
        trial = replace(drawn(seed, "chain"), delivery=delivery, troubles=DEADLY)
        found = judged(trial)
        assert found.verdict is not WorldVerdict.INVALID, found.text
        deaths += found.happened["deaths"]
    assert deaths > 4


def test_exactly_once_is_more_than_the_others_promise() -> None:
    """So the oracle tells them apart: what at-most-once loses is found missing."""
    trials = (
        replace(drawn(seed, "chain"), delivery="at-most-once", troubles=DEADLY)
        for seed in range(LOSING_SEEDS)
    )
    lost = next(t for t in trials if judged(t).happened["deaths"] and not _is_whole(t))
    assert lost


def _is_whole(trial: Trial) -> bool:
    world = world_of(trial)
    world.run()
    return not [*trial.scene.faults(results(trial, world), trial.load)]


def test_a_tuple_that_ends_its_process_becomes_a_dead_letter() -> None:
    found = judged(quiet("poison"))
    assert (found.verdict, found.reason) == (WorldVerdict.VALID, "")
    assert found.happened["deaths"] > 2


def _seen(seed: int) -> tuple[int, str]:
    found = judged(drawn(seed, "counts"))
    return found.trace, found.text


def test_the_same_seed_gives_the_same_world_to_the_byte() -> None:
    assert _seen(3) == _seen(3)
    assert _seen(3) != _seen(4)


def test_a_world_leaves_nothing_behind() -> None:
    judged(drawn(2))
    assert asyncio._get_running_loop() is None
    assert abs(clock.monotonic() - time.monotonic()) < 60.0
    assert asyncio.run(_all_tasks()) == 1


async def _all_tasks() -> int:
    return len(asyncio.all_tasks())
