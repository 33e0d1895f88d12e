"""Deaths at awkward moments: of sources that leave, of who has said goodbye, of newcomers."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.protocol import events
from anabranch.protocol.states import Draining, Finished
from anabranch.runtime.live.instance.pumps import OperatorPump
from anabranch.runtime.live.instance.source_pump import SourcePump
from anabranch.runtime.plan.ends import Chunk, Reader, RunContext, Source, Split
from tests.runtime.network import Kept, Network
from tests.runtime.virtual_time import in_virtual_time

# Whoever is killed in the middle leaves sockets behind that nobody closes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@in_virtual_time
async def test_a_source_that_leaves_and_dies_sends_what_it_held(tmp_path: Path) -> None:
    sink = Kept(delay_s=0.002)
    pipeline = ab.Pipeline("leaving")
    pipeline.source("numbers", ab.generate(int, count=20_000)).sink("out", sink)
    network = Network(pipeline, tmp_path, journals=True, credit_tuples=64)
    await network.start(instances=2)
    leaver = network.of("numbers")[1]
    await network.until(lambda: leaver.path.outbox.full)
    leaver.orders.decide("leave", 1)
    await network.until(
        lambda: isinstance(leaver.core.state, Draining) and not leaver.path.outbox.empty
    )
    assert leaver.commits is not None
    await leaver.commits.committed()
    network.kill(leaver.me)
    sink.delay_s = 0.0
    await network.revive(leaver.me)
    await network.finish()
    found = Counter(sink.tuples)
    assert found.keys() == set(range(20_000))


@in_virtual_time
async def test_a_newcomer_that_dies_and_hears_of_the_end_before_it_begins_ends(
    tmp_path: Path,
) -> None:
    sink = Kept(delay_s=0.0001)
    pipeline = ab.Pipeline("late")
    pipeline.source("numbers", ab.generate(int, count=20_000)).sink("out", sink)
    network = Network(pipeline, tmp_path, journals=True, credit_tuples=64)
    await network.start()
    await network.until(lambda: len(sink.tuples) > 100)
    (creator,) = network.of("numbers")
    child = await network._make(creator.me.operator, creator.me.number)
    network.kill(child)
    await network.revive(child)
    network.instances[child].pump.end_input()
    creator.agent_client.ask_for_children = lambda *_, **__: None  # type: ignore[method-assign]
    creator.membership.feed(events.DuplicateDecided(1))
    creator.neighbourhood.learn({child: network._addresses[child]})
    creator.orders.children_ready(frozenset({child}))
    await network.finish()
    assert network.instances[child].profile.context.incarnation == 2


@in_virtual_time
async def test_who_has_parted_and_dies_twice_does_not_come_back_to_its_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_: str) -> None:
        await asyncio.Event().wait()

    async def slowly(_: SourcePump) -> None:
        await may_close.wait()

    may_close = asyncio.Event()
    may_close.set()
    monkeypatch.setattr(SourcePump, "close", slowly)
    pipeline = ab.Pipeline("parting")
    pipeline.source("numbers", ab.items(range(10))).sink("out", Kept())
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    (source,) = network.of("numbers")
    me = source.me
    monkeypatch.setattr(source.neighbourhood, "part", never)
    await network.until(lambda: source.commits is not None and source.commits.closed)
    may_close.clear()
    network.kill(me)
    await network.revive(me)
    commits = network.instances[me].commits
    assert commits is not None
    await network.until(lambda: not commits._journal._old)
    network.kill(me)
    may_close.set()
    await network.revive(me)
    memory, listener = (
        network.instances[me].persistence,
        network.instances[me].neighbourhood._listener,
    )
    assert memory is not None
    assert memory.parted
    await network.finish()
    listener.close()  # as the end of the process would


@in_virtual_time
async def test_what_a_dead_letter_was_made_of_comes_again_if_the_letter_was_not_written(
    tmp_path: Path,
) -> None:
    def fails(n: int) -> int:
        if n == 3:
            raise ValueError("three")
        return n

    def full(data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    sink, dead = Kept(), tmp_path / "dead.jsonl"
    pipeline = ab.Pipeline("letters", delivery="at-least-once", dead_letters=dead)
    numbers = pipeline.source("numbers", ab.items(range(10)))
    numbers.map("some", fails, retry=1).sink("out", sink)
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    (some,), (source,) = network.of("some"), network.of("numbers")
    some.path.letter_writer._letters.put_next = full  # type: ignore[method-assign]
    (out,) = some.path.outbox.branches[0].channels
    await network.until(lambda: len(sink.tuples) == 9 and out.session.settled)
    comes_from = some.neighbourhood.channel_from(source.me)
    assert comes_from is not None
    assert comes_from.incoming.tuples_settled == 0
    network.kill(some.me)
    await network.revive(some.me)
    await network.finish()
    assert "ValueError: three" in dead.read_text()


class Deleting(Source):
    """Reads a file of numbers and deletes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.deleted = asyncio.Event()

    def splits(self) -> Iterator[Split]:
        yield {"at": 0}

    def open(self, split: Split, context: RunContext) -> Reader:
        return DeletingReader(self, split["at"])


class DeletingReader(Reader):
    def __init__(self, source: Deleting, at: int) -> None:
        self.source, self.at = source, at
        self.numbers = [*map(int, source.path.read_text().split())]

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        if self.at == len(self.numbers):
            return None
        start, self.at = self.at, self.at + min(tuples_max, len(self.numbers) - self.at)
        return Chunk([*self.numbers[start : self.at]])

    def remainder(self) -> Split | None:
        return {"at": self.at} if self.at < len(self.numbers) else None

    def done(self) -> None:
        self.source.path.unlink()
        self.source.deleted.set()


@pytest.mark.parametrize("recorded", [True, False])
@in_virtual_time
async def test_a_source_that_has_tidied_up_and_dies_does_not_open_its_input_again(
    tmp_path: Path, recorded: bool
) -> None:
    path, sink = tmp_path / "numbers", Kept(delay_s=0.002)
    path.write_text(" ".join(map(str, range(500))))
    pipeline = ab.Pipeline("deleting")
    numbers = Deleting(path)
    pipeline.source("numbers", numbers).sink("out", sink)
    network = Network(pipeline, tmp_path, journals=True, credit_tuples=64)
    await network.start()
    (source,) = network.of("numbers")
    assert source.commits is not None
    await numbers.deleted.wait()
    assert not source.path.outbox.empty
    if recorded:
        await source.commits.committed()
    network.kill(source.me)
    sink.delay_s = 0.0
    await network.revive(source.me)
    await network.finish()
    assert set(sink.tuples) == set(range(500))


@in_virtual_time
async def test_a_watermark_that_came_behind_an_open_call_stays_behind_it_after_a_death(
    tmp_path: Path,
) -> None:
    let_go, sink = asyncio.Event(), Kept()

    async def slow(n: int) -> int:
        if n == 7:
            await let_go.wait()
        return n

    pipeline = ab.Pipeline("timed")
    numbers = pipeline.source("numbers", ab.items(range(10))).event_time(float)
    numbers.map("slow", slow, scale=ab.Scale(max_instances=2)).sink("out", sink)
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    for _ in range(2):
        await die_with_open_calls(network, sink)
    let_go.set()
    await network.finish()
    assert sorted(sink.tuples) == [*range(10)]


async def die_with_open_calls(network: Network, sink: Kept) -> None:
    """And take no watermark for known that waits for them."""
    (instance,), (source,) = network.of("slow"), network.of("numbers")
    pump = instance.pump
    assert isinstance(pump, OperatorPump)
    assert instance.commits is not None
    await network.until(lambda: isinstance(source.core.state, Finished))
    await network.until(lambda: bool(pump._processor.open) and len(sink.tuples) >= 7)
    await instance.commits.committed()
    assert instance.path.watermarks._stated[0] < 7, (
        f"incarnation {instance.profile.context.incarnation}"
    )
    network.kill(instance.me)
    await network.revive(instance.me)


@in_virtual_time
async def test_what_a_keyed_sink_had_not_written_is_written_by_its_next_incarnation(
    tmp_path: Path,
) -> None:
    begun, never, found = asyncio.Event(), asyncio.Event(), set[int]()

    async def write(n: int) -> None:
        if n >= 50 and not network.deaths:
            begun.set()
            await never.wait()
        found.add(n)

    pipeline = ab.Pipeline("keyed")
    numbers = pipeline.source("numbers", ab.items(range(100)))
    numbers.key_by(lambda n: n % 7).sink("out", ab.foreach(write, idempotent=True))
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    (sink,) = network.of("out")
    await begun.wait()
    assert sink.commits is not None
    await sink.commits.committed()
    network.kill(sink.me)
    await network.revive(sink.me)
    await network.finish()
    assert found == set(range(100))
