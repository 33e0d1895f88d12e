"""What goes wrong in a world, as often as it was asked for."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.sinks.jsonl import jsonl
from anabranch.runtime.sources.generate import generate
from anabranch.runtime.world.disk_faults import ByChance
from anabranch.runtime.world.load import FOLDER
from anabranch.runtime.world.troubles import Troubles
from anabranch.runtime.world.world import World


def deaths(kills_each_max: float, kills: float = 12.0, of_disk: float = 0.0) -> Counter[str]:
    """By operator, each of which has one instance. `of_disk`: how probable it is that a call to the
    disk is the last one."""
    pipeline = Pipeline("troubles")
    numbers = pipeline.source("numbers", generate(int, rate=100, count=100))
    numbers.map("same", int).sink("out", jsonl(FOLDER / "out.jsonl"))
    world = World(
        pipeline,
        3,
        options=Options(on_output=lambda *_: None),
        troubles=Troubles(until_s=1.5, kills=kills, kills_each_max=kills_each_max),
        disk_faults=ByChance(random.Random(3), killed=of_disk),
    )
    report = world.run()
    assert report.ok, report.failure
    return Counter({operator.name: operator.deaths for operator in report.operators})


@pytest.mark.parametrize("most", [0, 1])
def test_an_instance_is_killed_as_often_as_it_may_be(most: int) -> None:
    assert deaths(most) == Counter(dict.fromkeys(("numbers", "same", "out"), most))


def test_without_a_bound_it_is_killed_again_and_again() -> None:
    assert max(deaths(math.inf).values()) > 2


def test_deaths_in_calls_to_the_disk_count_as_others() -> None:
    """So that no run is given up because an instance has died too often in a row."""
    assert deaths(2, kills=0.0, of_disk=0.5) == {"numbers": 2, "same": 2, "out": 2}
    assert set(deaths(2, of_disk=0.05).values()) == {2}
