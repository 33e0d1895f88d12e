"""What goes wrong in a world, as often as it was asked for."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.sinks.jsonl import jsonl
from anabranch.runtime.sources.generate import generate
from anabranch.runtime.world.load import FOLDER
from anabranch.runtime.world.troubles import Troubles
from anabranch.runtime.world.world import World


def deaths(kills_each_max: float) -> Counter[str]:
    """By operator, each of which has one instance."""
    pipeline = Pipeline("troubles")
    numbers = pipeline.source("numbers", generate(int, rate=100, count=100))
    numbers.map("same", int).sink("out", jsonl(FOLDER / "out.jsonl"))
    troubles = Troubles(until_s=1.5, kills=12.0, kills_each_max=kills_each_max)
    world = World(pipeline, 3, options=Options(on_output=lambda *_: None), troubles=troubles)
    report = world.run()
    assert report.ok, report.failure
    return Counter({operator.name: operator.deaths for operator in report.operators})


@pytest.mark.parametrize("most", [0, 1])
def test_an_instance_is_killed_as_often_as_it_may_be(most: int) -> None:
    assert deaths(most) == Counter(dict.fromkeys(("numbers", "same", "out"), most))


def test_without_a_bound_it_is_killed_again_and_again() -> None:
    assert max(deaths(math.inf).values()) > 2
