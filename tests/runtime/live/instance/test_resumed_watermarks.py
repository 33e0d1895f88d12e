"""Event time goes on in the next incarnation of an instance."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import anabranch as ab
from tests.runtime.network import Network
from tests.runtime.virtual_time import in_virtual_time

# Whoever is killed in the middle leaves sockets behind that nobody closes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@in_virtual_time
async def test_what_event_time_had_been_held_back_for_is_over_in_the_next_incarnation(
    tmp_path: Path,
) -> None:
    """State had come and was not put in when the process died. Nobody says more meanwhile."""
    pipeline = ab.Pipeline("held")
    numbers = pipeline.source(
        "numbers", ab.generate(lambda i: i, rate=2000, count=100_000)
    ).event_time(float)
    counts = numbers.key_by(lambda n: n % 7).fold("count", 0, lambda seen, _: seen + 1)
    counts.sink("out", ab.jsonl(tmp_path / "out.jsonl"))
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    (count,), (out,), (source,) = map(network.of, ("count", "out", "numbers"))
    await network.until(lambda: count.path.gate.value > 0)
    count.path.gate.hold("state that is to come")
    await network.until(lambda: count.path.gate.value > count.path.gate.output)
    network.kill(source.me)
    await asyncio.sleep(0.05)
    reached = count.path.gate.value
    assert count.commits is not None
    await count.commits.committed()
    network.kill(count.me)
    await network.revive(count.me)
    await network.until(lambda: out.path.gate.value >= reached)
    await network.abandon()
