"""Text files and files of JSON lines, plain or gzip-compressed, read by any number of instances.

A plain file is divided into splits of `split_bytes`; a compressed one is a single split, for it
can only be read from its beginning. What happens to a file after the run has begun: lines that
were appended are not read; a file that is gone, was replaced by another, cannot be opened or was
cut is a dead letter which says so, and the run goes on. What will pass, such as too many open files
or a file server that is away, is waited out.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from anabranch.runtime.ends import Chunk, DeadLetter, Reader, RunContext, Source, Split, passing
from anabranch.runtime.patience import Patience
from anabranch.runtime.payload import describe
from anabranch.runtime.sources.lines import Format, LineCutter, checked_encoding, checked_format
from anabranch.runtime.sources.patterns import find_files
from anabranch.runtime.sources.raw import GzipBytes, PlainBytes, beginning_of, is_gzip
from anabranch.runtime.sources.records import CsvForm, RecordCutter, csv_form
from anabranch.runtime.sources.wide import LOOK_BYTES, refuse_wide_text

SPLIT_BYTES = 4 * 2**20
_HELD_BYTES_MAX = 4 * 2**10
_HELD_BYTES_MAX_PACKED = 64 * 2**10
"""How much of an incomplete line a remainder carries along; of longer ones it is read again, for
which a compressed file has to be unpacked from its beginning."""


@dataclass(frozen=True)
class Files(Source):
    patterns: tuple[str, ...]
    format: Format = "text"
    encoding: str = "utf_8"
    split_bytes: int = SPLIT_BYTES
    form: CsvForm | None = None
    """What the records of CSV are given as; None: as text."""

    def prepare(self) -> None:
        for path in find_files(self.patterns):
            beginning = beginning_of(path, LOOK_BYTES)  # raises if it cannot be read
            refuse_wide_text(repr(path), beginning, self.encoding)

    def reads(self) -> Iterator[Path]:
        return map(Path, find_files(self.patterns))

    def splits(self) -> Iterator[Split]:
        for path in find_files(self.patterns):
            yield from self._splits_of(path)

    def _splits_of(self, path: str) -> Iterator[Split]:
        name = portable(path)
        try:
            status = os.stat(path)
            packed = is_gzip(path)
        except OSError:  # the reader of the split will say what is wrong with it, or wait
            yield {"path": name, "unseen": True, "start": 0, "end": None}
            return
        size = status.st_size
        file = {"path": name, "file": _identity(status)}
        if packed:
            yield {**file, "gzip": True, "start": 0, "end": size}
        elif not size:  # or unknown, as that of the files in /proc
            yield {**file, "start": 0, "end": None}
        elif self.format == "csv":  # in which a line end may be within quotes
            yield {**file, "start": 0, "end": size}
            return
        for start in range(0, 0 if packed else size, self.split_bytes):
            yield {**file, "start": start, "end": min(start + self.split_bytes, size)}

    def open(self, split: Split, context: RunContext) -> Reader:
        return FileReader(split, self, context)

    def size(self) -> float | None:
        """Bytes as they lie on the disk."""
        return float(sum(os.stat(path).st_size for path in find_files(self.patterns)))


def files(
    *patterns: str | Path,
    format: Format = "text",
    encoding: str = "utf-8",
    split_bytes: int = SPLIT_BYTES,
) -> Files:
    """Lines of all files that match any of the patterns, each file once, whatever links lead to it.

    A pattern is a path, a glob (`**` crosses folders) or a folder, which stands for the regular
    files in it whose names do not begin with a dot. A path that exists is no glob. `format`: "text"
    gives str without the line end; "jsonl" the value of each line, blank ones skipped; "csv" the
    text of each record, with the line ends within its quotes (see also `csv`). Files that begin as
    gzip files do are unpacked, whatever their names. A UTF-8 byte order mark is not part of the
    text.
    Raises `ValueError` for settings that make no sense.
    """
    if not patterns:
        raise ValueError("files: expected at least one path or pattern, such as 'texts/*.txt'")
    if split_bytes < 1:
        raise ValueError(f"files: split_bytes must be 1 or more, got {split_bytes}")
    names = tuple(os.fspath(p) for p in patterns)
    return Files(names, checked_format(format), checked_encoding(encoding), split_bytes)


def csv(
    *patterns: str | Path,
    header: bool | Sequence[str] = True,
    delimiter: str = ",",
    encoding: str = "utf-8",
) -> Files:
    """Records of CSV files, which are found as those of `files` are, as dicts by column name.

    `header`: the names are in the first record of each file, or are these; with False, records are
    lists. Values are str. A record may go over several lines within quotes; therefore each file is
    read by one instance. One that has more or fewer fields than there are names is a dead letter.
    Raises `ValueError` for settings that make no sense.
    """
    source = files(*patterns, format="csv", encoding=encoding)
    return replace(source, form=csv_form(header, delimiter))


def _identity(status: os.stat_result) -> list[int]:
    """What tells a file from another one that takes its name. Both are others then: a copy that is
    put back has the old time, lines that are appended leave the number."""
    return [status.st_ino, status.st_mtime_ns]


def portable(path: str) -> str | bytes:
    """A path as a split can carry it: bytes if its name is not Unicode."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path)
    return path


class FileReader(Reader):
    """One split of a file. Opens at the first read, so that whatever is wrong is a dead letter."""

    def __init__(self, split: Split, source: Files, context: RunContext) -> None:
        self._split = split
        self._context = context
        self._path = os.fsdecode(split["path"])
        self._packed = bool(split.get("gzip"))
        start, self._end = split["start"], split["end"]
        self._cutter = self._new_cutter(source, start)
        self._at = self._cutter.offset
        self._told = start
        if "state" in split:
            self._cutter.restore(split["state"])
            self._at, self._told = split["state"]["next"], split["told"]
        self._bytes: PlainBytes | GzipBytes | None = None

    def _new_cutter(self, source: Files, start: int) -> LineCutter:
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

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        cutter = self._cutter
        if cutter.done:
            return None
        try:
            block = await self._block_patiently(cutter.block_bytes(tuples_max, bytes_max))
        except (OSError, EOFError, zlib.error) as error:
            return self._give_up(describe(error))
        if block is None:
            return Chunk([], progress=self._progress())
        tuples, dead = cutter.feed(block, final=not block)
        if not block and not self._packed and self._end is not None and self._at < self._end:
            reason = f"ends at byte {self._at}, but had {self._end} when the run began"
            dead.append(DeadLetter(reason, None, self._path))
        return Chunk(tuples, dead, self._progress())

    def remainder(self) -> Split | None:
        if self._cutter.done:
            return None
        held_bytes_max = _HELD_BYTES_MAX_PACKED if self._packed else _HELD_BYTES_MAX
        return {**self._split, "state": self._cutter.state(held_bytes_max), "told": self._told}

    def close(self) -> None:
        if self._bytes is not None:
            self._bytes.close()

    async def _block_patiently(self, size: int) -> bytes | None:
        try:
            return self._block(size)
        except OSError as error:
            if not passing(error) or error.errno == errno.EIO:  # which may stay for ever
                raise
            return await self._block_later(size, error)

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
                self._packed = is_gzip(self._path)
            kind = GzipBytes if self._packed else PlainBytes
            self._bytes = kind(self._path, self._at)
            self._refuse_another(self._bytes.fileno())
        block = self._bytes.read(size)
        self._at += len(block or b"")
        return block

    def _refuse_another(self, fd: int) -> None:
        was = self._split.get("file")
        if was is not None and all(
            a != b for a, b in zip(was, _identity(os.fstat(fd)), strict=True)
        ):
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
