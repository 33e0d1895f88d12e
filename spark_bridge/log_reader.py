"""The gateway's snapshot of one stream's log: how long each part is, and where its rows lie."""

from __future__ import annotations

import bisect
import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store
from anabranch.spark_bridge.frames import Frame, FrameError, head_at, payload_of
from anabranch.spark_bridge.log import CLOSED_FILE, segments
from anabranch.spark_bridge.wire import Refused

_DELETED_PREFIX = ".deleted-"
_SETTLED_NS = 100_000_000


class Slice(NamedTuple):
    """Rows `skip` to `skip + rows` of a frame's payload."""

    payload: bytes
    skip: int
    rows: int


@dataclass(slots=True)
class _Segment:
    path: Path
    first_row: int
    firsts: list[int] = field(default_factory=list)
    """Number of the first row of each frame; `frames[i]` says where it lies."""
    frames: list[Frame] = field(default_factory=list)
    end_row: int = 0
    end_byte: int = 0

    def extend(self) -> None:
        """Take note of the frames that were appended since the last time."""
        size = store().status(self.path).st_size
        if size == self.end_byte:
            return
        file = store().open(self.path, os.O_RDONLY)
        try:
            while frame := head_at(file, self.end_byte, size, self.path):
                self.firsts.append(self.end_row)
                self.frames.append(frame)
                self.end_row += frame.rows
                self.end_byte = frame.end
        finally:
            file.close()


@dataclass(slots=True)
class _Part:
    folder: Path
    segments: list[_Segment] = field(default_factory=list)
    listed_ns: int = 0
    """When the folder had changed at the last look; 0 to look in any case."""
    closed: bool = False
    complete: bool = False
    """Closed, and read to the end after that was known."""

    @property
    def first_row(self) -> int:
        return self.segments[0].first_row if self.segments else 0

    @property
    def end_row(self) -> int:
        return self.segments[-1].end_row if self.segments else 0

    def refresh(self) -> None:
        """Look for new segments and frames."""
        if self.complete:
            return
        known = self.segments[-1].first_row if self.segments else -1
        changed_ns = store().status(self.folder).st_mtime_ns
        if changed_ns != self.listed_ns:
            # A folder's clock ticks slowly: what changed just now may change again unseen.
            settled = clock.wall() * 1e9 - changed_ns > _SETTLED_NS
            self.listed_ns = changed_ns if settled else 0
            self.closed = store().exists(self.folder / CLOSED_FILE)
            self.segments.extend(
                _Segment(self.folder / name, first, end_row=first)
                for first, name in segments(self.folder)
                if first > known
            )
        following: _Segment | None = None
        for segment in reversed(self.segments):
            segment.extend()
            if following is not None and segment.end_row != following.first_row:
                missing = f"rows {segment.end_row:,} to {following.first_row:,}"
                raise FrameError(f"{segment.path} lacks {missing}: the file is damaged")
            following = segment
            if segment.first_row <= known:
                break  # all before were complete when this one was begun
        self.complete = self.closed


class StreamLog:
    """Reads one stream's folder. Cheap to refresh: looks only at what may have grown."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._parts: dict[str, _Part] = {}

    def refresh(self) -> None:
        for name in store().names(self.folder):
            path = self.folder / name
            if name.startswith(_DELETED_PREFIX):
                _remove(path)
            elif name not in self._parts and store().is_folder(path):
                self._parts[name] = _Part(path)
        for part in self._parts.values():
            part.refresh()

    def ends(self) -> dict[str, int]:
        """Rows of each part, counted from its beginning; parts without rows are left out."""
        return {name: p.end_row for name, p in sorted(self._parts.items()) if p.end_row}

    def begins(self) -> dict[str, int]:
        """The first row still there, of each part that has any."""
        return {name: p.first_row for name, p in sorted(self._parts.items()) if p.end_row}

    def slices(self, name: str, start: int, end: int) -> Iterator[Slice]:
        """The rows `start` to `end` of a part, the same at every call.

        Raises `Refused` ("range") if not all of them are there.
        """
        part = self._parts.get(name)
        if part is None or end > part.end_row or start > end:
            raise Refused(
                "range",
                f"rows {start} to {end} of {name}: there are {part.end_row if part else 0}; "
                "the offsets come from another log than this one",
            )
        if start < part.first_row:
            raise Refused(
                "range",
                f"rows {start} to {part.first_row} of {name} were acknowledged and deleted; "
                "if several queries collect one stream, give each its own `subscriber`",
            )
        return self._slices(part, start, end)

    def _slices(self, part: _Part, start: int, end: int) -> Iterator[Slice]:
        for segment in tuple(part.segments):  # an acknowledgement may delete older ones meanwhile
            if segment.end_row <= start or segment.first_row >= end:
                continue
            file = store().open(segment.path, os.O_RDONLY)
            try:
                at = max(bisect.bisect_right(segment.firsts, start) - 1, 0)
                while at < len(segment.frames) and segment.firsts[at] < end:
                    first, frame = segment.firsts[at], segment.frames[at]
                    skip = max(start - first, 0)
                    rows = min(end - first, frame.rows) - skip
                    yield Slice(payload_of(frame, file, segment.path), skip, rows)
                    at += 1
            finally:
                file.close()

    def drop_below(self, low: Mapping[str, int]) -> None:
        """Delete segments whose rows all lie below the given row of their part.

        The newest segment stays while its writer may append; a part that is complete goes whole.
        """
        for name, part in list(self._parts.items()):
            bound = low.get(name, 0)
            if part.complete and part.end_row <= bound:
                self._delete(name, part)
                continue
            while len(part.segments) > 1 and part.segments[0].end_row <= bound:
                store().remove(part.segments.pop(0).path)

    def _delete(self, name: str, part: _Part) -> None:
        # Renamed first, so that a crash cannot leave half a part that looks like a short one.
        doomed = part.folder.with_name(_DELETED_PREFIX + name)
        store().rename(part.folder, doomed)
        _remove(doomed)
        del self._parts[name]


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):  # it is tried again
        store().remove_folder(folder)
