"""Many seeds in several processes, and what came of them together."""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from anabranch.protocol.table import TABLE
from anabranch.runtime.values.worker_pool import leave_ctrl_c
from anabranch.runtime.world.drawing import drawn
from anabranch.runtime.world.drawn_trial import Crashes, Trial
from anabranch.runtime.world.lapse_list import lapse_named
from anabranch.runtime.world.lapses import Lapse, neglected
from anabranch.runtime.world.trial import WorldOutcome, WorldVerdict, judged

CHUNK = {"small": 20, "large": 1}
"""Seeds that a process takes at a time."""

Patch = Mapping[Any, Any]
"""Other cells for the protocol's table."""


@contextmanager
def patched(patch: Patch) -> Iterator[None]:
    """Meanwhile, the cores of this process have a broken rule."""
    table = cast(dict[Any, Any], TABLE)
    right = dict(table)
    table.update(patch)
    try:
        yield
    finally:
        table.clear()
        table.update(right)


@contextmanager
def hushed() -> Iterator[None]:
    """Nothing that the code of live runs logs is shown."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@dataclass(slots=True)
class Tally:
    """`failing`: those that are invalid, in order. `sums`: over all seeds."""

    seeds: int = 0
    verdicts: Counter[WorldVerdict] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)
    failing: list[WorldOutcome] = field(default_factory=list)
    cpu_s: float = 0.0

    def count(self, outcome: WorldOutcome) -> None:
        self.seeds += 1
        self.verdicts[outcome.verdict] += 1
        self.sums += Counter(events=outcome.events, tuples=outcome.tuples) + outcome.happened
        self.cpu_s += outcome.cpu_s
        if outcome.verdict is WorldVerdict.INVALID:
            self.failing.append(outcome)

    def add(self, other: Tally) -> None:
        self.seeds += other.seeds
        self.verdicts += other.verdicts
        self.sums += other.sums
        self.cpu_s += other.cpu_s
        self.failing = sorted([*self.failing, *other.failing], key=lambda o: o.seed)


@dataclass(frozen=True, slots=True)
class Seeds:
    """So many seeds from `first` on. `scene`: all have this pipeline. `patch`, `lapse`: what is
    broken in all of them."""

    first: int
    count: int
    size: str = "small"
    crashes: Crashes = "some"
    scene: str = ""
    patch: Patch = field(default_factory=dict)
    lapse: str = ""

    @property
    def seed(self) -> int:
        """It is a job of its own on a cluster."""
        return self.first

    def drawn(self, seed: int) -> Trial:
        return drawn(seed, self.scene, size=self.size, crashes=self.crashes)

    @property
    def broken(self) -> Lapse | None:
        return lapse_named(self.lapse) if self.lapse else None

    def run(self) -> Tally:
        """The seeds, one after the other."""
        tally = Tally()
        with neglected(self.broken), patched(self.patch):
            for seed in range(self.first, self.first + self.count):
                trial = self.drawn(seed)
                with hushed():
                    tally.count(judged(trial))
        return tally


Over = Callable[[Iterator[Seeds]], Iterator[Tally]]
"""Runs chunks somewhere; takes them as they are needed, so that a deadline is kept."""


def over_processes(jobs: int) -> Over:
    """In so many processes of this machine."""

    def run(chunks: Iterator[Seeds]) -> Iterator[Tally]:
        if jobs == 1:
            yield from map(Seeds.run, chunks)
            return
        with multiprocessing.Pool(jobs, initializer=leave_ctrl_c) as pool:
            begun = (pool.apply_async(Seeds.run, (chunk,)) for chunk in chunks)
            under_way = [*itertools.islice(begun, 2 * jobs)]
            while under_way:
                yield under_way.pop(0).get()
                under_way += itertools.islice(begun, 1)

    return run


def swarm(
    like: Seeds,
    *,
    seeds: int | None,
    deadline_s: float | None,
    over: Over,
    progress: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Try `seeds` seeds from that of the chunk `like` on, or as many as fit until `deadline_s` of
    `time.monotonic`; at least one of both bounds is needed. `progress` gets each chunk."""
    assert seeds is not None or deadline_s is not None
    whole = Tally()
    for tally in over(_chunks(like, seeds, deadline_s)):
        whole.add(tally)
        progress(whole)
    return whole


def _chunks(like: Seeds, seeds: int | None, deadline_s: float | None) -> Iterator[Seeds]:
    for done in itertools.count(0, like.count):
        left = like.count if seeds is None else min(like.count, seeds - done)
        if left <= 0 or (deadline_s is not None and time.monotonic() >= deadline_s):
            return
        yield replace(like, first=like.first + done, count=left)


def first_found(lapse: Lapse, seeds: int, kind: type[Seeds] = Seeds) -> WorldOutcome | None:
    """The first world that finds this lapse, of so many."""
    for seed in range(seeds):
        chunk = kind(seed, 1, crashes=lapse.crashes, scene=lapse.scene, lapse=lapse.name)
        if failing := chunk.run().failing:
            return failing[0]
    return None
