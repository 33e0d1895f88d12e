"""The way to one downstream operator: what is held for it, and the channels that lead there."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from anabranch.protocol.ids import OperatorName
from anabranch.protocol.limits import Limits
from anabranch.protocol.ownership import Routes
from anabranch.runtime.ends import DeadLetter
from anabranch.runtime.flow import least_waiting
from anabranch.runtime.live.channel import Channel
from anabranch.runtime.payload import Batch, Encoder

Act = Callable[["Branch"], None]


@dataclass(slots=True)
class Epoch:
    """Results made between two marks: how many of them are still held, and what is to be done
    when none is left, nor any older one."""

    held: int = 0
    acts: list[Act] = field(default_factory=list)


class Epochs:
    """The order between results and what is said about them, such as watermarks.

    Results of a keyed branch do not leave in the order in which they were made; what is said
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


class Held(NamedTuple):
    """What waits for a branch, as a journal has it. `dead`: why some of it cannot go anywhere."""

    born: float
    batches: list[Batch]
    dead: list[str]


class Branch(ABC):
    """`channels`: those that lead to instances of the operator."""

    def __init__(self, operator: OperatorName, limits: Limits) -> None:
        self.operator = operator
        self._plain = Encoder(limits)
        self._remembered: Held | None = None
        self.channels: tuple[Channel, ...] = ()
        self.epochs = Epochs()

    @property
    @abstractmethod
    def held(self) -> int:
        """Tuples held."""

    @abstractmethod
    def change_view(self, channels: tuple[Channel, ...], routes: Routes) -> None: ...

    @abstractmethod
    def hold(self, tuples: list[Any], born: float) -> list[DeadLetter]:
        """Keep results; returns those that have no way to go."""

    @abstractmethod
    def everything(self) -> tuple[list[Any], float]:
        """All that is held, those of one key in their order, and when the oldest was read."""

    def memory(self) -> Held | None:
        """What is held, encoded for the next life; None if nothing is."""
        if not self.held:
            return None
        if self._remembered is None:
            tuples, born = self.everything()
            batches, dead = self._plain.encode_batches(tuples)
            reasons = [letter.reason for letter in dead]
            self._remembered = Held(born, batches, reasons)
        return self._remembered

    @abstractmethod
    def next_channel(self, rng: random.Random) -> Channel | None:
        """To whom the next batch goes; None if nothing is held for anybody who has credit."""

    @abstractmethod
    def take(self, channel: Channel, n: int) -> Taken:
        """The first `n` results held for this channel, encoded."""


class SharedBranch(Branch):
    """Any instance of the operator may have any tuple."""

    def __init__(self, operator: OperatorName, limits: Limits) -> None:
        super().__init__(operator, limits)
        self._held: list[Any] = []
        self._segments = Segments()
        self._encoder = Encoder(limits)

    @property
    def held(self) -> int:
        return len(self._held)

    def change_view(self, channels: tuple[Channel, ...], routes: Routes) -> None:
        self.channels = channels

    def everything(self) -> tuple[list[Any], float]:
        return self._held, self._segments.born

    def hold(self, tuples: list[Any], born: float) -> list[DeadLetter]:
        self._remembered = None
        self._held += tuples
        self._segments.add(len(tuples), born, self.epochs.present)
        return []

    def next_channel(self, rng: random.Random) -> Channel | None:
        return least_waiting(self.channels, rng) if self._held else None

    def take(self, channel: Channel, n: int) -> Taken:
        self._remembered = None
        if n >= len(self._held):
            taken, self._held = self._held, []
        else:
            taken = self._held[:n]
            del self._held[:n]
        born = self._segments.take(len(taken))
        batches, dead = self._encoder.encode_batches(taken)
        return Taken(len(taken), batches, dead, born)
