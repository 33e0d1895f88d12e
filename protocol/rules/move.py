"""Key groups change their owner: to children, to a new owner, or to balance the load.

One procedure for all three (`docs/protocol.md` 5). The owner brings the groups to rest, announces
the new owners to all neighbours in a round of JOIN, and sends the state when all have answered:

    FreezeGroups ─▶ GroupsFrozen ─▶ JOIN(new, moved) ─▶ all JOIN_ACKs ─▶ [START] ─▶ state

Why nothing is lost, doubled or out of order. A predecessor's answer follows its last tuple of
those groups, and a successor's answer follows all results of the old owner: the new owner begins
when the inputs of the old one are complete and its outputs have arrived. What comes in
between waits in its order, at the old owner and at the new one, and is processed in that order.
Versions make every table agree, whatever crosses on the way (`anabranch.protocol.ownership`).

Where the next operator is keyed too, its groups may move at the same time. The old owner may have
sent results to a new owner there which the new owner here does not know yet. If that sent results
to the former owner there, they could be processed first. So STATE_MOVED has the old owner's routes,
and the new owner owns the groups only when it knows these routes.

A new owner may not leave before the state has come: a child learns that from START, a sibling has
promised it. An instance that has decided to leave makes no promise, so instances never wait in a
circle.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.protocol.effects import (
    Conclude,
    Effect,
    ExpectState,
    FreezeGroups,
    SendMessage,
    StateComplete,
    TransferGroups,
    Veto,
)
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.events import (
    GroupsFrozen,
    GroupsTransferred,
    MessageReceived,
    MoveDecided,
)
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import (
    NONE,
    Adopt,
    AdoptOffer,
    AdoptResponse,
    Ids,
    Join,
    StateMoved,
)
from anabranch.protocol.ownership import (
    Assignment,
    Group,
    Routes,
    belonging_to,
    changed,
    groups_of,
    is_behind,
    merged,
    owners_of,
    reassigned,
    without,
)
from anabranch.protocol.rules.context import Context, Step, ended, require, tell, why_not_now
from anabranch.protocol.states import (
    Active,
    Freezing,
    Joining,
    Migrating,
    Offering,
    Seeking,
    State,
    Transferring,
)

# -- finding a new owner -----------------------------------------------------------------------


def decide_to_move(ctx: Context, state: Active, event: MoveDecided) -> Step:
    """M1: some of my groups are to go to a sibling."""
    if reason := why_not_now(ctx, state):
        return state, (Veto(reason),)
    if not event.groups or not event.groups <= groups_of(state.owned):
        return state, (Veto("only key groups of its own can be given away, at least one"),)
    return seek_new_owner(state, event.groups, event.via, event.draw, leave=False)


def seek_new_owner(
    state: Active, groups: frozenset[Group], via: InstanceId | None, draw: int, *, leave: bool
) -> Step:
    if via is None or via not in state.succs | state.preds:
        return state, (
            Veto(f"its key groups need a new owner, and {via} is not a neighbour to ask"),
        )
    return replace(state, own=Seeking(groups, leave)), (SendMessage(via, AdoptOffer(draw)),)


def relay_adoption(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """M2: at the neighbour: pass it on to another instance of the owner's operator."""
    message, owner = event.message, event.sender
    assert isinstance(message, AdoptOffer)
    side = state.succs if ctx.is_downstream(owner) else state.preds
    require(owner in side, f"ADOPT_OFFER from {owner}, unknown to me (I9)")
    siblings = sorted(x for x in side if x.operator == owner.operator and x != owner)
    if not siblings:
        return state, (SendMessage(owner, AdoptResponse(ok=False)),)
    return state, (SendMessage(siblings[message.draw % len(siblings)], Adopt(owner)),)


def refuse_adoption(ctx: Context, state: State, event: MessageReceived) -> Step:
    """M2: an instance which is idle, leaving or finished relays nothing (F8)."""
    return state, (SendMessage(event.sender, AdoptResponse(ok=False)),)


def answer_adoption(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """M3: promise to stay until the state has come; not if I want to go, or the end has come.

    Nor while state of the same owner is still to come: the relay can be faster than the owner's
    last word, and two promises would be kept by the first state.
    """
    message = event.message
    assert isinstance(message, Adopt)
    if wants_to_go(state) or ended(ctx, state) or message.origin in state.expects:
        return state, (SendMessage(message.origin, AdoptResponse(ok=False)),)
    later = replace(state, expects=state.expects | {message.origin})
    return later, (ExpectState(message.origin), SendMessage(message.origin, AdoptResponse(ok=True)))


def decline_adoption(ctx: Context, state: State, event: MessageReceived) -> Step:
    """M3 in any other state."""
    message = event.message
    assert isinstance(message, Adopt)
    return state, (SendMessage(message.origin, AdoptResponse(ok=False)),)


def conclude_adoption(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """M4: a new owner is found, or everything stays as it is."""
    message, own, new_owner = event.message, state.own, event.sender
    assert isinstance(message, AdoptResponse)
    require(isinstance(own, Seeking), f"an answer from {new_owner} to no offer of key groups (I4)")
    assert isinstance(own, Seeking)
    if not message.ok:
        return replace(state, own=None), (Conclude("refused"),)
    assignment = tuple((g, new_owner) for g in sorted(own.groups))
    return freeze(state, NONE, assignment, new_owner=new_owner, leave=own.leave)


def wants_to_go(state: Active) -> bool:
    own = state.own
    return own is not None and not isinstance(own, Offering) and own.leave


# -- the round -----------------------------------------------------------------------------


def freeze(
    state: Active,
    new: Ids,
    assignment: Assignment,
    *,
    new_owner: InstanceId | None = None,
    leave: bool = False,
    migrate: bool = False,
) -> Step:
    try:
        moved = reassigned(state.owned, assignment)
    except KeyError as error:
        raise LocalProtocolError(f"key group {error} is to move, but is not owned") from None
    if len(groups_of(moved)) < len(moved):
        raise LocalProtocolError("a key group is to move to two instances at once (K5)")
    later = replace(state, own=Freezing(new, moved, leave, migrate))
    return later, (FreezeGroups(groups_of(moved), new_owner),)


def announce_owners(ctx: Context, state: Active, event: GroupsFrozen) -> Step:
    """M5: no tuple of the groups is in work or held; send JOIN to neighbours and children."""
    own = state.own
    require(isinstance(own, Freezing), "key groups are frozen that were not to be frozen")
    assert isinstance(own, Freezing)
    neighbours = state.succs | state.preds
    joining = Joining(
        own.new, awaiting=neighbours, migrate=own.migrate, moved=own.moved, leave=own.leave
    )
    return replace(state, own=joining), tell(neighbours, Join(own.new, own.moved))


def transfer(state: Active, joined: Joining) -> Step:
    """M6: all have answered: what moves is no longer mine, and its state goes out."""
    moved, receivers = joined.moved, owners_of(joined.moved)
    later = replace(
        state,
        own=Transferring(joined.new, moved, receivers, joined.leave, joined.migrate),
        owned=without(state.owned, groups_of(moved)),
    )
    return later, transfers(moved, receivers)


def transfers(moved: Routes, receivers: Ids) -> tuple[Effect, ...]:
    """M6: the state of each new owner's groups, for some of them."""
    return tuple(TransferGroups(to, groups_of(belonging_to(moved, to))) for to in sorted(receivers))


def hand_over_state(ctx: Context, state: Active, event: GroupsTransferred) -> Step:
    """M7: the last word behind the state of a new owner."""
    own = state.own
    require(
        isinstance(own, Transferring) and event.to in own.awaiting,
        f"state was transferred to {event.to}, which was to have none",
    )
    assert isinstance(own, Transferring)
    word = StateMoved(belonging_to(own.moved, event.to), changed(state.routes))
    last_word = SendMessage(event.to, word)
    rest = replace(own, awaiting=own.awaiting - {event.to})
    if rest.awaiting:
        return replace(state, own=rest), (last_word,)
    outcome = Conclude("joined", own.new) if own.new else Conclude("moved", owners_of(own.moved))
    if own.migrate:  # its child has yet to say that it keeps the operator
        (child,) = own.new
        return replace(state, own=Migrating(child, own.leave)), (last_word, outcome)
    return replace(state, own=None), (last_word, outcome)


def take_over(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """M8: the state has come. It is mine as soon as I know the routes of its old owner."""
    message, sender = event.message, event.sender
    assert isinstance(message, StateMoved)
    require(sender in state.expects, f"state from {sender}, which was not expected (I4)")
    require(owners_of(message.owned) <= {ctx.me}, f"state from {sender} for another instance")
    groups = groups_of(message.owned)
    require(not groups & groups_of(state.owned), f"state from {sender} of groups of mine (K5)")
    return own_what_arrived(replace(state, arrived=(*state.arrived, (sender, message))))


def own_what_arrived(state: Active) -> Step:
    """M8: own groups whose routes are known. For others the JOIN is on its way, since an instance
    that gives groups away sends one to all its predecessors."""
    early = tuple(a for a in state.arrived if is_behind(state.routes, a[1].routes))
    effects: list[Effect] = []
    owned, expects = state.owned, state.expects
    for sender, message in state.arrived:
        if (sender, message) not in early:
            owned, expects = merged(owned, message.owned), expects - {sender}
            effects.append(StateComplete(sender, groups_of(message.owned)))
    return replace(state, owned=owned, expects=expects, arrived=early), tuple(effects)
