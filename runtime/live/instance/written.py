"""What of a line of results is in the journal, piece by piece (`held`)."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from anabranch.runtime.processing.payload import Batch


class Piece(NamedTuple):
    """Neighbouring results in the journal. `data`: as a batch; empty if they cannot travel."""

    number: int
    tuples: int
    data: bytes


class WrittenPieces:
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
