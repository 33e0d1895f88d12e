"""Facts that enter a core. Each is one thing that has happened, told in the past tense."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import Ids, Message


@dataclass(frozen=True, slots=True)
class Founded:
    """This instance belongs to those with which the run begins; nobody created it."""

    succs: Ids
    preds: Ids
    keeper: bool


@dataclass(frozen=True, slots=True)
class MessageReceived:
    sender: InstanceId
    message: Message


@dataclass(frozen=True, slots=True)
class BatchReceived:
    """A batch came in. The core sees its envelope, never its tuples."""

    sender: InstanceId
    tuples: int


@dataclass(frozen=True, slots=True)
class BatchReady:
    """The router has chosen a successor for a batch and wants to send it."""

    to: InstanceId
    tuples: int


@dataclass(frozen=True, slots=True)
class DuplicateDecided:
    """The policy, or a script, wants `n` more instances of this operator."""

    n: int


@dataclass(frozen=True, slots=True)
class LeaveDecided:
    """The policy, a script or the owner of the host wants this instance to go."""


@dataclass(frozen=True, slots=True)
class HandOverDecided:
    """A keeper wants to be rid of its role: to a sibling through the neighbour `via`,
    or to a fresh instance if `via` is None."""

    via: InstanceId | None = None


@dataclass(frozen=True, slots=True)
class ChildrenReady:
    """The processes asked for with `SpawnInstances` exist and listen."""

    new: Ids


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    reason: str


@dataclass(frozen=True, slots=True)
class InputEnded:
    """Source only: the last tuple of the input has been read."""


@dataclass(frozen=True, slots=True)
class Drained:
    """Answer to `AwaitDrained`: nothing is queued, in work or held, and sinks have committed."""


Event = (
    Founded
    | MessageReceived
    | BatchReceived
    | BatchReady
    | DuplicateDecided
    | LeaveDecided
    | HandOverDecided
    | ChildrenReady
    | SpawnFailed
    | InputEnded
    | Drained
)

LOCAL_EVENT_TYPES: tuple[type[Event], ...] = (
    Founded,
    BatchReceived,
    BatchReady,
    DuplicateDecided,
    LeaveDecided,
    HandOverDecided,
    ChildrenReady,
    SpawnFailed,
    InputEnded,
    Drained,
)
