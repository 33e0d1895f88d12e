"""What the pumps of an instance owe the core and the ledger, each duty by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.limits import Limits
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.channel.replay_order import ChannelReplayOrder
from anabranch.runtime.live.instance.intake import Intake, Queued
from anabranch.runtime.live.instance.key_groups import KeyGroups
from anabranch.runtime.pipeline.definition import Delivery
from anabranch.runtime.plan.ends import DeadLetter, RunContext, Writer
from anabranch.runtime.reporting.ledger import settle
from tests.runtime.live.channel.test_channel_incarnations import Kept, Worker
from tests.runtime.network import Kept as Sink
from tests.runtime.network import Network
from tests.runtime.virtual_time import in_virtual_time

UP, NEW_OWNER = InstanceId(OperatorName("up"), 0), InstanceId(OperatorName("last"), 1)


@in_virtual_time
async def test_lines_that_a_source_cannot_read_are_counted_with_their_reasons(
    tmp_path: Path,
) -> None:
    """They are no tuples, so nobody downstream misses them; only the source's own count tells."""
    (tmp_path / "in").write_bytes(b"a\nb\xff\nc\n\xfe\n")
    pipeline = ab.Pipeline("bad")
    sink = Sink()
    pipeline.source("lines", ab.files(str(tmp_path / "in"))).map("upper", str.upper).sink(
        "out", sink
    )
    network = Network(pipeline, tmp_path)
    await network.start()
    await network.finish()
    (source,) = (f for f in network.final if f.operator == "lines")
    assert sorted(sink.tuples) == ["A", "C"]
    assert (source.tuples_in, source.dead, source.dead_upstream) == (2, 0, 2)
    assert sum(source.dead_reasons.values()) == 2
    ledger = settle(network.final, pipeline.topology.edges, list(pipeline.operators))
    assert ledger.dead_letters == 2


class Refusing(Sink):
    """It takes even numbers only."""

    def open(self, context: RunContext) -> Writer:
        return RefusingWriter(self)


class RefusingWriter(Writer):
    def __init__(self, sink: Refusing) -> None:
        self.sink = sink

    async def write(self, tuples: list[Any]) -> list[DeadLetter]:
        self.sink.tuples += [n for n in tuples if not n % 2]
        return [DeadLetter("ValueError: odd", n) for n in tuples if n % 2]


@pytest.mark.parametrize("by_key", [False, True])
@pytest.mark.parametrize("delivery", ["at-most-once", "effectively-once"])
@in_virtual_time
async def test_what_a_sink_refuses_is_dead_there_and_not_among_its_results(
    tmp_path: Path, by_key: bool, delivery: Delivery
) -> None:
    pipeline, sink = ab.Pipeline("odd", delivery=delivery), Refusing()
    numbers = pipeline.source("numbers", ab.items(range(11)))
    (numbers.key_by(lambda n: n) if by_key else numbers).sink("out", sink)
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    await network.finish()
    (out,) = (f for f in network.final if f.operator == "out")
    assert sorted(sink.tuples) == [0, 2, 4, 6, 8, 10]
    assert (out.tuples_in, out.processed, out.tuples_out, out.dead) == (11, 6, 6, 5)
    assert out.dead_reasons == {"ValueError": 5}
    ledger = settle(network.final, pipeline.topology.edges, list(pipeline.operators))
    assert (ledger.dead_letters, ledger.lost, ledger.duplicated) == (5, 0, 0)


@in_virtual_time
async def test_an_exact_sink_counts_what_it_refuses_in_the_turn_that_has_the_results(
    tmp_path: Path,
) -> None:
    pipeline, path = ab.Pipeline("mixed"), tmp_path / "out.jsonl"
    pipeline.source("values", ab.items([1, 2, {3: complex(1, 1)}])).sink("out", ab.jsonl(path))
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    await network.finish()
    (out,) = (f for f in network.final if f.operator == "out")
    assert path.read_text() == "1\n2\n"
    assert (out.tuples_in, out.processed, out.tuples_out, out.dead) == (3, 2, 2, 1)


class Buffering(Sink):
    """What it was given is at its target when it has been flushed."""

    def open(self, context: RunContext) -> Writer:
        return BufferingWriter(self)


class BufferingWriter(Writer):
    def __init__(self, sink: Buffering) -> None:
        self.sink, self.buffer = sink, list[Any]()

    async def write(self, tuples: list[Any]) -> list[DeadLetter]:
        self.buffer += tuples
        return []

    async def flush(self) -> None:
        self.sink.tuples += self.buffer
        self.buffer.clear()

    async def close(self) -> None:
        """Too late for anything: its predecessors have been told that all is done."""


@pytest.mark.parametrize("by_key", [False, True])
@in_virtual_time
async def test_a_sink_is_flushed_before_its_instance_ends(tmp_path: Path, by_key: bool) -> None:
    pipeline, sink = ab.Pipeline("flushed"), Buffering()
    numbers = pipeline.source("numbers", ab.items(range(11)))
    (numbers.key_by(lambda n: n) if by_key else numbers).sink("out", sink)
    network = Network(pipeline, tmp_path)
    await network.start()
    await network.finish()
    assert sorted(sink.tuples) == [*range(11)]


@in_virtual_time
async def test_what_a_sink_has_gathered_is_written_before_the_stream_ends(tmp_path: Path) -> None:
    pipeline, folder = ab.Pipeline("rows"), tmp_path / "rows"
    folder.mkdir()
    sink = ab.parquet(folder, rows=10**6, every_s=10**6)
    rows = ab.items([{"n": n} for n in range(100)])
    pipeline.source("numbers", rows).sink("out", sink)
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    await network.finish()
    found = [row["n"] for file in folder.glob("*") for row in pq.read_table(file).to_pylist()]
    assert sorted(found) == [*range(100)]


@in_virtual_time
async def test_state_is_handed_over_only_after_what_the_intake_holds_has_been_looked_into() -> None:
    """Duty 10: tuples of batches that were accepted before are among those that go along."""
    channel = Channel(UP, dialing=False, user=Worker(), limits=Limits(), keeper=Kept())
    intake = Intake(Limits(), ChannelReplayOrder(lambda _: channel))
    begun: list[str] = []

    def spawn(work: Coroutine[Any, Any, None], name: str) -> None:
        work.close()
        begun.append(name)

    groups = KeyGroups.__new__(KeyGroups)
    groups._path = SimpleNamespace(intake=intake)  # type: ignore[assignment]
    groups._ports = SimpleNamespace(lifetime=SimpleNamespace(spawn=spawn))  # type: ignore[assignment]
    for _ in range(2):
        intake.put(channel, 1, 0.0, b"t")
    groups.transfer(NEW_OWNER, frozenset({3}))
    assert [isinstance(intake.pop(), Queued) for _ in range(2)] == [True, True]
    assert begun == []
    errand = intake.pop()
    assert callable(errand)
    errand()
    assert begun == [f"state to {NEW_OWNER}"]
    await asyncio.sleep(0)
