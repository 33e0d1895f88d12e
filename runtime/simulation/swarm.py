"""Many seeds in several processes, and what came of them together."""

from __future__ import annotations

import itertools
import multiprocessing
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from anabranch.protocol.table import TABLE
from anabranch.runtime.simulation.deadly_scene import Crashes
from anabranch.runtime.simulation.lapses import Lapse, lapse_named, neglected
from anabranch.runtime.simulation.scene_drawing import draw
from anabranch.runtime.simulation.trial import Outcome, Trial, Verdict
from anabranch.runtime.simulation.world import Table

CHUNK = {"small": 100, "large": 1}
"""Seeds that a process takes at a time."""
SUMMED = (
    "events",
    "messages",
    "tuples",
    "joins",
    "leaves",
    "hand_overs",
    "moves",
    "handed",
    "troubles",
    "deaths",
)


@dataclass(slots=True)
class Tally:
    """`failing`: those that are invalid, in order. `sums`: over all seeds."""

    seeds: int = 0
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)
    failing: list[Outcome] = field(default_factory=list)
    cpu_s: float = 0.0

    def count(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.verdicts[outcome.verdict] += 1
        for name in SUMMED:
            self.sums[name] += getattr(outcome, name)
        if outcome.verdict is Verdict.INVALID:
            self.failing.append(outcome)

    def add(self, other: Tally) -> None:
        self.seeds += other.seeds
        self.verdicts += other.verdicts
        self.sums += other.sums
        self.cpu_s += other.cpu_s
        self.failing = sorted([*self.failing, *other.failing], key=lambda o: o.seed)


@dataclass(frozen=True, slots=True)
class Chunk:
    first: int
    count: int
    size: str
    table: Table
    crashes: Crashes = "some"
    lapse: str = ""

    @property
    def seed(self) -> int:
        """It is a job of its own on a cluster."""
        return self.first

    def run(self) -> Tally:
        """The seeds, one after the other."""
        tally, began_s = Tally(), time.process_time()
        with neglected(lapse_named(self.lapse) if self.lapse else None):
            for seed in range(self.first, self.first + self.count):
                scene = draw(seed, self.size, self.crashes)
                tally.count(Trial(scene, table=self.table).run())
        tally.cpu_s = time.process_time() - began_s
        return tally


Over = Callable[[Iterator[Chunk]], Iterator[Tally]]
"""Runs chunks somewhere; takes them as they are needed, so that a deadline is kept."""


def over_processes(jobs: int) -> Over:
    """In so many processes of this machine."""

    def run(chunks: Iterator[Chunk]) -> Iterator[Tally]:
        if jobs == 1:
            yield from map(Chunk.run, chunks)
            return
        with multiprocessing.Pool(jobs, initializer=_leave_signals_to_the_parent) as pool:
            begun = (pool.apply_async(Chunk.run, (chunk,)) for chunk in chunks)
            under_way = [*itertools.islice(begun, 2 * jobs)]
            while under_way:
                yield under_way.pop(0).get()
                under_way += itertools.islice(begun, 1)

    return run


def swarm(
    *,
    first: int,
    seeds: int | None,
    deadline_s: float | None,
    over: Over,
    size: str = "small",
    table: Table = TABLE,
    crashes: Crashes = "some",
    lapse: str = "",
    progress: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Try `seeds` seeds from `first` on, or as many as fit until `deadline_s` of
    `time.monotonic`; at least one of both bounds is needed. `progress` hears of each chunk."""
    assert seeds is not None or deadline_s is not None
    whole = Tally()
    like = Chunk(first, CHUNK[size], size, table, crashes, lapse)
    chunks = _chunks(like, seeds, deadline_s)
    for tally in over(chunks):
        whole.add(tally)
        progress(whole)
    return whole


def first_found(lapse: Lapse, seeds: int) -> Outcome | None:
    """The first of so many worlds with deaths in which a lapse shows."""
    with neglected(lapse):
        outcomes = (Trial(draw(seed, crashes="all")).run() for seed in range(seeds))
        return next((o for o in outcomes if o.verdict is Verdict.INVALID), None)


def _chunks(like: Chunk, seeds: int | None, deadline_s: float | None) -> Iterator[Chunk]:
    first, step = like.first, like.count
    starts = itertools.count(first, step) if seeds is None else range(first, first + seeds, step)
    for start in starts:
        if deadline_s is not None and time.monotonic() >= deadline_s:
            return
        count = step if seeds is None else min(step, first + seeds - start)
        yield replace(like, first=start, count=count)


def _leave_signals_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
