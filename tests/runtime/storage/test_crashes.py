"""Pieces that two instances append to one file, killed at each call to the disk, and after whatever
a loss of power leaves: their next incarnations put all of them again, and each is there once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.runtime.ports.disk import store, using
from anabranch.runtime.storage.shared_file import SharedFile, sidecar_path
from anabranch.runtime.storage.sidecar import Entry, Sidecar
from anabranch.runtime.world.disk import Killed, MemoryDisk, MemoryFile
from anabranch.runtime.world.disk_faults import Blow, DiskFaults
from tests.runtime.crashes import NotOutlived, make_lasting, try_all

RUN, TARGET = Path("/run"), Path("/results/out")
ORDER = [("a.0", 1), ("b.0", 1), ("b.0", 2), ("a.0", 2)]


def piece(owner: str, number: int) -> bytes:
    """Longer than a sector, so that a loss of power may leave a part of it."""
    return f"{owner} {number} ".encode() * 100 + b"\n"


class Putting:
    """`told`: the pieces that are there, as others have heard."""

    def __init__(self, power: bool, free: bool) -> None:
        self.power = power
        self.free = free
        self.told: list[bytes] = []

    def _files(self) -> dict[str, SharedFile]:
        side = sidecar_path(RUN, TARGET)
        return {
            owner: SharedFile(
                TARGET, side, owner, kind="results", durable=self.power, free=self.free
            )
            for owner in ("a.0", "b.0")
        }

    async def run(self) -> None:
        self.told = []
        make_lasting(RUN)
        make_lasting(TARGET.parent)
        files = self._files()
        for owner, number in ORDER:
            await files[owner].put(number, piece(owner, number))
            self.told.append(piece(owner, number))
        for file in files.values():
            file.close()

    async def check(self) -> None:
        make_lasting(RUN)
        make_lasting(TARGET.parent)
        found = store().read(TARGET) if store().exists(TARGET) else b""
        assert found.startswith(b"".join(self.told))
        files = self._files()
        for owner, number in sorted(ORDER):
            await files[owner].put(number, piece(owner, number))
        lines = store().read(TARGET).splitlines(keepends=True)
        for owner in files:
            assert [line for line in lines if line.startswith(owner.encode())] == [
                piece(owner, number) for number in (1, 2)
            ]
        assert len(lines) == len(ORDER)


@pytest.mark.parametrize("free", [False, True], ids=["results", "letters"])
@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
async def test_each_piece_is_there_once_after_every_crash(power: bool, free: bool) -> None:
    run = Putting(power, free)
    assert await try_all(run.run, run.check, power=power) > 40


Patch = pytest.MonkeyPatch
real_entry = Sidecar.write_entry


def notes_a_piece_without_a_sync(patch: Patch) -> None:
    patch.setattr(Sidecar, "_sync", lambda self: None)


def syncs_no_piece(patch: Patch) -> None:
    patch.setattr(MemoryFile, "sync", lambda self: None)


def calls_a_piece_whole_before_it_is_there(patch: Patch) -> None:
    def write(self: Sidecar, entry: Entry) -> None:
        real_entry(self, entry)
        self.mark_whole(entry)

    patch.setattr(Sidecar, "write_entry", write)


def notes_nothing_before_it_appends(patch: Patch) -> None:
    patch.setattr(Sidecar, "write_entry", lambda self, entry: None)
    patch.setattr(Sidecar, "mark_whole", real_entry)


def leaves_what_is_torn(patch: Patch) -> None:
    patch.setattr(MemoryFile, "truncate", lambda self, size: None)


@pytest.mark.parametrize(
    ("power", "broken"),
    [
        (True, notes_a_piece_without_a_sync),
        (True, syncs_no_piece),
        (False, calls_a_piece_whole_before_it_is_there),
        (False, notes_nothing_before_it_appends),
        (False, leaves_what_is_torn),
    ],
)
async def test_a_crash_finds_each_broken_variant(
    power: bool, broken: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    broken(monkeypatch)
    run = Putting(power, free=False)
    with pytest.raises(NotOutlived):
        await try_all(run.run, run.check, power=power)


class DiesAtItsSync(DiskFaults):
    """The first process dies when it is to sync the results."""

    def blow(self, process: str, call: str, path: Path, size: int) -> Blow | None:
        return Blow() if (process, call, path) == ("first", "sync", TARGET) else None


async def test_a_piece_that_was_not_synced_is_on_the_disk_before_it_counts() -> None:
    """Its putter has died meanwhile. The next incarnation notes that it was put, and power is
    lost."""
    disk = MemoryDisk(DiesAtItsSync())
    for process in ("first", "second"):
        with using(disk.store_of(process)):
            make_lasting(RUN)
            make_lasting(TARGET.parent)
            file = SharedFile(
                TARGET, sidecar_path(RUN, TARGET), "a.0", kind="results", durable=True
            )
            if process == "first":
                with pytest.raises(Killed):
                    await file.put(1, b"a.0 1\n")
            else:
                assert file.last_put() == 1
    disk.lose_power()
    assert disk.store_of("third").read(TARGET) == b"a.0 1\n"
