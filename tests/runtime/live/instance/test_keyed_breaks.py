"""What keyed operators have to stand, found by trying to break them."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Any

import anabranch as ab
from anabranch import testing
from anabranch.runtime.keyed.handler import KeyTime, Timer
from anabranch.runtime.pipeline.graph import Pipeline
from tests.runtime.live.instance.test_instances import Numbers
from tests.runtime.network import Kept, Network
from tests.runtime.virtual_time import in_virtual_time


def first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def append(state: list[int], pair: tuple[str, int]) -> list[int]:
    state.append(pair[1])
    return state


def test_what_a_fold_has_told_does_not_change_afterwards() -> None:
    pipeline = ab.Pipeline("told")
    pairs = pipeline.source("pairs", ab.items([]))
    pairs.key_by(first).fold("all", list, append).sink("out", ab.discard())
    outcome = testing.run(pipeline, {"pairs": [("a", 1), ("a", 2), ("b", 9), ("a", 3)]})
    assert outcome["out"] == [("a", [1]), ("a", [1, 2]), ("b", [9]), ("a", [1, 2, 3])]


class Flushing:
    """Tells what has come together, a second after the first of it, and again after that."""

    def on_tuple(self, key: str, state: dict[str, int], pair: Any, time: KeyTime) -> None:
        state["n"] = state.get("n", 0) + 1
        time.set_timer(time.now + 1, processing=True)

    def on_timer(
        self, key: str, state: dict[str, int], timer: Timer, time: KeyTime
    ) -> list[tuple[str, int]]:
        time.set_timer(time.now + 1, processing=True)
        return [(key, state.pop("n", 0))]


def test_timers_of_the_clock_fire_once_at_the_end_of_the_stream() -> None:
    pipeline = ab.Pipeline("flush")
    pairs = pipeline.source("pairs", ab.items([]))
    pairs.key_by(first).process("all", Flushing, state=dict).sink("out", ab.discard())
    outcome = testing.run(pipeline, {"pairs": [("a", 1), ("a", 2), ("b", 9)]})
    assert sorted(outcome["out"]) == [("a", 2), ("b", 1)]
    assert outcome.dead == {}


class Alarm:
    """Tells how many tuples of its key had come when a timer of the clock fired."""

    def on_tuple(self, key: int, state: dict[str, int], item: int, time: KeyTime) -> None:
        sum(range(2000))  # so that more comes in than is worked off
        state["n"] = state.get("n", 0) + 1
        if state["n"] == 1:
            time.set_timer(time.now, processing=True)

    def on_timer(
        self, key: int, state: dict[str, int], timer: Timer, time: KeyTime
    ) -> list[tuple[int, int]]:
        return [(key, state["n"])]


@in_virtual_time
async def test_timers_of_the_clock_fire_while_tuples_keep_coming(tmp_path: Path) -> None:
    """An instance that is never at rest has no less a clock."""
    n = 30_000
    pipeline, kept = Pipeline("alarm"), Kept()
    numbers = pipeline.source("numbers", Numbers(n, size=n, chunk=1000))
    numbers.key_by(lambda i: i % 3).process("alarm", Alarm, state=dict).sink("kept", kept)
    network = Network(pipeline, tmp_path)
    await network.start()
    await network.finish(60)
    assert len(kept.tuples) == 3
    assert max(seen for _, seen in kept.tuples) < n / 3 / 10


@in_virtual_time
async def test_a_keyed_sink_is_as_busy_as_its_writing(tmp_path: Path) -> None:
    """Or a slow one would never ask for more instances."""
    pipeline, kept = Pipeline("slow"), Kept(delay_s=0.001)
    numbers = pipeline.source("numbers", Numbers(1500))
    numbers.key_by(lambda i: i % 7).sink("kept", kept)
    network = Network(pipeline, tmp_path, batch_tuples_max=32)
    await network.start()
    (sink,) = network.of("kept")
    await network.until(lambda: len(kept.tuples) > 1000)
    reading = sink.path.meter.reading(monotonic(), keeper=True)
    assert reading.capacity is not None
    assert reading.capacity < 3000
    await network.finish()
