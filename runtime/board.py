"""The board of splits: what of the input lies ready, and who reads what. Pure; the agent keeps it.

An instance claims one split, reads it, and releases it with what remains of it, if anything. The
board pulls splits from the source's iterator one by one as they are claimed, so an input may be
endless. Parts that came back are given out before new ones: they are the oldest.

Whoever asked in vain is remembered; the methods that bring news return these holders, who are to
be told to ask again. The input has **ended** when no split is left, none can come, and nobody
holds one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from anabranch.runtime.ends import Split

Holder = TypeVar("Holder", bound=Hashable)


class BoardError(RuntimeError):
    """A holder claimed or released out of turn: a bug in whoever speaks for it."""


class Board(Generic[Holder]):
    """`open`: splits may still be published after the iterator has ended, until `close`."""

    def __init__(self, splits: Iterator[Split], *, open: bool = False) -> None:
        self._splits: Iterator[Split] | None = splits
        self._fault: Exception | None = None
        self._open = open
        self._returned: deque[Split] = deque()
        self._held: dict[Holder, Split] = {}
        self._progress_held: dict[Holder, float] = {}
        self._hungry: dict[Holder, None] = {}
        self.progress = 0.0
        """How much has been read, in the unit of `Source.size`."""
        self.input_ended_early = False

    @property
    def ended(self) -> bool:
        return not (self._held or self._returned or self._open or self._splits is not None)

    @property
    def holders(self) -> tuple[Holder, ...]:
        return tuple(self._held)

    def holds(self, holder: Holder) -> Split | None:
        """The split that `holder` reads, as it was when claimed."""
        return self._held.get(holder)

    def claim(self, holder: Holder) -> Split | None:
        """The next split. None: ask again when told to, or never if `ended`.

        Raises `BoardError` if `holder` has one already, and what the source's iterator raises:
        then the rest of the input cannot be had, and the board never counts as ended.
        """
        if holder in self._held:
            raise BoardError(f"{holder} claims a split but holds {self._held[holder]}")
        split = self._returned.popleft() if self._returned else self._pull()
        if split is None:
            if not self.ended:
                self._hungry[holder] = None
            return None
        self._hungry.pop(holder, None)
        self._held[holder] = split
        self._progress_held[holder] = 0.0
        return split

    def advance(self, holder: Holder, amount: float) -> None:
        """`holder` has read on by `amount`; late news of one that holds nothing is ignored."""
        if holder in self._held:
            self._progress_held[holder] += amount
            self.progress += amount

    def release(
        self, holder: Holder, remainder: Split | None, progress: float = 0.0
    ) -> tuple[Holder, ...]:
        """`holder` is done with its split, apart from `remainder`.

        `progress`: how far it came on top of what it told by `advance`. Returns whom to tell.
        """
        if holder not in self._held:
            raise BoardError(f"{holder} releases a split but holds none")
        del self._held[holder], self._progress_held[holder]
        self.progress += progress
        if remainder is not None and not self.input_ended_early:
            self._returned.append(remainder)
        return self._news()

    def lost(self, holder: Holder) -> tuple[Holder, ...]:
        """`holder` has died: its whole split goes back. Returns whom to tell.

        What it had read of it will be read again; nothing tells how much of that was sent on.
        """
        self._hungry.pop(holder, None)
        if holder not in self._held:
            return ()
        split = self._held.pop(holder)
        self.progress -= self._progress_held.pop(holder)
        if not self.input_ended_early:
            self._returned.append(split)
        return self._news()

    def publish(self, split: Split) -> tuple[Holder, ...]:
        """A split that the source's iterator did not give. Returns whom to tell."""
        if not self._open:
            raise BoardError("a split is published on a board that has been closed")
        self._returned.append(split)
        return self._news()

    def close(self) -> tuple[Holder, ...]:
        """Nothing will be published any more. Returns whom to tell."""
        self._open = False
        return self._news()

    def end_input(self) -> tuple[Holder, ...]:
        """Act as if the input ended here: unread splits are dropped. Returns whom to tell.

        The holders have to be told elsewhere; what they bring back is dropped, too.
        """
        self.input_ended_early = True
        self._splits = None
        self._returned.clear()
        return self.close()

    def _pull(self) -> Split | None:
        if self._fault is not None:
            raise self._fault
        if self._splits is None:
            return None
        try:
            split = next(self._splits, None)
        except Exception as error:
            self._fault = error  # asked again, a generator would act as if it had ended
            raise
        if split is None:
            self._splits = None
        return split

    def _news(self) -> tuple[Holder, ...]:
        """Those who asked in vain, if there is something to say to them."""
        if not (self._returned or self.ended):
            return ()
        hungry = tuple(self._hungry)
        self._hungry.clear()
        return hungry
