"""Key groups on their way to a new owner, in chunks between which everything else goes on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from anabranch.protocol.ownership import Group
from anabranch.runtime.simulation.keyed_state import Chunk, GroupState, Kept


class Leaving:
    """What goes to one owner, whole until the last chunk is sent: a next incarnation of the sender
    begins again with the first. `begun`: tuples that were handed out so far."""

    __slots__ = ("_chunks", "begun", "groups")

    def __init__(
        self, groups: dict[Group, tuple[GroupState, list[Kept]]], entries_max: int
    ) -> None:
        self.groups = groups
        self.begun = 0
        self._chunks = _numbered(
            chain.from_iterable(s.chunks(g, kept, entries_max) for g, (s, kept) in groups.items())
        )

    def next(self) -> Chunk | None:
        chunk = next(self._chunks, None)
        if chunk is not None:
            self.begun += len(chunk.kept)
        return chunk


def _numbered(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    for number, chunk in enumerate(chunks):
        yield chunk.as_first() if not number else chunk
