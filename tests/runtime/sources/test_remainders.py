"""Where a reader is counts at the moment at which it is asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.runtime.pipeline.definition import Delivery
from anabranch.runtime.plan.ends import Chunk, Reader, RunContext, Source, Split
from tests.runtime.network import Network
from tests.runtime.virtual_time import in_virtual_time

# Whoever is killed in the middle leaves sockets behind that nobody closes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

N = 20_000


class Numbers(Source):
    def splits(self) -> Iterator[Split]:
        yield {"next": 0}

    def open(self, split: Split, context: RunContext) -> Reader:
        return NumbersReader(split)


class NumbersReader(Reader):
    """Its remainder is one value that changes."""

    def __init__(self, split: Split) -> None:
        self.split = split

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        await asyncio.sleep(0.001)
        first = self.split["next"]
        if first == N:
            return None
        self.split["next"] = min(N, first + tuples_max)
        return Chunk(list(range(first, self.split["next"])))

    def remainder(self) -> Split | None:
        return self.split if self.split["next"] < N else None


@pytest.mark.parametrize("delivery", ["effectively-once", "at-least-once"])
@in_virtual_time
async def test_a_reader_may_give_the_same_value_again_and_change_it(
    tmp_path: Path, delivery: Delivery
) -> None:
    out = tmp_path / "out.jsonl"
    pipeline = ab.Pipeline("numbers", delivery=delivery)
    pipeline.source("numbers", Numbers()).sink("out", ab.jsonl(out))
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    for deaths in range(1, 4):
        (source,), (sink,) = network.of("numbers"), network.of("out")
        least = deaths * N // 5
        await network.until(lambda: sink.path.counts.tuples_out > least)  # noqa: B023
        network.kill(source.me)
        network.kill(sink.me)
        await network.revive(source.me)
        await network.revive(sink.me)
    await network.finish()
    found = Counter(map(int, out.read_text().splitlines()))
    assert found.keys() == set(range(N))
    if delivery == "effectively-once":
        assert found.total() == N
