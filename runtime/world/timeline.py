"""Virtual time, and what is due in it.

    turn of a loop ── its timers that are due, then all that was ready ──▶ it rests for what that
                                                                           took ──▶ next turn

Each process of a world has a loop of its own, as outside. They share one timeline, on which the
loop whose turn is due first comes first; between two turns time jumps. A turn takes some
microseconds, drawn from the seed, times how slow the process is just now: so processes overtake
each other as they do on a host, and one that only waits in a circle does not stop the time.

During a turn time stands, unless something lets it `pass_by`: then it passes for this loop alone.
What it does from there on, it does later than the others, which may have turns in between. Nothing
real is ever waited for.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterable
from typing import Protocol

from anabranch.runtime.world.threads import Threads

TURN_S = 5e-6
"""What a turn takes at least."""
TURN_MAX_S = 50e-6
WAITERS_TOLD_MAX = 20
_IN_TURN = -1.0
"""Stands for the time of the next turn while a loop has one: that is seen when it is over."""


class Deadlock(RuntimeError):
    """Everything waits, and nothing is left that could end it."""


class TooLong(RuntimeError):
    """The world goes on beyond the bound that it was given."""


class Turner(Protocol):
    """A loop as the timeline sees it."""

    due_at: float | None
    """When its turn is on the timeline; None: it is not."""
    free_at: float
    """When it has rested from its last turn."""
    slowness: float
    worked_s: float
    """Processor time."""

    def turn(self) -> None: ...
    def next_due(self) -> float | None:
        """When it has something to do, if by itself."""
        ...

    def waiters(self) -> Iterable[str]:
        """What waits in it, for the search for a fault."""
        ...


class Timeline:
    def __init__(self, rng: random.Random) -> None:
        self.now = 0.0
        self.turns = 0
        self.turn_s = TURN_S, TURN_MAX_S
        """What a turn takes: at least, and at most."""
        self.periodic = True
        """Whether time comes for what is done periodically."""
        self.threads: Threads | None = None
        """None: what is to be done in a thread is done in a turn."""
        self._rng = rng
        self._order = itertools.count()
        self._due: list[tuple[float, int, Turner]] = []
        self._loops: list[Turner] = []

    def add(self, loop: Turner) -> None:
        self._loops.append(loop)

    def remove(self, loop: Turner) -> None:
        """It has no turn any more."""
        loop.due_at = None
        self._loops.remove(loop)

    def wake(self, loop: Turner, at: float) -> None:
        """Let it have a turn at that time, or as soon as it has rested."""
        if at < loop.free_at:
            at = loop.free_at
        if at < self.now:
            at = self.now
        if at == math.inf:
            return  # it stands still
        if loop.due_at is None or at < loop.due_at:
            loop.due_at = at
            heapq.heappush(self._due, (at, next(self._order), loop))

    def pass_by(self, seconds: float) -> None:
        """Time passes within a turn, for the loop whose turn it is."""
        self.now += seconds

    def next_due(self) -> float:
        """When the next turn is due; +inf if there is none."""
        due = self._due
        while due and due[0][0] != due[0][2].due_at:
            heapq.heappop(due)  # it had an earlier turn, or has ended
        return due[0][0] if due else math.inf

    def run(
        self, is_over: Callable[[], bool], *, until_s: float = math.inf, turns_max: float = math.inf
    ) -> None:
        """Go on until `is_over`, which is asked after each turn. Raises `Deadlock`, and `TooLong`
        if that is not the case by `until_s`, or after so many turns."""
        while not is_over():
            at = self.next_due()
            if at == math.inf:
                raise Deadlock(self.told("nothing is left that could happen"))
            if at > until_s:
                raise TooLong(self.told(f"the world goes on after {until_s:g} s of its time"))
            if self.turns >= turns_max:
                raise TooLong(self.told(f"the world goes on after {turns_max:,} turns"))
            self.take_turn()

    def take_turn(self) -> None:
        """The next one, of which there must be one that is due."""
        at, _, loop = heapq.heappop(self._due)
        if at > self.now:
            self.now = at
        self.turns += 1
        began = self.now
        loop.due_at = _IN_TURN
        loop.turn()
        loop.due_at = None
        least, most = self.turn_s
        loop.free_at = self.now + (least + (most - least) * self._rng.random()) * loop.slowness
        loop.worked_s += loop.free_at - began
        self.now = began
        if (next_at := loop.next_due()) is not None:
            self.wake(loop, next_at)

    def told(self, what: str) -> str:
        waiters = [*itertools.chain.from_iterable(loop.waiters() for loop in self._loops)]
        shown = "; ".join(waiters[:WAITERS_TOLD_MAX])
        more = len(waiters) - WAITERS_TOLD_MAX
        return f"at {self.now:.6f} s {what}; waiting: {shown or 'nothing'}" + (
            f"; and {more} more" if more > 0 else ""
        )
