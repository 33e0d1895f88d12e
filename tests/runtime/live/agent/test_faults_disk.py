"""A disk without room: the stream waits, says so once, and goes on by itself; nothing is lost or
doubled by that. Nor is anything done too early where the disk is only slow."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.agent.launch import Run
from anabranch.runtime.live.channel import ended
from anabranch.runtime.live.commit import output_buffer
from anabranch.runtime.live.journal import journal
from anabranch.runtime.reporting.failure import LifeOver, RunFailed
from anabranch.runtime.reporting.report import Event
from anabranch.runtime.sinks.stdout import Stdout
from anabranch.runtime.storage import patience
from tests.runtime.agent_runs import finish, start, until
from tests.runtime.fake_instance import Endless, three_operators
from tests.runtime.faulty import Refusing
from tests.runtime.live.instance.test_instances import Numbers
from tests.runtime.network import Network
from tests.runtime.processes import LINUX, PATIENCE_S
from tests.runtime.reading import context
from tests.runtime.virtual_time import in_virtual_time

pytestmark = pytest.mark.skipif(not LINUX, reason="what a file is called is read from /proc")

N = 20_000


def double(n: int) -> int:
    return 2 * n


def refuse_odd(n: int) -> int:
    if n % 2:
        raise ValueError("odd")
    return n


def chain(out: Path, fn: Callable[[int], int] = double, **settings: Any) -> ab.Pipeline:
    dead = out.with_name("dead.jsonl")
    pipeline = ab.Pipeline("chain", dead_letters=dead, **settings)
    numbers = pipeline.source("numbers", ab.generate(lambda n: n, count=N))
    numbers.map("work", fn).sink("out", ab.jsonl(out))
    return pipeline


def found(path: Path) -> Counter[int]:
    return Counter(map(int, path.read_text().splitlines()))


class Full:
    """A run in one loop, and a disk that can be made full under it."""

    def __init__(
        self, folder: Path, refusing: Refusing, fn: Callable[[int], int] = double, **settings: Any
    ) -> None:
        self.refusing = refusing
        self.out, self.dead = folder / "out.jsonl", folder / "dead.jsonl"
        self.pipeline = chain(self.out, fn, **settings)
        self.network = Network(self.pipeline, folder, journals=True, credit_tuples=500)

    def read(self) -> int:
        return sum(
            i.path.counts.processed
            for i in self.network.instances.values()
            if i.profile.operator.source
        )

    async def begins(self) -> None:
        await self.network.start()
        await self.network.until(lambda: self.read() > 2_000)

    async def stands_still(self) -> int:
        """Nobody reads any more; returns how much was read."""
        before = -1
        async with asyncio.timeout(PATIENCE_S):
            while before != self.read():
                before = self.read()
                await asyncio.sleep(0.3)
        return before


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Refusing:
    monkeypatch.setattr(patience, "RETRY_MAX_S", 0.1)
    monkeypatch.setattr(output_buffer, "WAITING_BYTES_MAX", 64 * 1024)
    return Refusing(monkeypatch, "write", "writev", "pwrite")


PLACES = {
    "results": ("out.jsonl", "cannot write results: No space left on device: '{}out.jsonl'"),
    "beside": ("/files/out", "cannot write results: No space left on device: '{}out.jsonl'"),
    "journals": (".journal", "cannot write the journal: No space left on device: '{}"),
    "letters": ("dead.jsonl", "cannot write dead letters: No space left on device: '{}dead.jsonl'"),
}


@pytest.mark.parametrize("place", PLACES)
@in_virtual_time
async def test_a_full_disk_stops_the_stream_up_to_the_source_until_there_is_room(
    tmp_path: Path, refusing: Refusing, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    name, told = PLACES[place]
    run = Full(tmp_path, refusing, refuse_odd)
    await run.begins()
    refusing.refuse(errno.ENOSPC, name)
    read = await run.stands_still()
    assert 2_000 < read < N
    await run.network.until(lambda: refusing.refused > 5)
    waits = [m for m in caplog.messages if "the stream waits" in m]
    assert {told.format(f"{tmp_path}/") in m and "make room there" in m for m in waits} == {True}
    assert len({m.partition(":")[0] for m in waits}) == len(waits) == run.network.notes["waits"]
    refusing.refuse(0)
    await run.network.finish(timeout_s=PATIENCE_S)
    assert found(run.out) == Counter(range(0, N, 2))
    assert sorted(map(letter, run.dead.read_text().splitlines())) == [*range(1, N, 2)]
    assert run.network.unbalanced() == []
    assert run.network.notes["goes on"] == len(waits)


def letter(line: str) -> int:
    (one,) = [json.loads(line)["tuple"]]
    assert isinstance(one, int)
    return one


@pytest.mark.parametrize("place", ["results", "letters"])
@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
@in_virtual_time
async def test_whatever_is_promised_a_full_disk_is_waited_out(
    tmp_path: Path, refusing: Refusing, place: str, delivery: str
) -> None:
    run = Full(tmp_path, refusing, refuse_odd, delivery=delivery)
    await run.begins()
    refusing.refuse(errno.ENOSPC, PLACES[place][0])
    assert await run.stands_still() < N
    refusing.refuse(0)
    await run.network.finish(timeout_s=PATIENCE_S)
    assert found(run.out) == Counter(range(0, N, 2))
    assert sorted(map(letter, run.dead.read_text().splitlines())) == [*range(1, N, 2)]


@in_virtual_time
async def test_an_instance_that_dies_while_its_disk_is_full_goes_on_where_it_was(
    tmp_path: Path, refusing: Refusing
) -> None:
    run = Full(tmp_path, refusing)
    await run.begins()
    refusing.refuse(errno.ENOSPC, ".jsonl", ".journal.")
    await run.stands_still()
    for me in run.network.mortals():
        run.network.kill(me)
        await run.network.revive(me)
    refused = refusing.refused
    await run.network.until(lambda: refusing.refused > refused + 5)
    refusing.refuse(0)
    await run.network.finish(timeout_s=PATIENCE_S)
    assert found(run.out) == Counter(range(0, 2 * N, 2))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (errno.EMFILE, "raise the limit of open files (ulimit -n)"),
        (errno.EIO, "look at the disk (dmesg)"),
    ],
)
@in_virtual_time
async def test_other_troubles_that_pass_are_waited_out_with_their_remedy(
    tmp_path: Path, refusing: Refusing, error: int, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = Full(tmp_path, refusing)
    await run.begins()
    refusing.refuse(error, "out.jsonl")
    await run.stands_still()
    refusing.refuse(0)
    await run.network.finish(timeout_s=PATIENCE_S)
    assert found(run.out) == Counter(range(0, 2 * N, 2))
    assert [m.endswith(f"goes on by itself: {told}") for m in caplog.messages[:1]] == [True]


@in_virtual_time
async def test_a_disk_that_is_full_again_and_again_is_told_now_and_then(
    tmp_path: Path, refusing: Refusing, caplog: pytest.LogCaptureFixture
) -> None:
    run = Full(tmp_path, refusing)
    await run.begins()
    for _ in range(10):
        refused = refusing.refused
        refusing.refuse(errno.ENOSPC, "out.jsonl")
        await run.network.until(lambda n=refused: refusing.refused > n)  # type: ignore[misc]
        written = run.out.stat().st_size
        refusing.refuse(0)
        await run.network.until(lambda n=written: run.out.stat().st_size > n)  # type: ignore[misc]
    assert run.network.notes["waits"] == 1
    await run.network.finish(timeout_s=PATIENCE_S)
    assert len(caplog.messages) <= 2


@pytest.mark.parametrize("name", ["out.jsonl", "dead.jsonl", ".journal"])
@in_virtual_time
async def test_what_somebody_meant_is_not_waited_out_but_fails_with_the_name_of_the_file(
    tmp_path: Path, refusing: Refusing, name: str
) -> None:
    run = Full(tmp_path, refusing, refuse_odd)
    await run.begins()
    refusing.refuse(errno.EPERM, name)
    with pytest.raises(PermissionError, match=r"cannot write .*: Operation not permitted") as met:
        await run.network.until(lambda: False)
    assert name in str(met.value.filename)
    await run.network.abandon()


def events(run: Run, kind: str) -> list[Event]:
    return [e for e in run.snapshot().events if e.kind == kind]


@pytest.mark.usefixtures("usual_behaviour")
def test_an_agent_that_cannot_write_says_nothing_that_is_not_written_until_it_can(
    tmp_path: Path, refusing: Refusing
) -> None:
    run = start(three_operators(Endless()), state=tmp_path)
    refusing.refuse(errno.ENOSPC, "agent.journal")
    until(lambda: events(run, "waits"))
    os.kill(run.snapshot().operator("work").members[0].pid, signal.SIGKILL)
    until(lambda: events(run, "died"))
    refused = refusing.refused
    until(lambda: refusing.refused > refused + 3)
    assert not events(run, "resumed")
    assert len(events(run, "waits")) == 1
    refusing.refuse(0)
    until(lambda: events(run, "resumed"))
    run.end_input()
    assert finish(run).ok


@in_virtual_time
async def test_an_input_that_ends_while_the_end_of_a_part_waits_for_room_is_ended_all_the_same(
    tmp_path: Path, refusing: Refusing
) -> None:
    out, pipeline = tmp_path / "out.jsonl", ab.Pipeline("chain")
    pipeline.source("numbers", Numbers(100_000, size=50)).sink("out", ab.jsonl(out))
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    (source,) = network.of("numbers")
    await network.until(lambda: source.path.counts.processed > 1_000)
    refusing.refuse(errno.ENOSPC, "numbers.0.journal")
    await network.until(lambda: refusing.refused > 3)
    for _ in range(2):  # as the agent and a decision may both want it
        source.pump.end_input()
        await asyncio.sleep(0.01)
    refusing.refuse(0)
    await network.finish()
    assert found(out) == Counter(range(source.path.counts.processed))
    assert network.unbalanced() == []


async def test_a_disk_that_syncs_slowly_slows_the_stream_and_neither_the_loop_nor_the_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_s, syncs, is_slow = 0.2, 0, True
    by_the_loop: list[bool] = []

    def slowly(sync: Callable[[int], None]) -> Callable[[int], None]:
        def slow(fd: int) -> None:
            nonlocal syncs
            syncs += 1
            by_the_loop.append(threading.current_thread() is threading.main_thread())
            time.sleep(slow_s if is_slow else 0)
            sync(fd)

        return slow

    monkeypatch.setattr(journal, "SEGMENT_BYTES_MIN", 4 * 1024)
    out, pipeline = tmp_path / "out.jsonl", ab.Pipeline("chain", durable="power")
    work = pipeline.source("numbers", Numbers(10**9)).map("work", double, scale=ab.Scale())
    work.sink("out", ab.jsonl(out))
    network = Network(pipeline, tmp_path, journals=True, credit_tuples=200)
    await network.start()
    await network.until(lambda: bool(found(out)))
    for sync in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, sync, slowly(getattr(os, sync)))
    network.decide("work", "duplicate", 2)
    await network.until(lambda: len(network.of("work")) == 3 and network.at_rest())
    assert not any(by_the_loop)
    is_slow = False
    (source,) = network.of("numbers")
    source.pump.end_input()
    await network.finish(timeout_s=PATIENCE_S)
    assert found(out) == Counter(range(0, 2 * source.path.counts.processed, 2))
    assert network.unbalanced() == []
    assert syncs > 10
    assert any(number > 1 for me in network.instances for number, _ in segments_of(tmp_path, me))


def segments_of(folder: Path, me: InstanceId) -> list[tuple[int, Path]]:
    return journal.segments(folder / f"{me}.journal")


@in_virtual_time
async def test_a_disk_that_cannot_sync_ends_the_incarnation_before_anything_unsafe_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, pipeline = tmp_path / "out.jsonl", ab.Pipeline("chain", durable={"work": "power"})
    pipeline.source("numbers", Numbers(30_000)).map("work", double).sink("out", ab.jsonl(out))
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    await network.until(lambda: bool(found(out)))
    (work,) = network.of("work")

    real, failed = os.fdatasync, False

    def fails_once(fd: int) -> None:
        nonlocal failed
        if not failed:
            failed = True
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fails_once)
    with pytest.raises(LifeOver, match=r"cannot sync the journal: .*work\.0\.journal'; what lies"):
        await network.until(lambda: False)
    assert work.commits is not None
    work.commits.want()
    before = await settled(out)
    assert sum(before.values()) < 30_000  # it says nothing any more
    network.kill(work.me)
    await network.revive(work.me)
    await network.finish(timeout_s=PATIENCE_S)
    assert found(out) == Counter(range(0, 60_000, 2))


async def settled(out: Path) -> Counter[int]:
    """What is in the file when nothing more comes."""
    before: Counter[int] | None = None
    while before != found(out):
        before = found(out)
        await asyncio.sleep(0.2)
    return found(out)


@in_virtual_time
async def test_standard_output_that_goes_to_a_full_disk_waits_and_says_so(
    tmp_path: Path, refusing: Refusing, caplog: pytest.LogCaptureFixture
) -> None:
    notes: list[tuple[str, str]] = []
    out = tmp_path / "stdout.txt"
    fd = os.open(out, os.O_WRONLY | os.O_CREAT)
    told = replace(context(), run_dir=tmp_path, note=lambda *note: notes.append(note))
    writer = Stdout(fd=fd).open(told)
    await writer.write(["before"])
    refusing.refuse(errno.ENOSPC, "stdout.txt")
    writing = asyncio.create_task(writer.write(["during"]))
    while refusing.refused < 3:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)
    refusing.refuse(0)
    await writing
    refusing.refuse(errno.EPERM, "stdout.txt")
    with pytest.raises(PermissionError, match="cannot write to standard output: Operation not"):
        await writer.write(["never"])
    os.close(fd)
    assert out.read_text() == "before\nduring\n"
    assert [kind for kind, _ in notes] == ["waits", "goes on"]
    assert "cannot write to standard output: No space left on device; the stream" in caplog.text


@pytest.mark.usefixtures("usual_behaviour")
def test_a_run_that_finds_no_room_for_its_state_does_not_start_and_leaves_nothing(
    tmp_path: Path, refusing: Refusing
) -> None:
    refusing.refuse(errno.ENOSPC, "run.json")
    with pytest.raises(RunFailed, match=r"did not start: cannot begin in .*No space left"):
        start(three_operators(Endless()), state=tmp_path)
    refusing.refuse(0)
    assert list(tmp_path.iterdir()) == []


@in_virtual_time
async def test_an_instance_that_cannot_leave_its_mark_waits_with_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "RETRY_MAX_S", 0.1)
    refused, full, real = 0, True, os.pwrite

    def pwrite(fd: int, data: bytes, at: int) -> int:
        nonlocal refused
        if full and data == ended.MARK:
            refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite)
    out, pipeline = tmp_path / "out.jsonl", ab.Pipeline("chain")
    pipeline.source("numbers", Numbers(1_000)).sink("out", ab.jsonl(out))
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    await network.until(lambda: refused > 3)
    assert any(not task.done() for task in network.running.values())
    full = False
    await network.finish()
    assert found(out) == Counter(range(1_000))
