"""V1 to V3: a new instance takes the place of one that relocates, with all that it has."""

from __future__ import annotations

import pytest

from anabranch.protocol.effects import (
    AwaitDrained,
    ChangeRole,
    Conclude,
    FreezeGroups,
    SendMessage,
    SpawnInstances,
    StopIntake,
    TransferGroups,
    Veto,
)
from anabranch.protocol.events import (
    ChildrenReady,
    Event,
    GroupsFrozen,
    GroupsTransferred,
    InputEnded,
    MessageReceived,
    RelocateDecided,
    Restarted,
    SpawnFailed,
)
from anabranch.protocol.messages import (
    Adopt,
    AdoptResponse,
    BecomeKeeper,
    Join,
    JoinAck,
    KeeperAck,
    Leave,
    OfferResponse,
    Start,
    StateMoved,
)
from anabranch.protocol.ownership import Route
from anabranch.protocol.states import (
    Active,
    ClosingIn,
    ClosingOut,
    Draining,
    Finished,
    Freezing,
    Gone,
    Idle,
    Joining,
    Migrating,
    Offering,
    Own,
    Spawning,
    State,
    Transferring,
)
from tests.protocol.playbook import (
    A0,
    B0,
    C0,
    CHILD,
    CHILD2,
    GRAPH,
    ME,
    active,
    hear,
    ids,
    play,
    refused,
    send,
    view,
)

GROUPS = (Route(ME, 0, 1), Route(ME, 1, 1))
MOVED = (Route(CHILD, 0, 2), Route(CHILD, 1, 2))
JOINING = Joining(ids(CHILD), awaiting=ids(C0), leave=True)
RELOCATING: list[Own] = [
    Spawning(1, leave=True),
    Freezing(ids(CHILD), MOVED, leave=True),
    JOINING,
    Transferring(ids(CHILD), MOVED, ids(CHILD), leave=True),
    Migrating(CHILD, leave=True),
]
LEAVES = (Conclude("leaving"), StopIntake(), send(A0, Leave()), view())
CLOSING = ClosingIn(ids(C0), ids(A0), awaiting=ids(A0))


@pytest.mark.parametrize("keeper", [False, True])
def test_v1_an_instance_asks_for_one_process_on_the_other_host(keeper: bool) -> None:
    assert play(active(keeper=keeper), RelocateDecided("plant-2")) == (
        active(keeper=keeper, own=Spawning(1, migrate=keeper, leave=True)),
        (SpawnInstances(1, "plant-2"),),
    )


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (active(own=Spawning(1)), "an operation of this instance is under way"),
        (active(own=Offering(), keeper=True), "an operation of this instance is under way"),
        (active(finished=ids(A0)), "the stream is ending"),
        (active(expects=ids(B0)), "it has promised to take over key groups"),
        (Idle(), "the instance is Idle"),
        (CLOSING, "the instance is ClosingIn"),
        (Draining(ids(C0)), "the instance is Draining"),
        (ClosingOut(ids(C0)), "the instance is ClosingOut"),
        (Finished(ids(C0), ids(A0)), "the instance is Finished"),
        (Gone(), "the instance is Gone"),
    ],
)
def test_v1_a_relocation_that_cannot_be_is_vetoed(state: State, reason: str) -> None:
    later, (veto,) = play(state, RelocateDecided("plant-2"))
    assert later == state
    assert isinstance(veto, Veto)
    assert veto.reason.startswith(reason)


@pytest.mark.parametrize("event", [SpawnFailed("no room"), Restarted()], ids=["failed", "died"])
def test_v1_without_a_newcomer_everything_stays_as_it_was(event: SpawnFailed | Restarted) -> None:
    state = active(keeper=True, own=Spawning(1, migrate=True, leave=True), owned=GROUPS)
    later, effects = play(state, event)
    assert later == active(keeper=True, owned=GROUPS)
    assert Conclude("spawn_failed") in effects
    assert not any(isinstance(e, SendMessage) for e in effects)


@pytest.mark.parametrize("keeper", [False, True])
def test_v2_the_newcomer_is_announced_as_any_child_is(keeper: bool) -> None:
    state = active(keeper=keeper, own=Spawning(1, migrate=keeper, leave=True))
    own = Joining(ids(CHILD), ids(A0, C0), migrate=keeper, leave=True)
    join = Join(ids(CHILD))
    assert play(state, ChildrenReady(ids(CHILD))) == (
        active(keeper=keeper, own=own),
        (send(A0, join), send(C0, join)),
    )


@pytest.mark.parametrize("keeper", [False, True])
def test_v2_it_gets_all_key_groups_in_the_round_that_announces_it(keeper: bool) -> None:
    own: Own = Spawning(1, migrate=keeper, leave=True)
    freezing, effects = play(
        active(keeper=keeper, own=own, owned=GROUPS), ChildrenReady(ids(CHILD))
    )
    assert effects == (FreezeGroups(frozenset({0, 1})),)
    joining, effects = play(freezing, GroupsFrozen())
    join = Join(ids(CHILD), MOVED)
    assert effects == (send(A0, join), send(C0, join))
    own = Joining(ids(CHILD), ids(A0, C0), migrate=keeper, moved=MOVED, leave=True)
    assert joining == active(keeper=keeper, own=own, owned=GROUPS)


def test_v2_one_newcomer_takes_one_place() -> None:
    state = active(own=Spawning(1, leave=True))
    refused(state, ChildrenReady(ids(CHILD, CHILD2)), "one child takes the place")


def test_v3_it_leaves_behind_start() -> None:
    assert hear(active(own=JOINING), C0, JoinAck()) == (
        CLOSING,
        (send(CHILD, Start(ids(C0), ids(A0))), Conclude("joined", ids(CHILD)), *LEAVES),
    )


def test_v3_a_keeper_leaves_when_the_newcomer_keeps_the_operator() -> None:
    migrating, effects = hear(
        active(keeper=True, own=Joining(ids(CHILD), ids(C0), migrate=True, leave=True)),
        C0,
        JoinAck(),
    )
    assert migrating == active(keeper=True, own=Migrating(CHILD, leave=True))
    assert effects == (send(CHILD, Start(ids(C0), ids(A0), keeper=True)),)
    assert hear(migrating, CHILD, KeeperAck()) == (
        CLOSING,
        (ChangeRole(keeper=False), Conclude("handed_over", ids(CHILD)), *LEAVES),
    )


def test_v3_an_owner_leaves_when_its_state_is_out() -> None:
    own = Joining(ids(CHILD), ids(C0), moved=MOVED, leave=True)
    transferring, effects = hear(active(own=own, owned=GROUPS), C0, JoinAck())
    start = Start(ids(C0), ids(A0), new_owner=True)
    assert effects == (send(CHILD, start), TransferGroups(CHILD, frozenset({0, 1})))
    assert transferring == active(own=Transferring(ids(CHILD), MOVED, ids(CHILD), leave=True))
    assert play(transferring, GroupsTransferred(CHILD)) == (
        CLOSING,
        (send(CHILD, StateMoved(MOVED)), Conclude("joined", ids(CHILD)), *LEAVES),
    )


def _keeper_with_groups() -> State:
    own = Joining(ids(CHILD), ids(C0), migrate=True, moved=MOVED, leave=True)
    later, effects = hear(active(keeper=True, own=own, owned=GROUPS), C0, JoinAck())
    assert send(CHILD, Start(ids(C0), ids(A0), keeper=True, new_owner=True)) in effects
    return later


@pytest.mark.parametrize("state_first", [False, True])
def test_v3_a_keeper_with_key_groups_waits_for_both(state_first: bool) -> None:
    events: list[Event] = [GroupsTransferred(CHILD), MessageReceived(CHILD, KeeperAck())]
    first, last = events if state_first else events[::-1]
    between, effects = play(_keeper_with_groups(), first)
    assert isinstance(between, Active)
    assert between.own is not None
    assert between.keeper is state_first
    assert Conclude("leaving") not in effects
    later, effects = play(between, last)
    assert later == CLOSING
    assert effects[-len(LEAVES) :] == LEAVES


def test_v3_a_source_without_predecessors_drains_at_once() -> None:
    own = Joining(ids(CHILD), ids(C0), leave=True)
    later, effects = play(active(preds=(), own=own), MessageReceived(C0, JoinAck()), graph=GRAPH)
    assert later == Draining(ids(C0))
    assert effects[-1] == AwaitDrained()


def test_v3_at_the_end_of_the_stream_it_stays_and_finishes() -> None:
    later, effects = hear(active(own=JOINING, finished=ids(A0)), C0, JoinAck())
    assert later == active(finished=ids(A0))
    assert effects[-1] == AwaitDrained(stream_ends=True)
    source, _ = play(active(own=JOINING, preds=()), InputEnded(), me=A0)
    assert source == active(own=JOINING, preds=(), input_ended=True)


@pytest.mark.parametrize("own", RELOCATING, ids=lambda own: type(own).__name__)
def test_an_instance_that_relocates_takes_no_role_and_promises_nothing(own: Own) -> None:
    """R14 and M3."""
    state = active(own=own)
    refusal = (send(B0, OfferResponse(ok=False)),)
    assert hear(state, A0, BecomeKeeper(B0)) == (state, refusal)
    assert hear(state, A0, Adopt(B0)) == (state, (send(B0, AdoptResponse(ok=False)),))


@pytest.mark.parametrize("own", RELOCATING[1:], ids=lambda own: type(own).__name__)
def test_a_new_incarnation_goes_on_with_a_relocation(own: Own) -> None:
    """Z2."""
    later, _ = play(active(own=own), Restarted())
    assert later == active(own=own)
