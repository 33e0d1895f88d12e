"""How results that are held get into the journal: once, in pieces, which go when they are sent.

    held    [ sent · · | piece 7 | piece 8 | new ]      at the end of a turn
    journal             7 anew, 8 stays,   9

So a turn costs what has changed in it, however much is held. The first piece, of which some may be
sent, is written anew under its number; there is one for each owner of keys at most.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anabranch.protocol.limits import Limits
from anabranch.runtime.payload import Batch, Encoder

if TYPE_CHECKING:
    from anabranch.runtime.live.branch import Branch, HeldLine
    from anabranch.runtime.live.turns import Turns

HELD = "held"
"""Kind of the pieces of a journal with results that are held."""
PIECE_TUPLES_MAX = 256


class Written:
    """The pieces of one line of results: how many `tuples` from its front they have, and whether
    some of the first piece are sent (`is_cut`). `over`: gets numbers of pieces that are sent."""

    def __init__(self, over: list[int]) -> None:
        self.tuples = 0
        self.is_cut = False
        self._over = over
        self._pieces: deque[tuple[int, int]] = deque()

    def add(self, number: int, tuples: int) -> None:
        self._pieces.append((number, tuples))
        self.tuples += tuples

    @property
    def first(self) -> tuple[int, int]:
        """Number of the first piece, and how many of its tuples are held."""
        return self._pieces[0]

    def took(self, n: int) -> None:
        """The first `n` of the line have been sent."""
        n = min(n, self.tuples)
        self.tuples -= n
        while n:
            number, tuples = self._pieces.popleft()
            if tuples <= n:
                self._over.append(number)
                self.is_cut = False
            else:
                self._pieces.appendleft((number, tuples - n))
                self.is_cut = True
            n -= min(n, tuples)

    def forget(self) -> None:
        """The line has become another one."""
        self.took(self.tuples)


class HeldMemory:
    """What is held for each branch, for the next life."""

    def __init__(self, branches: Sequence[Branch], limits: Limits) -> None:
        self._branches = branches
        fewer = min(PIECE_TUPLES_MAX, limits.batch_tuples_max)
        self._encoder = Encoder(replace(limits, batch_tuples_max=fewer))
        self._number = 0

    def tell(self, turns: Turns) -> None:
        """What has changed in this turn."""
        for index, branch in enumerate(self._branches):
            for number in branch.over:
                turns.drop(HELD, number)
            branch.over.clear()
            for line in branch.lines():
                self._tell_line(index, line, turns)

    def _tell_line(self, index: int, line: HeldLine, turns: Turns) -> None:
        written = line.written
        if written.is_cut:
            number, tuples = written.first
            (piece,) = self._pieces(line.part(0, tuples), whole=True)
            turns.keep(HELD, number, pickle.dumps((index, line.segments.born, *piece), 5))
            written.is_cut = False
        if written.tuples < len(line.tuples):
            for piece in self._pieces(line.part(written.tuples)):
                self._number += 1
                turns.keep(HELD, self._number, pickle.dumps((index, line.segments.born, *piece), 5))
                written.add(self._number, piece[0])

    def _pieces(
        self, tuples: Sequence[Any], *, whole: bool = False
    ) -> Iterator[tuple[int, bytes, str]]:
        """How many, their bytes, or why one cannot go anywhere. `whole`: they were one before."""
        if whole:
            yield len(tuples), self._encoder.encode(tuples), ""
            return
        batches, dead = self._encoder.encode_batches(tuples)
        if dead and len(tuples) > 1:  # its place among the others must be known
            half = len(tuples) // 2
            yield from self._pieces(tuples[:half])
            yield from self._pieces(tuples[half:])
            return
        for count, data in batches:
            yield count, data, ""
        for letter in dead:
            yield 1, b"", letter.reason


def remembered(
    pieces: dict[int, bytes],
    hold: Callable[[int, Batch, float], None],
    bury: Callable[[int, str], None],
) -> None:
    """What was told, in its order: `hold` and `bury` get the place of the branch first."""
    for number in sorted(pieces):
        index, born, count, data, reason = pickle.loads(pieces[number])
        if reason:
            bury(index, reason)
        else:
            hold(index, Batch(count, data), born)
