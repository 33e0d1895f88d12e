"""Reads one file, or a part of it: lines or records, and dead letters for whatever is wrong."""

from __future__ import annotations

import errno
import os
import stat
import zlib
from typing import Protocol

from anabranch.runtime.plan.ends import Chunk, DeadLetter, Reader, RunContext, Split, passing
from anabranch.runtime.processing.payload import describe
from anabranch.runtime.sources.lines import Format, LineCutter
from anabranch.runtime.sources.listing import identity
from anabranch.runtime.sources.raw import GzipBytes, PlainBytes, is_gzip
from anabranch.runtime.sources.records import CsvForm, RecordCutter
from anabranch.runtime.storage.patience import Patience

_HELD_BYTES_MAX = 4 * 2**10
_HELD_BYTES_MAX_PACKED = 64 * 2**10
"""How much of an incomplete line a remainder carries along; of longer ones it is read again, for
which a compressed file has to be unpacked from its beginning."""


class Written(Protocol):
    """How the files of a source are written."""

    @property
    def format(self) -> Format: ...
    @property
    def encoding(self) -> str: ...
    @property
    def form(self) -> CsvForm | None: ...


class FileReader(Reader):
    """One split of a file. Opens at the first read, so that whatever is wrong is a dead letter."""

    def __init__(self, split: Split, source: Written, context: RunContext) -> None:
        self._split = split
        self._context = context
        self._path = os.fsdecode(split["path"])
        """As the user has named it."""
        self._place = os.path.join(context.folder, self._path)
        self._packed = bool(split.get("gzip"))
        start, self._end = split["start"], split["end"]
        self._cutter = self._new_cutter(source, start)
        self.at = self._cutter.offset
        """Position of the next byte to be read, unpacked."""
        self._told = start
        if "state" in split:
            self._cutter.restore(split["state"])
            self.at, self._told = split["state"]["next"], split["told"]
        self._bytes: PlainBytes | GzipBytes | None = None

    def _new_cutter(self, source: Written, start: int) -> LineCutter:
        limits, encoding = self._context.limits, source.encoding
        end = None if self._packed else self._end
        if source.format == "csv":
            return RecordCutter(
                self._path, encoding=encoding, limits=limits, end=end, form=source.form
            )
        # From within a file, look one byte back: an LF there means that a row begins at `start`.
        seek_row = start > 0
        return LineCutter(
            self._path,
            format=source.format,
            encoding=encoding,
            limits=limits,
            offset=start - seek_row,
            line=None if seek_row else 0,
            end=end,
            seek_row=seek_row,
        )

    @property
    def ended(self) -> bool:
        """Whether all of it is read, or given up."""
        return self._cutter.done

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        try:
            return self.read_at_once(tuples_max, bytes_max)
        except OSError as error:
            return await self.read_later(tuples_max, bytes_max, error)

    def read_at_once(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        """As `read`, which waits where this raises an `OSError`: what will pass."""
        if self._cutter.done:
            return None
        try:
            block = self._block(self._cutter.block_bytes(tuples_max, bytes_max))
        except OSError as error:
            if passing(error) and error.errno != errno.EIO:  # which may stay for ever
                raise
            return self._give_up(describe(error))
        except (EOFError, zlib.error) as error:
            return self._give_up(describe(error))
        return self._chunk(block)

    async def read_later(self, tuples_max: int, bytes_max: int, error: OSError) -> Chunk:
        """Wait until what was in the way of a read has passed."""
        size = self._cutter.block_bytes(tuples_max, bytes_max)
        try:
            block = await self._block_later(size, error)
        except (OSError, EOFError, zlib.error) as final:
            return self._give_up(describe(final))
        return self._chunk(block)

    def position(self) -> Split | None:
        """What a remainder has beside the split."""
        if self._cutter.done:
            return None
        held_bytes_max = _HELD_BYTES_MAX_PACKED if self._packed else _HELD_BYTES_MAX
        return {"state": self._cutter.state(held_bytes_max), "told": self._told}

    def remainder(self) -> Split | None:
        position = self.position()
        return None if position is None else {**self._split, **position}

    def close(self) -> None:
        if self._bytes is not None:
            self._bytes.close()

    def _chunk(self, block: bytes | None) -> Chunk:
        if block is None:
            return Chunk([], progress=self._progress())
        tuples, dead = self._cutter.feed(block, final=not block)
        if not block and not self._packed and self._end is not None and self.at < self._end:
            reason = f"ends at byte {self.at}, but had {self._end} when the run began"
            dead.append(DeadLetter(reason, None, self._path))
        return Chunk(tuples, dead, self._progress())

    async def _block_later(self, size: int, error: OSError) -> bytes | None:
        block: bytes | None = None

        async def again() -> None:
            nonlocal block
            block = self._block(size)

        await Patience(self._context.instance, self._context.note).outlast(again, error)
        return block

    def _block(self, size: int) -> bytes | None:
        """The next bytes, empty at the end of the file; None while the way to them is long."""
        if self._bytes is None:
            if self._split.get("unseen"):
                self._packed = is_gzip(self._place)
            kind = GzipBytes if self._packed else PlainBytes
            self._bytes = kind(self._place, self.at)
            self._refuse_another(self._bytes.fileno())
        block = self._bytes.read(size)
        self.at += len(block or b"")
        return block

    def _refuse_another(self, fd: int) -> None:
        was, status = self._split.get("file"), os.fstat(fd)
        is_another = was is not None and all(
            a != b for a, b in zip(was, identity(status), strict=True)
        )
        if is_another or not stat.S_ISREG(status.st_mode):
            raise OSError("another file has taken the place of the one that was to be read")

    def _give_up(self, reason: str) -> Chunk:
        self._cutter.done = True
        held = self._cutter.state()["held"] or None
        where = f"{self._path}, byte {self._cutter.offset}"
        return Chunk([], [DeadLetter(reason, held, where)], self._progress())

    def _progress(self) -> float:
        """On the disk, so that the splits of a file sum up to its size."""
        if self._end is None:
            return 0.0
        at = self._cutter.offset
        if self._packed:
            at = self._bytes.position if self._bytes else self._told
        at = self._end if self._cutter.done else max(self._told, min(at, self._end))
        advanced, self._told = at - self._told, at
        return float(advanced)
