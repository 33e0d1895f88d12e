"""Broken M4 to M8, and drivers that neglect their duties: from when on a key group is whose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch.protocol.effects import (
    Effect,
    FreezeGroups,
    SendMessage,
    TransferGroups,
)
from anabranch.protocol.events import (
    ChildrenReady,
    GroupsFrozen,
    GroupsTransferred,
    MessageReceived,
)
from anabranch.protocol.messages import (
    NONE,
    AdoptResponse,
    Ids,
    Join,
    JoinAck,
    Start,
    StateMoved,
)
from anabranch.protocol.ownership import Routes, belonging_to, owners_of
from anabranch.protocol.rules import join, leave, move
from anabranch.protocol.rules.context import Context, Step, tell
from anabranch.protocol.states import (
    Active,
    ClosingIn,
    Draining,
    Freezing,
    Idle,
    Joining,
    State,
    Transferring,
)
from anabranch.runtime.broken_protocols.variants.variant import Variant
from anabranch.runtime.explorer.scope import Scope

# -- M4 and M5: bring to rest, tell, switch --------------------------------------------------


def _take_refusal_for_consent(ctx: Context, state: Active, event: MessageReceived) -> Step:
    return move.conclude_adoption(ctx, state, replace(event, message=AdoptResponse(ok=True)))


def _unfrozen(ctx: Context, step: Step) -> Step:
    """JOIN goes to neighbours while the groups are still processed."""
    later, effects = step
    if not (isinstance(later, Active) and isinstance(later.own, Freezing)):
        return step
    announced, more = move.announce_owners(ctx, later, GroupsFrozen())
    return announced, (*(e for e in effects if not isinstance(e, FreezeGroups)), *more)


def _new_owner_without_freezing(ctx: Context, state: Active, event: MessageReceived) -> Step:
    return _unfrozen(ctx, move.conclude_adoption(ctx, state, event))


def _children_without_freezing(ctx: Context, state: Active, event: ChildrenReady) -> Step:
    return _unfrozen(ctx, join.announce_children(ctx, state, event))


def _awaited(state: Active, awaited: Ids) -> Step:
    own = state.own
    assert isinstance(own, Freezing)
    joining = Joining(own.new, awaiting=awaited, moved=own.moved, leave=own.leave)
    return replace(state, own=joining), tell(state.succs | state.preds, Join(own.new, own.moved))


def _await_preds_only(ctx: Context, state: Active, event: GroupsFrozen) -> Step:
    return _awaited(state, state.preds)


def _await_succs_only(ctx: Context, state: Active, event: GroupsFrozen) -> Step:
    return _awaited(state, state.succs or state.preds)


def _await_no_answer(ctx: Context, state: Active, event: GroupsFrozen) -> Step:
    later, effects = _awaited(state, NONE)
    assert isinstance(later, Active)
    started, more = join.start_children(ctx, later)
    return started, (*effects, *more)


def _count_if_awaited(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """Acknowledgements that are not awaited are passed over."""
    own = state.own
    if isinstance(own, Joining) and event.sender in own.awaiting:
        return join.count_join_ack(ctx, state, event)
    return state, ()


def _pass_over(ctx: Context, state: State, event: Any) -> Step:
    return state, ()


def _without_routes(event: MessageReceived) -> MessageReceived:
    message = event.message
    assert isinstance(message, Join)
    return replace(event, message=Join(message.new))


def _remember_children_only(ctx: Context, state: Idle, event: MessageReceived) -> Step:
    return join.remember_join(ctx, state, _without_routes(event))


def _count_children_only(ctx: Context, state: Active, event: MessageReceived) -> Step:
    return join.accept_join(ctx, state, _without_routes(event))


def _leaver_counts_children_only(ctx: Context, state: Any, event: MessageReceived) -> Step:
    return join.accept_join_while_leaving(ctx, state, _without_routes(event))


def _believe_start(ctx: Context, state: Idle, event: MessageReceived) -> Step:
    """Versions are not compared: what START carries replaces what has been remembered."""
    message = event.message
    assert isinstance(message, Start)
    return join.start(ctx, replace(state, routes=()), event)


# -- M6 to M8: the state ---------------------------------------------------------------------


def _last_word_first(ctx: Context, state: Active, event: MessageReceived) -> Step:
    later, effects = join.count_join_ack(ctx, state, event)
    words: list[Effect] = []
    for effect in effects:
        if isinstance(effect, TransferGroups):
            assert isinstance(later, Active)
            assert isinstance(later.own, Transferring)
            owned = belonging_to(later.own.moved, effect.to)
            words.append(SendMessage(effect.to, StateMoved(owned)))
        words.append(effect)
    return later, tuple(words)


def _no_last_word_now(ctx: Context, state: Active, event: GroupsTransferred) -> Step:
    later, effects = leave.go_on_leaving(ctx, state, event)
    return later, tuple(
        e for e in effects if not (isinstance(e, SendMessage) and isinstance(e.message, StateMoved))
    )


def _keep_what_was_given(ctx: Context, state: Active, event: MessageReceived) -> Step:
    later, effects = join.count_join_ack(ctx, state, event)
    assert isinstance(later, Active)
    return replace(later, owned=state.owned), effects


def _start_without_new_owner(ctx: Context, state: Active, event: MessageReceived) -> Step:
    later, effects = join.count_join_ack(ctx, state, event)
    return later, tuple(
        SendMessage(e.to, replace(e.message, new_owner=False))
        if isinstance(e, SendMessage) and isinstance(e.message, Start)
        else e
        for e in effects
    )


def _go_before_the_state_is_out(ctx: Context, state: Active, event: MessageReceived) -> Step:
    later, effects = join.count_join_ack(ctx, state, event)
    own = later.own if isinstance(later, Active) else None
    if not (isinstance(own, Transferring) and own.leave):
        return later, effects
    assert isinstance(later, Active)
    leaving, more = leave._begin_to_leave(replace(later, own=None))
    return leaving, (*effects, *more)


def _own_at_once(ctx: Context, state: Active, event: MessageReceived) -> Step:
    message = event.message
    assert isinstance(message, StateMoved)
    return move.take_over(ctx, state, replace(event, message=StateMoved(message.owned)))


def _own_with_the_promise(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """The new owner does not wait for the last word."""
    later, effects = move.conclude_adoption(ctx, state, event)
    own = later.own if isinstance(later, Active) else None
    if not isinstance(own, Freezing):
        return later, effects
    word = StateMoved(own.moved)
    return later, (*effects, *tell(owners_of(own.moved), word))


def _give_what_came(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """Groups that came while others were on their way out are forgotten with these."""
    later, effects = join.count_join_ack(ctx, state, event)
    assert isinstance(later, Active)
    return (replace(later, owned=()) if isinstance(later.own, Transferring) else later), effects


def _forget_promises(ctx: Context, state: Active, event: GroupsTransferred) -> Step:
    later, effects = leave.go_on_leaving(ctx, state, event)
    return (replace(later, expects=NONE) if isinstance(later, Active) else later), effects


def _tell_first_changes(ctx: Context, state: Active, event: GroupsTransferred) -> Step:
    """The last word leaves out owners of groups that have moved more than once."""
    later, effects = leave.go_on_leaving(ctx, state, event)
    return later, tuple(
        SendMessage(e.to, replace(e.message, routes=_changed_once(e.message.routes)))
        if isinstance(e, SendMessage) and isinstance(e.message, StateMoved)
        else e
        for e in effects
    )


def _changed_once(routes: Routes) -> Routes:
    return tuple(r for r in routes if r.version == 1)


CHAIN = (1, 1, 1)
ONE_JOIN = Scope(CHAIN, joins=1, tuples=2, scalable=(1,), keyed=(1,))
ONE_MOVE = Scope((1, 2, 1), moves=1, tuples=2, keyed=(1,))

VARIANTS = [
    Variant(
        "M4",
        "a refusal is taken for consent",
        Scope((1, 1), moves=1, keyed=(1,)),
        ("ILLEGAL", "K3"),
        {(Active, AdoptResponse): _take_refusal_for_consent},
    ),
    Variant(
        "M4",
        "groups that go to a new owner are not brought to rest",
        ONE_MOVE,
        ("K1", "K2"),
        {(Active, AdoptResponse): _new_owner_without_freezing},
        also="F16",
    ),
    Variant(
        "M4",
        "groups that go to children are not brought to rest",
        ONE_JOIN,
        ("K1", "K2"),
        {(Active, ChildrenReady): _children_without_freezing},
        also="F16",
    ),
    Variant(
        "M5",
        "the state goes out before the successors have answered",
        ONE_MOVE,
        ("K2",),
        {(Active, GroupsFrozen): _await_preds_only, (Active, JoinAck): _count_if_awaited},
        also="F15, F18",
    ),
    Variant(
        "M5",
        "the state goes out before the predecessors have answered",
        ONE_MOVE,
        ("K1", "K2", "L2", "I8", "S4"),
        {(Active, GroupsFrozen): _await_succs_only, (Active, JoinAck): _count_if_awaited},
    ),
    Variant(
        "M5",
        "the state goes out before a neighbour has answered",
        ONE_MOVE,
        ("K1", "K2", "L2"),
        {(Active, GroupsFrozen): _await_no_answer, (Active, JoinAck): _pass_over},
    ),
    Variant(
        "M5",
        "a router acknowledges new owners, but does not switch",
        ONE_MOVE,
        ("L2", "K7", "K1"),
        {(Active, Join): _count_children_only},
    ),
    Variant(
        "M5",
        "a router that leaves does not switch",
        Scope((1, 2, 2), leaves=1, moves=1, tuples=1, keyed=(2,)),
        ("L2",),
        {
            (ClosingIn, Join): _leaver_counts_children_only,
            (Draining, Join): _leaver_counts_children_only,
        },
    ),
    Variant(
        "M5",
        "an idle router does not remember new owners",
        Scope((1, 2), joins=1, moves=1, keyed=(1,)),
        ("K7", "K3"),
        {(Idle, Join): _remember_children_only},
    ),
    Variant(
        "M5",
        "versions are not compared: START replaces what has been remembered",
        Scope((1, 2), joins=1, moves=1, keyed=(1,)),
        ("K7", "K3"),
        {(Idle, Start): _believe_start},
        also="F19",
    ),
    Variant(
        "M6",
        "what was given away is still owned",
        ONE_MOVE,
        ("K5",),
        {(Active, JoinAck): _keep_what_was_given},
    ),
    Variant(
        "M6",
        "an owner gives away what it owns, not what it has announced",
        Scope((1, 2), moves=2, keyed=(1,), groups=2, slow=True),
        ("K5",),
        {(Active, JoinAck): _give_what_came},
    ),
    Variant(
        "M6",
        "a child is not told that state follows",
        ONE_JOIN,
        ("K4", "I4"),
        {(Active, JoinAck): _start_without_new_owner},
    ),
    Variant(
        "M7",
        "the last word goes out before the state",
        ONE_MOVE,
        ("K1",),
        {(Active, JoinAck): _last_word_first, (Active, GroupsTransferred): _no_last_word_now},
    ),
    Variant(
        "M7",
        "nothing is said behind the state",
        ONE_MOVE,
        ("L1", "L2"),
        {(Active, GroupsTransferred): _no_last_word_now},
    ),
    Variant(
        "M7",
        "an owner whose state is out forgets what it has promised to take over",
        Scope((1, 2), moves=2, keyed=(1,), groups=2, slow=True),
        ("I4",),
        {(Active, GroupsTransferred): _forget_promises},
    ),
    Variant(
        "M7",
        "the last word leaves out owners of groups that have moved more than once",
        Scope((1, 2, 2), moves=3, tuples=2, keyed=(1, 2)),
        ("K1",),
        {(Active, GroupsTransferred): _tell_first_changes},
    ),
    Variant(
        "M7",
        "a leaver begins to leave before the state is out",
        Scope((1, 2), leaves=1, keyed=(1,), groups=2, slow=True),
        ("ILLEGAL", "K4"),
        {(Active, JoinAck): _go_before_the_state_is_out},
    ),
    Variant(
        "M8",
        "the new owner owns the groups with the promise",
        ONE_MOVE,
        ("K1", "K5"),
        {(Active, AdoptResponse): _own_with_the_promise},
    ),
    Variant(
        "M8",
        "the new owner owns the groups before it knows the routes of their old owner",
        Scope((1, 2, 2), moves=2, tuples=2, keyed=(1, 2)),
        ("K1",),
        {(Active, StateMoved): _own_at_once},
    ),
    Variant(
        "duty 9",
        "tuples of frozen groups are processed",
        ONE_JOIN,
        ("K1", "K2"),
        broken_duty="9",
    ),
    Variant(
        "duty 10",
        "tuples that were kept do not go along with the state",
        ONE_JOIN,
        ("L2", "K1"),
        broken_duty="10",
        also="F17",
    ),
    Variant(
        "duty 11",
        "tuples kept by the new owner are processed before those that came along",
        ONE_JOIN,
        ("K1",),
        broken_duty="11",
    ),
]
