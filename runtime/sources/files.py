"""Text files and files of JSON lines, plain or gzip-compressed, read by any number of instances.

A plain file is divided into splits of `split_bytes`; a compressed one is a single split, for it
can only be read from its beginning; small files that lie beside each other are one split
together (`groups`). What happens to a file after the run has begun: lines that
were appended are not read; a file that is gone, was replaced by another, cannot be opened or was
cut is a dead letter with this reason, and the run goes on. What will pass, such as too many open
files or a file server that is away, is waited out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from anabranch.runtime.plan.ends import Reader, RunContext, Source, Split
from anabranch.runtime.sources.file_reader import FileReader
from anabranch.runtime.sources.groups import GroupReader, files_in, groups_of, split_of
from anabranch.runtime.sources.lines import Format, checked_encoding, checked_format
from anabranch.runtime.sources.listing import FoundFile, Listing
from anabranch.runtime.sources.records import CsvForm, csv_form
from anabranch.runtime.values.path_names import path_name

SPLIT_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Files(Source):
    patterns: tuple[str, ...]
    format: Format = "text"
    encoding: str = "utf_8"
    split_bytes: int = SPLIT_BYTES
    form: CsvForm | None = None
    """What the records of CSV are given as; None: as text."""

    _listing: Listing = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_listing", Listing(self.patterns))

    def prepare(self) -> None:
        self._listing.check(self.encoding)

    def reads(self) -> Iterator[Path]:
        return map(Path, self._listing.look())

    def splits(self) -> Iterator[Split]:
        return self._splits(self._listing.take())

    def _splits(self, files: Iterator[FoundFile]) -> Iterator[Split]:
        for group in groups_of(files, self.split_bytes):
            if len(group) > 1:
                yield split_of(group)
            else:
                yield from self._splits_of(group[0])

    def _splits_of(self, file: FoundFile) -> Iterator[Split]:
        # In CSV a line end may be within quotes.
        if not file.size or file.packed is not False or self.format == "csv":
            yield file.whole
            return
        for start in range(0, file.size, self.split_bytes):
            yield file.split(start, min(start + self.split_bytes, file.size))

    def found(self) -> list[FoundFile]:
        """The files that are there now, in their order. Raises as `prepare` does."""
        return [*self._listing.take()]

    def open(self, split: Split, context: RunContext) -> Reader:
        kind = GroupReader if "list" in split else FileReader
        return kind(split, self, context)

    def parts(self, split: Split) -> list[Split]:
        return [file.whole for file in files_in(split)] or [split]

    def size(self) -> float | None:
        """Bytes as they lie on the disk."""
        return float(self._listing.size)


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
    if type(split_bytes) is not int or split_bytes < 1:
        raise ValueError(f"files: split_bytes must be 1 or more, and whole, got {split_bytes!r}")
    names = tuple(path_name(pattern, "files") for pattern in patterns)
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
