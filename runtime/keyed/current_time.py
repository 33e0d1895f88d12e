"""Time as the tuple or timer in work meets it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from anabranch.runtime.keyed.handler import KeyTime
from anabranch.runtime.values.foreign import shown, type_name


class SetTimer(NamedTuple):
    """`at` is None for a timer that is cancelled."""

    name: str
    at: float | None
    processing: bool


class IsLate(NamedTuple):
    item: Any
    by_s: float


class Present(KeyTime):
    """Collects what a handler requests (`said`), to be done once its call has ended well."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self.watermark = self.reached = -math.inf
        self.said: list[SetTimer | IsLate] = []
        self._wall = wall

    @property
    def now(self) -> float:  # type: ignore[override]  # asked only when a function needs it
        return self._wall()

    def set_timer(self, at: float, name: str = "", *, processing: bool = False) -> None:
        name, processing = _checked(name, processing)
        self.said.append(SetTimer(name, _seconds(name, at), processing))

    def cancel_timer(self, name: str = "", *, processing: bool = False) -> None:
        name, processing = _checked(name, processing)
        self.said.append(SetTimer(name, None, processing))

    def late(self, item: Any, by_s: float) -> None:
        self.said.append(IsLate(item, by_s))


def _checked(name: Any, processing: Any) -> tuple[str, bool]:
    """Timers are found by their names and written to journals: nothing but texts will do."""
    if not isinstance(name, str):
        raise TypeError(f"timer {shown(name)}: expected a name of type str, got {type_name(name)}")
    if not isinstance(processing, bool):
        raise TypeError(
            f"timer {shown(name)}: expected processing=True or False, got {shown(processing)}"
        )
    return str.__str__(name), processing


def _seconds(name: str, at: Any) -> float:
    try:
        if isinstance(at, (str, bytes, bytearray, bool)):
            raise TypeError(f"{type_name(at)} is no number of seconds")
        seconds = float(at)
    except (TypeError, ValueError, OverflowError) as error:
        raise type(error)(
            f"timer {shown(name)}: expected a time in seconds, got {shown(at)}: {error}"
        ) from None
    if math.isnan(seconds):
        raise ValueError(f"timer {shown(name)}: expected a time in seconds, got nan")
    return seconds
