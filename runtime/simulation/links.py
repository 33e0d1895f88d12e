"""What carries frames: paths between hosts, and connections with a lane in each direction.

A lane is FIFO by construction: frames lie in one queue, and an arrival takes the head of it,
however long its own frame was meant to travel.
"""

from __future__ import annotations

import math
import random
from collections import deque
from typing import TYPE_CHECKING, Any

from anabranch.runtime.simulation.clock import Clock

if TYPE_CHECKING:
    from anabranch.runtime.simulation.channel import Channel

Frame = tuple[Any, ...]
STRAGGLER = 25.0
"""How much longer than usual a straggling frame takes."""


class Path:
    """From one host to another, or within one.

    `latency_s`: one way. `jitter`: up to so much longer, as a share. `straggling`: share of the
    frames that take much longer. `tuples_per_s`: bandwidth, shared by all connections.
    """

    __slots__ = (
        "_free_s",
        "_random",
        "clogged_until_s",
        "down_until_s",
        "jitter",
        "latency_s",
        "straggling",
        "tuples_per_s",
    )

    def __init__(
        self,
        rng: random.Random,
        latency_s: float,
        jitter: float = 0.0,
        straggling: float = 0.0,
        tuples_per_s: float = math.inf,
    ) -> None:
        self.latency_s = latency_s
        self.jitter = jitter
        self.straggling = straggling
        self.tuples_per_s = tuples_per_s
        self.clogged_until_s = 0.0
        """Nothing arrives before; nothing is lost."""
        self.down_until_s = 0.0
        """No connection can be made before."""
        self._free_s = 0.0
        self._random = rng.random

    def arrival_s(self, now_s: float, tuples: int) -> float:
        """When something that is sent now will be there."""
        chance = self._random()
        delay_s = self.latency_s * (1 + self.jitter * chance)
        if chance < self.straggling:
            delay_s *= STRAGGLER
        if tuples and self.tuples_per_s < math.inf:
            now_s = self._free_s = max(now_s, self._free_s) + tuples / self.tuples_per_s
        return now_s + delay_s


class Lane:
    """One direction of a connection."""

    __slots__ = ("_clock", "_frames", "_last_s", "_path", "cut", "end", "wire")

    def __init__(self, clock: Clock, path: Path, end: Channel, wire: Wire) -> None:
        self.end = end
        self.wire = wire
        self.cut = False
        self._clock = clock
        self._path = path
        self._frames: deque[Frame] = deque()
        self._last_s = 0.0

    def write(self, frame: Frame, tuples: int = 0) -> None:
        """Never blocks. What is written to a cut lane is lost, and the writer does not know."""
        if self.cut:
            return
        due_s = self._path.arrival_s(self._clock.now, tuples)
        if due_s < self._last_s:
            due_s = self._last_s
        self._last_s = due_s
        self._frames.append(frame)
        self._clock.at(due_s, self._arrive)

    def _arrive(self, _: None) -> None:
        if self.cut:
            return
        open_s = max(self._path.clogged_until_s, self.end.owner.deaf_until_s)
        if open_s > self._clock.now:
            self._clock.at(open_s, self._arrive)
            return
        self.end.take(self.wire, self._frames.popleft())


class Wire:
    """A connection: `forth` from the dialer to the listener, `back` the other way."""

    __slots__ = ("back", "forth")

    def __init__(self, clock: Clock, dialer: Channel, listener: Channel) -> None:
        there, here = listener.owner, dialer.owner
        self.forth = Lane(clock, here.world.path(here, there), listener, self)
        self.back = Lane(clock, here.world.path(there, here), dialer, self)
