"""Messages between the agent and its processes.

On the wire each is a MessagePack map whose key `kind` names it.
`Status` and `FinalCount` (kind `gone`) are in `anabranch.runtime.reporting.status`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from anabranch.runtime.plan.ends import Split
from anabranch.runtime.policies.decision import Duplicate, Leave, Move
from anabranch.runtime.reporting.status import FinalCount, Status, WireId
from anabranch.runtime.values.kinds import Cause, Ending, EventKind

Address = str
"""`unix:/path`, which is `carried`, or `tcp:host:port`."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Anything sent over a link."""


# --- agent -> process -------------------------------------------------------------------------


class HasMoved(Message, frozen=True, kw_only=True, tag="moved"):
    """From this incarnation on, the instance listens there, since it is on another host. Nothing
    else that is known of its address counts."""

    id: WireId
    incarnation: int
    address: Address


class Bootstrap(msgspec.Struct, frozen=True, kw_only=True):
    """Role and neighbours of an instance with which the run begins: all of them."""

    succs: list[tuple[WireId, Address]]
    preds: list[WireId]
    keeper: bool


class Assign(Message, frozen=True, kw_only=True, tag="assign"):
    """Become an instance. `bootstrap` is None for a newcomer: its creator will send START."""

    role: str = "instance"
    id: WireId
    pipeline: str
    run_dir: str
    started_s: float
    token: bytes
    transport: str
    host: str
    bootstrap: Bootstrap | None
    seed: int
    """Of the run; an instance mixes its id into it."""
    scaling: bool
    """False: no decisions of its own, only scripted ones."""
    limits: dict[str, Any]
    service_address: str
    dry_run: bool = False
    """Decisions of policies are reported and not carried out."""
    heritage: dict[str, float] = {}
    """What the creator's scaling policy passes on to a newcomer."""
    incarnation: int = 1
    """How many processes this instance has had, this one included. Later incarnations go on where
    the journal of the earlier ones ends; `bootstrap` is sent again, for the case that the journal
    is empty."""
    journal: str = ""
    """The file that outlives the process; empty: none is kept."""
    delivery: str = "effectively-once"
    address: str = ""
    """Listen here again: neighbours have it from an earlier incarnation. Empty: choose one."""
    state_dir: str = ""
    """Folder of the files that outlive processes; empty: there are none."""
    stays_open: bool = False
    """The end of the input is not the end of the stream: see `RunContext`."""
    span: tuple[float, float] | None = None
    """Of the event times that are taken: see `anabranch.runtime.pipeline.spans`."""
    on_host: str = ""
    """Name of its host; empty: the run has one host."""
    tls: str = ""
    """Folder of the certificate that proves to other instances that it is one; empty: none is
    needed, for all are on this machine."""
    ahead_s: float = 0.0
    """Of the clock of its host, compared with the one of the agent's."""
    copies: list[tuple[str, Address]] = []
    """Hosts that have, or are to have, a copy of its journal, and the copy keeper there, as far as
    that is known."""
    complete: list[str] = []
    """Of those, the ones whose copies have all that counts."""
    order: int = 0
    """Number of the order that `copies` is; 0: it makes no copies."""
    fetch: Address = ""
    """The copy keeper from which it gets its journal first, whatever is in the file of this name;
    empty: it has it."""
    was_ready: bool = False
    """An earlier incarnation has been: others may have its address, and its journal has to be
    there."""
    moved: list[HasMoved] = []
    """Others that are on another host than they were."""
    in_vain: list[Ending] = []
    """How the last incarnations that got nothing done have ended; oldest first."""


class AssignService(Message, frozen=True, kw_only=True, tag="assign_service"):
    """Become the process of a service; `index` counts the distinct services of the pipeline."""

    role: str = "service"
    index: int
    operators: list[str]
    pipeline: str
    run_dir: str
    started_s: float
    token: bytes
    limits: dict[str, Any]
    former_address: Address = ""
    """Where an earlier incarnation of it has listened."""


class AssignKeeper(Message, frozen=True, kw_only=True, tag="assign_keeper"):
    """Become the copy keeper of a host: see `anabranch.runtime.live.copies.keeper`. `folder`: of
    the copies; `listen`: the address at which it listens, which ends with port 0 for any."""

    role: str = "keeper"
    folder: str
    token: bytes
    listen: Address
    tls: str = ""


class CopyHolders(Message, frozen=True, kw_only=True, tag="copy_holders"):
    """The hosts with copies of the journal of an instance from now on, all of them, and the copy
    keeper on each. Orders are numbered; an older one counts no more."""

    order: int
    holders: list[tuple[str, Address]]


class Spawned(Message, frozen=True, kw_only=True, tag="spawned"):
    """Answer to `Spawn`. Fewer children than asked for, or none, come with a reason."""

    request: int
    children: list[tuple[WireId, Address]]
    reason: str = ""


class LeaveAnswer(Message, frozen=True, kw_only=True, tag="leave_answer"):
    """Answer to `MayLeave`; a refusal comes with a reason."""

    granted: bool
    reason: str = ""


class SplitAnswer(Message, frozen=True, kw_only=True, tag="split"):
    """Answer to `Claim`. None and not ended: nothing now; claim again after `Splits`."""

    split: Split | None
    ended: bool
    number: int = 0
    """Of this claim; a `Release` names it."""


class Splits(Message, frozen=True, kw_only=True, tag="splits"):
    """There may be splits now, or the input has ended."""


class Decide(Message, frozen=True, kw_only=True, tag="decide"):
    """A scripted decision: `duplicate`, `leave`, `hand_over`, `move` or `relocate`. `host`: to
    which; empty: to any."""

    action: str
    n: int = 1
    host: str = ""


class Order(Message, frozen=True, kw_only=True, tag="order"):
    """A controller's order to an instance. `change` above 0: make so many newcomers; below 0:
    leave; 0: give a `share` of the load to the sibling of rank `to_rank`. `insists`: a user wants
    it, whatever the loads are."""

    change: int
    why: str
    share: float = 0.0
    to_rank: int = 0
    insists: bool = False

    @classmethod
    def of(cls, act: Duplicate | Leave | Move, controller: str, *, insists: bool = False) -> Order:
        why = f"{controller}: {act.explanation.text}"
        match act:
            case Duplicate(n=n):
                return cls(change=n, why=why, insists=insists)
            case Leave():
                return cls(change=-1, why=why, insists=insists)
            case Move(share=share, to_rank=rank):
                return cls(change=0, why=why, share=share, to_rank=rank)

    @property
    def act(self) -> Duplicate | Leave | Move:
        if self.change:
            return Duplicate(self.change, self.why) if self.change > 0 else Leave(self.why)
        return Move(self.share, self.to_rank, self.why)


class Pin(Message, frozen=True, kw_only=True, tag="pin"):
    """A user has set how many instances there are: while that `holds`, the policy decides
    nothing."""

    holds: bool


class EndInput(Message, frozen=True, kw_only=True, tag="end_input"):
    """Source: act as if the input had ended."""


class Close(Message, frozen=True, kw_only=True, tag="close"):
    """Service: all instances have ended."""


# --- process -> agent -------------------------------------------------------------------------


class Ready(Message, frozen=True, kw_only=True, tag="ready"):
    """It listens at this address: others may connect from now on."""

    address: Address


class Spawn(Message, frozen=True, kw_only=True, tag="spawn"):
    """`relocates`: for one that takes its own place, on this `host`; empty: on any."""

    request: int
    n: int
    heritage: dict[str, float] = {}
    relocates: bool = False
    host: str = ""


class Discard(Message, frozen=True, kw_only=True, tag="discard"):
    """Children from `Spawned` that the instance will never start."""

    children: list[WireId]


class MayLeave(Message, frozen=True, kw_only=True, tag="may_leave"):
    """It has decided to leave, and asks whether enough of its siblings stay."""


class StaysAfterAll(Message, frozen=True, kw_only=True, tag="stays_after_all"):
    """It may leave and does not: its core has vetoed that, or no sibling takes its key groups."""


class Waits(Message, frozen=True, kw_only=True, tag="waits"):
    """Of an instance that has not begun, such as a newcomer that waits for its START, of one that
    only waits to end, or of a service: sent about once a second, instead of a status."""


class Delayed(Message, frozen=True, kw_only=True, tag="delayed"):
    """The system refuses for now what the process needs, as a full disk does. It waits, and has as
    much time again to get ready."""


class Claim(Message, frozen=True, kw_only=True, tag="claim"):
    pass


class Release(Message, frozen=True, kw_only=True, tag="release"):
    """The claimed split is done, or `remainder` of it goes back to the board."""

    remainder: Split | None
    progress: float = 0.0
    """How much of the split was read, as a whole."""
    number: int = 0
    """Of the claim that it ends; 0: the one that is held. Ignored if that claim is not held any
    more, since an earlier incarnation has sent the same."""


class Progress(Message, frozen=True, kw_only=True, tag="progress"):
    """How much of the split with this claim number is read, in the unit of `Source.size`; sent
    from time to time."""

    number: int
    progress: float


class EventNote(Message, frozen=True, kw_only=True, tag="event"):
    """Something for the report."""

    t: float
    event: EventKind
    detail: str = ""
    label: str = ""
    """Its name, if a source or sink of the user has made the event."""


class Suspect(Message, frozen=True, kw_only=True, tag="suspect"):
    """A neighbour has sent nothing for `silent_s`; the agent may look at its process."""

    peer: WireId
    silent_s: float


class Resumed(Message, frozen=True, kw_only=True, tag="resumed"):
    """A later incarnation has restored itself. `children`: those of its children that its
    neighbours have in their views or that it still waits for; the agent ends all others that only
    listen. `leaving`: the agent counts on its leave, and it is about to. `goes`: it is about to
    leave. `lessons`: after how many of its deaths it was known which tuple had been tried."""

    children: list[WireId]
    leaving: bool = False
    goes: bool = False
    lessons: int = 0


class Failed(Message, frozen=True, kw_only=True, tag="failed"):
    """The process cannot go on; it exits with code 1 after this."""

    reason: str
    detail: str = ""
    again: Cause | None = None
    """Set if the next incarnation can go on: the cause is in the process, or will pass."""
    damaged: bool = False
    """Files of the run are damaged, or have changed since they were written."""


class CopyComplete(Message, frozen=True, kw_only=True, tag="copy_complete"):
    """The copy on this host has all that counts, since the order with this number."""

    order: int
    host: str


class Publish(Message, frozen=True, kw_only=True, tag="publish"):
    operator: str
    splits: list[Split]


class Ended(Message, frozen=True, kw_only=True, tag="ended"):
    operator: str


FromProcess = (
    Ready
    | Spawn
    | Discard
    | MayLeave
    | StaysAfterAll
    | Waits
    | Delayed
    | Claim
    | Release
    | Progress
    | EventNote
    | Suspect
    | Resumed
    | Failed
    | CopyComplete
    | Publish
    | Ended
    | Status
    | FinalCount
)
ToProcess = (
    Assign
    | AssignService
    | AssignKeeper
    | CopyHolders
    | Spawned
    | LeaveAnswer
    | SplitAnswer
    | Splits
    | Decide
    | Order
    | Pin
    | EndInput
    | HasMoved
    | Close
)
