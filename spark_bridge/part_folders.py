"""Where the feed keeps parts of batches: under way, staged, and committed until they are read.

A part is received in a folder of its own below `incoming`, which has no use after a restart, and
moved below `parts` once it is complete. Until it is committed, a note there describes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store
from anabranch.spark_bridge.durable import make_folder
from anabranch.spark_bridge.feed_register import PartKey, StagedPart
from anabranch.spark_bridge.messages import Stage
from anabranch.spark_bridge.receiving import STAGE_FILE, StageNote, read_note


class PartFolders:
    """`folder`: of the feed. Paths of parts are relative to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._incoming = folder / "incoming"
        self._parts = folder / "parts"
        self._numbers = count()

    def begin(self) -> None:
        make_folder(self._parts)
        _remove(self._incoming)

    def new(self) -> Path:
        """For a part that begins to come in."""
        return self._incoming / f"{next(self._numbers):09d}"

    def take_in(self, source: Path, path: str) -> None:
        """Move a part to its place, where it stays if the power is lost."""
        disk, target = store(), self._folder / path
        disk.make_folder(target.parent, parents=True)
        _remove(target)  # the same attempt, sent once more
        disk.rename(source, target)
        for folder in (target.parent, target.parent.parent, self._parts):
            disk.sync_folder(folder)

    def staged(self, committed: Collection[str]) -> Iterator[StagedPart]:
        """Those that are complete, of a gateway that has ended; what else lies there goes."""
        for folder in [*_folders_below(self._parts, 3)]:
            path = str(folder.relative_to(self._folder))
            if path in committed:
                continue
            note = read_note(folder)
            if note is None:
                _remove(folder)
            else:
                yield staged(note, path)

    def forget_note(self, path: str) -> None:
        """It is committed."""
        store().remove(self._folder / path / STAGE_FILE)

    def remove(self, path: str) -> None:
        _remove(self._folder / path)

    def remove_empty(self) -> None:
        """To be called while nothing is taken in."""
        for depth in (3, 2, 1):
            for folder in [*_folders_below(self._parts, depth)]:
                if not store().names(folder):
                    _remove(folder)


def key_of(part: Stage | StageNote) -> PartKey:
    return PartKey(part.query, part.epoch, part.partition, part.token)


def staged(note: StageNote, path: str) -> StagedPart:
    return StagedPart(key_of(note), note.run, note.stream, path, note.files, clock.monotonic())


def path_of(key: PartKey) -> str:
    """Names come from outside: what they name is hashed, never part of a path."""
    query, token = (hashlib.sha256(t.encode()).hexdigest()[:16] for t in (key.query, key.token))
    return f"parts/{query}/{key.epoch}/{key.partition:05d}.{token}"


def _folders_below(folder: Path, depth: int) -> Iterator[Path]:
    """Those that lie so deep."""
    for name in sorted(store().names(folder)):
        path = folder / name
        if store().is_folder(path):
            if depth == 1:
                yield path
            else:
                yield from _folders_below(path, depth - 1)


def _remove(folder: Path) -> None:
    """What cannot be removed now is removed later, or with the state folder."""
    with suppress(OSError):
        store().remove_folder(folder)
