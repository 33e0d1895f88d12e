"""At least once, who leaves stays until what it has made of its inputs is safe."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import anabranch as ab
from tests.runtime.moving import Barred
from tests.runtime.network import Network
from tests.runtime.virtual_time import in_virtual_time

# Whoever is killed in the middle leaves sockets behind that nobody closes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

N = 4_000


@in_virtual_time
async def test_results_on_their_way_when_their_maker_leaves_outlive_it_and_its_successors(
    tmp_path: Path,
) -> None:
    """Nobody else has them, and who sent what they are made of would take it for done with."""
    sink = Barred()
    pipeline = ab.Pipeline("leaving", delivery="at-least-once")
    numbers = pipeline.source("numbers", ab.generate(lambda i: i, rate=8_000, count=N))
    numbers.map("same", lambda n: n, scale=ab.Scale()).sink("out", sink)
    network = Network(pipeline, tmp_path, journals=True)
    await network.start(2)
    _, leaver = network.of("same")
    await network.until(lambda: len(sink.tuples) > 300)
    sink.is_open.clear()
    before = leaver.path.counts.processed
    await network.until(lambda: leaver.path.counts.processed > before + 100)
    leaver.orders.departure.decide()
    assert leaver.commits is not None
    for _ in range(20):  # as far as it gets
        await leaver.commits.committed()
        await asyncio.sleep(0.01)
    mortals = [me for me in network.mortals() if me.operator in ("same", "out")]
    await network.die_and_go_on(mortals)
    sink.is_open.set()
    await network.finish()
    assert set(sink.tuples) == set(range(N))
