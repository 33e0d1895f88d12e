"""Facts that enter a core. Each is one thing that has happened, named in the past tense."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import Ids, Message
from anabranch.protocol.ownership import Assignment, Group, Routes


@dataclass(frozen=True, slots=True)
class Founded:
    """This instance is one of those with which the run begins; no other instance created it.

    `routes`: the owners of the key groups downstream. `owned`: those of its own operator that
    are its own.
    """

    succs: Ids
    preds: Ids
    keeper: bool
    routes: Routes = ()
    owned: Routes = ()


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
    """The policy, a script or the owner of the host wants this instance to leave.

    An owner of key groups asks for a new owner through the neighbour `via`; `draw`: `AdoptOffer`.
    """

    via: InstanceId | None = None
    draw: int = 0


@dataclass(frozen=True, slots=True)
class RelocateDecided:
    """A script, or the owner of the host, wants a new instance on another host to take the place
    of this one. `host`: its name, which only the driver understands."""

    host: str = ""


@dataclass(frozen=True, slots=True)
class MoveDecided:
    """The policy or a script wants a sibling to have some key groups of this instance."""

    groups: frozenset[Group]
    via: InstanceId | None = None
    draw: int = 0


@dataclass(frozen=True, slots=True)
class HandOverDecided:
    """A keeper wants to hand over its role: to a sibling through the neighbour `via`,
    or to a new instance if `via` is None."""

    via: InstanceId | None = None


@dataclass(frozen=True, slots=True)
class ChildrenReady:
    """The processes asked for with `SpawnInstances` exist and listen. `moved`: which of my key
    groups each of them would have; a fresh keeper gets none, and one that takes the place of its
    creator gets all."""

    new: Ids
    moved: Assignment = ()


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    reason: str


@dataclass(frozen=True, slots=True)
class GroupsFrozen:
    """Answer to `FreezeGroups`: no tuple of these groups is processed any more, and all results of
    earlier ones have been sent."""


@dataclass(frozen=True, slots=True)
class GroupsTransferred:
    """Answer to `TransferGroups`: the whole state has been sent."""

    to: InstanceId


@dataclass(frozen=True, slots=True)
class InputEnded:
    """Source only: the last tuple of the input has been read."""


@dataclass(frozen=True, slots=True)
class Drained:
    """Answer to `AwaitDrained`: nothing is queued, in work or held, and sinks have committed."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """A new process has resumed this instance after a death; its state is that of the journal."""


Event = (
    Founded
    | MessageReceived
    | BatchReceived
    | BatchReady
    | DuplicateDecided
    | LeaveDecided
    | RelocateDecided
    | MoveDecided
    | HandOverDecided
    | ChildrenReady
    | SpawnFailed
    | GroupsFrozen
    | GroupsTransferred
    | InputEnded
    | Drained
    | Restarted
)

LOCAL_EVENT_TYPES: tuple[type[Event], ...] = (
    Founded,
    BatchReceived,
    BatchReady,
    DuplicateDecided,
    LeaveDecided,
    RelocateDecided,
    MoveDecided,
    HandOverDecided,
    ChildrenReady,
    SpawnFailed,
    GroupsFrozen,
    GroupsTransferred,
    InputEnded,
    Drained,
    Restarted,
)
