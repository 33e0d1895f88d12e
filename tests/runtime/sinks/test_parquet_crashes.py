"""Parquet files of two instances, killed at each call to the disk, and after whatever a loss of
power leaves: their next incarnations put all files again, and each is there once, and whole."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from anabranch.runtime.plan.ends import passing
from anabranch.runtime.ports.disk import store, using
from anabranch.runtime.sinks import parquet as parquet_sinks
from anabranch.runtime.sinks.parquet import ParquetWriter, file_of, parquet
from anabranch.runtime.world.disk import MemoryDisk, MemoryFile
from anabranch.runtime.world.disk_faults import Blow, ByChance, DiskFaults
from tests.runtime.crashes import NotOutlived, make_lasting, try_all
from tests.runtime.reading import context

RUN, ROWS = Path("/run"), Path("/results/rows")
ORDER = [("a.0", 1), ("b.0", 1), ("a.0", 2)]


def writer_of(instance: str) -> ParquetWriter:
    writer = parquet(ROWS).open(replace(context(), run_dir=RUN, instance=instance))
    assert isinstance(writer, ParquetWriter)
    return writer


@functools.cache
def data_of(instance: str, number: int) -> bytes:
    """More than a sector, so that a loss of power may leave a part of it."""
    return file_of([{"by": f"{instance} {number}", "more": "x" * 2_000}], None)[0]


def found() -> list[str]:
    """What a reader sees."""
    names = [name for name in sorted(store().names(ROWS)) if not name.startswith(".")]
    tables = [pq.read_table(io.BytesIO(store().read(ROWS / name))) for name in names]
    return sorted(row["by"] for table in tables for row in table.to_pylist())


class Putting:
    """`told`: the files that are there, as others have heard."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def run(self) -> None:
        self.told = []
        make_lasting(RUN)
        make_lasting(ROWS)
        for instance, number in ORDER:
            writer = writer_of(instance)
            await writer.put(number, data_of(instance, number))
            self.told.append(f"{instance} {number}")

    async def check(self) -> None:
        make_lasting(RUN)
        make_lasting(ROWS)
        assert {*self.told} <= {*found()}
        for instance, number in ORDER:
            writer = writer_of(instance)
            await writer.put(number, data_of(instance, number))
        assert found() == sorted(f"{instance} {number}" for instance, number in ORDER)
        assert len(store().names(ROWS)) == len(ORDER)


@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
async def test_each_file_is_there_once_after_every_crash(power: bool) -> None:
    putting = Putting()
    assert await try_all(putting.run, putting.check, power=power) > 30


Patch = pytest.MonkeyPatch


def syncs_no_file(patch: Patch) -> None:
    patch.setattr(MemoryFile, "sync", lambda self: None)


def forgets_its_name(patch: Patch) -> None:
    """As one that was only linked there: nothing of it is on the disk."""

    def written(path: Path, data: bytes) -> None:
        with contextlib.closing(store().open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)) as file:
            file.append(data)

    patch.setattr(parquet_sinks, "replace_file", written)


@pytest.mark.parametrize("broken", [syncs_no_file, forgets_its_name])
async def test_a_broken_variant_does_not_outlive_a_loss_of_power(
    broken: Any, monkeypatch: Patch
) -> None:
    broken(monkeypatch)
    putting = Putting()
    with pytest.raises(NotOutlived):
        await try_all(putting.run, putting.check, power=True)


async def test_a_full_disk_leaves_nothing_half_and_the_same_file_can_be_put_again() -> None:
    disk = MemoryDisk()
    with using(disk.store_of("one")):
        make_lasting(RUN)
        make_lasting(ROWS)
        writer = writer_of("a.0")
        data = data_of("a.0", 1)
        disk.room = disk.size + len(data) // 2
        with pytest.raises(OSError, match="cannot write results: No space left") as refused:
            await writer.put(1, data)
        assert passing(refused.value)
        assert store().names(ROWS) == []
        disk.room = None
        await writer.put(1, data)
        assert found() == ["a.0 1"]


class Unsyncable(DiskFaults):
    def blow(self, process: str, call: str, path: Path, size: int) -> Blow | None:
        return Blow(errno.EIO) if call == "sync" else None


async def test_a_file_that_cannot_be_synced_gets_no_name() -> None:
    disk = MemoryDisk()
    with using(disk.store_of("one")):
        make_lasting(RUN)
        make_lasting(ROWS)
        writer = writer_of("a.0")
        disk.faults = Unsyncable()
        with pytest.raises(OSError, match="cannot write results: Input/output error"):
            await writer.put(1, data_of("a.0", 1))
        assert store().names(ROWS) == []


@pytest.mark.parametrize("seed", range(5))
async def test_on_a_disk_that_refuses_much_each_file_comes_in_the_end(seed: int) -> None:
    disk = MemoryDisk()
    with using(disk.store_of("one")):
        make_lasting(RUN)
        make_lasting(ROWS)
        disk.faults = ByChance(random.Random(seed), full=0.3, unsyncable=0.3)
        left, writers = [*ORDER], dict[str, ParquetWriter]()
        for _ in range(1_000):
            instance, number = left[0]
            with contextlib.suppress(OSError):
                writer = writers[instance] = writers.get(instance) or writer_of(instance)
                await writer.put(number, data_of(instance, number))
                left.pop(0)
            if not left:
                break
        assert found() == sorted(f"{instance} {number}" for instance, number in ORDER)
