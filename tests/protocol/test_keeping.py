"""R5 and R12 to R15: the role is given away only after somebody else has it."""

from __future__ import annotations

import pytest

from anabranch.protocol.effects import ChangeRole, Conclude, SpawnInstances, Veto
from anabranch.protocol.events import ChildrenReady, HandOverDecided, MessageReceived
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import (
    NONE,
    BecomeKeeper,
    Join,
    JoinAck,
    KeeperAck,
    Offer,
    OfferResponse,
    Start,
)
from anabranch.protocol.ownership import Route
from anabranch.protocol.states import (
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
    C1,
    CHILD,
    ME,
    active,
    hear,
    ids,
    play,
    refused,
    send,
)

JOINING = Joining(ids(CHILD), awaiting=ids(C0))
OTHERS = [
    Idle(),
    ClosingIn(ids(C0), ids(A0), ids(A0)),
    Draining(ids(C0)),
    ClosingOut(ids(C0)),
    Finished(ids(C0), ids(A0)),
]


def test_r12_a_keeper_asks_for_one_fresh_instance() -> None:
    assert play(active(keeper=True), HandOverDecided()) == (
        active(keeper=True, own=Spawning(1, migrate=True)),
        (SpawnInstances(1),),
    )


def test_r12_the_fresh_instance_is_announced_as_any_child_is() -> None:
    state = active(keeper=True, own=Spawning(1, migrate=True))
    assert play(state, ChildrenReady(ids(CHILD))) == (
        active(keeper=True, own=Joining(ids(CHILD), ids(A0, C0), migrate=True)),
        (send(A0, Join(ids(CHILD))), send(C0, Join(ids(CHILD)))),
    )


def test_r12_start_carries_the_role_and_the_keeper_keeps_it_still() -> None:
    own = Joining(ids(CHILD), awaiting=ids(C0), migrate=True)
    assert hear(active(keeper=True, own=own), C0, JoinAck()) == (
        active(keeper=True, own=Migrating(CHILD)),
        (send(CHILD, Start(ids(C0), ids(A0), keeper=True)),),
    )


def test_r5_the_role_is_dropped_when_the_child_has_it() -> None:
    assert hear(active(keeper=True, own=Migrating(CHILD)), CHILD, KeeperAck()) == (
        active(),
        (ChangeRole(keeper=False), Conclude("handed_over", ids(CHILD))),
    )


@pytest.mark.parametrize("own", [None, Spawning(1), JOINING, Offering(), Migrating(B0)])
def test_r5_an_acknowledgement_by_anybody_else_is_refused(own: Own | None) -> None:
    state = active(keeper=True, own=own)
    refused(state, MessageReceived(CHILD, KeeperAck()), "not awaited .I4.")


@pytest.mark.parametrize("via", [A0, C0], ids=["predecessor", "successor"])
def test_r13_a_keeper_offers_its_role_through_a_neighbour(via: InstanceId) -> None:
    assert play(active(keeper=True), HandOverDecided(via=via)) == (
        active(keeper=True, own=Offering()),
        (send(via, Offer()),),
    )


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (active(), HandOverDecided()),
        (active(keeper=True, own=Spawning(1)), HandOverDecided()),
        (active(keeper=True, own=JOINING), HandOverDecided(A0)),
        (active(keeper=True), HandOverDecided(C1)),
    ],
    ids=["no keeper", "starting children", "joining", "no neighbour"],
)
def test_r13_a_hand_over_that_cannot_be_is_vetoed(state: State, event: HandOverDecided) -> None:
    after, effects = play(state, event)
    assert (after, [type(e) for e in effects]) == (state, [Veto])


def test_r13_a_neighbour_passes_the_offer_to_a_sibling_of_the_keeper() -> None:
    state = active(preds=(A0, A1))
    assert hear(state, A0, Offer()) == (state, (send(A1, BecomeKeeper(A0)),))
    state = active(succs=(C0, C1))
    assert hear(state, C1, Offer()) == (state, (send(C0, BecomeKeeper(C1)),))


def test_r13_a_neighbour_that_sees_no_sibling_refuses() -> None:
    assert hear(active(), A0, Offer()) == (active(), (send(A0, OfferResponse(ok=False)),))


@pytest.mark.parametrize("state", OTHERS, ids=lambda s: type(s).__name__)
def test_r13_who_is_not_active_relays_nothing(state: State) -> None:
    assert hear(state, A0, Offer()) == (state, (send(A0, OfferResponse(ok=False)),))


def test_i9_an_offer_from_a_stranger_is_refused() -> None:
    refused(active(), MessageReceived(A1, Offer()), "unknown to me .I9.")


MOVED = (Route(B0, 0, 1),)
GIVING = [Freezing(NONE, MOVED), Transferring(NONE, MOVED, ids(B0))]


@pytest.mark.parametrize("own", [None, Spawning(2), JOINING, *GIVING])
def test_r14_a_sibling_takes_the_role_and_answers_the_keeper_itself(own: Own | None) -> None:
    assert hear(active(own=own), A0, BecomeKeeper(B0)) == (
        active(own=own, keeper=True),
        (ChangeRole(keeper=True), send(B0, OfferResponse(ok=True))),
    )


@pytest.mark.parametrize(
    "own",
    [
        Offering(),
        Migrating(CHILD),
        Spawning(1, migrate=True),
        Joining(ids(CHILD), ids(C0), migrate=True),
    ],
)
def test_r14_who_is_giving_its_own_role_away_takes_no_other(own: Own) -> None:
    state = active(keeper=True, own=own)
    assert hear(state, A0, BecomeKeeper(B0)) == (state, (send(B0, OfferResponse(ok=False)),))


@pytest.mark.parametrize(
    "own",
    [
        Seeking(frozenset({0}), leave=True),
        Freezing(NONE, MOVED, leave=True),
        Joining(NONE, ids(A0), moved=MOVED, leave=True),
        Transferring(NONE, MOVED, ids(B0), leave=True),
    ],
)
def test_r14_an_owner_that_wants_to_go_takes_no_role(own: Own) -> None:
    state = active(own=own)
    assert hear(state, A0, BecomeKeeper(B0)) == (state, (send(B0, OfferResponse(ok=False)),))


@pytest.mark.parametrize("state", OTHERS, ids=lambda s: type(s).__name__)
def test_r14_who_is_not_active_declines(state: State) -> None:
    assert hear(state, A0, BecomeKeeper(B0)) == (state, (send(B0, OfferResponse(ok=False)),))


def test_r15_the_role_is_dropped_on_a_yes() -> None:
    assert hear(active(keeper=True, own=Offering()), B0, OfferResponse(ok=True)) == (
        active(),
        (ChangeRole(keeper=False), Conclude("handed_over")),
    )


def test_r15_the_role_is_kept_on_a_no() -> None:
    assert hear(active(keeper=True, own=Offering()), B0, OfferResponse(ok=False)) == (
        active(keeper=True),
        (Conclude("refused"),),
    )


def test_r15_an_answer_to_no_offer_is_refused() -> None:
    refused(active(), MessageReceived(B0, OfferResponse(ok=True)), "no offer .I4.")


def test_f10_two_keepers_that_offer_to_each_other_both_stay_keepers() -> None:
    one, other = active(keeper=True, own=Offering()), active(keeper=True, own=Offering())
    _, (answer,) = hear(one, C0, BecomeKeeper(B0), me=ME)
    _, (other_answer,) = hear(other, C0, BecomeKeeper(ME), me=B0)
    assert answer == send(B0, OfferResponse(ok=False))
    assert other_answer == send(ME, OfferResponse(ok=False))
