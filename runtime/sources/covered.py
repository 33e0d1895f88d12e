"""Which files splits were handed out of, and how far: what a savepoint records of the input."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from anabranch.runtime.plan.ends import Split
from anabranch.runtime.sources.groups import files_in
from anabranch.runtime.sources.listing import FoundFile


@dataclass(frozen=True, slots=True)
class CoveredPart:
    """Of a file, as it was when it was found. `upto`: bytes that were handed out; None: up to its
    end, wherever that was. `file`: its identity then; None if it could not be opened."""

    upto: int | None
    file: tuple[int, int] | None
    packed: bool


class Covered:
    """Empty for sources that read no files."""

    def __init__(self, parts: Iterable[tuple[bytes, CoveredPart]] = ()) -> None:
        self._parts = dict(parts)

    def __iter__(self) -> Iterator[tuple[bytes, CoveredPart]]:
        """Paths as the system has them, in the order of reading."""
        return iter(self._parts.items())

    def with_splits(self, splits: Iterable[Split]) -> Covered:
        more = Covered(self)
        for split in splits:
            more.note(split)
        return more

    def note(self, split: Split) -> None:
        """A split was handed out."""
        if "list" in split:
            for found in files_in(split):
                self._parts[found.name] = _whole(found)
        elif "path" in split and "end" in split:
            file = split.get("file")
            identity = None if file is None else (file[0], file[1])
            part = CoveredPart(split["end"], identity, bool(split.get("gzip")))
            self._parts[os.fsencode(split["path"])] = part


def _whole(found: FoundFile) -> CoveredPart:
    split = found.whole
    return CoveredPart(
        split["end"], None if found.packed is None else found.file, bool(found.packed)
    )
