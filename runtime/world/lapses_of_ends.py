"""What sources and sinks may neglect, and what a savepoint may lack."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from anabranch.runtime.live.agent import savepoints
from anabranch.runtime.live.agent.boards import Boards
from anabranch.runtime.live.agent.run_journal import BoardSnapshot
from anabranch.runtime.plan.ends import Split
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.descriptors import descriptors
from anabranch.runtime.ports.disk import store
from anabranch.runtime.savepoint import state_rows
from anabranch.runtime.sinks import parquet
from anabranch.runtime.sinks.parquet import ParquetWriter
from anabranch.runtime.sinks.stdout_lock import StdoutLock
from anabranch.runtime.sources.spool import Spool
from anabranch.runtime.sources.stdin import StdinReader
from anabranch.runtime.world.lapses import Lapse
from anabranch.runtime.world.lapses_of_channels import does_nothing

Method = Callable[..., Any]


# -- Parquet files -------------------------------------------------------------------------------


def _in_place(_right: Method) -> Method:
    def written(writer: ParquetWriter, stem: str, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        path = writer._folder / f"{stem}{parquet.SUFFIX}"
        with closing(store().open(path, flags, 0o666)) as file:
            file.append(data)
            file.sync()
        store().sync_folder(writer._folder)

    return written


def _unsynced(_right: Method) -> Method:
    def written(writer: ParquetWriter, stem: str, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        draft = writer._folder / f".{stem}.draft"
        with closing(store().open(draft, flags, 0o666)) as file:
            file.append(data)
        store().rename(draft, writer._folder / f"{stem}{parquet.SUFFIX}")
        store().sync_folder(writer._folder)

    return written


def _another_each_time(_right: Method) -> Method:
    def tag(_folder: Path) -> str:
        return clock.secret(4).hex()

    return tag


# -- savepoints ----------------------------------------------------------------------------------


def _nothing_left(restore: Method) -> Method:
    def without(boards: Boards, kept: BoardSnapshot, **how: Any) -> None:
        kept.returned.clear()
        restore(boards, kept, **how)

    return without


def _no_rows(_right: Method) -> Method:
    return lambda *_args, **_named: iter(())


def _all_to_one(_right: Method) -> Method:
    return lambda pipeline, _operator: dict.fromkeys(range(pipeline.groups), 0)


# -- standard input and output -------------------------------------------------------------------


def _from_the_beginning(remainder: Method) -> Method:
    def without_place(reader: StdinReader) -> Split | None:
        rest: Split | None = remainder(reader)
        return None if rest is None else {**rest, "stdin": None}

    return without_place


def _through_memory(_right: Method) -> Method:
    def moved(spool: Spool, source: int, size: int, at: int) -> int:
        block = descriptors().read(source, size)
        spool._into.write(block, at)
        return len(block)

    return moved


def _at_once(_right: Method) -> Method:
    @asynccontextmanager
    async def held(_lock: StdoutLock) -> AsyncIterator[None]:
        yield

    return held


def _never_torn(_right: Any) -> Any:
    return property(lambda lock: False)


LAPSES = (
    Lapse(
        "writes Parquet files in place",
        "a death leaves half a file under its name",
        ParquetWriter,
        "_write_file",
        _in_place,
        "parquet",
        crashes="all",
    ),
    Lapse(
        "does not sync Parquet files",
        "a loss of power leaves a name without its contents",
        ParquetWriter,
        "_write_file",
        _unsynced,
        "parquet",
        crashes="all",
    ),
    Lapse(
        "does not know its Parquet files again",
        "what an earlier incarnation has put is put once more, under another name",
        parquet,
        "_run_tag",
        _another_each_time,
        "parquet",
        crashes="all",
    ),
    Lapse(
        "reads standard input from the beginning",
        "the next incarnation does not know where the last one was",
        StdinReader,
        "remainder",
        _from_the_beginning,
        "stdio",
        crashes="all",
    ),
    Lapse(
        "takes standard input through memory",
        "what was read from the pipe and was not in the spool yet is lost with the process",
        Spool,
        "_move",
        _through_memory,
        "stdio",
        crashes="all",
    ),
    Lapse(
        "writes to standard output at any time",
        "where the file has no room, another sink writes into the middle of a line",
        StdoutLock,
        "held",
        _at_once,
        "stdio",
    ),
    Lapse(
        "does not end half a line",
        "what follows a line that a death has cut is in that line",
        StdoutLock,
        "is_torn",
        _never_torn,
        "stdio",
        crashes="all",
    ),
    Lapse(
        "begins without state",
        "a run that begins from a savepoint has none of its keys",
        savepoints,
        "lay_bases",
        does_nothing,
        "savepoints",
    ),
    Lapse(
        "reads its input again",
        "a run that begins from a savepoint reads from the beginning",
        savepoints,
        "restore_sources",
        does_nothing,
        "savepoints",
    ),
    Lapse(
        "loses what instances have given back",
        "of a part of the input that was begun, a savepoint does not have the rest",
        Boards,
        "restore",
        _nothing_left,
        "savepoints",
    ),
    Lapse(
        "saves no timers",
        "a run that begins from a savepoint calls no timer that was set before",
        state_rows,
        "_rows_of_timers",
        _no_rows,
        "savepoints",
    ),
    Lapse(
        "lays all state at one instance",
        "a savepoint is not spread over the owners of key groups",
        savepoints,
        "_owners",
        _all_to_one,
        "savepoints",
    ),
    Lapse(
        "saves no pins",
        "a run that begins from a savepoint does not know the numbers that a user has said",
        savepoints,
        "restore_pins",
        does_nothing,
        "savepoints",
    ),
)
