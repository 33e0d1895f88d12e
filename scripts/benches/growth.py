"""Processor time against how much is held, open, claimed or listed: linear, or not.

Each shape is run with a small, a middle and a large size. What the small one takes counts as the
cost of a run; without it, the large one should take as many times the middle one as it is larger.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import anabranch as ab
from benches.result import Result, Settings

ABOUT = "processor time against what is held: time(n k) / (k time(n)), 1 is linear"
RUNS = 1
RATIO_MAX = 1.5
STEP = 4
"""The middle size is so many times smaller than the large one, and the small one than that."""


class Shape(NamedTuple):
    """`largest`: its size; `build` makes the pipeline of a size, whose files go to a folder.
    `bound`: why it is not tried with a million."""

    name: str
    largest: int
    build: Callable[[ab.Pipeline, int, Path], None]
    bound: str = ""


def windows_together(pipeline: ab.Pipeline, n: int, _: Path) -> None:
    events = pipeline.source("events", ab.generate(int, count=n)).event_time(lambda _: 0.0)
    windows = events.key_by(lambda i: i).window(ab.tumbling(60))
    windows.aggregate("windows", ab.tally()).sink("out", ab.discard())


def windows_of_one_key(pipeline: ab.Pipeline, n: int, _: Path) -> None:
    events = pipeline.source("events", ab.generate(int, count=n))
    timed = events.event_time(lambda i: i * 60.0, disorder_s=1e12)
    windows = timed.key_by(lambda _: 0).window(ab.tumbling(60))
    windows.aggregate("windows", ab.tally()).sink("out", ab.discard())


def sessions_of_one_key(pipeline: ab.Pipeline, n: int, _: Path) -> None:
    events = pipeline.source("events", ab.generate(int, count=n))
    timed = events.event_time(lambda i: i * 60.0, disorder_s=1e12)
    sessions = timed.key_by(lambda _: 0).window(ab.session(gap=30))
    sessions.aggregate("sessions", ab.tally()).sink("out", ab.discard())


def results_of_one_tuple(pipeline: ab.Pipeline, n: int, _: Path) -> None:
    pipeline.source("one", ab.items([n])).flat_map("many", range).sink("out", ab.discard())


def keys(pipeline: ab.Pipeline, n: int, _: Path) -> None:
    numbers = pipeline.source("numbers", ab.generate(int, count=n))
    counted = numbers.key_by(lambda i: i).fold("keys", 0, lambda count, _: count + 1)
    counted.sink("out", ab.discard())


def input_files(pipeline: ab.Pipeline, n: int, folder: Path) -> None:
    for number in range(n):
        (folder / f"{number}.txt").write_text("line\n")
    pipeline.source("files", ab.files(folder)).map("same", str).sink("out", ab.discard())


def splits(pipeline: ab.Pipeline, n: int, folder: Path) -> None:
    whole = folder / "lines.txt"
    line = "a line of a split" * 60
    whole.write_text(f"{line}\n" * n)  # smaller splits read each other's bytes, in blocks
    source = ab.files(whole, split_bytes=len(line) + 1)
    pipeline.source("splits", source).map("same", str).sink("out", ab.discard())


def dead_letters(pipeline: ab.Pipeline, n: int, _: Path) -> None:
    numbers = pipeline.source("numbers", ab.generate(int, count=n))
    numbers.map("dies", lambda i: 1 // (i % 2)).sink("out", ab.discard())


def held_results(pipeline: ab.Pipeline, n: int, _: Path) -> None:
    """Those of one tuple, in front of a slow successor."""
    one = pipeline.source("one", ab.items([n])).flat_map("many", range)
    one.key_by(lambda i: i % 1000).fold("slow", 0, lambda held, _: held + 1).sink(
        "out", ab.discard()
    )


class Waits:
    """Sets a timer for each tuple: all of a key's own, or one of each key."""

    def on_tuple(self, key: int, state: Any, item: int, time: Any) -> Iterable[int]:
        time.set_timer(60.0, str(item))
        return ()

    def on_timer(self, key: int, state: Any, timer: str, time: Any) -> Iterable[int]:
        return (1,)


def timers_of(pipeline: ab.Pipeline, n: int, key: Callable[[int], int]) -> None:
    events = pipeline.source("events", ab.generate(int, count=n)).event_time(lambda _: 0.0)
    events.key_by(key).process("waits", Waits, state=int).sink("out", ab.discard())


def timers_of_many_keys(pipeline: ab.Pipeline, n: int, _: Path) -> None:
    timers_of(pipeline, n, lambda i: i)


def timers_of_one_key(pipeline: ab.Pipeline, n: int, _: Path) -> None:
    timers_of(pipeline, n, lambda _: 0)


def late_tuples(pipeline: ab.Pipeline, n: int, _: Path) -> None:
    events = pipeline.source("events", ab.generate(int, count=n))
    timed = events.event_time(lambda i: 0.0 if i else 1e9)
    windows = timed.key_by(lambda i: i).window(ab.tumbling(60), late="emit")
    windows.aggregate("windows", ab.tally()).sink("out", ab.discard())


def rows_of_a_join(pipeline: ab.Pipeline, n: int, _: Path) -> None:
    """Of one key, all open: one on the one side, the others on the other."""
    left = pipeline.source("left", ab.generate(int, count=n)).event_time(lambda _: 0.0)
    right = pipeline.source("right", ab.items([0])).event_time(lambda _: 0.0)
    joined = left.key_by(lambda _: 0).join(right.key_by(lambda _: 0), ab.tumbling(60))
    joined.apply("joined", lambda key, one, other: (one, other)).sink("out", ab.discard())


SHAPES = (
    Shape("windows that end together", 200_000, windows_together),
    Shape("open windows of one key", 100_000, windows_of_one_key),
    Shape("open sessions of one key", 100_000, sessions_of_one_key),
    Shape("results of one tuple", 1_000_000, results_of_one_tuple),
    Shape("keys", 400_000, keys),
    Shape("input files", 100_000, input_files, "each takes an inode and a block of the disk"),
    Shape("splits", 100_000, splits, "each is claimed and recorded by itself, about 1 ms"),
    Shape("dead letters", 200_000, dead_letters),
    Shape("held results", 1_000_000, held_results),
    Shape("timers of many keys", 300_000, timers_of_many_keys),
    Shape("timers of one key", 100_000, timers_of_one_key),
    Shape("late tuples", 100_000, late_tuples),
    Shape("rows of a join", 1_000_000, rows_of_a_join),
)


def measure(settings: Settings) -> Result:
    """`--lines`: the largest size of each shape, if that is less than its own."""
    result = Result("growth", ABOUT)
    for shape in SHAPES:
        ratios, times = [], list[list[float]]()
        sizes = sizes_of(min(shape.largest, settings.lines))
        for _ in range(settings.runs_or(RUNS)):
            spent = [spent_on(shape, size, settings, result) for size in sizes]
            times.append(spent)
            if (ratio := ratio_of(spent)) is not None:
                ratios.append(ratio)
        settings.say(f"growth: {shape.name}")
        for size, values in zip(sizes, zip(*times, strict=True), strict=True):
            result.add(f"{shape.name}: {size:,}", "s", list(values))
        result.at_most(f"{shape.name}: ratio to linear", ratios, RATIO_MAX)
        if shape.bound:
            result.notes.append(f"{shape.name}: up to {shape.largest:,}; {shape.bound}")
    return result


def sizes_of(largest: int) -> list[int]:
    return [max(1, largest // STEP**2), max(1, largest // STEP), largest]


def ratio_of(spent: Iterable[float]) -> float | None:
    """None if the sizes are so small that the cost of a run is all that is seen."""
    small, middle, large = spent
    cost = max(0.0, (STEP * small - middle) / (STEP - 1))
    return (large - cost) / (STEP * (middle - cost)) if middle > cost else None


def spent_on(shape: Shape, size: int, settings: Settings, result: Result) -> float:
    """Seconds of processor time, of all processes."""
    folder = settings.folder / f"{shape.name} {size}".replace(" ", "-")
    folder.mkdir(exist_ok=True)
    pipeline = ab.Pipeline("growth", dead_letters=settings.folder / "dead.jsonl")
    shape.build(pipeline, size, folder)
    before = processor_time()
    outcome = ab.run(pipeline)
    if not outcome.ledger.balanced:
        result.faults.append(f"{shape.name}: the ledger of a run does not balance")
    return processor_time() - before


def processor_time() -> float:
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in both)
