"""The lifetime of a process in virtual time: what it has asked for dies with it, or waits while it
is stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.runtime.simulation.clock import Clock

Asked = tuple[Callable[[Any], None], Any]


class IncarnationClock:
    """The clock of one incarnation. `over`: it has died, and nothing it asked for is done any more.
    `stopped_until_s`: it has been stopped, as by SIGSTOP, and goes on where it was."""

    __slots__ = ("_clock", "over", "stopped_until_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.over = False
        self.stopped_until_s = 0.0

    @property
    def now(self) -> float:
        return self._clock.now

    @property
    def stopped(self) -> bool:
        return self.stopped_until_s > self._clock.now

    def at(self, when_s: float, do: Callable[[Any], None], what: Any = None) -> None:
        self._clock.at(when_s, self._run, (do, what))

    def after(self, delay_s: float, do: Callable[[Any], None], what: Any = None) -> None:
        self._clock.at(self._clock.now + delay_s, self._run, (do, what))

    def _run(self, asked: Asked) -> None:
        if self.over:
            return
        if self.stopped_until_s > self._clock.now:
            self._clock.at(self.stopped_until_s, self._run, asked)
            return
        do, what = asked
        do(what)
