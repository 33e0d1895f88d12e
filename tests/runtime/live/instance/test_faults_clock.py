"""Somebody sets the clock of the host while a run goes on, forward or back by a day."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.keyed.handler import KeyTime, Timer
from anabranch.runtime.live.process.run_dir import RunDir
from anabranch.runtime.plan.ends import Chunk, Reader, RunContext, Source, Split
from anabranch.runtime.ports.clock import SystemClock, using
from tests.runtime.faulty import folder_of_all
from tests.runtime.live.instance.test_instances import Numbers
from tests.runtime.network import Kept, Network
from tests.runtime.processes import PATIENCE_S

DAY_S = 86_400.0


class Clock(SystemClock):
    """The clock of the host, which can be set, and stopped: a slow test must not move it."""

    def __init__(self) -> None:
        self.off_s = 0.0
        self._stopped_at_s: float | None = None

    def wall(self) -> float:
        now_s = time.time() if self._stopped_at_s is None else self._stopped_at_s
        return now_s + self.off_s

    def stop(self) -> None:
        self._stopped_at_s = time.time()


@pytest.fixture
def clock() -> Iterator[Clock]:
    clock = Clock()
    with using(clock):
        yield clock


class Alarm:
    """Goes off so many seconds after a tuple."""

    def on_tuple(self, key: int, state: list[float], seconds: float, time: KeyTime) -> None:
        time.set_timer(time.now + seconds, processing=True)

    def on_timer(
        self, key: int, state: list[float], timer: Timer, time: KeyTime
    ) -> list[tuple[str, int]]:
        return [("rang", key)]


class Once(Source):
    """One tuple, and then nothing until the input is ended."""

    bounded = False

    def __init__(self, one: Any) -> None:
        self.one = one

    def splits(self) -> Iterator[Split]:
        yield {}

    def open(self, split: Split, context: RunContext) -> Reader:
        return OnceReader(self.one)


class OnceReader(Reader):
    def __init__(self, one: Any) -> None:
        self.tuples = [one]

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        if not self.tuples:
            await asyncio.Event().wait()
        tuples, self.tuples = self.tuples, []
        return Chunk(tuples)

    def remainder(self) -> Split | None:
        return None


async def alarm(folder: Path, seconds: float) -> tuple[Network, Kept]:
    """A run in which an alarm is set, and nothing else happens."""
    pipeline, kept = ab.Pipeline("alarm"), Kept()
    source = pipeline.source("seconds", Once(seconds))
    source.key_by(lambda s: 0).process("alarm", Alarm, state=list).sink("kept", kept)
    network = Network(pipeline, folder, journals=True)
    await network.start()
    (waiting,) = network.of("alarm")
    await network.until(lambda: waiting.path.counts.processed == 1)
    await asyncio.sleep(0.1)
    return network, kept


async def end(network: Network) -> None:
    (source,) = network.of("seconds")
    source.pump.end_input()
    await network.finish()


async def test_a_timer_fires_soon_after_the_clock_was_set_past_it(
    tmp_path: Path, clock: Clock
) -> None:
    network, kept = await alarm(tmp_path, 3_600)
    assert kept.tuples == []
    clock.off_s = DAY_S
    await network.until(lambda: kept.tuples == [("rang", 0)])
    await end(network)
    assert kept.tuples == [("rang", 0)]


async def test_a_timer_waits_for_a_clock_that_was_set_back_and_fires_once(
    tmp_path: Path, clock: Clock
) -> None:
    clock.stop()
    network, kept = await alarm(tmp_path, 0.5)
    clock.off_s = -DAY_S
    await asyncio.sleep(1.0)  # it is looked at meanwhile
    assert kept.tuples == []
    clock.off_s = 60.0
    await network.until(lambda: kept.tuples == [("rang", 0)])
    await end(network)
    assert kept.tuples == [("rang", 0)]


@pytest.mark.parametrize("jump_s", [-DAY_S, DAY_S])
async def test_event_time_loses_nothing_by_a_clock_that_is_set(
    tmp_path: Path, clock: Clock, jump_s: float
) -> None:
    """What is ahead of the clock does not count as time, until the clock is there; it is no less
    a tuple."""
    began, n = time.time(), 20_000
    pipeline, kept = ab.Pipeline("jump"), Kept()
    times = pipeline.source("times", Numbers(n)).map("time", lambda i: began + i / 1_000)
    timed = times.event_time(float, ahead_s=60).key_by(lambda t: 0).window(ab.tumbling(1))
    timed.aggregate("count", ab.tally()).sink("kept", kept)
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    (stamping,) = network.of("time")
    await network.until(lambda: stamping.path.counts.processed > 1_000)
    clock.off_s = jump_s
    await network.finish(timeout_s=PATIENCE_S)
    counted = sum(result.value for result in kept.tuples if not result.revision)
    ahead = sum(final.ahead for final in network.final)
    assert network.unbalanced() == []
    assert counted + sum(f.late.get("bury", 0) for f in network.final) == n
    assert (ahead > 0) == (jump_s < 0)


def test_a_folder_of_a_living_run_is_not_taken_for_an_old_one(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with folder_of_all() as base:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
        living = RunDir()
        clock.off_s = 30 * DAY_S
        other = RunDir()
        assert living.is_there
        assert living.path != other.path
        for run_dir in (living, other):
            run_dir.remove()


def test_how_long_a_run_lasts_is_not_asked_of_that_clock(tmp_path: Path, clock: Clock) -> None:
    pipeline = ab.Pipeline("numbers")
    source = pipeline.source("numbers", ab.generate(lambda n: n, rate=1_000))
    source.sink("out", ab.jsonl(tmp_path / "out.jsonl"))
    run = ab.start(pipeline, duration_s=1.0)
    clock.off_s = -DAY_S
    report = run.wait(PATIENCE_S)
    assert report.ok
    assert 1.0 <= report.seconds < DAY_S / 2
