"""At least once, a source reads on while the splits before are not safe, and loses none of them."""

from __future__ import annotations

import asyncio
import gc
import json
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.live.instance import source_pump
from anabranch.runtime.live.instance.instance import Instance
from anabranch.runtime.live.instance.source_pump import SourcePump
from anabranch.runtime.plan.ends import (
    Chunk,
    DeadLetter,
    Reader,
    RunContext,
    Sink,
    Source,
    Split,
    Writer,
)
from tests.anabranch.slow_runs import WAIT, command, slowly, wait_until_lines
from tests.runtime.network import Network
from tests.runtime.processes import PATIENCE_S
from tests.runtime.virtual_time import in_virtual_time

# Whoever is killed in the middle leaves sockets behind that nobody closes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SPLITS = 40
PER_SPLIT = 25
EXPECTED = set(range(SPLITS * PER_SPLIT))


@pytest.fixture(autouse=True)
def leave_nothing_to_others() -> Iterator[None]:
    """Those sockets are found here, and not in the test that comes next."""
    yield
    gc.collect()


class Heap(Source):
    """A folder of small files with numbers; each is deleted when nobody needs it any more."""

    def __init__(self, folder: Path, splits: int, each: int) -> None:
        self.folder = folder
        folder.mkdir()
        for i in range(splits):
            numbers = range(i * each, (i + 1) * each)
            (folder / f"{i:03}").write_text(" ".join(map(str, numbers)))

    @property
    def left(self) -> int:
        return len([*self.folder.iterdir()])

    def splits(self) -> Iterator[Split]:
        for path in sorted(self.folder.iterdir()):
            yield {"path": str(path), "at": 0}

    def open(self, split: Split, context: RunContext) -> Reader:
        return HeapReader(split)


class HeapReader(Reader):
    """Opens the file at once: reading one that was deleted fails, and so does the run."""

    def __init__(self, split: Split) -> None:
        self.path, self.at = Path(split["path"]), split["at"]
        self.numbers = [*map(int, self.path.read_text().split())]

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        if self.at == len(self.numbers):
            return None
        start, self.at = self.at, min(self.at + 10, len(self.numbers))
        return Chunk(self.numbers[start : self.at])

    def remainder(self) -> Split | None:
        here: Split = {"path": str(self.path), "at": self.at}
        return here if self.at < len(self.numbers) else None

    def done(self) -> None:
        self.path.unlink()


class Shut(Sink):
    """Takes nothing before it is opened, so nothing is safe before."""

    def __init__(self) -> None:
        self.tuples: list[Any] = []
        self.opened = asyncio.Event()

    def open(self, context: RunContext) -> Writer:
        return ShutWriter(self)


class ShutWriter(Writer):
    def __init__(self, sink: Shut) -> None:
        self.sink = sink

    async def write(self, tuples: list[Any]) -> list[DeadLetter]:
        await self.sink.opened.wait()
        self.sink.tuples += tuples
        return []


class World:
    """A heap, something that passes it on, and a sink that is shut."""

    def __init__(
        self,
        folder: Path,
        delivery: str = "at-least-once",
        splits: int = SPLITS,
        each: int = PER_SPLIT,
        **limits: Any,
    ) -> None:
        self.heap, self.sink = Heap(folder / "heap", splits, each), Shut()
        pipeline = ab.Pipeline("heap", delivery=delivery)  # type: ignore[arg-type]
        numbers = pipeline.source("numbers", self.heap)
        numbers.map("same", lambda n: n, scale=ab.Scale(max_instances=4)).sink("out", self.sink)
        self.network = Network(pipeline, folder, journals=True, **limits)

    @property
    def claims(self) -> int:
        return self.network._claims["numbers"]

    @property
    def unclaimed(self) -> list[Split]:
        return self.network._boards[OperatorName("numbers")]

    def source(self, number: int = 0) -> Instance:
        return next(i for me, i in self.network.instances.items() if self._is(me, number))

    def _is(self, me: InstanceId, number: int) -> bool:
        return me.operator == "numbers" and me.number == number

    def pump(self, number: int = 0) -> SourcePump:
        pump = self.source(number).pump
        assert isinstance(pump, SourcePump)
        return pump

    async def die(self, *members: Instance) -> None:
        """All of these at once, with all that they have done in their journals."""
        for member in members:
            assert member.commits is not None
            await member.commits.committed()
        for member in members:
            self.network.kill(member.me)
        for member in members:
            await self.network.revive(member.me)

    def everybody(self) -> list[Instance]:
        return [self.network.instances[me] for me in self.network.mortals()]


@in_virtual_time
async def test_the_next_splits_are_read_while_those_before_are_not_safe(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.network.start()
    await world.network.until(lambda: world.claims >= 10)
    assert world.sink.tuples == []
    assert world.heap.left == SPLITS, "what is not safe may have to be read again"
    world.sink.opened.set()
    await world.network.finish(60)
    assert Counter(world.sink.tuples) == Counter(EXPECTED)
    assert world.heap.left == 0


@pytest.mark.parametrize("deaths", [1, 3])
@in_virtual_time
async def test_a_source_that_dies_reads_again_what_was_not_safe_of_many_splits(
    tmp_path: Path, deaths: int
) -> None:
    world = World(tmp_path)
    await world.network.start()
    for n in range(deaths):
        await world.network.until(lambda n=n: world.claims >= 5 + 5 * n)  # type: ignore[misc]
        await world.die(world.source())
    world.sink.opened.set()
    await world.network.finish(60)
    assert set(world.sink.tuples) == EXPECTED
    assert world.heap.left == 0


@in_virtual_time
async def test_when_everybody_dies_at_once_nothing_of_many_splits_is_lost(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.network.start()
    await world.network.until(lambda: world.claims >= 10)
    await world.die(*world.everybody())
    assert world.sink.tuples == []
    world.sink.opened.set()
    await world.network.finish(60)
    assert set(world.sink.tuples) == EXPECTED


@in_virtual_time
async def test_when_everybody_dies_after_the_last_claim_nothing_is_lost(tmp_path: Path) -> None:
    """The board has ended by then: all that is left is in the journal of the source."""
    world = World(tmp_path)
    await world.network.start()
    await world.network.until(lambda: not world.unclaimed)
    await world.network.until(lambda: world.source().path.awaits_drained)
    await world.die(*world.everybody())
    world.sink.opened.set()
    await world.network.finish(60)
    assert set(world.sink.tuples) == EXPECTED
    assert world.heap.left == 0


@pytest.mark.parametrize("dies", [False, True])
@in_virtual_time
async def test_a_source_that_leaves_stays_until_all_that_it_has_read_is_safe(
    tmp_path: Path, dies: bool
) -> None:
    world = World(tmp_path)
    await world.network.start(instances=2)
    await world.network.until(lambda: len(world.pump(1)._ended) >= 3)
    world.source(1).orders.decide("leave", 1)
    if dies:
        await world.die(world.source(1))
        await world.die(world.source(1), *world.network.of("same"))
    assert not world.pump(1).drained
    assert world.network.notes["left"] == 0
    world.sink.opened.set()
    await world.network.finish(60)
    assert world.network.notes["left"] == 1
    assert set(world.sink.tuples) == EXPECTED
    assert world.heap.left == 0


@in_virtual_time
async def test_a_split_is_put_back_only_when_what_was_read_of_it_is_safe(tmp_path: Path) -> None:
    """Others read on behind it, so who dies then could read it again only together with theirs."""
    world = World(tmp_path, splits=2, each=2000, credit_tuples=64, outbox_tuples_max=1000)
    await world.network.start(instances=2)
    leaver = world.source(1)
    await world.network.until(lambda: leaver.path.outbox.full)
    leaver.orders.decide("leave", 1)
    await world.network.until(lambda: world.pump(1)._releasing)
    await world.die(leaver)
    world.sink.opened.set()
    await world.network.finish(60)
    assert set(world.sink.tuples) == set(range(4000))
    assert world.heap.left == 0


@in_virtual_time
async def test_an_input_that_is_ended_early_lacks_nothing_of_what_was_read(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.network.start()
    await world.network.until(lambda: world.claims >= 10)
    await world.die(world.source())
    world.unclaimed.clear()
    world.source().pump.end_input()
    world.sink.opened.set()
    await world.network.finish(60)
    whole = set(range(9 * PER_SPLIT))  # these were released
    assert set(world.sink.tuples) >= whole


@in_virtual_time
async def test_only_so_many_splits_wait_to_be_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_pump, "ENDED_MAX", 3)
    world = World(tmp_path)
    await world.network.start()
    await world.network.until(lambda: len(world.pump()._ended) == 3)
    assert world.source().commits is not None
    await world.source().commits.committed()  # type: ignore[union-attr]
    assert world.claims == 3
    world.sink.opened.set()
    await world.network.finish(60)
    assert Counter(world.sink.tuples) == Counter(EXPECTED)


@pytest.mark.parametrize("delivery", ["at-most-once", "effectively-once"])
@in_virtual_time
async def test_where_a_position_counts_at_once_the_source_tidies_up_at_once(
    tmp_path: Path, delivery: str
) -> None:
    world = World(tmp_path, delivery)
    await world.network.start()
    await world.network.until(lambda: world.heap.left <= SPLITS - 3)
    assert world.sink.tuples == []
    world.sink.opened.set()
    await world.network.finish(60)
    assert Counter(world.sink.tuples) == Counter(EXPECTED)


@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_a_heap_of_small_splits_outlives_many_deaths(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, splits=200)
    network = world.network
    network.rng.seed(seed)
    world.sink.opened.set()
    await network.start(instances=2)
    while network.deaths < 10 and (mortals := network.mortals()):
        network.decide("numbers", network.rng.choice(["duplicate", "leave"]))
        sources = network.mortals("numbers")
        me = network.rng.choice(sources or mortals) if seed % 2 else network.rng.choice(mortals)
        network.kill(me)
        await asyncio.sleep(0.003)
        await network.revive(me)
    await network.finish(60)
    assert network.deaths
    assert set(world.sink.tuples) == set(range(200 * PER_SPLIT))
    assert world.heap.left == 0


SLOW = f"""{WAIT}
    import anabranch as ab

    pipeline = ab.Pipeline("slow", delivery="at-least-once")
    lines = pipeline.source("lines", ab.files("in.txt", split_bytes=100))
    numbers = lines.map("wait", wait, scale=ab.Scale(min_instances=2))
    numbers.sink("out", ab.jsonl("out.jsonl"))
"""
LINES = 3000


def test_a_run_that_is_killed_whole_goes_on_with_all_its_splits_that_were_not_safe(
    tmp_path: Path,
) -> None:
    (tmp_path / "slow.py").write_text(textwrap.dedent(SLOW))
    (tmp_path / "in.txt").write_text("".join(f"{n}\n" for n in range(LINES)))
    with slowly(tmp_path):
        for part in range(2):
            with command(tmp_path, "--state", "kept", *["--resume"] * part) as killed:
                wait_until_lines(killed, tmp_path / "out.jsonl", 100 * (part + 1))
                killed.kill()
    with command(tmp_path, "--state", "kept", "--resume") as resumed:
        told = resumed.communicate(timeout=PATIENCE_S)[0]
    assert resumed.returncode == 0, told
    results = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert set(results) == set(range(LINES))
