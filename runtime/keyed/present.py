"""Time as the tuple or timer in work meets it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from anabranch.runtime.keyed.handler import KeyTime


class SetTimer(NamedTuple):
    """`at` is None for a timer that is cancelled."""

    name: str
    at: float | None
    processing: bool


class IsLate(NamedTuple):
    item: Any
    by_s: float


class Present(KeyTime):
    """Notes what a handler says (`said`), to be done once its call has ended well."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self.watermark = -math.inf
        self.said: list[SetTimer | IsLate] = []
        self._wall = wall

    @property
    def now(self) -> float:  # type: ignore[override]  # asked only when somebody wants to know
        return self._wall()

    def set_timer(self, at: float, name: str = "", *, processing: bool = False) -> None:
        at = float(at)
        if math.isnan(at):
            raise ValueError(f"timer {name!r}: expected a time in seconds, got nan")
        self.said.append(SetTimer(name, at, processing))

    def cancel_timer(self, name: str = "", *, processing: bool = False) -> None:
        self.said.append(SetTimer(name, None, processing))

    def late(self, item: Any, by_s: float) -> None:
        self.said.append(IsLate(item, by_s))
