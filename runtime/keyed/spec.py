"""What an operator of the graph says about keys and event time. Values without behaviour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from anabranch.runtime.keyed.handler import Handler

LatePolicy = Literal["bury", "emit", "drop"]
LATE_POLICIES: tuple[LatePolicy, ...] = ("bury", "emit", "drop")

GROUPS_MAX = 32_768
GROUPS_DEFAULT = 256


@dataclass(frozen=True, slots=True)
class KeyedEdge:
    """How tuples of one upstream operator get their key, and on which side of a join they are."""

    key: Callable[[Any], Any]
    side: int = 0


@dataclass(frozen=True, slots=True)
class Keyed:
    """The work of a keyed operator. `make_handler` is called in the process of each instance.

    `kind` is one word for lists: fold, reduce, process, window, join, sink. `does`: what stands
    beside it there. `late`: what becomes of tuples that the handler finds late.
    """

    kind: str
    make_handler: Callable[[], Handler]
    does: str = ""
    late: LatePolicy = "bury"


@dataclass(frozen=True, slots=True)
class EventTime:
    """How instances that emit a stream read event time from it, and when they state watermarks.

    `fn`: a tuple's event time in seconds. `disorder_s`: by how much a tuple may be older than one
    before it, per `device` if given. A device that was silent for `idle_s` is not waited for.
    Times more than `ahead_s` ahead of the wall clock do not move the watermark.
    """

    fn: Callable[[Any], float]
    disorder_s: float = 0.0
    device: Callable[[Any], Any] | None = None
    idle_s: float = 60.0
    ahead_s: float | None = None
