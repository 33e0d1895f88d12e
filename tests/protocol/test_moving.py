"""M4 to M8: key groups come to rest, everybody hears of the new owner, the state follows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anabranch.protocol.effects import (
    AwaitDrained,
    Conclude,
    ExpectState,
    FreezeGroups,
    StateComplete,
    StopIntake,
    TransferGroups,
)
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.events import (
    ChildrenReady,
    GroupsFrozen,
    GroupsTransferred,
    MessageReceived,
)
from anabranch.protocol.messages import (
    AdoptResponse,
    Fin,
    Join,
    JoinAck,
    Leave,
    Start,
    StateMoved,
)
from anabranch.protocol.ownership import Route
from anabranch.protocol.states import (
    Active,
    ClosingIn,
    Draining,
    Freezing,
    Idle,
    Joining,
    Seeking,
    Spawning,
    State,
    Transferring,
)
from tests.protocol.playbook import (
    A0,
    A1,
    B0,
    C0,
    C1,
    CHILD,
    CHILD2,
    ME,
    active,
    hear,
    ids,
    instance,
    play,
    refused,
    send,
    view,
)

B4, B5 = instance("b.4"), instance("b.5")
MINE = (Route(ME, 0), Route(ME, 1, 4))
TO_B0 = (Route(B0, 1, 5),)
REST = (Route(ME, 0),)


def owner(**more: Any) -> Active:
    """An owner of the key groups 0 and 1; the second has changed hands four times."""
    return active(**{"owned": MINE, **more})


def groups(*members: int) -> frozenset[int]:
    return frozenset(members)


# -- M4 and M5: bring to rest, then tell everybody -------------------------------------------


@pytest.mark.parametrize("leave", [False, True])
def test_m4_with_a_new_owner_the_key_groups_are_brought_to_rest(leave: bool) -> None:
    state = owner(own=Seeking(groups(1), leave))
    assert hear(state, B0, AdoptResponse(ok=True)) == (
        owner(own=Freezing(ids(), TO_B0, leave)),
        (FreezeGroups(groups(1), new_owner=B0),),
    )


def test_m4_without_a_new_owner_everything_stays_as_it_is() -> None:
    state = owner(own=Seeking(groups(1), leave=True))
    assert hear(state, A0, AdoptResponse(ok=False)) == (owner(), (Conclude("refused"),))


def test_m4_an_answer_that_nobody_waits_for_is_refused() -> None:
    refused(owner(), MessageReceived(B0, AdoptResponse(ok=True)), "I4")


def test_m4_children_get_key_groups_in_the_same_way() -> None:
    ready = ChildrenReady(ids(CHILD, CHILD2), moved=((1, CHILD),))
    moved = (Route(CHILD, 1, 5),)
    assert play(owner(own=Spawning(2)), ready) == (
        owner(own=Freezing(ids(CHILD, CHILD2), moved)),
        (FreezeGroups(groups(1)),),
    )


def test_m4_a_fresh_keeper_gets_no_key_groups() -> None:
    fresh = owner(own=Spawning(1, migrate=True))
    ready = ChildrenReady(ids(CHILD), moved=((1, CHILD),))
    assert play(fresh, ready) == play(fresh, ChildrenReady(ids(CHILD)))


def test_m4_key_groups_go_to_children_of_this_birth_only() -> None:
    refused(owner(own=Spawning(1)), ChildrenReady(ids(CHILD), moved=((1, B0),)), "are none")


@pytest.mark.parametrize("moved", [((7, CHILD),), ((1, CHILD), (1, CHILD2))])
def test_m4_what_is_not_owned_or_given_twice_is_an_error_here(moved: object) -> None:
    ready = ChildrenReady(ids(CHILD, CHILD2), moved=moved)  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError, match="is to move"):
        play(owner(own=Spawning(2)), ready)


@pytest.mark.parametrize("leave", [False, True])
def test_m5_at_rest_a_new_owner_is_told_of_and_what_wants_to_go_still_does(leave: bool) -> None:
    after, effects = play(owner(own=Freezing(ids(), TO_B0, leave)), GroupsFrozen())
    assert after == owner(own=Joining(ids(), ids(A0, C0), moved=TO_B0, leave=leave))
    assert effects == (send(A0, Join(ids(), TO_B0)), send(C0, Join(ids(), TO_B0)))


@pytest.mark.parametrize("leave", [False, True])
def test_m6_what_wants_to_go_still_does_when_the_state_goes_out(leave: bool) -> None:
    own = Joining(ids(), ids(A0), moved=TO_B0, leave=leave)
    after, _ = hear(owner(own=own), A0, JoinAck())
    assert after == owner(own=Transferring(ids(), TO_B0, ids(B0), leave), owned=REST)


def test_m5_at_rest_all_neighbours_hear_of_children_and_new_owners_at_once() -> None:
    state = owner(own=Freezing(ids(CHILD), (Route(CHILD, 1, 5),), leave=False))
    join = Join(ids(CHILD), (Route(CHILD, 1, 5),))
    after, effects = play(state, GroupsFrozen())
    assert after == owner(own=Joining(ids(CHILD), ids(A0, C0), moved=join.moved))
    assert effects == (send(A0, join), send(C0, join))


def test_m5_groups_that_no_move_freezes_cannot_be_frozen() -> None:
    refused(owner(), GroupsFrozen(), "not to be frozen")


def test_m5_a_router_switches_before_it_acknowledges() -> None:
    """No tuple of the moved groups follows the marker."""
    before = active(succs=(ME, B0), preds=(), routes=MINE)
    after, effects = hear(before, ME, Join(ids(), TO_B0), me=A0)
    assert after == replace(before, routes=(Route(ME, 0), *TO_B0))
    assert effects == (
        replace(view((ME, B0), ()), routes=(Route(ME, 0), *TO_B0)),
        send(ME, JoinAck()),
    )


@pytest.mark.parametrize(
    "router",
    [
        ClosingIn(ids(ME, B0), ids(), ids(), MINE),
        Draining(ids(ME, B0), MINE),
    ],
)
def test_m5_a_leaver_that_still_sends_switches_too(router: ClosingIn | Draining) -> None:
    after, _ = hear(router, ME, Join(ids(), TO_B0), me=A0)
    assert after == replace(router, routes=(Route(ME, 0), *TO_B0))


def test_m5_an_idle_router_remembers_the_newer_statement_against_start() -> None:
    idle, _ = hear(Idle(), ME, Join(ids(), TO_B0), me=A1)
    start = Start(ids(ME, B0), ids(), routes=MINE)
    after, _ = hear(idle, A0, start, me=A1)
    assert isinstance(after, Active)
    assert after.routes == (Route(ME, 0), *TO_B0)


def test_m5_an_older_statement_changes_nothing() -> None:
    before = active(succs=(ME, B0), preds=(), routes=TO_B0)
    after, _ = hear(before, ME, Join(ids(), (Route(ME, 1, 4),)), me=A0)
    assert after == before


def test_m5_nobody_gives_away_key_groups_of_another_operator() -> None:
    before = active(succs=(ME, B0), preds=())
    refused(before, MessageReceived(ME, Join(ids(), (Route(C0, 1, 5),))), "another", me=A0)


# -- M6 and M7: when all have answered, the state goes out -----------------------------------


def test_m6_the_state_goes_out_when_the_last_neighbour_has_answered() -> None:
    """A predecessor's answer follows its last tuple, a successor's all that was made of them."""
    state = owner(own=Joining(ids(), ids(A0, C0), moved=TO_B0))
    state_then, effects = hear(state, A0, JoinAck())
    assert effects == ()
    assert hear(state_then, C0, JoinAck()) == (
        owner(own=Transferring(ids(), TO_B0, ids(B0)), owned=REST),
        (TransferGroups(B0, groups(1)),),
    )


def test_m6_children_are_started_first_and_told_whether_state_follows() -> None:
    moved = (Route(CHILD, 1, 5),)
    state = owner(own=Joining(ids(CHILD, CHILD2), ids(A0), moved=moved))
    start = Start(ids(C0), ids(A0))
    assert hear(state, A0, JoinAck()) == (
        owner(own=Transferring(ids(CHILD, CHILD2), moved, ids(CHILD)), owned=REST),
        (
            send(CHILD, replace(start, new_owner=True)),
            send(CHILD2, start),
            TransferGroups(CHILD, groups(1)),
        ),
    )


def test_m7_the_last_word_follows_the_state() -> None:
    state = owner(own=Transferring(ids(), TO_B0, ids(B0)), owned=REST)
    assert play(state, GroupsTransferred(B0)) == (
        owner(owned=REST),
        (send(B0, StateMoved(TO_B0)), Conclude("moved", ids(B0))),
    )


def test_m7_a_join_ends_when_every_child_has_its_state() -> None:
    moved = (Route(CHILD, 0, 1), Route(CHILD2, 1, 5))
    both = Transferring(ids(CHILD, CHILD2), moved, ids(CHILD, CHILD2))
    state, effects = play(owner(own=both, owned=()), GroupsTransferred(CHILD2))
    assert effects == (send(CHILD2, StateMoved((Route(CHILD2, 1, 5),))),)
    after, effects = play(state, GroupsTransferred(CHILD))
    assert after == active()
    assert effects[-1] == Conclude("joined", ids(CHILD, CHILD2))


def test_m7_state_goes_only_to_those_who_are_to_have_it() -> None:
    state = owner(own=Transferring(ids(), TO_B0, ids(B0)))
    refused(state, GroupsTransferred(B4), "was to have none")
    refused(owner(), GroupsTransferred(B0), "was to have none")


def test_m7_who_gave_all_away_in_order_to_go_goes_behind_its_last_word() -> None:
    moved = (Route(B0, 0, 1), *TO_B0)
    state = owner(own=Transferring(ids(), moved, ids(B0), leave=True), owned=())
    assert play(state, GroupsTransferred(B0)) == (
        ClosingIn(ids(C0), ids(A0), awaiting=ids(A0)),
        (
            send(B0, StateMoved(moved)),
            Conclude("moved", ids(B0)),
            Conclude("leaving"),
            StopIntake(),
            send(A0, Leave()),
            view(),
        ),
    )


def test_m7_at_the_end_of_the_stream_it_finishes_instead() -> None:
    own = Transferring(ids(), TO_B0, ids(B0), leave=True)
    after, effects = play(owner(own=own, owned=(), finished=ids(A0)), GroupsTransferred(B0))
    assert after == active(finished=ids(A0))
    assert effects[-1] == AwaitDrained(stream_ends=True)


# -- M8: the new owner -----------------------------------------------------------------------


def test_m8_with_the_last_word_the_key_groups_are_owned() -> None:
    came = StateMoved((Route(ME, 2, 3),))
    assert hear(owner(expects=ids(B0, B4)), B0, came) == (
        owner(owned=(*MINE, Route(ME, 2, 3)), expects=ids(B4)),
        (StateComplete(B0, groups(2)),),
    )


def test_m8_a_child_expects_state_from_its_start_on() -> None:
    state, effects = hear(Idle(), ME, Start(ids(C0), ids(A0), new_owner=True), me=CHILD)
    assert state == active(expects=ids(ME))
    assert effects[0] == ExpectState(ME)
    after, _ = hear(state, ME, StateMoved((Route(CHILD, 1, 5),)), me=CHILD)
    assert after == active(owned=(Route(CHILD, 1, 5),))


def test_m8_a_new_owner_at_the_end_of_the_stream_waits_for_the_state_before_it_finishes() -> None:
    state, effects = hear(active(preds=(A0,), expects=ids(B0)), A0, Fin())
    assert effects == ()
    _, effects = hear(state, B0, StateMoved((Route(ME, 2, 3),)))
    assert effects == (StateComplete(B0, groups(2)), AwaitDrained(stream_ends=True))


@pytest.mark.parametrize(
    ("state", "owned", "words"),
    [
        (owner(), (Route(ME, 2, 3),), "not expected .I4."),
        (owner(expects=ids(B0)), (Route(B4, 2, 3),), "for another instance"),
        (owner(expects=ids(B0)), (Route(ME, 1, 3),), "groups of mine .K5."),
    ],
)
def test_m8_state_that_cannot_be_mine_is_refused(
    state: State, owned: tuple[Route, ...], words: str
) -> None:
    refused(state, MessageReceived(B0, StateMoved(owned)), words)


# -- M8 where the next operator is keyed too -------------------------------------------------

OLD_C, NEW_C = Route(C0, 7), Route(C1, 7, 1)


def test_m7_the_last_word_says_by_which_routes_results_were_sent() -> None:
    """Only those that somebody may not know: nobody has to be told of the founders."""
    routes = (Route(C0, 6), NEW_C)
    state = active((C0, C1), own=Transferring(ids(), TO_B0, ids(B0)), routes=routes)
    _, effects = play(state, GroupsTransferred(B0))
    assert effects[0] == send(B0, StateMoved(TO_B0, routes=(NEW_C,)))


def test_m8_key_groups_wait_until_the_routes_of_their_old_owner_are_known() -> None:
    """What would go by older routes could overtake what the old owner has sent."""
    came = StateMoved((Route(ME, 2, 3),), routes=(NEW_C,))
    before = active((C0, C1), routes=(OLD_C,), expects=ids(B0))
    waiting = replace(before, arrived=((B0, came),))
    assert hear(before, B0, came) == (waiting, ())
    assert hear(waiting, C0, Join(ids(), (NEW_C,))) == (
        active((C0, C1), routes=(NEW_C,), owned=came.owned),
        (
            replace(view((C0, C1)), routes=(NEW_C,)),
            send(C0, JoinAck()),
            StateComplete(B0, groups(2)),
        ),
    )


def test_m8_who_knows_newer_routes_already_owns_at_once() -> None:
    came = StateMoved((Route(ME, 2, 3),), routes=(NEW_C,))
    before = active((C0, C1), routes=(Route(C0, 7, 2),), expects=ids(B0))
    after, effects = hear(before, B0, came)
    assert after == replace(before, owned=came.owned, expects=ids())
    assert effects == (StateComplete(B0, groups(2)),)


def test_m8_state_of_one_owner_does_not_wait_for_that_of_another() -> None:
    late = StateMoved((Route(ME, 2, 3),), routes=(NEW_C,))
    before = active((C0, C1), routes=(OLD_C,), expects=ids(B0, B4), arrived=((B0, late),))
    after, effects = hear(before, B4, StateMoved((Route(ME, 3, 1),)))
    assert after == replace(before, owned=(Route(ME, 3, 1),), expects=ids(B0))
    assert effects == (StateComplete(B4, groups(3)),)


def test_m8_at_the_end_of_the_stream_it_waits_for_those_routes_too() -> None:
    came = StateMoved((Route(ME, 2, 3),), routes=(NEW_C,))
    state = active(
        (C0, C1), routes=(OLD_C,), expects=ids(B0), arrived=((B0, came),), finished=ids(A0)
    )
    _, effects = hear(state, C0, Join(ids(), (NEW_C,)))
    assert effects[-2:] == (StateComplete(B0, groups(2)), AwaitDrained(stream_ends=True))
