"""What the pumps of an instance owe the core and the ledger, each duty by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anabranch as ab
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.limits import Limits
from anabranch.runtime.ledger import settle
from anabranch.runtime.live.channel import Channel
from anabranch.runtime.live.intake import Intake, Queued
from anabranch.runtime.live.keyed_pump import KeyedPump
from anabranch.runtime.live.repeats import Repeats
from tests.runtime.network import Kept as Sink
from tests.runtime.network import Network
from tests.runtime.test_channel_lives import Kept, Worker

UP, HEIR = InstanceId(OperatorName("up"), 0), InstanceId(OperatorName("last"), 1)


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


async def test_state_is_handed_over_only_after_what_the_intake_holds_has_been_looked_into() -> None:
    """Duty 10: tuples of batches that were accepted before are among those that go along."""
    channel = Channel(UP, dialing=False, user=Worker(), limits=Limits(), keeper=Kept())
    intake = Intake(Limits(), Repeats(lambda _: channel))
    begun: list[str] = []

    def spawn_task(work: Coroutine[Any, Any, None], name: str) -> None:
        work.close()
        begun.append(name)

    pump = KeyedPump.__new__(KeyedPump)
    pump.instance = SimpleNamespace(intake=intake, spawn_task=spawn_task)  # type: ignore[assignment]
    for _ in range(2):
        intake.put(channel, 1, 0.0, b"t")
    pump.transfer(HEIR, frozenset({3}))
    assert [isinstance(intake.pop(), Queued) for _ in range(2)] == [True, True]
    assert begun == []
    errand = intake.pop()
    assert callable(errand)
    errand()
    assert begun == [f"state to {HEIR}"]
    await asyncio.sleep(0)
