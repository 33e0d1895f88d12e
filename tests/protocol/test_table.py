"""The table has an answer to everything, and `step` is a pure function of what it is given."""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from typing import Any

import pytest
from hypothesis import given

from anabranch.protocol.effects import (
    AwaitDrained,
    BeginProcessing,
    ChangeView,
    Effect,
    OwnGroups,
    SendMessage,
    StateComplete,
    Terminate,
    TransferGroups,
)
from anabranch.protocol.errors import AnabranchProtocolError, RemoteProtocolError
from anabranch.protocol.events import LOCAL_EVENT_TYPES, Event, MessageReceived, Restarted
from anabranch.protocol.messages import MESSAGE_TYPES, EosAck, JoinAck, LeaveAck
from anabranch.protocol.ownership import groups_of
from anabranch.protocol.rules.context import Context, Step
from anabranch.protocol.states import (
    STATE_TYPES,
    Active,
    ClosingIn,
    Draining,
    Finished,
    Gone,
    Idle,
    State,
    preds_of,
    routes_of,
    succs_of,
)
from anabranch.protocol.table import ILLEGAL, STALE, TABLE, Verdict, step
from tests.protocol.playbook import A0, GRAPH, ME, active, hear, play
from tests.protocol.strategies import any_event, any_state

CONTEXT = Context(ME, GRAPH)


def answer(state: State, event: Event) -> Step | str:
    try:
        return step(CONTEXT, state, event)
    except AnabranchProtocolError as error:
        return str(error)


def sends(effects: tuple[Effect, ...]) -> list[SendMessage]:
    return [e for e in effects if isinstance(e, SendMessage)]


def test_the_table_is_total() -> None:
    assert set(TABLE) == set(product(STATE_TYPES, (*MESSAGE_TYPES, *LOCAL_EVENT_TYPES)))


def test_every_cell_is_a_rule_or_a_verdict() -> None:
    assert all(callable(cell) or cell in (STALE, ILLEGAL) for cell in TABLE.values())


def test_every_rule_of_the_table_says_which_rule_of_the_design_it_is() -> None:
    """So that whoever reads one finds the other. `found` is the only one that is not there."""
    unnamed = {
        cell.__name__
        for cell in TABLE.values()
        if not isinstance(cell, Verdict) and not (cell.__doc__ or "").strip()
    }
    assert unnamed <= {"found", "end_input", "give_up_children", "send_batch"}


@pytest.mark.parametrize("message", MESSAGE_TYPES, ids=lambda m: m.__name__)
def test_s3_nothing_is_addressed_to_a_terminated_instance(message: type) -> None:
    assert TABLE[Gone, message] is ILLEGAL


@given(any_state, any_event)
def test_step_answers_or_refuses_but_never_stumbles(state: State, event: Event) -> None:
    answer(state, event)


@given(any_state, any_event)
def test_step_gives_the_same_answer_to_the_same_question(state: State, event: Event) -> None:
    assert answer(state, event) == answer(state, event)


@given(any_state, any_event)
def test_a_terminated_instance_says_nothing(state: State, event: Event) -> None:
    with suppress(AnabranchProtocolError):
        after, effects = step(CONTEXT, state, event)
        if isinstance(state, Gone):
            assert (after, sends(effects)) == (state, [])


@given(any_state, any_event)
def test_termination_is_the_last_effect_and_happens_once(state: State, event: Event) -> None:
    with suppress(AnabranchProtocolError):
        after, effects = step(CONTEXT, state, event)
        ends = [e for e in effects if isinstance(e, Terminate)]
        anew = isinstance(event, Restarted) or not isinstance(state, Gone)
        assert bool(ends) == (isinstance(after, Gone) and anew)
        assert not ends or effects[-1] is ends[0]


@given(any_state, any_event)
def test_the_driver_is_told_every_change_of_the_view(state: State, event: Event) -> None:
    """Duty 4 of the driver: it routes to the successors of the last `ChangeView` only."""
    with suppress(AnabranchProtocolError):
        after, effects = step(CONTEXT, state, event)
        told = [e for e in effects if isinstance(e, ChangeView)]
        if isinstance(after, Active | ClosingIn | Draining):
            known = (told[-1].succs, told[-1].preds, told[-1].routes) if told else views(state)
            assert known == views(after)


def views(state: State) -> tuple[Any, Any, Any]:
    return succs_of(state), preds_of(state), routes_of(state)


@given(any_state, any_event)
def test_key_groups_are_owned_from_the_state_on_and_until_it_is_sent(
    state: State, event: Event
) -> None:
    """Duties 9 to 11: the driver processes what the core owns, and hears of every change."""
    with suppress(AnabranchProtocolError):
        after, effects = step(CONTEXT, state, event)
        came = [e.groups for e in effects if isinstance(e, StateComplete | OwnGroups)]
        went = [e.groups for e in effects if isinstance(e, TransferGroups)]
        if isinstance(after, Active):
            before = owned_by(state)
            assert owned_by(after) == before.union(*came).difference(*went)


def owned_by(state: State) -> frozenset[int]:
    return groups_of(state.owned) if isinstance(state, Active) else frozenset()


@given(any_state, any_event)
def test_a_marker_follows_the_change_of_the_view_that_makes_it_true(
    state: State, event: Event
) -> None:
    """LEAVE_ACK says that no tuple follows: the router must have heard of it before."""
    with suppress(AnabranchProtocolError):
        _, effects = step(CONTEXT, state, event)
        kinds = [type(e.message) if isinstance(e, SendMessage) else type(e) for e in effects]
        for marker in (LeaveAck, EosAck, JoinAck):
            if (
                marker in kinds
                and ChangeView in kinds
                and not isinstance(state, Finished)  # sends no tuples
            ):
                assert kinds.index(ChangeView) < kinds.index(marker)


@given(any_state, any_event)
def test_messages_of_one_kind_go_out_in_a_defined_order(state: State, event: Event) -> None:
    with suppress(AnabranchProtocolError):
        _, effects = step(CONTEXT, state, event)
        by_kind: dict[type, list[SendMessage]] = {}
        for effect in sends(effects):
            by_kind.setdefault(type(effect.message), []).append(effect)
        for group in by_kind.values():
            assert [e.to for e in group] == sorted({e.to for e in group})


@given(any_state, any_event)
def test_an_instance_never_writes_to_itself(state: State, event: Event) -> None:
    with suppress(AnabranchProtocolError):
        _, effects = step(CONTEXT, state, event)
        assert ME not in {e.to for e in sends(effects)}


@given(any_state, any_event)
def test_processing_begins_with_start_and_with_nothing_else(state: State, event: Event) -> None:
    with suppress(AnabranchProtocolError):
        after, effects = step(CONTEXT, state, event)
        begun = BeginProcessing() in effects
        if isinstance(event, Restarted):  # what had begun begins again
            assert begun == isinstance(state, Active | ClosingIn | Draining)
        else:
            assert begun == (isinstance(state, Idle) and isinstance(after, Active))


def test_whoever_drains_is_asked_to_report_it() -> None:
    leaving = ClosingIn(succs_of(active()), frozenset({A0}), awaiting=frozenset({A0}))
    after, effects = hear(leaving, A0, LeaveAck())
    assert isinstance(after, Draining)
    assert effects[-1] == AwaitDrained()


def test_an_illegal_event_is_told_apart_from_a_vetoed_decision() -> None:
    with pytest.raises(RemoteProtocolError, match="JoinAck is not possible for Draining"):
        hear(Draining(frozenset()), A0, JoinAck())


def test_a_broken_table_does_not_touch_the_shipped_one() -> None:
    broken = {**TABLE, (Active, JoinAck): ILLEGAL}
    with pytest.raises(RemoteProtocolError, match="is not possible"):
        step(CONTEXT, active(), MessageReceived(A0, JoinAck()), broken)
    with pytest.raises(RemoteProtocolError, match="was not awaited"):
        play(active(), MessageReceived(A0, JoinAck()))
