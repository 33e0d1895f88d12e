"""Results that wait when their process dies are what they were in its next incarnation."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.runtime.network import Kept, Network
from tests.runtime.virtual_time import in_virtual_time

# Whoever is killed in the middle leaves sockets behind that nobody closes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

N = 300


class Unreadable:
    """It can be written, and then nobody can read it."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def made_of(n: int) -> Any:
    return Unreadable() if n % 10 == 0 else n


@in_virtual_time
async def test_held_results_that_cannot_be_read_again_are_dead_letters_and_no_more(
    tmp_path: Path,
) -> None:
    """As they are where they arrive, if nobody dies."""
    sink, letters = Kept(0.001), tmp_path / "dead.jsonl"
    pipeline = ab.Pipeline("chain", dead_letters=letters)
    numbers = pipeline.source("numbers", ab.items(range(N)))
    numbers.map("same", made_of).sink("out", sink)
    network = Network(pipeline, tmp_path, journals=True, credit_tuples=5, batch_tuples_max=5)
    await network.start()
    (worker,) = network.of("same")
    await network.until(lambda: worker.path.outbox.held > 20)
    assert worker.commits is not None
    await worker.commits.committed()
    network.kill(worker.me)
    await network.revive(worker.me)
    await network.finish()
    assert Counter(sink.tuples) == Counter(n for n in range(N) if n % 10)
    assert letters.read_text().count("invalid literal for int") == N // 10
    assert network.unbalanced() == []


@in_virtual_time
async def test_held_results_that_have_no_key_any_more_are_dead_letters(tmp_path: Path) -> None:
    """Functions may be others in the next incarnation of a run that was resumed."""
    sink, letters = Kept(0.001), tmp_path / "dead.jsonl"
    keyless = set[int]()

    def key(n: int) -> int:
        if n in keyless:
            raise LookupError(f"no key of {n}")
        return n % 7

    pipeline = ab.Pipeline("chain", dead_letters=letters)
    numbers = pipeline.source("numbers", ab.items(range(N)))
    numbers.map("same", lambda n: n).key_by(key).sink("out", sink)
    network = Network(pipeline, tmp_path, journals=True, credit_tuples=5, batch_tuples_max=5)
    await network.start()
    (worker,) = network.of("same")
    await network.until(lambda: worker.path.outbox.held > 20)
    assert worker.commits is not None
    await worker.commits.committed()
    held = [one for line in worker.path.outbox.branches[0].lines() for one in line.tuples.part()]
    keyless.update(held[-5:])
    network.kill(worker.me)
    await network.revive(worker.me)
    await network.finish()
    await asyncio.sleep(0)
    assert letters.read_text().count("no key of") == 5
    assert Counter(sink.tuples) == Counter(n for n in range(N) if n not in keyless)
    assert network.unbalanced() == []
