"""Text to feed: the files that a user names, or what every Python carries of its documentation.

`stage` lays it out as a folder of equal parts, which a streaming reader takes one by one, and
repeats it until there is enough of it.
"""

from __future__ import annotations

import gzip
import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

PART = "part-{:05d}.txt"


@dataclass(frozen=True, slots=True)
class Corpus:
    """A staged text of `lines`, of which `broken` are no UTF-8. `repeats`: how often it was
    written, 1 if not repeated."""

    folder: Path
    lines: int
    broken: int
    parts: int
    repeats: int

    def read(self, every: int = 1) -> Iterator[str]:
        """Its lines in order without their ends, or each `every`-th; broken ones are left out."""
        paths = sorted(self.folder.glob("part-*.txt"))
        lines = itertools.chain.from_iterable(p.read_bytes()[:-1].split(b"\n") for p in paths)
        for line in itertools.islice(lines, 0, None, every):
            text = _text(line)
            if text is not None:
                yield text


def documentation() -> Iterator[bytes]:
    """The lines of the language reference that `help()` shows, some 11,000."""
    from pydoc_data.topics import topics

    for topic in topics.values():
        yield from (line.encode() for line in topic.splitlines())


def lines_of(paths: Sequence[Path]) -> Iterator[bytes]:
    """The lines of files, plain or .gz; they may end with LF, CR LF or CR."""
    for path in paths:
        with _opened(path) as lines:
            for line in lines:
                yield line.removesuffix("\n").encode("latin-1")


def stage(
    lines: Callable[[], Iterable[bytes]], folder: Path, *, lines_min: int, part_lines: int = 10_000
) -> Corpus:
    """Write what `lines` gives into `folder`, which is emptied first.

    `lines` is called again until there are `lines_min` lines. Raises `ValueError` if it gives
    none at all.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    counted = _Counted(lines, lines_min)
    parts = 0
    stream = iter(counted)
    while part := list(itertools.islice(stream, part_lines)):
        (folder / PART.format(parts)).write_bytes(b"\n".join(part) + b"\n")
        parts += 1
    if not counted.lines:
        raise ValueError("there is no line of text to feed")
    return Corpus(folder, counted.lines, counted.broken, parts, counted.repeats)


class _Counted:
    """The lines again and again, whole, until there are enough."""

    def __init__(self, lines: Callable[[], Iterable[bytes]], lines_min: int) -> None:
        self._source = lines
        self._lines_min = lines_min
        self.lines = 0
        self.broken = 0
        self.repeats = 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            before = self.lines
            self.repeats += 1
            for line in self._source():
                self.lines += 1
                self.broken += _text(line) is None
                yield line
            if self.lines == before or self.lines >= self._lines_min:
                return


def _text(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _opened(path: Path) -> TextIO:
    # Latin-1 carries every byte through unchanged, and text mode knows all line ends.
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="latin-1")
    return open(path, encoding="latin-1")
