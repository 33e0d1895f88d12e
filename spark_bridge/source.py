"""The source that Spark feeds: `ab.spark.feed("lines")`.

Splits are not known beforehand: the gateway publishes them as Spark commits its batches. Each
names a spool file of encoded payloads; a reader hands them out, and deletes the file once it is
recorded that no instance has to read it again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.runtime.pipeline.names import check_name
from anabranch.runtime.plan.ends import Chunk, DeadLetter, Reader, RunContext, Source, Split
from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.store import File
from anabranch.runtime.processing.payload import PayloadError, decode
from anabranch.spark_bridge.frames import Frame, FrameError, head_at, payload_of
from anabranch.spark_bridge.gateway_ends import FeedEnd
from anabranch.spark_bridge.places import forget_ended
from anabranch.spark_bridge.service import GATEWAY, check_packages


@dataclass(frozen=True)
class SparkFeed(FeedEnd, Source):
    """Tuples that Spark writes to `stream`: text of a one-column DataFrame as `str`, rows of
    several columns as dicts by column name.

    `state`: folder to keep what was committed beyond one run (default: in the run's folder).
    `listen`: `host:port` of the gateway (default: 127.0.0.1, any port); all ends of a pipeline
    share one. Endless, until Spark's side says that the input is finished.
    """

    stream: str
    state: str | Path | None = None
    listen: str | None = None

    bounded = False
    scalable = True
    service = GATEWAY

    def __post_init__(self) -> None:
        check_name("stream", self.stream)

    def prepare(self) -> None:
        check_packages()
        if self.state is not None:
            forget_ended(Path(self.state))

    def splits(self) -> Iterator[Split]:
        return iter(())

    def open(self, split: Split, context: RunContext) -> SpoolReader:
        return SpoolReader(split)


class SpoolReader(Reader):
    """Reads a spool file from byte `at`, leaving out the first `skip` rows of its first frame.

    Raises `OSError` if the file is not there or damaged. Its remainder may have no rows: then the
    file still has to be deleted.
    """

    def __init__(self, split: Split) -> None:
        self._split = split
        self._path = Path(split["path"])
        self._file: File | None = None
        self._size = 0
        self._at: int = split["at"]
        self._skip: int = split["skip"]
        self._left: int = split["rows"]
        self._frame: Frame | None = None
        self._rows: list[Any] = []
        """The current frame's rows; those before `_skip` have been returned."""
        self._ended = False

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        frame = self._frame or self._next()
        if frame is None:
            self._ended = True
            return None
        wanted = max(1, min(tuples_max, bytes_max * frame.rows // max(frame.length, 1)))
        rows = self._rows[self._skip : self._skip + wanted]
        self._skip += len(rows)
        self._left -= len(rows)
        if self._skip >= frame.rows:
            self._frame, self._at, self._skip, self._rows = None, frame.end, 0, []
        if frame.dead:
            dead = [DeadLetter(reason, one, self._split["id"]) for one, reason in rows]
            return Chunk([], dead, len(rows))
        return Chunk(rows, progress=len(rows))

    def remainder(self) -> Split | None:
        if self._ended:
            return None
        return {**self._split, "at": self._at, "skip": self._skip, "rows": self._left}

    def done(self) -> None:
        self.close()
        # No other instance reads it: a split is held by one at a time.
        store().remove(self._path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> File:
        if self._file is not None:
            return self._file
        try:
            self._file = store().open(self._path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                error.errno,
                f"split {self._split['id']} has been read to its end before, or its file was "
                f"deleted; {self._left:,} rows are missing",
                str(self._path),
            ) from None
        self._size = self._file.status().st_size
        return self._file

    def _next(self) -> Frame | None:
        if self._left <= 0:
            return None
        file = self._opened()
        frame = head_at(file, self._at, self._size, self._path)
        if frame is None:
            raise FrameError(f"{self._path} is shorter than it was: {self._left} rows are missing")
        try:
            self._rows = decode(payload_of(frame, file, self._path))
        except PayloadError as error:
            raise FrameError(f"{self._path} at byte {self._at}: {error}") from None
        if len(self._rows) != frame.rows:
            raise FrameError(f"{self._path} at byte {self._at}: rows are missing in a frame")
        self._frame = frame
        return frame
