"""A savepoint, written where an older one is, with a death at each call to the disk, and with
whatever a loss of power leaves: what was told to be there is there, and whole."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.runtime.ports.disk import store, using
from anabranch.runtime.savepoint import folder
from anabranch.runtime.savepoint.folder import Columns, SavepointHead
from anabranch.runtime.world.disk import MemoryDisk, MemoryFile
from anabranch.runtime.world.disk_faults import ByChance
from tests.runtime.crashes import NotOutlived, make_lasting, try_all

PATH = Path("/state/savepoint")
STATE_FORMAT = 1


@pytest.fixture(autouse=True)
def one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are written alike, and each doubles the number of crashes."""
    monkeypatch.setattr(folder, "TABLES", {"splits": folder.TABLES["splits"]})


def head(name: str) -> SavepointHead:
    return SavepointHead(
        format=folder.FORMAT,
        state_format=STATE_FORMAT,
        version="1",
        pipeline=name,
        operators={},
        groups=8,
        passed_s=0.0,
        written_at="",
    )


def rows(name: str) -> Iterator[tuple[str, Columns]]:
    for n in range(3):
        yield (
            "splits",
            {
                "operator": [name] * 50,
                "place": [*range(50)],
                "split": [b"%d" % n] * 50,
                "split_text": ["x" * 100] * 50,
            },
        )


def write(name: str) -> None:
    folder.write(PATH, head(name), rows(name))


def whole() -> str:
    """Which one is there."""
    savepoint = folder.read(PATH, state_format=STATE_FORMAT)
    found = [*savepoint.each("splits")]
    assert len(found) == 150
    (name,) = {row["operator"] for row in found}
    assert name == savepoint.head.pipeline
    return str(name)


class Writing:
    """`told`: which one has been written."""

    def __init__(self) -> None:
        self.told = ""

    async def run(self) -> None:
        self.told = ""
        make_lasting(PATH.parent)
        for name in ("first", "second"):
            write(name)
            self.told = name

    async def check(self) -> None:
        make_lasting(PATH.parent)
        if folder.is_savepoint(PATH):
            assert whole() in ("first", "second")
        if self.told == "second":
            assert whole() == "second"
        write("third")
        assert whole() == "third"
        assert store().names(PATH.parent) == [PATH.name]


@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
async def test_a_savepoint_is_whole_after_every_crash_or_not_there(power: bool) -> None:
    writing = Writing()
    assert await try_all(writing.run, writing.check, power=power) > 20


async def test_without_a_sync_it_does_not_outlive_a_loss_of_power(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MemoryFile, "sync", lambda self: None)
    writing = Writing()
    with pytest.raises(NotOutlived):
        await try_all(writing.run, writing.check, power=True)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_full_disk_is_named_and_leaves_the_older_one(share: float) -> None:
    disk = MemoryDisk()
    with using(disk.store_of("one")):
        make_lasting(PATH.parent)
        before = disk.size
        write("first")
        disk.room = disk.size + int(share * (disk.size - before))
        with pytest.raises(OSError, match=r"No space left on device: '/state/savepoint'"):
            write("second")
        assert whole() == "first"
        assert store().names(PATH.parent) == [PATH.name]
        disk.room = None
        write("second")
        assert whole() == "second"


@pytest.mark.parametrize("seed", range(5))
def test_on_a_disk_that_refuses_much_one_comes_in_the_end(seed: int) -> None:
    disk = MemoryDisk()
    with using(disk.store_of("one")):
        make_lasting(PATH.parent)
        faults = disk.faults = ByChance(random.Random(seed), full=0.2, unsyncable=0.4)
        for _ in range(1_000):
            with contextlib.suppress(OSError):
                write("first")
                break
        faults.quiet = True
        assert whole() == "first"
        assert faults.met
