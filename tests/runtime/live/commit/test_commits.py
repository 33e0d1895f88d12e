"""When what happens is written down, and when it may be seen outside."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.limits import Limits
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.channel.frames import Pieces
from anabranch.runtime.live.commit import commits, timer
from anabranch.runtime.live.commit.commits import Commits
from anabranch.runtime.live.commit.recovery import Past
from anabranch.runtime.live.journal import journal as journals
from anabranch.runtime.live.journal.journal import Journal, read_journal, segments
from anabranch.runtime.storage.patience import Patience
from tests.runtime.live.channel.test_channels import Listener
from tests.runtime.processes import PATIENCE_S, eventually


class Kept:
    """Two values that change together, and their journal."""

    def __init__(self, path: Path, *, power: bool = False) -> None:
        self.value = 0
        self.snapshots: Callable[[], Iterator[tuple[str, bytes]]] = self._pieces
        self.ending: Callable[[], None] = lambda: None
        self.recorded: Callable[[], None] = lambda: None
        self.journal = Journal(path, power=power)
        self.commits = Commits(
            self.journal,
            self._fail,
            patience=Patience("me", lambda *_: None),
            keeps_batches=True,
        )
        self.commits.part("core", lambda: self.value)
        self.commits.part("ahead", lambda: self.value)
        self._path = path

    def _fail(self, error: Exception) -> None:
        raise error

    @staticmethod
    def _pieces() -> Iterator[tuple[str, bytes]]:
        return iter([("keys", b"piece")] * 5)

    def begin_now(self) -> None:
        self.commits.begin(
            standing=lambda: (),
            snapshots=lambda: self.snapshots(),
            ending=lambda: self.ending(),
            recorded=lambda: self.recorded(),
        )

    async def begin(self) -> None:
        self.begin_now()
        await self.commits.committed()

    @property
    def past(self) -> Past:
        past = Past()
        for record in read_journal(self._path, power=self.journal.power):
            past.take(record)
        return past

    @property
    def written(self) -> dict[str, Any]:
        past = self.past
        return {name: past.parts[name] for name in ("core", "ahead")}


@pytest.fixture(params=[False, True], ids=["process", "power"])
async def kept(tmp_path: Path, request: Any) -> Any:
    made = Kept(tmp_path / "a.journal", power=request.param)
    await made.begin()
    yield made
    made.commits.abandon()


async def test_a_part_is_written_ahead_of_its_commit_and_the_commit_has_the_last_word(
    kept: Kept,
) -> None:
    """Where power may be lost, it is a commit: of two records that are not synced, the second one
    alone would read as damage."""
    kept.value = 1
    await kept.commits.write_down("ahead")
    assert kept.written == {"core": int(kept.journal.power), "ahead": 1}
    kept.value = 2
    await kept.commits.committed()
    assert kept.written == {"core": 2, "ahead": 2}
    kept.value = 1
    await kept.commits.committed()
    assert kept.written == {"core": 1, "ahead": 1}


async def test_before_the_first_snapshot_it_waits_for_that(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a.journal")
    kept.begin_now()
    kept.value = 1
    await kept.commits.write_down("ahead")
    assert kept.written == {"core": 1, "ahead": 1}
    kept.commits.abandon()


@pytest.mark.parametrize(("cost_s", "least_s"), [(0.1, 0.4), (60.0, commits.TURN_S_MAX)])
async def test_a_commit_is_the_longer_the_more_the_last_one_had_to_tell(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, cost_s: float, least_s: float
) -> None:
    now = itertools.count(0.0, cost_s)
    monkeypatch.setattr("anabranch.runtime.ports.clock.thread_s", now.__next__)
    began = asyncio.get_running_loop().time()
    await kept.commits.committed()
    kept.value = 1
    await kept.commits.committed()
    assert asyncio.get_running_loop().time() - began >= least_s
    assert kept.written == {"core": 1, "ahead": 1}


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_commit_in_which_no_more_can_be_done_ends_at_once_if_something_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_loop: Any
) -> None:
    """Instances use a loop whose handles are of types of its own."""
    monkeypatch.setattr(commits, "TURN_S_MAX", 3600.0)
    now = itertools.count(0.0, 3600.0)
    monkeypatch.setattr("anabranch.runtime.ports.clock.thread_s", now.__next__)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(ends_if_awaited(Kept(tmp_path / "a.journal")))


async def ends_if_awaited(kept: Kept) -> None:
    await kept.begin()
    kept.value = 1
    kept.commits.want()
    kept.commits.end_if_awaited()  # nothing waits for it
    await asyncio.sleep(0.01)
    assert kept.written == {"core": 0, "ahead": 0}
    kept.commits.want(now=True)
    kept.commits.end_if_awaited()
    await eventually(lambda: kept.written == {"core": 1, "ahead": 1})
    kept.commits.abandon()


async def test_what_is_told_at_the_end_of_a_commit_is_part_of_it_and_asks_for_no_other(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    while kept.commits.snapshot.under_way:
        await kept.commits.committed()
    monkeypatch.setattr(kept, "ending", lambda: kept.commits.change("keys", b"news"))
    appended: list[Any] = []
    monkeypatch.setattr(kept.commits, "_append", appended.append)
    await kept.commits.committed()
    await asyncio.sleep(5 * timer.LATER_S)
    news = [entry for entry in appended[0].entries if entry[:2] == ("added", "keys")]
    assert (len(appended), len(news)) == (1, 1)


@pytest.mark.parametrize("soon", [False, True])
async def test_it_waits_for_a_disk_that_refuses_and_comes_behind_older_commits(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, soon: bool
) -> None:
    real, full = kept.journal.append, asyncio.Event()
    full.set()

    def append(record: Any) -> None:
        if full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        real(record)

    monkeypatch.setattr(kept.journal, "append", append)
    kept.value = 1
    commit = asyncio.ensure_future(kept.commits.committed())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if soon:
        full.clear()
    kept.value = 2
    ahead = asyncio.ensure_future(kept.commits.write_down("ahead"))
    await asyncio.sleep(0)
    full.clear()
    await asyncio.gather(commit, ahead)
    assert kept.written == {"core": 2, "ahead": 2}


async def test_an_old_segment_stays_until_the_new_one_tells_all(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A death may come after any commit, also while the snapshot of a segment is drawn."""
    monkeypatch.setattr(journals, "SEGMENT_BYTES_MIN", 1)
    monkeypatch.setattr(journals, "SEGMENT_SNAPSHOTS", 1)
    numbers = set()
    for value in range(1, 60):
        kept.value = value
        await kept.commits.committed()
        assert kept.written == {"core": value, "ahead": value}
        numbers.add(tuple(number for number, _ in segments(tmp_path / "a.journal")))
    assert max(map(len, numbers)) == 2
    assert max(numbers)[-1] > 3


class Noted:
    """A wire that counts what is written to it."""

    def __init__(self) -> None:
        self.frames = 0

    def write(self, pieces: Pieces) -> None:
        self.frames += 1

    def close(self, reason: str) -> None: ...
    def abort(self) -> None: ...


def channel_of(kept: Kept) -> Channel:
    peer = InstanceId(OperatorName("next"), 0)
    return Channel(peer, dialing=True, user=Listener(), limits=Limits(), keeper=kept.commits)


async def test_nothing_goes_out_before_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path / "a.journal", power=True)
    await kept.begin()
    real, asked, allowed = os.fdatasync, threading.Event(), threading.Event()

    def slowly(fd: int) -> None:
        asked.set()
        allowed.wait(PATIENCE_S)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", slowly)
    channel, wire = channel_of(kept), Noted()
    channel.line.attach(wire)
    channel.send_watermark(1.0, idle=False)
    told: list[bool] = []
    kept.recorded = lambda: told.append(True)
    done = asyncio.ensure_future(kept.commits.committed())
    await eventually(asked.is_set)
    seen = wire.frames, done.done(), len(told)
    allowed.set()
    await done
    assert seen == (0, False, 0)
    assert wire.frames == 1
    assert told
    kept.commits.abandon()


async def test_that_a_commit_is_recorded_is_told_when_the_disk_has_taken_it(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, told = kept.journal.append, []

    def refuse(record: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(kept.journal, "append", refuse)
    kept.recorded = lambda: told.append(kept.written["core"])
    kept.value = 1
    commit = asyncio.ensure_future(kept.commits.committed())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 1 not in told
    monkeypatch.setattr(kept.journal, "append", real)
    await commit
    assert told[-1] == 1


@pytest.mark.parametrize("number", [1, 2])
async def test_a_kept_piece_that_goes_out_in_a_frame_is_not_written_again(
    tmp_path: Path, number: int
) -> None:
    """Two are alike, and one of them is replaced before it goes."""
    kept = Kept(tmp_path / "a.journal")
    await kept.begin()
    channel = channel_of(kept)
    pieces = {n: bytes([n]) * 100_000 for n in (1, 2)}
    kept.commits.keep("held", 1, pieces[2])
    for n, piece in pieces.items():
        kept.commits.keep("held", n, piece)
    await kept.commits.committed()
    size = kept.journal.size
    channel.send_batch(1, 1, 0, 0.0, pieces[number])
    kept.commits.drop("held", number)
    await kept.commits.committed()
    assert kept.journal.size - size < 1_000
    (old,) = kept.past.channels.values()
    assert [frame[-1] for frame in old.frames.values()] == [pieces[number]]
    assert kept.past.lasting["held"] == {3 - number: pieces[3 - number]}
    kept.commits.abandon()
