"""The board of splits: which are ready, and which instance reads which. Pure; the agent keeps it.

An instance claims one split, reads it, and releases it with what remains of it, if anything. The
board pulls splits from the source's iterator one by one as they are claimed, so an input may be
endless. Parts that came back are given out before new ones: they are the oldest.

Claims are numbered: the next process of an instance has no record of what the last one has sent. It
claims again what it holds, and releases again what it held.

The board remembers holders that got no split. Methods after which there may be one return these
holders, which then claim again. The input has **ended** when no split is left, none can come, and
no holder has one.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from anabranch.runtime.plan.ends import Split

Holder = TypeVar("Holder", bound=Hashable)


def digest_of(split: Split, before: int = 0) -> int:
    """CRC-32 of this split behind those with the digest `before`. Savepoints have it, so it is the
    same on processes and on Spark."""
    return zlib.crc32(msgspec.msgpack.encode(split), before)


class BoardError(RuntimeError):
    """A holder released a split that it does not hold, or a closed board got a split: a bug."""


@dataclass(slots=True)
class HeldSplit:
    """A split that a holder reads, as it was when claimed."""

    split: Split
    number: int
    progress: float = 0.0


class Board(Generic[Holder]):
    """`open`: splits may still be published after the iterator has ended, until `close`."""

    def __init__(self, splits: Iterator[Split], *, open: bool = False) -> None:
        self._splits: Iterator[Split] | None = splits
        self._fault: Exception | None = None
        self._open = open
        self.returned: deque[Split] = deque()
        self.unread: list[Split] = []
        """The rests of claims when the input was ended early."""
        self.held: dict[Holder, HeldSplit] = {}
        self.claims = 0
        self._hungry: dict[Holder, None] = {}
        self.progress = 0.0
        """How much has been read, in the unit of `Source.size`."""
        self.input_ended_early = False

    @property
    def ended(self) -> bool:
        return not (self.held or self.returned or self._open or self._splits is not None)

    def exhausted(self) -> bool:
        """Whether holders may learn that the input has ended. May pull a split from the iterator,
        which is then the next to be claimed."""
        if self.ended or self.input_ended_early:
            return True
        if self.held or self.returned or self._open:
            return False
        split = self._pull()
        if split is not None:
            self.returned.append(split)
        return split is None

    @property
    def holders(self) -> tuple[Holder, ...]:
        return tuple(self.held)

    def holds(self, holder: Holder) -> Split | None:
        """The split that `holder` reads, as it was when claimed."""
        held = self.held.get(holder)
        return None if held is None else held.split

    def number(self, holder: Holder) -> int:
        """Of the claim that `holder` has; 0 if it holds nothing."""
        held = self.held.get(holder)
        return 0 if held is None else held.number

    def claim(self, holder: Holder) -> Split | None:
        """The next split; a holder that has a split gets the same again, to read it from its start.
        None: there is none now, or never again if `ended`.

        Raises what the source's iterator raises: then the rest of the input cannot be read, and
        the board never counts as ended.
        """
        if holder in self.held:
            return self._again(holder)
        split = self.returned.popleft() if self.returned else self._pull()
        if split is None:
            if not self.ended:
                self._hungry[holder] = None
            return None
        self._hungry.pop(holder, None)
        self.claims += 1
        self.held[holder] = HeldSplit(split, self.claims)
        return split

    def advance(self, holder: Holder, progress: float, number: int = 0) -> None:
        """`holder` has read `progress` of its split in all. Ignored: progress of a claim (`number`)
        that it does not hold any more, and less progress than before, of a later process."""
        held = self.held.get(holder)
        if held is not None and number in (0, held.number) and progress > held.progress:
            self.progress += progress - held.progress
            held.progress = progress

    def release(
        self, holder: Holder, remainder: Split | None, progress: float = 0.0, number: int = 0
    ) -> tuple[Holder, ...]:
        """`holder` is done with its split, apart from `remainder`.

        `progress`: how much of the split it has read in all. `number`: of the claim that this ends;
        0: the one that it has. If it has another one, an earlier process of the holder has released
        this claim before, and nothing happens. Returns the holders that may claim again.
        """
        if number and number != self.number(holder):
            return ()
        if holder not in self.held:
            raise BoardError(f"{holder} releases a split but holds none")
        self.progress += progress - self.held.pop(holder).progress
        if remainder is not None:
            (self.unread if self.input_ended_early else self.returned).append(remainder)
        return self._news()

    def publish(self, split: Split) -> tuple[Holder, ...]:
        """Add a split that is not from the source's iterator. Returns holders that may claim."""
        if not self._open:
            raise BoardError("a split is published on a board that has been closed")
        self.returned.append(split)
        return self._news()

    def close(self) -> tuple[Holder, ...]:
        """Nothing will be published any more. Returns the holders that may claim again."""
        self._open = False
        return self._news()

    def end_input(self) -> tuple[Holder, ...]:
        """Act as if the input ended here: no holder gets another split. Returns holders that wait
        for one. Splits and remainders that come back from now on are `unread`.
        """
        self.input_ended_early = True
        self._splits = None
        self.unread += self.returned
        self.returned.clear()
        return self.close()

    def _again(self, holder: Holder) -> Split:
        held = self.held[holder]
        self.progress -= held.progress
        held.progress = 0.0
        return held.split

    def _pull(self) -> Split | None:
        if self._fault is not None:
            raise self._fault
        if self._splits is None:
            return None
        try:
            split = next(self._splits, None)
        except Exception as error:
            self._fault = error  # the generator would look as if it had ended
            raise
        if split is None:
            self._splits = None
        return split

    def _news(self) -> tuple[Holder, ...]:
        """Holders that wait for a split, if there is one or none can come any more."""
        if not (self.returned or self.ended):
            return ()
        hungry = tuple(self._hungry)
        self._hungry.clear()
        return hungry
