"""How a keyed operator is described in a pipeline: values, fixed before anything runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

LateRule = Literal["bury", "emit", "drop"]
LATE_RULES: tuple[LateRule, ...] = ("bury", "emit", "drop")


@dataclass(frozen=True, slots=True)
class KeyedEdge:
    """How tuples of one upstream operator find their key. `side`: 1 on the right of a join."""

    key: Callable[[Any], Any]
    side: int = 0


@dataclass(frozen=True, slots=True)
class Keyed:
    """What a keyed operator does. `make`: its `keyed.handler.Handler`, called once in each
    instance's process.

    `late`: what becomes of late tuples. `what`: for people, such as `fold` or `window 60 s`.
    """

    what: str
    make: Callable[[], Any]
    late: LateRule = "bury"
    makes_windows: bool = False
    """Whether its results are `WindowResult`s."""
    corrects: bool = False
    """Whether these may be corrected or retracted by later ones."""
    asks_for_time: bool = True
    """Whether it has to do with event time: marks travel to it (`runtime.processing.marks`)."""
    ends_by_time: bool = False
    """Whether its results come when event time has come to the end of a window."""
    needs_order: bool = False
    """Whether results depend on the order of a key's tuples, beyond what can be made good."""
    may_need_order: bool = False
    """Whether they may, as functions of the user have it, and the user has not said that they do
    not."""
    makes_sessions: bool = False
    """Whether its windows are sessions: what a tuple joins that comes when some are over depends on
    the order of tuples."""
    ordered: bool = False
    """Whether the user has said so of its key; operators behind have the same one, or no need."""
    holds_back: bool = True
    """False: all that comes of a tuple comes when it is processed. Otherwise it may be in results
    of later tuples, of timers, or of the end of a window."""


@dataclass(frozen=True, slots=True)
class Span:
    """Event times from `start` on that are before `end`, in seconds. Other tuples are left out."""

    start: float = -math.inf
    end: float = math.inf

    @property
    def has_end(self) -> bool:
        """Whether it is that of a backfill; others go on from one."""
        return self.end != math.inf

    @property
    def rest(self) -> Span:
        """What comes behind it; itself if nothing does."""
        return Span(self.end) if self.has_end else self

    @property
    def before(self) -> str:
        """Why earlier ones are left out."""
        if not self.has_end:
            return f"before {time_text(self.start)}, up to where a backfill has counted"
        return f"before {time_text(self.start)}"

    @property
    def behind(self) -> str:
        return f"at {time_text(self.end)} or later"


def time_text(at: float) -> str:
    return (
        f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".") + " UTC"
    )


@dataclass(frozen=True, slots=True)
class EventTime:
    """How event time is read from the tuples of a stream.

    `fn`: seconds, of one tuple. `disorder_s`: how far a tuple may be behind the latest one.
    `device`: which one sent it; each has its own latest time, and the slowest one counts.
    `idle_s`: a device that has sent nothing for so long is not waited for; None: always waited
    for. `ahead_s`: a time further ahead of this host's clock does not count (P38); None: any does.
    """

    fn: Callable[[Any], float]
    disorder_s: float = 0.0
    device: Callable[[Any], Any] | None = None
    idle_s: float | None = 60.0
    ahead_s: float | None = None
    span: Span | None = None
    """The tuples of which times are taken; None: all are."""
