"""The snapshot that a segment of the journal begins with, piece by piece, so that nothing waits for
it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from anabranch.runtime.live.commit.draft import Draft
from anabranch.runtime.live.journal.journal import DRAWN, Journal
from anabranch.runtime.plan.ends import passing
from anabranch.runtime.ports import clock

Piece = tuple[str, bytes]
"""A change of this kind."""
Snapshots = Callable[[], Iterator[Piece]]
_DRAWN = DRAWN[0], b""


class SegmentSnapshot:
    """`draw`: gives all that is recorded by changes, piece by piece, while it changes."""

    draw: Snapshots

    def __init__(self, journal: Journal, draft: Draft) -> None:
        self._journal = journal
        self._draft = draft
        self._pieces: Iterator[Piece] | None = None

    @property
    def under_way(self) -> bool:
        return self._pieces is not None

    def begin(self) -> None:
        self._draft.begin_anew()
        self._pieces = itertools.chain(self.draw(), [_DRAWN])

    def go_on(self, telling_s: float) -> None:
        """After a commit: begin a new segment if the present one is full, or add to its snapshot.
        In long commits, which took so long to write what has changed, it must not take as many of
        them: the segment would grow and grow."""
        if self._pieces is None:
            if self._journal.full:
                self._begin_segment()
        elif not self._draft.whole:
            until = clock.thread_s() + telling_s
            while self._add(next(self._pieces, None)) and clock.thread_s() < until:
                pass

    def _begin_segment(self) -> None:
        try:
            self._journal.begin_segment()
        except OSError as error:
            if not passing(error):
                raise
        else:  # else the present one goes on meanwhile
            self.begin()

    def _add(self, piece: Piece | None) -> bool:
        """Whether the next piece may be in the same commit."""
        if piece is None:
            self._journal.snapshot_complete()
            self._pieces = None
            return False
        if piece == _DRAWN:
            self._draft.note(*DRAWN)
            return False
        self._draft.change(*piece)
        return True
