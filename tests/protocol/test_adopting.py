"""M1 to M3: who gives key groups away asks for a new owner, and who promises to take them stays."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.protocol.effects import (
    ExpectState,
    Veto,
)
from anabranch.protocol.events import (
    LeaveDecided,
    MessageReceived,
    MoveDecided,
)
from anabranch.protocol.messages import (
    Adopt,
    AdoptOffer,
    AdoptResponse,
)
from anabranch.protocol.ownership import Route
from anabranch.protocol.states import (
    Active,
    ClosingIn,
    ClosingOut,
    Draining,
    Finished,
    Freezing,
    Idle,
    Joining,
    Migrating,
    Offering,
    Own,
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
    CHILD,
    ME,
    active,
    hear,
    ids,
    instance,
    play,
    refused,
    send,
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


def vetoed(state: State, event: MoveDecided | LeaveDecided) -> bool:
    after, effects = play(state, event)
    return after == state and [type(e) for e in effects] == [Veto]


# -- M1: a new owner is looked for ---------------------------------------------------------------


def test_m1_who_moves_key_groups_asks_a_neighbour_for_a_new_owner() -> None:
    assert play(owner(), MoveDecided(groups(1), via=A0, draw=3)) == (
        owner(own=Seeking(groups(1), leave=False)),
        (send(A0, AdoptOffer(draw=3)),),
    )


@pytest.mark.parametrize("given", [groups(), groups(2), groups(1, 2)])
def test_m1_only_own_key_groups_can_be_given_away(given: frozenset[int]) -> None:
    assert vetoed(owner(), MoveDecided(given, via=A0))


@pytest.mark.parametrize("via", [None, A1, B0])
def test_m1_only_a_neighbour_can_be_asked(via: object) -> None:
    assert vetoed(owner(), MoveDecided(groups(1), via=via))  # type: ignore[arg-type]
    assert vetoed(owner(), LeaveDecided(via=via))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "own",
    [
        Spawning(1),
        Seeking(groups(0), leave=False),
        Freezing(ids(), TO_B0),
        Joining(ids(CHILD), ids(A0)),
        Transferring(ids(), TO_B0, ids(B0)),
        Migrating(CHILD),
        Offering(),
    ],
)
def test_m1_one_operation_at_a_time(own: Own) -> None:
    assert vetoed(owner(own=own), MoveDecided(groups(1), via=A0))
    assert vetoed(owner(own=own), LeaveDecided(via=A0))


def test_m1_nothing_moves_any_more_when_the_stream_ends() -> None:
    assert vetoed(owner(finished=ids(A0)), MoveDecided(groups(1), via=A0))


def test_m1_an_owner_that_wants_to_leave_looks_for_a_new_owner_of_all_its_key_groups() -> None:
    assert play(owner(), LeaveDecided(via=C0, draw=1)) == (
        owner(own=Seeking(groups(0, 1), leave=True)),
        (send(C0, AdoptOffer(draw=1)),),
    )


def test_m1_whoever_expects_state_stays() -> None:
    assert vetoed(active(expects=ids(B0)), LeaveDecided())


# -- M2 and M3: the neighbour relays, the sibling answers ------------------------------------


@pytest.mark.parametrize(("draw", "new_owner"), [(0, B0), (1, B4), (2, B5), (3, B0)])
def test_m2_the_neighbour_asks_the_sibling_that_has_been_drawn(
    draw: int, new_owner: object
) -> None:
    relay = active(succs=(), preds=(B0, ME, B4, B5))
    assert hear(relay, ME, AdoptOffer(draw), me=C0) == (relay, (send(new_owner, Adopt(ME)),))  # type: ignore[arg-type]


def test_m2_a_neighbour_that_knows_no_sibling_says_so() -> None:
    relay = active(succs=(ME,), preds=())
    assert hear(relay, ME, AdoptOffer(), me=A0) == (relay, (send(ME, AdoptResponse(ok=False)),))


@pytest.mark.parametrize(
    "relay",
    [
        Idle(),
        ClosingIn(ids(ME, B0), ids(), ids()),
        Draining(ids(ME, B0)),
        ClosingOut(ids(ME, B0)),
        Finished(ids(ME, B0), ids()),
    ],
)
def test_m2_who_is_not_active_relays_nothing(relay: State) -> None:
    """A message to a sibling could reach it after its end (F8)."""
    assert hear(relay, ME, AdoptOffer(), me=A0) == (relay, (send(ME, AdoptResponse(ok=False)),))


def test_m2_an_offer_of_a_stranger_is_refused() -> None:
    refused(active(succs=(B0,), preds=()), MessageReceived(ME, AdoptOffer()), "I9", me=A0)


ACCEPTED = (ExpectState(B0), send(B0, AdoptResponse(ok=True)))
DECLINED = (send(B0, AdoptResponse(ok=False)),)


@pytest.mark.parametrize(
    "own",
    [
        None,
        Spawning(1),
        Seeking(groups(0), leave=False),
        Freezing(ids(CHILD), TO_B0),
        Joining(ids(CHILD), ids(A0)),
        Transferring(ids(), TO_B0, ids(B0)),
        Migrating(CHILD),
        Offering(),
    ],
)
def test_m3_a_new_owner_promises_to_stay_until_the_state_has_come(own: Own | None) -> None:
    assert hear(owner(own=own), A0, Adopt(B0)) == (owner(own=own, expects=ids(B0)), ACCEPTED)


@pytest.mark.parametrize(
    "own",
    [
        Seeking(groups(0, 1), leave=True),
        Freezing(ids(), TO_B0, leave=True),
        Joining(ids(), ids(A0), moved=TO_B0, leave=True),
        Transferring(ids(), TO_B0, ids(B0), leave=True),
    ],
)
def test_m3_who_wants_to_go_promises_nothing(own: Own) -> None:
    assert hear(owner(own=own), A0, Adopt(B0)) == (owner(own=own), DECLINED)


def test_m3_at_the_end_of_the_stream_nobody_promises_anything() -> None:
    state = owner(finished=ids(A0))
    assert hear(state, A0, Adopt(B0)) == (state, DECLINED)


def test_m3_one_promise_at_a_time_to_the_same_owner() -> None:
    """The relay can be faster than the owner's last word about what it gave before."""
    state = owner(expects=ids(B0))
    assert hear(state, A0, Adopt(B0)) == (state, DECLINED)
    after, effects = hear(state, A0, Adopt(B4))
    assert after == owner(expects=ids(B0, B4))
    assert effects == (ExpectState(B4), send(B4, AdoptResponse(ok=True)))


@pytest.mark.parametrize(
    "state",
    [
        Idle(),
        ClosingIn(ids(C0), ids(A0), ids(A0)),
        Draining(ids(C0)),
        ClosingOut(ids(C0)),
        Finished(ids(C0), ids(A0)),
    ],
)
def test_m3_who_is_not_active_takes_over_nothing(state: State) -> None:
    assert hear(state, A0, Adopt(B0)) == (state, DECLINED)
