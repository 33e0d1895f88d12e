"""Event time live: sources that fall silent are not waited for, and those without room are not
silent."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.protocol import effects, messages
from anabranch.protocol.ids import OperatorName
from anabranch.runtime.keyed.watermarks import Gate
from anabranch.runtime.live.instance.instance import Instance
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import (
    Chunk,
    Reader,
    RunContext,
    Sink,
    Source,
    Split,
)
from tests.runtime.network import Kept, Network
from tests.runtime.virtual_time import in_virtual_time

IDLE_S = 0.3
Event = tuple[str, float]


class Spoken(Source):
    """Says what a test tells it to say, when it tells it."""

    def __init__(self) -> None:
        self.words: asyncio.Queue[list[Any] | None] = asyncio.Queue()

    def say(self, *tuples: Any) -> None:
        self.words.put_nowait(list(tuples))

    def end(self) -> None:
        self.words.put_nowait(None)

    def splits(self) -> Iterator[Split]:
        yield {}

    def open(self, split: Split, context: RunContext) -> Reader:
        return SpokenReader(self.words)


class SpokenReader(Reader):
    def __init__(self, words: asyncio.Queue[list[Any] | None]) -> None:
        self.words = words

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        tuples = await self.words.get()
        return None if tuples is None else Chunk(tuples)

    def remainder(self) -> Split | None:
        return None


def time_of(event: Event) -> float:
    return event[1]


def key_of(event: Event) -> str:
    return event[0]


def counting(left: Source, right: Source, kept: Sink) -> Pipeline:
    """Tuples per key and 10 s, of two sources together."""
    pipeline = Pipeline("counting", groups=8)
    streams = [
        pipeline.source(name, source).event_time(time_of, idle_s=IDLE_S)
        for name, source in (("left", left), ("right", right))
    ]
    windows = pipeline.merge(*streams).key_by(key_of).window(ab.tumbling(10.0), time=time_of)
    windows.aggregate("count", ab.tally()).sink("kept", kept)
    return pipeline


def events(start: int, end: int) -> list[Event]:
    return [(key, float(at)) for at in range(start, end) for key in "abcdefgh"]


def expected(*sent: list[Event]) -> Counter[Any]:
    """(key, start) of each window, with the number of its tuples."""
    return Counter((key, at // 10 * 10) for some in sent for key, at in some)


def told(kept: Kept) -> Counter[Any]:
    assert all(result.revision == 0 for result in kept.tuples)
    return Counter({(r.key, r.start): r.value for r in kept.tuples})


def closed(kept: Kept, until: int) -> bool:
    """Whether all windows of all keys have been told, up to a time."""
    return bool(sum(r.end <= until for r in kept.tuples) == 8 * until // 10)


def letters(network: Network) -> list[str]:
    return [reason for f in network.final for reason in f.dead_reasons]


class Talking:
    """Lets a source say the events of one second after the other, for as long as a test waits."""

    def __init__(self, source: Spoken) -> None:
        self.source = source
        self.at = 0
        self.sent: list[Event] = []

    def go_on(self) -> None:
        self.say(self.at + 1)

    def say(self, until: int) -> None:
        some = events(self.at, until)
        self.at = until
        self.sent += some
        self.source.say(*some)

    async def until(self, network: Network, condition: Callable[[], bool]) -> None:
        def is_so() -> bool:
            self.go_on()
            return condition()

        await network.until(is_so)


@in_virtual_time
async def test_windows_close_while_one_of_two_sources_is_silent(tmp_path: Path) -> None:
    left, right, kept = Talking(Spoken()), Talking(Spoken()), Kept()
    network = Network(counting(left.source, right.source, kept), tmp_path)
    await network.start()
    left.say(25)
    right.say(25)
    await network.until(lambda: closed(kept, 20))
    await left.until(network, lambda: closed(kept, 60))
    right.at = left.at + 10
    right.go_on()
    await left.until(network, lambda: closed(kept, right.at // 10 * 10))
    left.source.end()
    right.source.end()
    await network.finish()
    assert letters(network) == []
    assert told(kept) == expected(left.sent, right.sent)
    assert network.unbalanced() == []


@in_virtual_time
async def test_newcomers_do_not_wait_for_a_source_that_was_never_heard(tmp_path: Path) -> None:
    left, right, kept = Talking(Spoken()), Spoken(), Kept()
    network = Network(counting(left.source, right, kept), tmp_path)
    await network.start()
    await left.until(network, lambda: closed(kept, 20))
    network.decide("count", "duplicate")
    await left.until(
        network, lambda: [bool(i.membership.owned()) for i in network.of("count")] == [True] * 2
    )
    later = left.at // 10 * 10 + 20
    await left.until(network, lambda: closed(kept, later))
    left.source.end()
    right.end()
    await network.finish()
    assert letters(network) == []
    assert told(kept) == expected(left.sent)


async def test_when_all_are_silent_time_stands_still_and_goes_on_with_the_first(
    tmp_path: Path,
) -> None:
    left, right, kept = Spoken(), Spoken(), Kept()
    network = Network(counting(left, right, kept), tmp_path)
    await network.start()
    left.say(*events(0, 25))
    right.say(*events(0, 15))
    (count,) = network.of("count")
    await network.until(lambda: count.path.gate.idle)
    assert count.path.gate.value < 25
    right.say(*events(15, 45))
    await network.until(lambda: not count.path.gate.idle)
    await network.until(lambda: closed(kept, 40))
    left.end()
    right.end()
    await network.finish()
    assert told(kept) == expected(events(0, 25), events(0, 45))


@asynccontextmanager
async def alone(pipeline: Pipeline, operator: str, folder: Path) -> AsyncIterator[Instance]:
    """An instance without neighbours that has not begun: nothing happens by itself."""
    network = Network(pipeline, folder)
    instance = network.instances[await network._make(OperatorName(operator), -1)]
    try:
        yield instance
    finally:
        instance.lifetime.ended.set_result("over")
        await network.finish()


def said(instance: Instance) -> tuple[float, bool]:
    """The watermark that an instance wants to state, and whether it is idle."""
    if instance.path.watermarks._timer is not None:
        instance.path.watermarks._timer.cancel()
        instance.path.watermarks._time_is_up()
    return instance.path.watermarks._wanted


@in_virtual_time
async def test_a_source_that_has_no_room_is_not_silent(tmp_path: Path) -> None:
    pipeline = counting(Spoken(), Spoken(), Kept())
    async with alone(pipeline, "left", tmp_path) as left:
        left.pump.hold([("a", 1.0)], 0.0)
        left.pump.listen(IDLE_S / 3)
        left.path.room.clear()
        left.pump.listen(IDLE_S)
        left.pump.listen(IDLE_S)
        assert said(left) == (1.0, False)
        left.path.room.set()
        left.pump.listen(IDLE_S / 3)
        assert said(left) == (1.0, False)
        left.pump.listen(IDLE_S / 2)
        assert said(left) == (1.0, True)
        left.pump.hold([("a", 2.0)], 0.0)
        assert said(left) == (2.0, False)


@in_virtual_time
async def test_silence_counts_while_others_are_heard_or_nothing_is_to_be_done(
    tmp_path: Path,
) -> None:
    """Of two devices that an operator hears."""
    pipeline = Pipeline("devices")
    events = pipeline.source("events", Spoken()).map("read", lambda event: event)
    events.event_time(time_of, device=key_of, idle_s=IDLE_S).sink("kept", Kept())
    async with alone(pipeline, "read", tmp_path) as read:
        read.pump.hold([("a", 1.0), ("b", 50.0)], 0.0)
        read.pump.listen(0.0)
        read.path.intake.tuples = 1
        read.pump.listen(2 * IDLE_S)  # a tuple takes its time: nobody can be heard
        assert said(read) == (1.0, False)
        read.pump.hold([("b", 60.0)], 0.0)
        read.pump.listen(2 * IDLE_S)  # it was worked off, as others after it
        read.pump.hold([("b", 70.0)], 0.0)
        assert said(read) == (70.0, False)
        read.path.intake.tuples = 0
        read.pump.listen(0.0)
        read.pump.listen(2 * IDLE_S)
        assert said(read) == (70.0, True)


@in_virtual_time
async def test_nothing_is_said_while_state_is_on_its_way(tmp_path: Path) -> None:
    async with alone(counting(Spoken(), Spoken(), Kept()), "left", tmp_path) as left:
        left.pump.hold([("a", 1.0)], 0.0)
        assert said(left) == (1.0, False)
        left.path.gate.hold("state")
        left.pump.hold([("a", 9.0)], 0.0)
        assert said(left) == (1.0, False)
        left.path.gate.release("state")
        left.pump.listen(0.1)
        assert said(left) == (9.0, False)


class Heard:
    """A channel that keeps the watermarks of messages."""

    def __init__(self) -> None:
        self.watermarks: list[float] = []

    def send_message(self, _message: Any, _cause: str, _book: Any, watermark: float) -> None:
        self.watermarks.append(watermark)


@in_virtual_time
async def test_a_new_owner_that_has_said_nothing_yet_is_as_far_as_successors_count_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right, kept = Talking(Spoken()), Talking(Spoken()), Kept()
    network = Network(counting(left.source, right.source, kept), tmp_path, journals=True)
    await network.start()
    left.say(25)
    right.say(25)
    await network.until(lambda: closed(kept, 20))
    network.decide("count", "duplicate")
    await network.until(
        lambda: [bool(i.membership.owned()) for i in network.of("count")] == [True] * 2
    )
    for incarnation in range(2):
        (old, new), (sink,) = network.of("count"), network.of("kept")
        monkeypatch.setattr(new.path.watermarks, "_gate", Gate())
        channel = Heard()
        monkeypatch.setattr(new.neighbourhood, "channel_to", lambda _peer: channel)  # noqa: B023
        new.membership.perform(effects.SendMessage(old.me, messages.AdoptResponse(ok=True)))
        assert channel.watermarks == [old.path.gate.output]
        assert sink.path.gate._said[new.me] <= channel.watermarks[0]
        monkeypatch.undo()
        if incarnation == 0:
            assert new.commits is not None
            await new.commits.committed()  # else it would not have begun, once more
            network.kill(new.me)
            await network.revive(new.me)
    left.source.end()
    right.source.end()
    await network.finish()
    assert told(kept) == expected(left.sent, right.sent)
