"""Pipelines which tests of the test harness run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import anabranch as ab
from anabranch.runtime.keyed.handler import KeyTime, Timer
from anabranch.runtime.pipeline.graph import Stream

Timed = tuple[str, float]


class Anything:
    """Not a file, not a place: nothing of it may be touched."""

    source = ab.files("/nowhere/*.txt")
    sink = ab.jsonl("/nowhere/out.jsonl")


def words(groups: int = 256) -> tuple[ab.Pipeline, Stream]:
    pipeline = ab.Pipeline("words", groups=groups)
    lines = pipeline.source("lines", Anything.source)
    return pipeline, lines.flat_map("split", str.split)


def counting(groups: int = 256) -> ab.Pipeline:
    pipeline, stream = words(groups)
    stream.key_by(str).fold("count", 0, lambda n, _: n + 1).sink("out", Anything.sink)
    return pipeline


def timed(handler: Any, **options: Any) -> ab.Pipeline:
    """(key, time) by key, with event time from the source on."""
    pipeline = ab.Pipeline("timed")
    events = pipeline.source("events", Anything.source)
    events = events.event_time(lambda e: e[1], **options)
    keyed = events.key_by(lambda e: e[0])
    keyed.process("watch", handler, state=list).sink("out", Anything.sink)
    return pipeline


def with_watermark(key: str, state: list[Any], event: Timed, time: KeyTime) -> list[Any]:
    return [(key, event[1], time.watermark)]


class Alarm:
    """Tells of a key 10 s after its last tuple; `processing`: by the clock."""

    processing = False

    def on_tuple(self, key: str, state: list[Any], event: Timed, time: KeyTime) -> None:
        state.append(event[1])
        base = time.now if self.processing else event[1]
        time.set_timer(base + 10, "quiet", processing=self.processing)

    def on_timer(
        self, key: str, state: list[Any], timer: Timer, time: KeyTime
    ) -> Iterable[tuple[Any, ...]]:
        yield (key, timer.at, list(state))


class ClockAlarm(Alarm):
    processing = True


class Ticking:
    """From its first tuple on, tells the time each 10 s."""

    def on_tuple(self, key: str, state: list[Any], event: Timed, time: KeyTime) -> None:
        time.set_timer(time.now + 10, processing=True)

    def on_timer(self, key: str, state: list[Any], timer: Timer, time: KeyTime) -> list[float]:
        time.set_timer(timer.at + 10, processing=True)
        return [time.now]


def too_late(key: str, state: list[Any], event: Timed, time: KeyTime) -> list[Timed]:
    if event[1] < time.watermark:
        time.late(event, time.watermark - event[1])
        return []
    return [event]


class Unreadable:
    """Can be pickled, but not read again."""

    def __init__(self, word: str) -> None:
        self.word = word

    def __reduce__(self) -> Any:
        return int, (self.word,)
