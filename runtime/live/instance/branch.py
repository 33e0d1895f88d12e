"""The way to one downstream operator: what is held for it, and the channels that lead there."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from anabranch.protocol.ids import OperatorName
from anabranch.protocol.limits import Limits
from anabranch.protocol.ownership import Routes
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.instance.written import WrittenPieces
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.processing.flow import least_waiting
from anabranch.runtime.processing.marks import NO_MARK, Marked
from anabranch.runtime.processing.payload import Batch, Encoder
from anabranch.runtime.processing.salvage import decode_batch
from anabranch.runtime.values.line import Line

Act = Callable[["Branch"], None]
WORTH = 0.75
"""A batch that is encoded already goes out by itself if it has such a share of what may go: a
larger one costs the receiver less."""


@dataclass(slots=True)
class Epoch:
    """Results made between two marks: how many of them are still held, and what is to be done
    when none is left, nor any older one."""

    held: int = 0
    acts: list[Act] = field(default_factory=list)


class Epochs:
    """The order between results and statements about them, such as watermarks.

    Results of a keyed branch do not leave in the order in which they were made; what is stated
    about all made so far must wait for the last of them, and nothing needs to wait for it.
    """

    def __init__(self) -> None:
        self._epochs: deque[Epoch] = deque([Epoch()])

    @property
    def present(self) -> Epoch:
        return self._epochs[-1]

    def after(self, act: Act, branch: Branch) -> None:
        self.present.acts.append(act)
        self._epochs.append(Epoch())
        self.settle(branch)

    def settle(self, branch: Branch) -> None:
        """Do what is due."""
        epochs = self._epochs
        while len(epochs) > 1 and not epochs[0].held:
            for act in epochs.popleft().acts:
                act(branch)


@dataclass(slots=True)
class Segment:
    """Neighbouring results of one epoch, read at the same time."""

    tuples: int
    born: float
    epoch: Epoch


class Segments:
    """When held results were read, oldest first, and which epoch each belongs to."""

    def __init__(self) -> None:
        self._segments: deque[Segment] = deque()

    def add(self, tuples: int, born: float, epoch: Epoch) -> None:
        self._segments.append(Segment(tuples, born, epoch))
        epoch.held += tuples

    @property
    def born(self) -> float:
        """When the oldest of them was read."""
        return self._segments[0].born

    def parts(self) -> list[tuple[int, float, Epoch]]:
        return [(s.tuples, s.born, s.epoch) for s in self._segments]

    def take(self, n: int) -> float:
        """Let the first `n` go; returns when the oldest of them was read."""
        born = self._segments[0].born
        while n:
            first = self._segments[0]
            gone = min(n, first.tuples)
            first.tuples -= gone
            first.epoch.held -= gone
            n -= gone
            if not first.tuples:
                self._segments.popleft()
        return born


class Taken(NamedTuple):
    """Held results made ready to go. `tuples`: how many were taken."""

    tuples: int
    batches: list[Batch]
    dead: list[DeadLetter]
    born: float


class HeldLine:
    """Results that leave in their order. `over`: gets the numbers of their pieces in the journal
    that are not needed any more. `marked`: they have marks."""

    def __init__(self, over: list[int], *, marked: bool = False) -> None:
        self.tuples: Line[Any] = Line()
        self.marks: Line[float] = Line()
        self._marked = marked
        self.segments = Segments()
        self.written = WrittenPieces(over)

    def take(self, n: int) -> tuple[list[Any], list[float], float]:
        """The first `n` of them, their marks, and when the oldest was read."""
        taken = self.tuples.take(n)
        self.written.took(len(taken))
        return taken, self.marks.take(n), self.segments.take(len(taken))

    def part(self, start: int = 0, end: int | None = None) -> Sequence[Any]:
        """A copy of some of them, with their marks, which stay."""
        items = self._items(start, end)
        return Marked(items, self.marks.part(start, end)) if self._marked else items

    def _items(self, start: int, end: int | None) -> Sequence[Any]:
        """What is encoded of some of them."""
        return self.tuples.part(start, end)

    def ready(self, n: int) -> Batch | None:
        """The next of them, up to `n`, if they are encoded already, and worth a batch of their
        own."""
        batch = None if self._marked else self.written.whole
        if batch is None or batch.tuples > n:
            return None
        return batch if batch.tuples >= WORTH * min(n, len(self.tuples)) else None


class Branch(ABC):
    """`channels`: those that lead to instances of the operator. `marked`: tuples go there with
    their marks (`runtime.processing.marks`); `follows`: and the watermark here follows these."""

    def __init__(self, operator: OperatorName, limits: Limits, *, marked: bool = False) -> None:
        self.operator = operator
        self.marked = marked
        self.follows = False
        self.encoder = self._encoder(limits)
        self.over: list[int] = []
        """Numbers of pieces in the journal that are sent."""
        self.channels: tuple[Channel, ...] = ()
        self.epochs = Epochs()

    @property
    @abstractmethod
    def held(self) -> int:
        """Tuples held."""

    def _encoder(self, limits: Limits) -> Encoder:
        return Encoder(limits)

    def decode(self, data: bytes | memoryview, count: int) -> tuple[list[Any], list[DeadLetter]]:
        """The tuples of a batch without its marks, as it was encoded here."""
        return decode_batch(data, count)

    @abstractmethod
    def change_view(self, channels: tuple[Channel, ...], routes: Routes) -> None: ...

    @abstractmethod
    def hold(
        self, tuples: list[Any], born: float, marks: list[float] | None = None
    ) -> list[DeadLetter]:
        """Keep results; returns those that have no way to go."""

    def _marks_of(self, tuples: list[Any], marks: list[float] | None) -> list[float]:
        """What is held along with tuples."""
        if not self.marked:
            return []
        return [NO_MARK] * len(tuples) if marks is None else marks

    def _with_marks(self, tuples: Sequence[Any], marks: list[float]) -> Sequence[Any]:
        if not self.marked:
            return tuples
        return Marked(tuples, marks, follows=self.in_order, by_key=self.follows)

    def mix(self) -> None:  # noqa: B027 - only where there are several queues
        """What is held was that of another incarnation, and perhaps not in its order."""

    @property
    def in_order(self) -> bool:
        """Whether the marks of what goes out next, on any channel, are none before those that went
        out there."""
        return self.follows

    @abstractmethod
    def lines(self) -> Iterable[HeldLine]:
        """All that is held; those of one key are in one of them, in their order."""

    @abstractmethod
    def next_channel(self, rng: random.Random) -> Channel | None:
        """Where the next batch goes; None if nothing is held for a successor that has credit."""

    @abstractmethod
    def take(self, channel: Channel, n: int) -> Taken:
        """The first `n` results held for this channel, encoded."""


class SharedBranch(Branch):
    """Any instance of the operator may have any tuple."""

    def __init__(self, operator: OperatorName, limits: Limits, *, marked: bool = False) -> None:
        super().__init__(operator, limits, marked=marked)
        self._line = HeldLine(self.over, marked=marked)

    @property
    def held(self) -> int:
        return len(self._line.tuples)

    def change_view(self, channels: tuple[Channel, ...], routes: Routes) -> None:
        self.channels = channels

    def lines(self) -> Iterable[HeldLine]:
        return (self._line,)

    def hold(
        self, tuples: list[Any], born: float, marks: list[float] | None = None
    ) -> list[DeadLetter]:
        self._line.tuples.extend(tuples)
        self._line.marks.extend(self._marks_of(tuples, marks))
        self._line.segments.add(len(tuples), born, self.epochs.present)
        return []

    def next_channel(self, rng: random.Random) -> Channel | None:
        return least_waiting(self.channels, rng) if self.held else None

    def take(self, channel: Channel, n: int) -> Taken:
        ready = self._line.ready(n)
        taken, marks, born = self._line.take(n if ready is None else ready.tuples)
        if ready is not None:
            return Taken(ready.tuples, [ready], [], born)
        batches, dead = self.encoder.encode_batches(self._with_marks(taken, marks))
        return Taken(len(taken), batches, dead, born)
