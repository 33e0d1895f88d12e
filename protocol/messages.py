"""Control statements between two cores (`docs/protocol.md` 2.2 and 2.8). Data is not among them.

Every message is a value without addresses: the codec of a driver adds and keeps those. A round
needs no number of its own: a join is known by its first child, a leave by its leaver, and ids
are never used twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.protocol.ids import InstanceId
from anabranch.protocol.ownership import Routes

Ids = frozenset[InstanceId]
NONE: Ids = frozenset()


@dataclass(frozen=True, slots=True)
class Join:
    """Initiator to every neighbour: these children of mine are about to start, and these key
    groups of mine have other owners from now on. Either may be empty."""

    new: Ids
    moved: Routes = ()


@dataclass(frozen=True, slots=True)
class JoinAck:
    """I know the children as neighbours; my messages from now on go to them, too.

    Marker, from a predecessor: no tuple of the moved groups follows on this channel. From a
    successor: all that you sent before you stopped processing them is in.
    """


@dataclass(frozen=True, slots=True)
class Start:
    """Initiator to child: your neighbours; you are one of us now.

    `routes`: the owners of the key groups downstream. `new_owner`: state of key groups follows.
    """

    succs: Ids
    preds: Ids
    keeper: bool = False
    routes: Routes = ()
    new_owner: bool = False


@dataclass(frozen=True, slots=True)
class Leave:
    """Leaver to every predecessor: send me nothing more.

    `told`: children of the receiver that get this message, too. If they have not started yet, the
    receiver learns that the leaver waits for them as well.
    """

    told: Ids = NONE


@dataclass(frozen=True, slots=True)
class LeaveAck:
    """Marker: no tuple from me follows on this channel."""


@dataclass(frozen=True, slots=True)
class Eos:
    """Leaver to every successor. Marker: no tuple from me follows. `told` as in `Leave`."""

    told: Ids = NONE


@dataclass(frozen=True, slots=True)
class EosAck:
    """I have forgotten you."""


@dataclass(frozen=True, slots=True)
class KeeperAck:
    """Fresh child to its creator: I am the keeper now."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Keeper to a neighbour: find one of my siblings that keeps the operator instead of me."""


@dataclass(frozen=True, slots=True)
class BecomeKeeper:
    """Neighbour to a sibling of the keeper: will you? Answer `origin` directly."""

    origin: InstanceId


@dataclass(frozen=True, slots=True)
class OfferResponse:
    ok: bool


@dataclass(frozen=True, slots=True)
class Fin:
    """Marker: the stream has ended; no tuple from me follows, and I stay until you are done."""


@dataclass(frozen=True, slots=True)
class Done:
    """Answer to `Fin`: all that you sent me has been processed and passed on."""


@dataclass(frozen=True, slots=True)
class AdoptOffer:
    """Owner to a neighbour: find one of my siblings that takes over key groups of mine.

    `draw`: which of those that the neighbour sees; drawn by chance, so that the load spreads.
    """

    draw: int = 0


@dataclass(frozen=True, slots=True)
class Adopt:
    """Neighbour to a sibling of the owner: will you? Answer `origin` directly."""

    origin: InstanceId


@dataclass(frozen=True, slots=True)
class AdoptResponse:
    """If `ok`: I stay until your state has come."""

    ok: bool


@dataclass(frozen=True, slots=True)
class StateMoved:
    """Old owner to new owner. Marker: the state of these groups is complete; they are yours.

    `routes`: by which the old owner has sent what it made of them, as far as owners changed
    since the beginning. The new owner sends nothing by older ones.
    """

    owned: Routes
    routes: Routes = ()


Message = (
    Join
    | JoinAck
    | Start
    | Leave
    | LeaveAck
    | Eos
    | EosAck
    | KeeperAck
    | Offer
    | BecomeKeeper
    | OfferResponse
    | Fin
    | Done
    | AdoptOffer
    | Adopt
    | AdoptResponse
    | StateMoved
)

MESSAGE_TYPES: tuple[type[Message], ...] = (
    Join,
    JoinAck,
    Start,
    Leave,
    LeaveAck,
    Eos,
    EosAck,
    KeeperAck,
    Offer,
    BecomeKeeper,
    OfferResponse,
    Fin,
    Done,
    AdoptOffer,
    Adopt,
    AdoptResponse,
    StateMoved,
)
"""In the order of their numbers on the wire; append only."""
