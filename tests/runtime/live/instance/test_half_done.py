"""What is left half done by an error is not recorded: the next incarnation does all of it, once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.runtime.network import Network
from tests.runtime.processes import PATIENCE_S
from tests.runtime.virtual_time import in_virtual_time

# Whoever is killed in the middle leaves sockets behind that nobody closes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

N = 1_000


def failing_once(
    error: BaseException, before: Callable[..., None], hurry: Callable[[], None]
) -> Callable[..., None]:
    """`before`, but the first time it fails when it has done half of what it should."""
    errors = [error]

    def hold(*args: Any) -> None:
        before(*args)
        if errors:
            hurry()  # as if something had come in that a neighbour waits for
            raise errors.pop()

    return hold


@in_virtual_time
async def test_an_error_in_the_middle_of_a_step_leaves_nothing_of_it_to_the_next_incarnation(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out.jsonl"
    pipeline = ab.Pipeline("chain")
    numbers = pipeline.source("numbers", ab.items(range(N)))
    numbers.map("same", lambda n: n).sink("out", ab.jsonl(out))
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    (worker,) = network.of("same")
    commits = worker.commits
    assert commits is not None
    hold = failing_once(MemoryError(), worker.path.outbox.hold, lambda: commits.want(now=True))
    worker.path.outbox.hold = hold  # type: ignore[method-assign]
    await asyncio.wait([network.running[worker.me]])
    assert commits.closed
    network.kill(worker.me)
    await network.revive(worker.me)
    await network.finish()
    assert Counter(map(int, out.read_text().splitlines())) == Counter(range(N))
    assert network.unbalanced() == []


@in_virtual_time
async def test_a_source_that_has_failed_does_not_wait_for_what_will_not_be_recorded(
    tmp_path: Path,
) -> None:
    """Its process would not end before it is killed."""
    pipeline = ab.Pipeline("chain")
    numbers = pipeline.source("numbers", ab.generate(lambda n: n, count=N, rate=N / 100))
    numbers.sink("out", ab.jsonl(tmp_path / "out.jsonl"))
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    (source,) = network.of("numbers")
    await network.until(lambda: source.path.counts.tuples_in > 0)
    source.lifetime.fail(MemoryError())
    await asyncio.wait([network.running[source.me]])
    (pump,) = (task for task in source.lifetime._tasks if task.get_name().endswith("pump"))
    pump.cancel()  # as when the loop is closed
    await asyncio.wait([pump], timeout=PATIENCE_S)
    assert pump.cancelled()
    await network.abandon()
