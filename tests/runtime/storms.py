"""Storms: instances die, join, leave, hand over and move state, all at once, and at random.

Each pipeline comes with what must be among its results, whatever happens to its instances. Run
many more seeds than the tests do with

    python -m tests.runtime.storms KIND FIRST_SEED LAST_SEED
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.runtime.pipeline.graph import Stream
from tests.runtime.network import Network

N = 20_000
KEYS = 97
STORM_S = 1.2
PAUSE_S = 0.02
WINDOW_S = 400.0
LATE_WINDOW_S = 80.0
DISORDER = 40
"""By how many numbers a tuple may come too early or too late."""
SIZES = (1, 1, 1, 2)
"""How many die at once, but for those times when all do."""

Rows = list[list[Any]]


@dataclass(frozen=True)
class Story:
    """`build`: from the first stream to the results. `fault`: what is wrong with them, or nothing.
    `scaled`, `keyed`: operators that may be told to scale, and to move state."""

    build: Callable[[ab.Pipeline], Stream]
    fault: Callable[[Rows], str]
    scaled: tuple[str, ...]
    keyed: tuple[str, ...] = ()


def scale() -> ab.Scale:
    return ab.Scale(max_instances=4)


def numbers(pipeline: ab.Pipeline, name: str = "numbers") -> Stream:
    return pipeline.source(name, ab.generate(disordered, rate=N / STORM_S, count=N))


def disordered(i: int) -> int:
    """Every number once, somewhere near its place."""
    block = i - i % DISORDER
    return min(block + (i * 7 + 3) % DISORDER, N - 1) if block + DISORDER <= N else i


def compared(found: Counter[Any], wanted: Counter[Any]) -> str:
    missing, extra = wanted - found, found - wanted
    if not missing and not extra:
        return ""
    some = f"{list(missing.items())[:5]} missing, {list(extra.items())[:5]} too many"
    return f"{missing.total()} missing, {extra.total()} too many: {some}"


# -- without keys --------------------------------------------------------------------------------


def chain(pipeline: ab.Pipeline) -> Stream:
    source = ab.generate(disordered, rate=N / STORM_S, count=N)
    doubled = pipeline.source("numbers", source, scale=scale()).map(
        "double", lambda n: [2 * n], scale=scale()
    )
    return doubled.filter("some", lambda row: row[0] % 6 != 0, scale=scale())


def chain_fault(rows: Rows) -> str:
    return compared(
        Counter(row[0] for row in rows), Counter(2 * n for n in range(N) if 2 * n % 6 != 0)
    )


# -- by key --------------------------------------------------------------------------------------


async def hesitate(n: int) -> int:
    """With several calls open at a time, and some of them waiting."""
    if n % 100 == 0:
        await asyncio.sleep(0.002)
    return n


def counts(pipeline: ab.Pipeline) -> Stream:
    passed = numbers(pipeline).map("pass", hesitate, scale=scale())
    counted = passed.key_by(lambda n: n % KEYS).fold(
        "count", (0, 0), lambda s, n: (s[0] + 1, s[1] + n), scale=scale()
    )
    return counted.key_by(lambda row: row[0] % 13).fold(
        "again", (0, 0), lambda s, row: (s[0] + 1, s[1] + row[0]), scale=scale()
    )


def counts_fault(rows: Rows) -> str:
    """The n-th result of a key differs from the one before by what its n-th tuple has added."""
    by_key: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for key, (n, total) in rows:
        by_key[key].append((n, total))
    added: Counter[tuple[int, int]] = Counter()
    for key, states in by_key.items():
        if [n for n, _ in states] != [*range(1, len(states) + 1)]:
            return f"of key {key}, the states do not come one after the other, each once"
        totals = [0, *(total for _, total in states)]
        added.update((key, b - a) for a, b in itertools.pairwise(totals))
    return compared(added, Counter((n % KEYS % 13, n % KEYS) for n in range(N)))


# -- by event time -------------------------------------------------------------------------------


def windows(pipeline: ab.Pipeline) -> Stream:
    passed = numbers(pipeline).map("pass", lambda n: n, scale=scale())
    timed = passed.event_time(float, disorder_s=DISORDER).key_by(lambda n: n % KEYS)
    window = timed.window(ab.tumbling(WINDOW_S), late="emit")
    return window.fold("spans", (0, 0), lambda s, n: (s[0] + 1, s[1] + n), scale=scale())


def windows_fault(rows: Rows) -> str:
    sums: defaultdict[tuple[int, float], list[int]] = defaultdict(list)
    for n in range(N):
        sums[n % KEYS, n // WINDOW_S * WINDOW_S].append(n)
    wanted = Counter((*at, len(ns), sum(ns), 0) for at, ns in sums.items())
    if late := [row for row in rows if len(row) == 3]:
        return f"{len(late)} tuples are late, such as {late[0]}"
    return compared(Counter((k, start, *state, rev) for k, start, _, state, rev in rows), wanted)


def late(pipeline: ab.Pipeline) -> Stream:
    """With less patience than there is disorder, some are late, and who is so is chance."""
    passed = numbers(pipeline).map("pass", lambda n: n, scale=scale())
    timed = passed.event_time(float, disorder_s=3.0).key_by(lambda n: n % 7)
    window = timed.window(ab.tumbling(LATE_WINDOW_S), lateness_s=10.0, late="emit")
    return window.fold("spans", (0, 0), lambda s, n: (s[0] + 1, s[1] + n), scale=scale())


def late_fault(rows: Rows) -> str:
    """Every tuple counts in its window, or is late."""
    last: dict[tuple[int, float], list[Any]] = {}
    sums: Counter[tuple[int, float]] = Counter()
    for row in rows:
        if len(row) == 3:
            key, n, _ = row
            sums[key, n // LATE_WINDOW_S * LATE_WINDOW_S] += n + 1
            continue
        key, start, _, state, revision = row
        if revision != (last[key, start][1] + 1 if (key, start) in last else 0):
            return (
                f"window {start} of key {key}: revision {revision} after {last.get((key, start))}"
            )
        last[key, start] = [state, revision]
    for at, (state, _) in last.items():
        sums[at] += state[0] + state[1]
    wanted: Counter[tuple[int, float]] = Counter()
    for n in range(N):
        wanted[n % 7, n // LATE_WINDOW_S * LATE_WINDOW_S] += n + 1
    return compared(sums, wanted)


def joined(pipeline: ab.Pipeline) -> Stream:
    left, right = (
        numbers(pipeline, f"{side}s")
        .map(side, lambda n: n, scale=scale())
        .event_time(float, disorder_s=DISORDER)
        .key_by(lambda n: n % KEYS)
        for side in ("left", "right")
    )
    pairs = left.join(right, window=ab.tumbling(2 * KEYS))
    return pairs.apply("pair", lambda key, a, b: [key, a, b], scale=scale())


def joined_fault(rows: Rows) -> str:
    wanted: Counter[tuple[int, int, int]] = Counter()
    for n in range(N):
        for other in (n - KEYS, n, n + KEYS):
            if 0 <= other < N and other // (2 * KEYS) == n // (2 * KEYS):
                wanted[n % KEYS, n, other] += 1
    return compared(Counter((key, a, b) for key, a, b in rows), wanted)


STORIES = {
    "chain": Story(chain, chain_fault, ("numbers", "double", "some")),
    "counts": Story(counts, counts_fault, ("pass", "count", "again"), ("count", "again")),
    "windows": Story(windows, windows_fault, ("pass", "spans"), ("spans",)),
    "late": Story(late, late_fault, ("pass", "spans"), ("spans",)),
    "joined": Story(joined, joined_fault, ("left", "right", "pair"), ("pair",)),
}


# -- the storm -----------------------------------------------------------------------------------


async def storm(kind: str, seed: int, folder: Path) -> Network:
    """Returns when the run is over. Raises `AssertionError` if anything is not right."""
    story, out = STORIES[kind], folder / "out.jsonl"
    pipeline = ab.Pipeline("storm", groups=16)
    story.build(pipeline).sink("out", ab.jsonl(out))
    network = Network(pipeline, folder, journals=True)
    network.rng.seed(seed)
    try:
        await network.start()
        await _rage(network, story)
        await network.finish(100)
    except BaseException:
        await network.abandon()
        raise
    fault = story.fault([json.loads(line) for line in out.read_text().splitlines()])
    assert not fault, f"{kind} {seed}: {fault}"
    assert network.unbalanced() == []
    return network


async def _rage(network: Network, story: Story) -> None:
    rng: random.Random = network.rng
    dead = []
    deadly = rng.choice((0.1, 0.2, 0.35))
    ends_s = time.monotonic() + STORM_S
    while time.monotonic() < ends_s and network.mortals():
        await asyncio.sleep(rng.random() * PAUSE_S)
        _raise_failures(network)
        chance = rng.random()
        if chance < deadly and (mortals := network.mortals()):
            n = rng.choice((*SIZES, len(mortals)))
            for me in rng.sample(mortals, min(n, len(mortals))):
                network.kill(me)
                dead.append(me)
        elif chance < deadly + 0.25:
            operator = rng.choice(story.scaled)
            moves = ["move", "move"] if operator in story.keyed else []
            network.decide(
                operator, rng.choice(["duplicate", "duplicate", "leave", "hand_over", *moves])
            )
        while dead and rng.random() < 0.7:
            await network.revive(dead.pop(rng.randrange(len(dead))))
    for me in dead:
        await network.revive(me)


def _raise_failures(network: Network) -> None:
    for task in list(network.running.values()):
        if task.done() and not task.cancelled():
            task.result()


def told_of(network: Network) -> str:
    joined, left, moved = (network.notes[what] for what in ("joined", "left", "moved"))
    return f"{network.deaths} deaths, {joined} joined, {left} left, {moved} moved"


def main(kind: str, first: int, last: int) -> int:
    faults = 0
    for seed in range(first, last + 1):
        with tempfile.TemporaryDirectory() as folder:
            began_s = time.monotonic()
            try:
                network = asyncio.run(storm(kind, seed, Path(folder)))
            except Exception as error:
                faults += 1
                print(f"{kind} {seed} FAILED: {type(error).__name__}: {error}"[:2000], flush=True)
            else:
                passed_s = time.monotonic() - began_s
                print(f"{kind} {seed}: {told_of(network)}, {passed_s:.1f} s", flush=True)
    return faults


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
