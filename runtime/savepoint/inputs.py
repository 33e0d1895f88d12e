"""How far sources have read, so that a run elsewhere can go on behind it.

Splits are handed out in their order, and `pulled` with `digest` give how many of which. Of files
that is not enough: on another host they have other numbers, times and paths, and may lie in other
groups. So a savepoint has each file with its content, and the run that begins finds it again by
the pattern and the path behind that, looks whether the content is the same, and counts anew: behind
which of its own splits all these files lie, and what it has to read again of these.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from anabranch.runtime.keyed.parts import in_pieces
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Source, Split
from anabranch.runtime.plan.spec import Span
from anabranch.runtime.savepoint.folder import (
    ROWS_AT_ONCE,
    TABLES,
    Columns,
    Savepoint,
    SavepointError,
)
from anabranch.runtime.savepoint.state_rows import splits_left
from anabranch.runtime.sources.board import digest_of
from anabranch.runtime.sources.contents import Content, content_of
from anabranch.runtime.sources.covered import Covered, CoveredPart
from anabranch.runtime.sources.files import Files
from anabranch.runtime.sources.groups import files_in, split_of
from anabranch.runtime.sources.listing import FoundFile, identity
from anabranch.runtime.sources.patterns import Name, names_of

INPUT_ADVICE = "put it back as it was when the savepoint was written"
UNKNOWN = -1
"""In the place of a checksum: the file was gone, or was written to while it was read."""


@dataclass(frozen=True)
class Position:
    """Behind the first `pulled` splits of a source, apart from those which are `returned`.
    `covered`: the files of all these splits."""

    pulled: int = 0
    digest: int = 0
    returned: list[Split] = field(default_factory=list)
    covered: Covered = field(default_factory=Covered)

    def rest(self, name: str, source: Source) -> Iterator[Split]:
        """What is left to read. Raises `SavepointError` if the input is another one."""
        splits = source.splits()
        before = [*islice(splits, self.pulled)]
        if len(before) != self.pulled or _digest(before) != self.digest:
            raise another_input(name, self.pulled)
        return chain(self.returned, splits)

    def behind(self, taken: list[Split]) -> Position:
        """When the first splits of the rest have been read."""
        old = len(self.returned)
        new = taken[old:]
        return Position(
            self.pulled + len(new),
            _digest(new, self.digest),
            self.returned[len(taken) :],
            self.covered.with_splits(new),
        )


def is_backfill(span: Span | None) -> bool:
    """Whether a run has read other input than those that go on, or the same: these read theirs from
    the beginning, and leave out the span."""
    return span is not None and span.has_end


def another_input(name: str, pulled: int) -> SavepointError:
    return SavepointError(
        f"the input of source {name!r} has changed since: its first {pulled} parts are not what "
        f"they were; {INPUT_ADVICE}"
    )


def _digest(splits: Iterable[Split], digest: int = 0) -> int:
    for split in splits:
        digest = digest_of(split, digest)
    return digest


# -- at the end ----------------------------------------------------------------------------------


def rows_of_files(
    operator: str, source: Source | None, covered: Covered
) -> Iterator[tuple[str, Columns]]:
    """The files that were read."""
    if not isinstance(source, Files):
        return
    try:
        names = {os.fsencode(path): name for path, name in names_of(source.patterns).items()}
    except OSError:  # the folder is gone
        names = {}
    parts = dict(covered)
    for paths in in_pieces(parts, ROWS_AT_ONCE):
        rows = [_row(operator, path, parts[path], names.get(path)) for path in paths]
        yield "files", {column: [row[column] for row in rows] for column in TABLES["files"]}


def _row(operator: str, path: bytes, part: CoveredPart, name: Name | None) -> dict[str, Any]:
    content, size = _content(path, part)
    return {
        "operator": operator,
        "pattern": name.pattern if name is not None else UNKNOWN,
        "name": os.fsencode(name.path) if name is not None else b"",
        "path": path,
        "path_text": ascii(os.fsdecode(path))[1:-1],
        "upto": content.upto if content is not None else UNKNOWN,
        "size": size,
        "crc": content.crc if content is not None and name is not None else UNKNOWN,
    }


def _content(path: bytes, part: CoveredPart) -> tuple[Content | None, int]:
    """Of the part that was read, None if that is not known any more; and how long the file was
    when it was found, as far as that is known."""
    name = os.fsdecode(path)
    try:
        status = os.stat(name)
        unchanged = part.file == identity(status)
        if part.file is None or not _is_one_of(part.file, identity(status)):
            return None, UNKNOWN
        if part.upto is None and not unchanged:
            return None, UNKNOWN
        upto = status.st_size if part.upto is None else part.upto
        return content_of(name, upto), status.st_size if unchanged else UNKNOWN
    except OSError:
        return None, UNKNOWN


def _is_one_of(file: tuple[int, int], now: tuple[int, int]) -> bool:
    """As readers see it."""
    return any(a == b for a, b in zip(file, now, strict=True))


# -- at the beginning ----------------------------------------------------------------------------


def positions_of(pipeline: Pipeline, savepoint: Savepoint | None) -> dict[str, Position]:
    """By source, in the splits that there are here; none without a savepoint. Raises
    `SavepointError` that names a file which is not there, or is another one."""
    if savepoint is None:
        return {}
    left, files = splits_left(savepoint), _files_in(savepoint)
    sources = {str(o.name): o.source for o in pipeline.operators.values()}
    positions: dict[str, Position] = {}
    for row in savepoint.each("sources"):
        name, known = row["operator"], files.get(row["operator"], [])
        source, returned = sources[name], left.get(name, [])
        if isinstance(source, Files) and row["pulled"]:
            if not known:
                raise another_input(name, row["pulled"])
            positions[name] = _found_again(name, source, known, returned)
        else:
            positions[name] = Position(row["pulled"], row["digest"], returned)
    return positions


def _files_in(savepoint: Savepoint) -> dict[str, list[InputRead]]:
    """By source, in their order."""
    found: dict[str, list[InputRead]] = {}
    for row in savepoint.each("files"):
        name = Name(row["pattern"], os.fsdecode(row["name"]))
        read = InputRead(name, row["path"], row["path_text"], row["upto"], row["size"], row["crc"])
        found.setdefault(row["operator"], []).append(read)
    return found


@dataclass(frozen=True, slots=True)
class InputRead:
    """A file that was read: as the savepoint has it."""

    name: Name
    path: bytes
    text: str
    upto: int
    size: int
    crc: int

    @property
    def has_ended(self) -> bool:
        """Whether the part that was read may have been all of it."""
        return self.size in (self.upto, UNKNOWN)


def _found_again(
    name: str, source: Files, known: list[InputRead], returned: list[Split]
) -> Position:
    """Raises `SavepointError`."""
    names = {os.fsencode(path): name for path, name in names_of(source.patterns).items()}
    here = {names[found.name]: found for found in source.found() if found.name in names}
    moved: dict[bytes, FoundFile] = {}
    upto: dict[bytes, int] = {}
    for read in known:
        found = here.get(read.name)
        if why := _not_the_same(read, found, source):
            raise SavepointError(
                f"source {name!r}: the savepoint has read file {read.text!r}, and {why}; put it "
                "where the pattern finds it, as it was"
            )
        assert found is not None
        moved[read.path], upto[found.name] = found, read.upto
    back = [_moved(split, moved) for split in returned]
    sizes = {found.name: found.size for found in here.values()}
    for split in back:  # an empty file is read to its end, wherever that is
        left = islice(_parts(split), split.get("at", 0), None)
        upto.update({file.name: sizes[file.name] for file, _, end in left if end is None})
    return _behind(source, upto, back)


def _not_the_same(read: InputRead, found: FoundFile | None, source: Files) -> str:
    """Why a file is not the one that was read; empty if it is."""
    if read.crc == UNKNOWN:
        return "when it was written, that was gone or was being changed"
    if found is None:
        return "there is none of that name here"
    path = os.fsdecode(found.name)
    try:
        content, size = content_of(path, read.upto), os.stat(path).st_size
    except OSError as error:
        return f"{path!r} is not what it was: {error}"
    if content.crc != read.crc:
        return f"{path!r} has another content"
    if size > read.upto and read.has_ended:
        if found.packed or source.format == "csv":
            return f"{path!r} has grown from {read.upto} to {size} bytes"
        if not content.ends_line:
            return f"{path!r} has grown behind a line that had no end, at byte {read.upto}"
    return ""


def _moved(split: Split, files: Mapping[bytes, FoundFile]) -> Split:
    """What is left of a split, in the files here; no lines that came later are in it."""
    if "list" in split:
        members = [files[found.name]._replace(size=found.size) for found in files_in(split)]
        group = split_of(members)
        return {**split, **{key: group[key] for key in ("path", "list")}}
    found = files[os.fsencode(split["path"])]
    return {**split, "path": found.path, "file": [*found.file]}


def _behind(source: Files, upto: Mapping[bytes, int], returned: list[Split]) -> Position:
    """The position behind all splits that contain any of these files up to `upto`. What else these
    splits contain is returned, and still to be read."""
    waiting, pulled = dict(upto), list[Split]()
    for split in source.splits():
        if not waiting:
            break
        pulled.append(split)
        for found, start, end in _parts(split):
            at = upto.get(found.name, 0)
            if found.name not in upto or (end is not None and at < end):
                returned.append(found.split(max(start, at), end))
            if end is None or at <= end:
                waiting.pop(found.name, None)
    return Position(len(pulled), _digest(pulled), returned, Covered().with_splits(pulled))


def _parts(split: Split) -> Iterator[tuple[FoundFile, int, int | None]]:
    """The files of a split, each with where its part begins and ends."""
    if "list" in split:
        for found in files_in(split):
            yield found, 0, found.whole["end"]
    else:
        packed = None if split.get("unseen") else bool(split.get("gzip"))
        number, changed = split.get("file", (0, 0))
        found = FoundFile(os.fsencode(split["path"]), split["end"] or 0, (number, changed), packed)
        yield found, split["start"], split["end"]
