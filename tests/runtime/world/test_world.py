"""Whole runs on virtual time: the agent and its instances as they are, in one process."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections import Counter
from dataclasses import replace

import pytest

from anabranch.runtime.pipeline.definition import Delivery
from anabranch.runtime.ports import clock
from anabranch.runtime.world.lapses import LAPSES, Lapse, neglected
from anabranch.runtime.world.scenes import SCENES
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.trial import (
    DELIVERIES,
    RESULTS,
    Found,
    Trial,
    Word,
    drawn,
    judged,
    world_of,
)
from anabranch.runtime.world.troubles import Troubles

SEEDS = 10
LAPSE_SEEDS = 60
"""Within so many worlds a lapse must show. Mostly it does so in one of the first."""
STRONG = ("late journal", "most", "skips", "no letters")
"""Lapses that show soon; `scripts/worlds.py --lapses` tries all."""


DEADLY = Troubles(until_s=0.8, kills=15.0)


def quiet(scene: str) -> Trial:
    """Nothing goes wrong, and nothing is decided."""
    return Trial(1, SCENES[scene], 100, 0.2, (), Conditions(), Troubles(), killed=0.0, full=0.0)


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
    assert (found.word, found.why) == (Word.VALID, "")
    assert (+found.happened).keys() == ({"deaths"} if scene == "poison" else set())
    assert found.virtual_s > 0.2


def test_an_oracle_finds_a_wrong_function() -> None:
    scene = SCENES["chain"]
    wrong = replace(scene, build=lambda numbers: numbers.map("double", lambda n: 2 * n))
    assert "too many" in judged(replace(quiet("chain"), scene=wrong)).why


def test_worlds_in_which_much_goes_wrong_are_valid() -> None:
    happened, words = Counter[str](), Counter[Word]()
    for seed in range(SEEDS):
        found = judged(drawn(seed))
        assert found.word is not Word.INVALID, found.text
        happened.update(found.happened)
        words[found.word] += 1
    assert words[Word.VALID] > SEEDS / 2
    wanted = {"joins", "leaves", "deaths", "kills", "cuts", "clogs", "stops"}
    assert wanted - (+happened).keys() == set()


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_of_three_deliveries_each_keeps_its_promise(delivery: Delivery) -> None:
    deaths = 0
    for seed in range(4):
        trial = replace(drawn(seed, "chain"), delivery=delivery, troubles=DEADLY)
        found = judged(trial)
        assert found.word is not Word.INVALID, found.text
        deaths += found.happened["deaths"]
    assert deaths > 4


def test_exactly_once_is_more_than_the_others_promise() -> None:
    """So the oracle tells them apart: what at-most-once loses is found missing."""
    trials = (
        replace(drawn(seed, "chain"), delivery="at-most-once", troubles=DEADLY)
        for seed in range(LAPSE_SEEDS)
    )
    lost = next(t for t in trials if judged(t).happened["deaths"] and not _is_whole(t))
    assert lost


def _is_whole(trial: Trial) -> bool:
    world = world_of(trial)
    world.run()
    rows = [json.loads(line) for line in world.written(RESULTS).splitlines()]
    return not trial.scene.fault(rows, trial.count)


def test_a_tuple_that_ends_its_process_becomes_a_dead_letter() -> None:
    found = judged(replace(quiet("poison"), count=100))
    assert (found.word, found.why) == (Word.VALID, "")
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


def _first_invalid(lapse: Lapse) -> Found | None:
    with neglected(lapse):
        found = (judged(drawn(seed, lapse.scene)) for seed in range(LAPSE_SEEDS))
        return next((one for one in found if one.word is Word.INVALID), None)


@pytest.mark.parametrize("name", STRONG)
def test_a_broken_variant_of_a_class_is_found_out(name: str) -> None:
    (lapse,) = (lapse for lapse in LAPSES if lapse.name == name)
    right = lapse.of.__dict__[lapse.attribute]
    found = _first_invalid(lapse)
    assert found is not None
    assert lapse.of.__dict__[lapse.attribute] is right
    assert judged(found.trial).word is Word.VALID
