"""Commands that leave a core, for a driver to perform in the given order.

A driver's duties (it decides nothing else):

1. Perform the effects of one event completely, in order, before the next event enters.
2. Send what `SendMessage` and `SendBatch` say on the one FIFO channel to that instance, control
   and data in the same order as the effects.
3. Queue an accepted batch at the end of the one queue; process it only after `BeginProcessing`.
4. After `ChangeView`, route tuples to the successors of that view only.
5. After `AwaitDrained`, report `Drained` once, as soon as the queue, the work and the held
   results are empty and a sink has committed.
6. After `StopIntake`, a source reads no more and gives back what it had claimed.
7. After `SpawnInstances`, report `ChildrenReady` or `SpawnFailed`, once.
8. After `Terminate`, keep the channels until all that was sent is acknowledged, then end.
9. Of a keyed operator, process only tuples of groups that are owned and not frozen; keep the
   others in their order. After `FreezeGroups`, report `GroupsFrozen` once, as soon as none of
   these groups is processed and no result of theirs is held.
10. After `TransferGroups`, send the state of these groups and the tuples that were kept, in their
   order, on the channel to the new owner, and report `GroupsTransferred` once all is sent. Those
   of batches that were accepted and not looked into yet are among them.
11. Between `ExpectState` and `StateComplete` put in what that sender transfers. Only after
   `StateComplete` process the groups: first the tuples that came along, then those kept here.
12. Keep over a death of the process, in one record for each turn and before anything of it leaves:
   the state of the core; frames that were sent and are not acknowledged; how far the frames of
   each channel are processed, and which of the others the core has had; the state of key groups,
   what has come of state that is expected, and tuples that are kept. Restore that in the next
   incarnation and let `Restarted` enter first: its effects ask again for what was not answered.
   - Frames come again from where they were not processed. Those that the core has had do not
     enter it again, but their tuples are queued; until all of these have come, the queue is not
     empty: `Drained` waits, and so does `GroupsTransferred`, for tuples of those groups may be
     among them.
   - Their order binds on each channel, and over all channels at one place: what was accepted before
     a predecessor's JOIN that gives key groups away was answered is processed before what was
     accepted after it. So that answer's record has how far each channel had come by then.
   - State that was sent in part is sent whole, and takes the place of the part at the receiver.
   - Children that were asked for and not delivered are discarded, and no answer about them enters.
   - What a source had claimed and not read is claimed again, or given back after `StopIntake`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import Ids, Message
from anabranch.protocol.ownership import Group, Routes
from anabranch.protocol.states import EndReason

Outcome = Literal["joined", "moved", "leaving", "handed_over", "refused", "spawn_failed"]


@dataclass(frozen=True, slots=True)
class SendMessage:
    to: InstanceId
    message: Message


@dataclass(frozen=True, slots=True)
class SendBatch:
    to: InstanceId
    tuples: int


@dataclass(frozen=True, slots=True)
class AcceptBatch:
    sender: InstanceId
    tuples: int


@dataclass(frozen=True, slots=True)
class ChangeView:
    succs: Ids
    preds: Ids
    routes: Routes = ()


@dataclass(frozen=True, slots=True)
class BeginProcessing:
    pass


@dataclass(frozen=True, slots=True)
class AwaitDrained:
    """`stream_ends`: no more input will come, so a step that waits for more tuples processes those
    that it has."""

    stream_ends: bool = False


@dataclass(frozen=True, slots=True)
class StopIntake:
    pass


@dataclass(frozen=True, slots=True)
class SpawnInstances:
    """`host`: where they are to be; anywhere if it is empty."""

    n: int
    host: str = ""


@dataclass(frozen=True, slots=True)
class FreezeGroups:
    """`new_owner`: the sibling that is to have them; None if it is a child that is not started
    yet."""

    groups: frozenset[Group]
    new_owner: InstanceId | None = None


@dataclass(frozen=True, slots=True)
class TransferGroups:
    to: InstanceId
    groups: frozenset[Group]


@dataclass(frozen=True, slots=True)
class OwnGroups:
    """From the beginning: their state is empty."""

    groups: frozenset[Group]


@dataclass(frozen=True, slots=True)
class ResumeGroups:
    """Key groups whose state the driver has restored: process the `owned` ones that are not
    frozen, first what was kept of them; `frozen` ones are at rest, and are not reported again."""

    owned: frozenset[Group]
    frozen: frozenset[Group]


@dataclass(frozen=True, slots=True)
class ExpectState:
    sender: InstanceId


@dataclass(frozen=True, slots=True)
class StateComplete:
    sender: InstanceId
    groups: frozenset[Group]


@dataclass(frozen=True, slots=True)
class ChangeRole:
    keeper: bool


@dataclass(frozen=True, slots=True)
class Conclude:
    """An operation of this instance has come to its end."""

    outcome: Outcome
    new: Ids = frozenset()


@dataclass(frozen=True, slots=True)
class Veto:
    """The decision is not carried out, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Terminate:
    """`left`: by an own leave; `finished`: at the end of the stream."""

    reason: EndReason


Effect = (
    SendMessage
    | SendBatch
    | AcceptBatch
    | ChangeView
    | BeginProcessing
    | AwaitDrained
    | StopIntake
    | SpawnInstances
    | FreezeGroups
    | TransferGroups
    | OwnGroups
    | ResumeGroups
    | ExpectState
    | StateComplete
    | ChangeRole
    | Conclude
    | Veto
    | Terminate
)
