"""Whoever dies with input that is not worked off does not take the end of it for reached."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.ports import clock
from tests.runtime.network import Network
from tests.runtime.virtual_time import in_virtual_time

# Whoever is killed in the middle leaves sockets behind that nobody closes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

N, KEYS = 600, 10


def at(n: int) -> float:
    return n * 0.01


def key(n: int) -> int:
    return n % KEYS


def counted(count: int, _n: int) -> int:
    clock.pause(0.001)
    return count + 1


def counts(out: Path) -> list[Any]:
    return sorted([r[0], r[3]] for r in map(json.loads, out.read_text().splitlines()))


@in_virtual_time
async def test_windows_wait_for_what_comes_again_behind_the_end_of_the_stream(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out.jsonl"
    pipeline = ab.Pipeline("late", groups=8, dead_letters=tmp_path / "dead.jsonl")
    numbers = pipeline.source("numbers", ab.generate(lambda n: n, count=N))
    windows = numbers.event_time(at, disorder_s=0.1).key_by(key).window(ab.tumbling(1000), time=at)
    windows.fold("count", 0, counted).sink("out", ab.jsonl(out))
    network = Network(pipeline, tmp_path, journals=True, slice_s=0.001)
    await network.start()
    (counter,) = network.of("count")
    await network.until(lambda: counter.path.awaits_drained and counter.path.intake.tuples > 0)
    network.kill(counter.me)
    await network.revive(counter.me)
    await network.finish(60)
    assert counts(out) == sorted([k, N // KEYS] for k in range(KEYS))
    assert not (tmp_path / "dead.jsonl").exists()
