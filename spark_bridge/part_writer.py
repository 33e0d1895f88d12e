"""One part of the log of results, as the sink instance sees it that writes it, over all its
incarnations.

What is appended under a number is noted before: where it begins and how long it is. So the next
incarnation of an instance that died finds out what became of it, goes on in the same part, and
appends only what is missing. A reader beside it never sees a row change or go.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.store import File
from anabranch.runtime.storage.slots import is_marked, mark_slot, read_slots, write_slot
from anabranch.spark_bridge.durable import make_folder
from anabranch.spark_bridge.frames import rows_of
from anabranch.spark_bridge.log import CLOSED_FILE, LogError, segment_name, segments


class Noted(NamedTuple):
    """What is appended last, and where: in the segment that begins with row `segment`."""

    part: str
    number: int = 0
    segment: int = 0
    start: int = 0
    length: int = 0
    rows_before: int = 0
    rows: int = 0


class PartWriter:
    """Appends to the part of `instance`, made if this is its first incarnation. Not shared.

    `note`: file that outlives the processes of a run and knows what the last incarnation did;
    `sync`: to return from `put` only when the results are on the disk.
    """

    def __init__(
        self, folder: Path, instance: str, note: Path, segment_bytes_max: int, *, sync: bool = False
    ) -> None:
        self._segment_bytes_max = segment_bytes_max
        self._sync = sync
        self._file: File | None = None
        self._segment = self._segment_bytes = 0
        self._whole = False
        """Whether what was put last is there."""
        self._certain = False
        """Whether that has been looked at closely: after power is lost there may be zeros."""
        make_folder(note.parent)
        self._note_path = note
        self._note = store().open(note, os.O_RDWR | os.O_CREAT)
        try:
            if sync:
                store().sync_folder(note.parent)
            found = read_slots(self._note)
            self._sequence, self._last = 0, Noted("")
            if found is not None:
                self._sequence, self._last = found[0], Noted(*json.loads(found[1]))
            self.folder = folder / self._last.part
            if found is None or not self._may_go_on():
                self._begin_part(folder, instance)
            self._open_newest()
        except BaseException:
            self._close_handles()
            raise

    @property
    def number(self) -> int:
        """The last one of which everything is there."""
        return self._last.number if self._whole else self._last.number - 1

    @property
    def rows(self) -> int:
        return self._last.rows_before + self._last.rows * self._whole

    def put(self, number: int, frames: bytes) -> int:
        """Append frames under this number unless they are there; returns how many bytes.

        Raises `OSError` if not all could be written; to be tried again with the same.
        """
        if number < self._last.number or (number == self._last.number and self._certain):
            return 0
        if number > self._last.number:
            if number != self.number + 1:
                raise LogError(
                    f"{self._note_path} is not as it was left: it lacks piece {self.number + 1:,} "
                    f"of what was put into {self.folder.parent}; put it back as it was and resume "
                    "the run, or begin a new one"
                )
            if self._segment_bytes and self._segment_bytes + len(frames) > self._segment_bytes_max:
                self.roll()
            here = (self._segment, self._segment_bytes, len(frames), self.rows)
            self._take_note(Noted(self.folder.name, number, *here, rows_of(frames)))
        try:
            self._append(frames)
        except OSError as error:
            raise OSError(
                error.errno, f"cannot write results: {error.strerror}", str(self.folder)
            ) from error
        return len(frames)

    def roll(self) -> None:
        """Begin a new segment, so that the full one can be deleted once acknowledged."""
        if self._segment_bytes and self._whole:
            segment = self.rows
            following = self._new_segment(segment)
            self._opened.close()
            self._file, self._segment, self._segment_bytes = following, segment, 0

    def close(self) -> None:
        if self._file is not None and self._whole:
            store().open(self.folder / CLOSED_FILE, os.O_WRONLY | os.O_CREAT).close()
        self._close_handles()

    def _close_handles(self) -> None:
        self._note.close()
        if self._file is not None:
            self._file.close()
        self._file = None

    @property
    def _opened(self) -> File:
        assert self._file is not None
        return self._file

    def _may_go_on(self) -> bool:
        """Not once a reader may take the part for complete, or has deleted it."""
        return store().is_folder(self.folder) and not store().exists(self.folder / CLOSED_FILE)

    def _begin_part(self, folder: Path, instance: str) -> None:
        """The numbers go on in it. All of the last part was there: it was closed."""
        self.folder = _new_part(folder, instance)
        self._new_segment(0).close()
        self._take_note(Noted(self.folder.name, self._last.number))

    def _open_newest(self) -> None:
        self._segment, name = list(segments(self.folder))[-1]
        self._file = store().open(self.folder / name, os.O_RDWR | os.O_APPEND)
        self._segment_bytes = self._file.status().st_size
        last = self._last
        self._check_length(last)
        # The full one was whole, or no new one would have been begun.
        self._certain = self._segment > last.segment or not last.length
        self._whole = self._certain or self._segment_bytes >= last.start + last.length

    def _check_length(self, last: Noted) -> None:
        """Raises `LogError` if what was there for certain is not any more."""
        if self._segment != last.segment:
            return
        was_whole = is_marked(self._note, self._sequence)
        least = last.start + (last.length if was_whole else 0)
        if self._segment_bytes < least:
            path = self.folder / segment_name(self._segment)
            raise LogError(
                f"{path} has lost its last rows: it has {self._segment_bytes:,} bytes, but had "
                f"{least:,} or more; put it back and resume the run, or begin a new one"
            )

    def _take_note(self, noted: Noted) -> None:
        self._sequence += 1
        write_slot(self._note, self._sequence, json.dumps(noted).encode())
        if self._sync:
            self._note.sync()
        self._last, self._whole, self._certain = noted, False, False

    def _append(self, frames: bytes) -> None:
        """Whatever is missing of the frames behind the place that is noted for them."""
        start, file = self._last.start, self._opened
        there = file.read(len(frames), start)
        if not frames.startswith(there):  # power was lost, which leaves zeros
            file.truncate(start)
            there = b""
        if rest := frames[len(there) :]:
            file.append(rest)
        if self._sync:
            file.sync()
        self._segment_bytes = start + len(frames)
        self._whole = self._certain = True
        mark_slot(self._note, self._sequence)

    def _new_segment(self, first_row: int) -> File:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND
        file = store().open(self.folder / segment_name(first_row), flags)
        if self._sync:
            store().sync_folder(self.folder)
        return file


def _new_part(folder: Path, instance: str) -> Path:
    """A folder that no instance of this or an earlier run has used."""
    for number in range(1, 100_000):
        path = folder / (instance if number == 1 else f"{instance}-{number}")
        if not store().exists(path):
            make_folder(path)
            return path
    raise LogError(f"{folder} has too many parts of {instance}")
