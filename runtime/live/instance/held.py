"""How results that are held get into the journal: once, in pieces, which go when they are sent.

    held    [ sent · · | piece 7 | piece 8 | new ]      at the end of a commit
    journal             7 anew, 8 stays,   9

So a commit costs what has changed in it, however much is held. The first piece, of which some may
be sent, is written anew under its number; there is one for each owner of keys at most. A piece is
encoded as the batch that it becomes: it goes out as it is, if all of it may go.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.runtime.processing.payload import Batch, Encoder

if TYPE_CHECKING:
    from anabranch.runtime.live.commit.commits import Commits
    from anabranch.runtime.live.instance.branch import Branch, HeldLine

HELD, ABOUT = "held", "about held"
"""Kinds of the pieces of a journal with results that are held, each as a batch, and with what there
is to know of each."""


class Piece(NamedTuple):
    """Neighbouring results in the journal. `data`: as a batch; empty if they cannot travel."""

    number: int
    tuples: int
    data: bytes


class Written:
    """The pieces of one line of results: how many `tuples` from its front they have, and whether
    some of the first piece are sent (`is_cut`). `over`: gets numbers of pieces that are sent."""

    def __init__(self, over: list[int]) -> None:
        self.tuples = 0
        self.is_cut = False
        self._over = over
        self._pieces: deque[Piece] = deque()

    def add(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self.tuples += piece.tuples

    @property
    def first(self) -> Piece:
        """The first piece, as far as its tuples are held."""
        return self._pieces[0]

    @property
    def whole(self) -> Batch | None:
        """The first piece, if all of it is held and can travel."""
        if self.is_cut or not self._pieces or not self._pieces[0].data:
            return None
        return Batch(self._pieces[0].tuples, self._pieces[0].data)

    def mend(self, data: bytes) -> None:
        """The first piece is encoded anew, without what is sent of it."""
        self._pieces[0] = self._pieces[0]._replace(data=data)
        self.is_cut = False

    def took(self, n: int) -> None:
        """The first `n` of the line have been sent."""
        n = min(n, self.tuples)
        self.tuples -= n
        while n:
            piece = self._pieces.popleft()
            if piece.tuples <= n:
                self._over.append(piece.number)
                self.is_cut = False
            else:
                self._pieces.appendleft(Piece(piece.number, piece.tuples - n, b""))
                self.is_cut = True
            n -= min(n, piece.tuples)

    def forget(self) -> None:
        """The line has become another one."""
        self.took(self.tuples)


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
    """What was told, in its order: `hold` and `bury` get the place of the branch first."""
    for number, data in sorted(lasting.get(HELD, {}).items()):
        index, born, count, reason = pickle.loads(lasting[ABOUT][number])
        if reason:
            bury(index, reason)
        else:
            hold(index, Batch(count, data), born)
