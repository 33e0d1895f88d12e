"""Each construct of the API in a small pipeline, with tuples in disorder, late ones and bad ones.

A construct is built behind sources of text lines: `left` and, if it needs two, `right`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import anabranch as ab


class Reading(NamedTuple):
    """A line is `time key value`."""

    at: float
    key: str
    value: int


def read(line: str) -> Reading:
    at, key, value = line.split()
    return Reading(float(at), key, int(value))


def at_of(one: Reading) -> float:
    return one.at


def key_of(one: Any) -> Any:
    return one.key


def value_of(one: Reading) -> int:
    return one.value


def lines(seed: int, count: int = 600, spread_s: float = 8.0) -> list[str]:
    """In disorder; about one in a hundred is no reading."""
    rng = random.Random(seed)
    found = []
    for n in range(count):
        at = n * 0.5 + rng.uniform(-spread_s, 0.0)
        bad = rng.random() < 0.01
        found.append("no reading" if bad else f"{at:.3f} k{rng.randrange(7)} {rng.randrange(100)}")
    return found


Build = Callable[[Mapping[str, ab.Stream], Mapping[str, Any]], None]


@dataclass(frozen=True)
class Construct:
    """`build(streams, sinks)` adds operators behind the sources and ends them with `sinks`.
    `windows`: of results with the same key and start the last revision counts. `on_processes`: how
    two streams mix there is left to chance, so enrichment cannot be compared."""

    build: Build
    inputs: Mapping[str, list[str]] = field(default_factory=lambda: {"left": lines(1)})
    windows: bool = False
    on_processes: bool = True
    expects_late: bool = False
    buries: bool = True
    """Whether late tuples are dead letters."""


def timed(stream: ab.Stream, name: str, **options: Any) -> ab.Stream:
    return stream.map(name, read).event_time(at_of, disorder_s=3.0, **options)


# -- without keys --------------------------------------------------------------------------------


def double(one: Reading) -> list[Reading]:
    return [one, one._replace(value=-one.value)]


def odd(one: Reading) -> bool:
    return one.value % 2 == 1


def chain(streams: Mapping[str, ab.Stream], sinks: Mapping[str, Any]) -> None:
    readings = streams["left"].map("read", read)
    readings.flat_map("double", double).filter("odd", odd).sink("out", sinks["out"])


class Numbered:
    """A function with a state of its own, of which each instance has one."""

    def __init__(self) -> None:
        self.closed = False

    def __call__(self, one: Reading) -> tuple[str, int]:
        return one.key, one.value // (one.value % 10)


async def waits(one: Reading) -> tuple[str, int]:
    await asyncio.sleep(0.0001)
    if one.value == 13:
        raise ValueError("thirteen")
    return one.key, one.value


def batch_of(readings: list[Reading]) -> list[Reading]:
    if any(one.value == 7 for one in readings):
        raise ValueError("a seven is in the batch")
    return readings


def fused_async_and_batches(streams: Mapping[str, ab.Stream], sinks: Mapping[str, Any]) -> None:
    readings = streams["left"].fuse("read", ab.map(read), ab.flat_map(double))
    readings.map("divide", Numbered, retry=1).sink("divided", sinks["divided"])
    readings.map("wait", waits, in_flight=4).sink("waited", sinks["waited"])
    readings.map("batch", batch_of, batch=True).sink("batched", sinks["batched"])


def merged(streams: Mapping[str, ab.Stream], sinks: Mapping[str, Any]) -> None:
    both = streams["left"].map("read", read).merge(streams["right"].map("other", read))
    both.key_by(key_of, ordered=False).fold("count", 0, one_more).sink("out", sinks["out"])


# -- state by key --------------------------------------------------------------------------------


def one_more(seen: int, _one: Any) -> int:
    return seen + 1


def later(one: Reading, other: Reading) -> Reading:
    return max(one, other)


class Unsteady:
    def __call__(self, total: int, one: Reading) -> int:
        if one.value == 50:
            raise ValueError("fifty")
        return total + one.value


def fold_and_reduce(streams: Mapping[str, ab.Stream], sinks: Mapping[str, Any]) -> None:
    keyed = streams["left"].map("read", read).key_by(key_of)
    keyed.fold("sum", 0, Unsteady()).sink("sums", sinks["sums"])
    keyed.reduce("latest", later).sink("latest_out", sinks["latest_out"])


def unkeyed(one: Reading) -> Any:
    return one.key if one.value % 20 else [one.key]


def no_key(streams: Mapping[str, ab.Stream], sinks: Mapping[str, Any]) -> None:
    keyed = streams["left"].map("read", read).key_by(unkeyed)
    keyed.fold("count", 0, one_more).sink("out", sinks["out"])


def by_key_to_a_sink(streams: Mapping[str, ab.Stream], sinks: Mapping[str, Any]) -> None:
    streams["left"].map("read", read).key_by(key_of).sink("out", sinks["out"])


class Silences:
    """Says of each key when it was silent, and what it had said until then."""

    def on_tuple(self, key: str, state: Any, one: Reading, time: ab.KeyTime) -> None:
        state.seen.add(one.value)
        state.total += 1
        time.set_timer(one.at + 4.0, "quiet")

    def on_timer(
        self, key: str, state: Any, timer: ab.Timer, time: ab.KeyTime
    ) -> Iterator[tuple[Any, ...]]:
        yield key, round(timer.at, 3), time.watermark == float("inf"), len(state.seen), state.total
        state.seen.clear()


def process_with_timers(streams: Mapping[str, ab.Stream], sinks: Mapping[str, Any]) -> None:
    keyed = timed(streams["left"], "read").key_by(key_of)
    keyed.process("silences", Silences, state={"seen": set, "total": int}).sink("out", sinks["out"])


# -- windows -------------------------------------------------------------------------------------


def tumbling(streams: Mapping[str, ab.Stream], sinks: Mapping[str, Any]) -> None:
    keyed = timed(streams["left"], "read").key_by(key_of)
    mean = keyed.window(ab.tumbling(10.0), lateness_s=2.0)
    mean.aggregate("mean", ab.mean(value_of)).sink("out", sinks["out"])


def sliding_without_lateness(streams: Mapping[str, ab.Stream], sinks: Mapping[str, Any]) -> None:
    keyed = timed(streams["left"], "read").key_by(key_of)
    windows = keyed.window(ab.sliding(3.0, every=1.0), late="drop")
    windows.fold("sum", 0, Unsteady()).sink("out", sinks["out"])


def sessions(streams: Mapping[str, ab.Stream], sinks: Mapping[str, Any]) -> None:
    keyed = timed(streams["left"], "read").key_by(key_of)
    windows = keyed.window(ab.session(gap=1.0), lateness_s=1.0)
    results = windows.aggregate("count", ab.tally())
    results.map("rows", with_retraction).sink("out", sinks["out"])


def with_retraction(one: Any) -> tuple[Any, ...]:
    return (*one, one.retracted)


def late_ones_emitted(streams: Mapping[str, ab.Stream], sinks: Mapping[str, Any]) -> None:
    keyed = timed(streams["left"], "read").key_by(key_of)
    windows = keyed.window(ab.tumbling(5.0), late="emit")
    windows.reduce("latest", later).sink("out", sinks["out"])


def collected(key: str, window: Any, readings: list[Reading]) -> Iterator[tuple[Any, ...]]:
    yield key, window.start, [one.value for one in readings]


def counted_and_applied(streams: Mapping[str, ab.Stream], sinks: Mapping[str, Any]) -> None:
    keyed = streams["left"].map("read", read).key_by(key_of)
    keyed.window(ab.count(20, every=5)).apply("last", collected).sink("out", sinks["out"])


def start_of(one: Any) -> float:
    return float(one.start)


def result_of(one: Any) -> float:
    return float(one.value)


def windows_of_windows(streams: Mapping[str, ab.Stream], sinks: Mapping[str, Any]) -> None:
    keyed = timed(streams["left"], "read").key_by(key_of)
    inner = keyed.window(ab.tumbling(5.0), lateness_s=2.0).aggregate("inner", ab.tally())
    outer = inner.key_by(in_all).window(ab.tumbling(20.0), lateness_s=30.0)
    outer.aggregate("outer", ab.total(result_of)).sink("out", sinks["out"])


def in_all(_one: Any) -> None:
    return None


def devices(streams: Mapping[str, ab.Stream], sinks: Mapping[str, Any]) -> None:
    stream = timed(streams["left"], "read", device=key_of)
    windows = stream.key_by(key_of).window(ab.tumbling(10.0))
    windows.aggregate("greatest", ab.greatest(value_of)).sink("out", sinks["out"])


# -- two streams ---------------------------------------------------------------------------------


def paired(key: str, one: Reading, other: Reading) -> tuple[Any, ...]:
    return key, one.at, other.at


def joined(streams: Mapping[str, ab.Stream], sinks: Mapping[str, Any]) -> None:
    left = timed(streams["left"], "reads").key_by(key_of)
    right = timed(streams["right"], "others").key_by(key_of)
    pairs = left.join(right, ab.tumbling(4.0)).apply("pairs", paired)
    pairs.sink("out", sinks["out"])


def enriched(streams: Mapping[str, ab.Stream], sinks: Mapping[str, Any]) -> None:
    side = streams["left"].map("reads", read).key_by(key_of)
    main = streams["right"].map("others", read).key_by(key_of)
    main.enrich(side).apply("enrich", with_latest).sink("out", sinks["out"])


def with_latest(key: str, one: Reading, latest: Reading | None) -> tuple[Any, ...]:
    return key, one.at, None if latest is None else latest.at


TWO = {"left": lines(2, 200), "right": lines(3, 200)}

CONSTRUCTS: dict[str, tuple[Construct, tuple[str, ...]]] = {
    "chain": (Construct(chain), ("out",)),
    "fused, async, batches": (
        Construct(fused_async_and_batches),
        ("divided", "waited", "batched"),
    ),
    "merge": (Construct(merged, TWO), ("out",)),
    "fold, reduce": (Construct(fold_and_reduce), ("sums", "latest_out")),
    "no key": (Construct(no_key), ("out",)),
    "sink by key": (Construct(by_key_to_a_sink), ("out",)),
    "process, timers": (Construct(process_with_timers), ("out",)),
    "tumbling": (Construct(tumbling, windows=True, expects_late=True), ("out",)),
    "sliding": (
        Construct(sliding_without_lateness, windows=True, expects_late=True, buries=False),
        ("out",),
    ),
    "sessions": (Construct(sessions, windows=True, expects_late=True), ("out",)),
    "late emitted": (Construct(late_ones_emitted, expects_late=True, buries=False), ("out",)),
    "count windows": (Construct(counted_and_applied), ("out",)),
    "windows of windows": (Construct(windows_of_windows, windows=True), ("out",)),
    "devices": (Construct(devices, windows=True), ("out",)),
    "join": (Construct(joined, TWO, expects_late=True), ("out",)),
    "enrich": (Construct(enriched, TWO, on_processes=False), ("out",)),
}
