"""State of key groups that an earlier incarnation had heard of, and not put in, comes again."""

from __future__ import annotations

from pathlib import Path

import pytest

import anabranch as ab
from tests.runtime.moving import pump_of
from tests.runtime.network import Network
from tests.runtime.virtual_time import in_virtual_time

# Whoever is killed in the middle leaves sockets behind that nobody closes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def slow(out: Path) -> ab.Pipeline:
    pipeline = ab.Pipeline("slow", groups=8)
    numbers = pipeline.source("numbers", ab.generate(lambda i: i % 100, rate=1000, count=60_000))
    counts = numbers.key_by(lambda n: n).fold(
        "count", 0, lambda seen, _: seen + 1, scale=ab.Scale()
    )
    counts.sink("out", ab.jsonl(out))
    return pipeline


@in_virtual_time
async def test_groups_are_opened_when_their_state_has_come_again_and_not_before(
    tmp_path: Path,
) -> None:
    network = Network(slow(tmp_path / "out.jsonl"), tmp_path, journals=True)
    await network.start(2)
    new_owner, giver = network.of("count")
    await network.until(
        lambda: bool(new_owner.path.counts.processed and giver.path.counts.processed)
    )
    group = frozenset({min(giver.membership.owned())})
    pump_of(giver).processor.freeze(group)
    chunks = list(pump_of(giver).processor.export(group, 2**16, 1))

    channel = new_owner.neighbourhood.channels[0]
    incoming = channel.incoming
    incoming._repeated_to = incoming.settled + 10**6  # as if its peer had more to repeat
    done: list[str] = []
    pump_of(new_owner).groups.complete(group, lambda: done.append("complete"))
    before = new_owner.path.counts.processed
    await network.until(lambda: new_owner.path.counts.processed > before)
    assert done == []
    for chunk in chunks:
        pump_of(new_owner).groups.install(chunk, lambda: done.append("installed"))
    await network.until(lambda: len(done) == len(chunks))
    incoming._repeated_to = 0
    new_owner.path.note_settled()
    await network.until(lambda: done[-1] == "complete")
    assert group <= pump_of(new_owner).processor.owned
    await network.abandon()
