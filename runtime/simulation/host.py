"""Hosts: how fast they work, and how many can work on one at a time."""

from __future__ import annotations

import math


class Host:
    """`speed`: 1.0 does what costs a second in a second. Those that work share `cores`; `slowing`:
    how much more than their share those beyond `cores` cost each other.

    The share is settled when a piece of work begins and stays for that piece; pieces are short.
    """

    __slots__ = ("cores", "number", "slowing", "slowness", "speed", "working")

    def __init__(
        self, number: int, speed: float = 1.0, cores: float = math.inf, slowing: float = 0.0
    ) -> None:
        self.number = number
        self.speed = speed
        self.cores = cores
        self.slowing = slowing
        self.slowness = 1.0
        """A fault: everything takes so many times as long."""
        self.working = 0

    def begin(self, cost_s: float) -> float:
        """Begin a piece of work; returns how long it will take."""
        self.working += 1
        return cost_s * self.slowness * self.waiting / self.speed

    def end(self) -> None:
        self.working -= 1

    @property
    def waiting(self) -> float:
        """How many times longer a piece of work takes because others want the processors too."""
        over = max(1.0, self.working / self.cores)
        return over * (1 + self.slowing * (over - 1))
