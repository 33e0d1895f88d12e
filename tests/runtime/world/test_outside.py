"""A source that confirms to a sender outside what it has read, which the sender forgets then."""

from __future__ import annotations

import pytest

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.policies.script import parse_script
from anabranch.runtime.sinks.jsonl import jsonl
from anabranch.runtime.world.load import FOLDER
from anabranch.runtime.world.outside import Outside, Sender
from anabranch.runtime.world.troubles import Troubles
from anabranch.runtime.world.world import End, World

OUT = FOLDER / "out.jsonl"
COUNT = 100
BURSTS = ((0.0, 40), (0.1, 40), (0.3, COUNT - 80))


def pipeline(sender: Sender) -> Pipeline:
    made = Pipeline("outside", durable="power", dead_letters=str(FOLDER / "dead.jsonl"))
    scale = Scale(max_instances=3)
    numbers = made.source("numbers", Outside(sender, lambda n: n), scale=scale)
    numbers.map("pass", lambda n: n, scale=scale).sink("out", jsonl(OUT))
    return made


def found(world: World) -> list[int]:
    return sorted(map(int, world.written(OUT).split()))


@pytest.mark.parametrize("hundredths", [2, 5, 8, 11, 20])
def test_what_is_confirmed_outlives_a_loss_of_power(hundredths: int) -> None:
    """All processes end while founders are started, or soon after."""
    world = World(pipeline(Sender(BURSTS)), 7, ends=[End(hundredths / 100, power=True)])
    assert world.run().ok
    assert found(world) == [*range(COUNT)]


@pytest.mark.parametrize("seed", range(5))
def test_a_reader_that_leaves_or_dies_loses_nothing_that_it_has_taken(seed: int) -> None:
    script = (
        "0.05 numbers duplicate 2; 0.12 numbers leave; 0.2 numbers leave; 0.25 numbers duplicate"
    )
    world = World(
        pipeline(Sender(BURSTS)),
        seed,
        options=Options(script=parse_script(script)),
        troubles=Troubles(until_s=0.4, kills=8.0, kills_each_max=3),
    )
    report = world.run()
    assert report.ok
    assert found(world) == [*range(COUNT)]
    assert sum(one.joins for one in report.operators) > 0


def test_a_sender_is_not_asked_for_what_it_has_forgotten() -> None:
    sender = Sender(BURSTS)
    sender.take(0, now_s=1.0)
    assert sender.since(0, 0) == [*range(20)]
    sender.forget(0, 5)
    assert sender.since(0, 5) == [*range(5, 20)]
    for place in (4, 21):
        with pytest.raises(ValueError, match="session 0 asks"):
            sender.since(0, place)
