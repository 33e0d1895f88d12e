"""The gateway's snapshot of one stream's log: how long each part is, and where its rows lie."""

from __future__ import annotations

import bisect
import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

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
        if os.stat(self.path).st_size == self.end_byte:
            return
        handle = os.open(self.path, os.O_RDONLY)
        try:
            size = os.fstat(handle).st_size
            while frame := head_at(handle, self.end_byte, size, self.path):
                self.firsts.append(self.end_row)
                self.frames.append(frame)
                self.end_row += frame.rows
                self.end_byte = frame.end
        finally:
            os.close(handle)


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
        changed_ns = os.stat(self.folder).st_mtime_ns
        if changed_ns != self.listed_ns:
            # A folder's clock ticks slowly: what changed just now may change again unseen.
            settled = time.time_ns() - changed_ns > _SETTLED_NS
            self.listed_ns = changed_ns if settled else 0
            self.closed = (self.folder / CLOSED_FILE).exists()
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
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self.folder):
                if entry.name.startswith(_DELETED_PREFIX):
                    shutil.rmtree(entry.path, ignore_errors=True)
                elif entry.name not in self._parts and entry.is_dir():
                    self._parts[entry.name] = _Part(Path(entry.path))
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
            handle = os.open(segment.path, os.O_RDONLY)
            try:
                at = max(bisect.bisect_right(segment.firsts, start) - 1, 0)
                while at < len(segment.frames) and segment.firsts[at] < end:
                    first, frame = segment.firsts[at], segment.frames[at]
                    skip = max(start - first, 0)
                    rows = min(end - first, frame.rows) - skip
                    yield Slice(payload_of(frame, handle, segment.path), skip, rows)
                    at += 1
            finally:
                os.close(handle)

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
                part.segments.pop(0).path.unlink(missing_ok=True)

    def _delete(self, name: str, part: _Part) -> None:
        # Renamed first, so that a crash cannot leave half a part that looks like a short one.
        doomed = part.folder.with_name(_DELETED_PREFIX + name)
        part.folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
        del self._parts[name]
