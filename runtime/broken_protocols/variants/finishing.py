"""Broken variants of E1 to E6: when an instance finishes, to which it sends FIN, for which it
waits."""

from __future__ import annotations

from dataclasses import replace

from anabranch.protocol.effects import SendMessage, Terminate
from anabranch.protocol.events import Drained, InputEnded, MessageReceived
from anabranch.protocol.messages import Done, Fin, Join, Leave, LeaveAck
from anabranch.protocol.rules import finish, join
from anabranch.protocol.rules.context import Context, Step, ended, tell
from anabranch.protocol.states import Active, Finished, Gone, Idle
from anabranch.runtime.broken_protocols.variants.variant import Variant
from anabranch.runtime.explorer.scope import Scope


def _first_fin_is_enough(ctx: Context, state: Active, event: MessageReceived) -> Step:
    return replace(state, finished=state.preds), ()


def _finish_undrained(ctx: Context, state: Active, event: MessageReceived) -> Step:
    later, _ = finish.note_fin(ctx, state, event)
    assert isinstance(later, Active)
    if later.own is None and ended(ctx, later):
        return finish.finish(ctx, later, Drained())
    return later, ()


def _finish_at_once(ctx: Context, state: Active, event: InputEnded) -> Step:
    """A source finishes whatever operation of its own is pending."""
    return finish.finish(ctx, replace(state, own=None, input_ended=True), Drained())


def _forget_fin(ctx: Context, state: Idle, event: MessageReceived) -> Step:
    return state, ()


def _no_fin_to_children(ctx: Context, state: Finished, event: MessageReceived) -> Step:
    later, effects = join.accept_join_when_finished(ctx, state, event)
    return later, tuple(e for e in effects if not _is(e, Fin))


def _fin_to_all_children(ctx: Context, state: Finished, event: MessageReceived) -> Step:
    later, effects = join.accept_join_when_finished(ctx, state, event)
    message = event.message
    assert isinstance(message, Join)
    return later, (*(e for e in effects if not _is(e, Fin)), *tell(message.new, Fin()))


def _fin_to_the_first_child(ctx: Context, state: Finished, event: MessageReceived) -> Step:
    later, effects = join.accept_join_when_finished(ctx, state, event)
    fins = [e for e in effects if _is(e, Fin)]
    return later, tuple(e for e in effects if e not in fins[1:])


def _end_with_own_fin(ctx: Context, state: Active, event: Drained) -> Step:
    """Does not wait for DONE."""
    return Gone(state.keeper, "finished"), (
        *tell(state.succs, Fin()),
        *tell(state.preds, Done()),
        Terminate("finished"),
    )


def _end_without_done(ctx: Context, state: Active, event: Drained) -> Step:
    later, effects = finish.finish(ctx, state, event)
    return later, tuple(e for e in effects if not _is(e, Done))


def _first_done_is_enough(ctx: Context, state: Finished, event: MessageReceived) -> Step:
    return finish.count_done(ctx, replace(state, succs=frozenset({event.sender})), event)


def _ignore_done(ctx: Context, state: Finished, event: MessageReceived) -> Step:
    return state, ()


def _leave_does_not_end_the_wait(ctx: Context, state: Finished, event: MessageReceived) -> Step:
    later = replace(state, succs=state.succs - {event.sender})
    return later, (SendMessage(event.sender, LeaveAck()),)


def _is(effect: object, kind: type) -> bool:
    return isinstance(effect, SendMessage) and isinstance(effect.message, kind)


VARIANTS = [
    Variant(
        "E1",
        "the first FIN is taken for all of them",
        Scope((2, 1), tuples=1, finish=True),
        ("ILLEGAL", "S1", "S3", "I9"),
        {(Active, Fin): _first_fin_is_enough},
    ),
    Variant(
        "E1",
        "FIN is passed on before the queue is empty",
        Scope((1, 1), tuples=1, finish=True),
        ("I11", "S1"),
        {(Active, Fin): _finish_undrained},
    ),
    Variant(
        "E1",
        "a source finishes while its join is pending",
        Scope((1, 1), joins=1, finish=True),
        ("ILLEGAL", "L1"),
        {(Active, InputEnded): _finish_at_once},
    ),
    Variant(
        "E2",
        "an idle newcomer forgets FIN",
        Scope((1, 1), joins=1, finish=True),
        ("L1",),
        {(Idle, Fin): _forget_fin},
    ),
    Variant(
        "E3",
        "children announced after FIN are not told the end",
        Scope((1, 1), joins=1, finish=True),
        ("L1",),
        {(Finished, Join): _no_fin_to_children},
    ),
    Variant(
        "E3",
        "children that know the end already are told again",
        Scope((1, 2), joins=2, finish=True),
        ("S3",),
        {(Finished, Join): _fin_to_all_children},
        also="F14",
    ),
    Variant(
        "E3",
        "only the first of several children is told the end",
        Scope((1, 1), joins=1, batch=2, finish=True),
        ("L1",),
        {(Finished, Join): _fin_to_the_first_child},
    ),
    Variant(
        "E4",
        "an instance ends with its own FIN",
        Scope((1, 1), finish=True),
        ("S3", "I1"),
        {(Active, Drained): _end_with_own_fin},
    ),
    Variant(
        "E4",
        "a sink ends without DONE",
        Scope((1, 1), finish=True),
        ("L1",),
        {(Active, Drained): _end_without_done},
    ),
    Variant(
        "E5",
        "DONE is passed over",
        Scope((1, 1), finish=True),
        ("L1",),
        {(Finished, Done): _ignore_done},
    ),
    Variant(
        "E5",
        "the first DONE is taken for all of them",
        Scope((1, 2), finish=True),
        ("S3", "I1"),
        {(Finished, Done): _first_done_is_enough},
    ),
    Variant(
        "E6",
        "a finished instance still waits for a successor that has left",
        Scope((1, 2), leaves=1, finish=True),
        ("L1",),
        {(Finished, Leave): _leave_does_not_end_the_wait},
    ),
]
