"""Whoever is killed at whichever moment, every piece is in the file once and whole."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch.runtime.plan.ends import passing
from anabranch.runtime.storage.shared_file import SharedFile, sidecar_path
from tests.runtime.dying import forked, survives
from tests.runtime.processes import PATIENCE_S

PIECES = 2
ENOUGH = "enough"


def opened(folder: Path, owner: str = "out.0", *, durable: bool = False) -> SharedFile:
    path = folder / "out"
    return SharedFile(path, sidecar_path(folder, path), owner, kind="results", durable=durable)


def piece(owner: str, number: int) -> bytes:
    return f"{owner} {number} {'x' * 80 * number}\n".encode() * 2


def text(folder: Path) -> str:
    return (folder / "out").read_text()


def append(folder: Path, data: bytes) -> None:
    with open(folder / "out", "ab") as file:
        file.write(data)


class Supervisor:
    """Instances that put their pieces in turn; what they could say of it outlives them."""

    def __init__(self, folder: Path, *owners: str, durable: bool = False) -> None:
        self.folder = folder
        self.owners = owners
        self.durable = durable

    def incarnation(self) -> None:
        files = {owner: opened(self.folder, owner, durable=self.durable) for owner in self.owners}
        for number in range(1, PIECES + 1):
            for owner, file in files.items():
                if number > self.noted(owner):
                    asyncio.run(file.put(number, piece(owner, number)))
                    self.note(owner)

    def noted(self, owner: str) -> int:
        path = self.folder / f"{owner}.noted"
        return path.stat().st_size if path.exists() else 0

    def note(self, owner: str) -> None:
        with open(self.folder / f"{owner}.noted", "ab") as file:
            file.write(b".")

    def expected(self) -> Counter[bytes]:
        return Counter(
            line
            for owner in self.owners
            for number in range(1, PIECES + 1)
            for line in piece(owner, number).splitlines()
        )


@pytest.mark.parametrize("durable", [False, True])
def test_a_death_at_any_point_leaves_every_piece_once_and_whole(
    tmp_path: Path, durable: bool
) -> None:
    points, died = 0, 0
    while True:
        folder = tmp_path / str(points)
        folder.mkdir()
        incarnations = Supervisor(folder, "out.0", "out.1", durable=durable)
        survived = survives(incarnations.incarnation, points)
        died += not survived
        # The survivors of a host go on before the dead one is resumed.
        Supervisor(folder, "out.1", durable=durable).incarnation()
        assert (
            Counter((folder / "out").read_bytes().splitlines())
            >= Supervisor(folder, "out.1").expected()
        )
        incarnations.incarnation()
        assert Counter((folder / "out").read_bytes().splitlines()) == incarnations.expected()
        if survived:
            break
        points += 1
    assert died > 30


@pytest.mark.parametrize("next_owner", ["out.0", "out.1"])
def test_half_a_piece_is_cut_off_by_the_next_that_asks_though_none_follows(
    tmp_path: Path, next_owner: str
) -> None:
    whole = [b"", piece("out.0", 1), piece("out.0", 1) + piece("out.0", 2)]
    points, torn = 0, 0
    while True:
        folder = tmp_path / str(points)
        folder.mkdir()

        def put_two(folder: Path = folder) -> None:
            file = opened(folder)
            for number in (1, 2):
                asyncio.run(file.put(number, piece("out.0", number)))

        survived = survives(put_two, points)
        out = folder / "out"
        torn += out.exists() and out.read_bytes() not in whole
        last = opened(folder, next_owner).last_put()
        assert out.read_bytes() in whole
        assert next_owner == "out.1" or out.read_bytes() == whole[last]
        if survived:
            break
        points += 1
    assert torn > 1


def test_one_that_dies_again_and_again_comes_to_its_end(tmp_path: Path) -> None:
    for points in range(12, 30, 3):  # enough for one piece in each incarnation
        folder = tmp_path / str(points)
        folder.mkdir()
        incarnations = Supervisor(folder, "out.0", "out.1")
        for _ in range(20):
            if survives(incarnations.incarnation, points):
                break
        assert Counter((folder / "out").read_bytes().splitlines()) == incarnations.expected()


def _write_many(folder: Path, owner: str, count: int) -> Callable[[], None]:
    """So many pieces at least, and until somebody says that it is enough."""

    def work() -> None:
        file = opened(folder, owner)

        async def main() -> None:
            number = file.last_put()
            while number < count or not (folder / ENOUGH).exists():
                number += 1
                await file.put(
                    number, b"".join(b"%s %d %d\n" % (owner.encode(), number, i) for i in range(50))
                )

        asyncio.run(main())

    return work


def test_processes_that_are_killed_while_others_write_lose_and_repeat_nothing(
    tmp_path: Path,
) -> None:
    owners, count, deaths = ("out.0", "out.1", "out.2"), 100, 12
    running = {forked(_write_many(tmp_path, o, count)): o for o in owners}
    path, killed, mark = tmp_path / "out", 0, 20_000
    while running:
        if killed < deaths and path.exists() and path.stat().st_size > mark:
            victim = list(running)[killed % len(running)]
            os.kill(victim, signal.SIGKILL)
            killed, mark = killed + 1, path.stat().st_size + 20_000
        if killed == deaths:
            (tmp_path / ENOUGH).touch()
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                owner = running.pop(pid)
                assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
                if os.WIFSIGNALED(status):
                    running[forked(_write_many(tmp_path, owner, count))] = owner
    lines = text(tmp_path).splitlines()
    for owner in owners:
        mine = [line for line in lines if line.startswith(owner)]
        pieces = len(mine) // 50
        assert pieces >= count
        assert mine == [
            f"{owner} {number} {i}" for number in range(1, pieces + 1) for i in range(50)
        ]


async def test_a_number_that_is_there_is_not_put_again(tmp_path: Path) -> None:
    file = opened(tmp_path)
    assert file.last_put() == 0
    await file.put(1, b"a\n")
    await file.put(1, b"other\n")
    await file.put(2, b"")
    file.close()
    again = opened(tmp_path)
    assert again.last_put() == 2
    await again.put(2, b"other\n")
    await again.put(3, b"b\n")
    assert text(tmp_path) == "a\nb\n"


async def test_a_piece_that_is_missing_before_the_next_one_is_told(tmp_path: Path) -> None:
    file = opened(tmp_path)
    await file.put(1, b"a\n")
    with pytest.raises(OSError, match=r"it lacks piece 2 of out\.0; put it back"):
        await file.put(3, b"c\n")


async def test_what_was_there_and_what_others_append_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("before\n")
    file = opened(tmp_path)
    await file.put(1, b"a\n")
    append(tmp_path, b"foreign\n")
    await file.put(2, b"b\n")
    file.close()
    append(tmp_path, b"foreign\n")
    again = opened(tmp_path)
    await again.put(2, b"b\n")
    await again.put(3, b"c\n")
    assert text(tmp_path).split() == ["before", "a", "foreign", "b", "foreign", "c"]


@pytest.mark.parametrize("foreign", [b"f\n", b"f" * 500 + b"\n"], ids=["shorter", "longer"])
def test_what_others_append_after_a_death_is_not_taken_for_its_piece(
    tmp_path: Path, foreign: bytes
) -> None:
    def incarnation() -> None:
        asyncio.run(opened(tmp_path).put(1, b"a" * 200 + b"\n"))

    points = 0
    while not _noted(tmp_path):
        assert not survives(incarnation, points)
        points += 1
    assert text(tmp_path) == ""
    append(tmp_path, foreign)
    opened(tmp_path, "out.1").put_next(b"b\n")
    incarnation()
    assert sorted(text(tmp_path).split()) == sorted([foreign.decode().strip(), "b", "a" * 200])


def _noted(folder: Path) -> bool:
    """Whether the sidecar names a piece that is to be appended."""
    sidecar = sidecar_path(folder, folder / "out")
    return sidecar.exists() and any(sidecar.read_bytes()[:1024])


async def test_a_file_that_somebody_removed_or_replaced_is_not_written_into_the_void(
    tmp_path: Path,
) -> None:
    file = opened(tmp_path)
    await file.put(1, b"a\n")
    (tmp_path / "out").rename(tmp_path / "moved")
    for _ in range(2):
        with pytest.raises(OSError, match=r"results: .*removed or renamed.*out'") as caught:
            await file.put(2, b"b\n")
        assert not passing(caught.value)
    with pytest.raises(OSError, match="removed or renamed"):
        await opened(tmp_path).put(2, b"b\n")
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").write_text("x\n")
    with pytest.raises(OSError, match="another file is in its place"):
        await file.put(2, b"b\n")
    (tmp_path / "moved").rename(tmp_path / "out")
    await file.put(2, b"b\n")
    assert text(tmp_path) == "a\nb\n"


async def test_a_file_that_was_cut_is_told_with_its_length(tmp_path: Path) -> None:
    file, other = opened(tmp_path), opened(tmp_path, "out.1")
    await file.put(1, b"a" * 100 + b"\n")
    await other.put(1, b"b\n")
    os.truncate(tmp_path / "out", 50)
    for one in (file, other, opened(tmp_path)):
        with pytest.raises(OSError, match="it has 50 bytes, but had 103 or more"):
            await one.put(2, b"c\n")


@pytest.mark.parametrize("own", [True, False])
async def test_a_cut_within_the_last_piece_is_told_when_its_putter_has_ended(
    tmp_path: Path, own: bool
) -> None:
    file = opened(tmp_path)
    await file.put(1, b"a\n")
    await file.put(2, b"b" * 100 + b"\n")
    file.close()
    os.truncate(tmp_path / "out", 50)
    next_incarnation = opened(tmp_path, "out.0" if own else "out.1")
    with pytest.raises(OSError, match="it has 50 bytes, but had 103 or more"):
        await next_incarnation.put(3 if own else 1, b"c\n")
    assert text(tmp_path) == "a\n" + "b" * 48


async def test_a_disk_that_was_full_leaves_no_half_line_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = opened(tmp_path)
    await file.put(1, b"a\n")
    real, tries = os.write, 0

    def full(fd: int, data: bytes) -> int:
        nonlocal tries
        tries += 1
        if tries % 2:
            return real(fd, data[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for _ in range(2):
        with pytest.raises(OSError, match="cannot write results: No space left") as caught:
            await file.put(2, b"second\n")
        assert passing(caught.value)
        assert text(tmp_path) == "a\n"
    monkeypatch.undo()
    await file.put(2, b"second\n")
    assert text(tmp_path) == "a\nsecond\n"


@pytest.mark.parametrize("durable", [False, True])
async def test_waiting_for_another_writer_does_not_block_the_loop(
    tmp_path: Path, durable: bool
) -> None:
    file = opened(tmp_path, durable=durable)
    await file.put(1, b"a\n")
    holder = os.open(tmp_path / "out", os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    waiting = asyncio.create_task(file.put(2, b"b\n"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    os.close(holder)
    await asyncio.wait_for(waiting, PATIENCE_S)
    assert text(tmp_path) == "a\nb\n"


async def test_a_durable_put_that_is_cancelled_has_ended_when_it_says_so(tmp_path: Path) -> None:
    file = opened(tmp_path, durable=True)
    file.open()
    putting = asyncio.create_task(file.put(1, b"a\n"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    file.close()
    again = opened(tmp_path)
    await again.put(1, b"a\n")
    assert text(tmp_path) == "a\n"


async def test_what_is_durable_is_on_the_disk_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, calls = opened(tmp_path, durable=True), []
    await file.put(1, b"a\n")
    names = {}
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            names[fd] = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue
    for name in ("write", "pwrite", "fsync"):
        real: Any = getattr(os, name)

        def noted(fd: int, *args: Any, _name: str = name, _real: Any = real) -> Any:
            if names.get(fd, "").startswith("out"):
                calls.append((_name, names[fd] == "out"))
            return _real(fd, *args)

        monkeypatch.setattr(os, name, noted)
    await file.put(2, b"b\n")
    noted_before = [("pwrite", False), ("fsync", False)]
    assert calls == [*noted_before, ("write", True), ("fsync", True), ("pwrite", False)]


@pytest.mark.parametrize("marked", [True, False])
async def test_lost_power_that_leaves_zeros_is_mended_unless_the_piece_was_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marked: bool
) -> None:
    if not marked:  # power went before its putter could say so
        monkeypatch.setattr("anabranch.runtime.storage.sidecar.mark_slot", lambda *_: None)
    file = opened(tmp_path)
    await file.put(1, b"a\n")
    await file.put(2, b"b" * 100 + b"\n")
    file.close()
    os.truncate(tmp_path / "out", 2)
    os.truncate(tmp_path / "out", 103)
    again = opened(tmp_path)
    if marked:
        with pytest.raises(OSError, match="its bytes 2 to 103 are not what was written"):
            again.last_put()
        return
    assert again.last_put() == 1
    await again.put(2, b"b" * 100 + b"\n")
    assert text(tmp_path) == "a\n" + "b" * 100 + "\n"


async def test_without_recording_anything_the_numbers_go_on(tmp_path: Path) -> None:
    for line in (b"a\n", b"b\n"):
        file = opened(tmp_path)
        file.put_next(line)
        file.put_next(line)
        file.close()
    assert text(tmp_path) == "a\na\nb\nb\n"


async def test_what_is_no_regular_file_is_written_as_it_is(tmp_path: Path) -> None:
    null = Path(os.devnull)
    file = SharedFile(null, sidecar_path(tmp_path, null), "out.0", kind="results")
    await file.put(1, b"a\n")
    assert file.last_put() == 0
    assert os.listdir(tmp_path) == []
    file.close()
