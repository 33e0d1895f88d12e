"""How results that are held get into the journal: once, in pieces, which go when they are sent.

    held    [ sent · · | piece 7 | piece 8 | new ]      at the end of a commit
    journal             7 anew, 8 stays,   9

So a commit costs what has changed in it, however much is held. The first piece, of which some may
be sent, is written anew under its number; there is one for each owner of keys at most. A piece is
encoded as the batch that it becomes: it goes out as it is, if all of it may go.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from anabranch.runtime.live.commit.commits import Commits
from anabranch.runtime.live.instance.branch import Branch, HeldLine
from anabranch.runtime.live.instance.written import Piece
from anabranch.runtime.processing.payload import Batch, Encoder

HELD, ABOUT = "held", "about held"
"""Kinds of the pieces of a journal with results that are held, each as a batch, and with what there
is to know of each."""


class HeldPieces:
    """What is held for each branch, for the next incarnation."""

    def __init__(self, branches: Sequence[Branch]) -> None:
        self._branches = branches
        self._number = 0

    def tell(self, commits: Commits) -> None:
        """What has changed in this commit."""
        for index, branch in enumerate(self._branches):
            for number in branch.over:
                commits.drop(HELD, number)
                commits.drop(ABOUT, number)
            branch.over.clear()
            for line in branch.lines():
                self._tell_line(index, line, branch.encoder, commits)

    def _tell_line(self, index: int, line: HeldLine, encoder: Encoder, commits: Commits) -> None:
        written = line.written

        def keep(piece: Piece, reason: str = "") -> None:
            about = index, line.segments.born, piece.tuples, reason
            commits.keep(ABOUT, piece.number, pickle.dumps(about, 5))
            commits.keep(HELD, piece.number, piece.data)

        if written.is_cut:
            written.mend(encoder.encode(line.part(0, written.first.tuples)))
            keep(written.first)
        if written.tuples < len(line.tuples):
            for tuples, data, reason in _encoded(line.part(written.tuples), encoder):
                self._number += 1
                piece = Piece(self._number, tuples, data)
                keep(piece, reason)
                written.add(piece)


def _encoded(tuples: Sequence[Any], encoder: Encoder) -> Iterator[tuple[int, bytes, str]]:
    """How many, their bytes, or why one cannot go anywhere."""
    batches, dead = encoder.encode_batches(tuples)
    if dead and len(tuples) > 1:  # its place among the others must be known
        half = len(tuples) // 2
        yield from _encoded(tuples[:half], encoder)
        yield from _encoded(tuples[half:], encoder)
        return
    for count, data in batches:
        yield count, data, ""
    for letter in dead:
        yield 1, b"", letter.reason


def restored(
    lasting: dict[str, dict[int, bytes]],
    hold: Callable[[int, Batch, float], None],
    bury: Callable[[int, str], None],
) -> None:
    """What was recorded, in its order: `hold` and `bury` get the place of the branch first."""
    for number, data in sorted(lasting.get(HELD, {}).items()):
        index, born, count, reason = pickle.loads(lasting[ABOUT][number])
        if reason:
            bury(index, reason)
        else:
            hold(index, Batch(count, data), born)
