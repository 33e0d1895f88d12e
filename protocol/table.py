"""What happens in which state: the whole protocol on one page.

Read a row as a question: "LEAVE has come in; what now?" The answer depends on the state of the
receiver, and there is an answer for each: a rule, STALE (this may happen in a distributed world;
nothing is to be done, and the comment says why), or ILLEGAL (this side or the peer has a bug: the
input is refused with the events before it, and the state stays as it was).

Five ideas carry the table:

* **Acknowledgements are unconditional.** JOIN, LEAVE and EOS are answered at once in every state
  but Gone. Therefore no operation waits for that of another instance, and rounds may overlap.
* **A marker follows the last tuple.** LEAVE_ACK, EOS and FIN run in the same FIFO as the data,
  so "nothing more from me" is true when it arrives.
* **One own operation at a time**, with the set of ids that it waits for. Messages of other
  instances' operations are answered meanwhile.
* **An idle newcomer remembers.** It is announced before it is started; the messages of neighbours
  in between are applied to the view in START.
* **A process dies, an instance does not.** It sends nothing before its journal has it, and all that
  led to it, so a new process goes on from what the neighbours have seen. `Restarted` is its first
  event; the neighbours need no event for deaths.

The published protocol (Belkhiria & Tedeschi 2019) lacks the second phase of leaving and the
list of the children that the leaver knows; `docs/protocol.md` 1.3 shows what is lost then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any

from anabranch.protocol import events, messages
from anabranch.protocol.effects import AwaitDrained, Veto
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.events import Event, MessageReceived, Restarted
from anabranch.protocol.rules import data, finish, join, keeper, leave, move, relocate, restart
from anabranch.protocol.rules.context import Context, Step
from anabranch.protocol.states import STATE_TYPES, Active, State


class Verdict(Enum):
    STALE = auto()
    ILLEGAL = auto()


STALE, ILLEGAL = Verdict.STALE, Verdict.ILLEGAL

Rule = Callable[[Context, Any, Any], Step]
Cell = Rule | Verdict


def veto(ctx: Context, state: State, event: Event) -> Step:
    """Only an active instance takes decisions of its own."""
    return state, (Veto(f"the instance is {describe(state)}"),)


def describe(state: State) -> str:
    return type(state).__name__


def _row(
    idle: Cell,
    active: Cell,
    closing_in: Cell,
    draining: Cell,
    closing_out: Cell,
    finished: Cell,
    gone: Cell = ILLEGAL,
) -> tuple[Cell, ...]:
    """One cell per state, in the order of `STATE_TYPES`."""
    return (idle, active, closing_in, draining, closing_out, finished, gone)


ROWS: dict[type, tuple[Cell, ...]] = {
    # -- what comes from neighbours and siblings ------------------------------------------
    messages.Join: _row(
        idle=join.remember_join,
        active=join.accept_join,
        closing_in=join.accept_join_while_leaving,
        draining=join.accept_join_while_leaving,
        closing_out=join.only_acknowledge_join,
        finished=join.accept_join_when_finished,
    ),
    messages.JoinAck: _row(
        idle=ILLEGAL,
        active=join.count_join_ack,
        closing_in=ILLEGAL,
        draining=ILLEGAL,
        closing_out=ILLEGAL,
        finished=ILLEGAL,
    ),
    messages.Start: _row(
        idle=join.start,
        active=ILLEGAL,
        closing_in=ILLEGAL,
        draining=ILLEGAL,
        closing_out=ILLEGAL,
        finished=ILLEGAL,
    ),
    messages.Leave: _row(
        idle=leave.remember_leave,
        active=leave.release_successor,
        closing_in=leave.release_successor_quietly,
        draining=leave.release_successor_quietly,
        closing_out=leave.only_acknowledge_leave,
        finished=finish.release_successor_when_finished,
    ),
    messages.LeaveAck: _row(
        idle=ILLEGAL,
        active=ILLEGAL,
        closing_in=leave.count_leave_ack,
        draining=ILLEGAL,
        closing_out=ILLEGAL,
        finished=ILLEGAL,
    ),
    messages.Eos: _row(
        idle=leave.remember_eos,
        active=leave.release_predecessor,
        closing_in=leave.release_predecessor_quietly,
        draining=ILLEGAL,  # its LEAVE_ACK, after which it does not know me, is in
        closing_out=ILLEGAL,
        finished=ILLEGAL,  # all predecessors have finished, and the finished do not leave
    ),
    messages.EosAck: _row(
        idle=ILLEGAL,
        active=ILLEGAL,
        closing_in=ILLEGAL,
        draining=ILLEGAL,
        closing_out=leave.count_eos_ack,
        finished=ILLEGAL,
    ),
    messages.KeeperAck: _row(
        idle=ILLEGAL,
        active=keeper.conclude_migration,
        closing_in=ILLEGAL,
        draining=ILLEGAL,
        closing_out=ILLEGAL,
        finished=ILLEGAL,
    ),
    messages.Offer: _row(
        idle=keeper.refuse_offer,
        active=keeper.relay_offer,
        closing_in=keeper.refuse_offer,
        draining=keeper.refuse_offer,
        closing_out=keeper.refuse_offer,
        finished=keeper.refuse_offer,
    ),
    messages.BecomeKeeper: _row(
        idle=keeper.decline_nomination,
        active=keeper.answer_nomination,
        closing_in=keeper.decline_nomination,
        draining=keeper.decline_nomination,
        closing_out=keeper.decline_nomination,
        finished=keeper.decline_nomination,
    ),
    messages.OfferResponse: _row(
        idle=ILLEGAL,
        active=keeper.conclude_offer,
        closing_in=ILLEGAL,
        draining=ILLEGAL,
        closing_out=ILLEGAL,
        finished=ILLEGAL,
    ),
    messages.Fin: _row(
        idle=finish.remember_fin,
        active=finish.note_fin,
        closing_in=finish.pass_over_fin,
        draining=ILLEGAL,  # its LEAVE_ACK, after which it does not know me, is in
        closing_out=ILLEGAL,
        finished=ILLEGAL,
    ),
    messages.Done: _row(
        idle=ILLEGAL,
        active=ILLEGAL,
        closing_in=ILLEGAL,
        draining=ILLEGAL,
        closing_out=ILLEGAL,
        finished=finish.count_done,
    ),
    messages.AdoptOffer: _row(
        idle=move.refuse_adoption,
        active=move.relay_adoption,
        closing_in=move.refuse_adoption,
        draining=move.refuse_adoption,
        closing_out=move.refuse_adoption,
        finished=move.refuse_adoption,
    ),
    messages.Adopt: _row(
        idle=move.decline_adoption,
        active=move.answer_adoption,
        closing_in=move.decline_adoption,
        draining=move.decline_adoption,
        closing_out=move.decline_adoption,
        finished=move.decline_adoption,
    ),
    messages.AdoptResponse: _row(
        idle=ILLEGAL,
        active=move.conclude_adoption,
        closing_in=ILLEGAL,
        draining=ILLEGAL,
        closing_out=ILLEGAL,
        finished=ILLEGAL,
    ),
    messages.StateMoved: _row(
        idle=ILLEGAL,
        active=move.take_over,  # a new owner stays active until the state has come
        closing_in=ILLEGAL,
        draining=ILLEGAL,
        closing_out=ILLEGAL,
        finished=ILLEGAL,
    ),
    # -- data ------------------------------------------------------------------------------
    events.BatchReceived: _row(
        idle=data.buffer_batch,
        active=data.accept_batch,
        closing_in=data.accept_batch,
        draining=ILLEGAL,  # I3
        closing_out=ILLEGAL,
        finished=ILLEGAL,
    ),
    events.BatchReady: _row(
        idle=ILLEGAL,
        active=data.send_batch,
        closing_in=data.send_batch,
        draining=data.send_batch,
        closing_out=ILLEGAL,
        finished=ILLEGAL,
    ),
    # -- what this instance decides, and what it learns of itself --------------------------
    events.Founded: _row(
        idle=join.found,
        active=ILLEGAL,
        closing_in=ILLEGAL,
        draining=ILLEGAL,
        closing_out=ILLEGAL,
        finished=ILLEGAL,
    ),
    events.DuplicateDecided: _row(
        idle=veto,
        active=join.decide_to_duplicate,
        closing_in=veto,
        draining=veto,
        closing_out=veto,
        finished=veto,
        gone=veto,
    ),
    events.LeaveDecided: _row(
        idle=veto,
        active=leave.decide_to_leave,
        closing_in=veto,
        draining=veto,
        closing_out=veto,
        finished=veto,
        gone=veto,
    ),
    events.RelocateDecided: _row(
        idle=veto,
        active=relocate.decide_to_relocate,
        closing_in=veto,
        draining=veto,
        closing_out=veto,
        finished=veto,
        gone=veto,
    ),
    events.MoveDecided: _row(
        idle=veto,
        active=move.decide_to_move,
        closing_in=veto,
        draining=veto,
        closing_out=veto,
        finished=veto,
        gone=veto,
    ),
    events.HandOverDecided: _row(
        idle=veto,
        active=keeper.decide_to_hand_over,
        closing_in=veto,
        draining=veto,
        closing_out=veto,
        finished=veto,
        gone=veto,
    ),
    events.ChildrenReady: _row(
        idle=ILLEGAL,
        active=join.announce_children,
        closing_in=ILLEGAL,  # no leave is decided while children are on their way
        draining=ILLEGAL,
        closing_out=ILLEGAL,
        finished=ILLEGAL,
    ),
    events.SpawnFailed: _row(
        idle=ILLEGAL,
        active=join.give_up_children,
        closing_in=ILLEGAL,
        draining=ILLEGAL,
        closing_out=ILLEGAL,
        finished=ILLEGAL,
    ),
    events.GroupsFrozen: _row(
        idle=ILLEGAL,
        active=move.announce_owners,
        closing_in=ILLEGAL,  # no instance leaves while its key groups move
        draining=ILLEGAL,
        closing_out=ILLEGAL,
        finished=ILLEGAL,
    ),
    events.GroupsTransferred: _row(
        idle=ILLEGAL,
        active=leave.go_on_leaving,
        closing_in=ILLEGAL,
        draining=ILLEGAL,
        closing_out=ILLEGAL,
        finished=ILLEGAL,
    ),
    events.InputEnded: _row(
        idle=ILLEGAL,
        active=finish.end_input,
        closing_in=STALE,  # the source leaves; a sibling reads on, or finds the same end
        draining=STALE,
        closing_out=STALE,
        finished=STALE,  # comes twice: from its own reading, and when the run is stopped
        gone=STALE,
    ),
    events.Drained: _row(
        idle=ILLEGAL,
        active=finish.finish,
        closing_in=ILLEGAL,  # asked for at the end of the stream, where no instance leaves any more
        draining=leave.close_outputs,
        closing_out=ILLEGAL,
        finished=ILLEGAL,
    ),
    events.Restarted: _row(
        idle=restart.restart_waiting,
        active=restart.restart_active,
        closing_in=restart.restart_closing_in,
        draining=restart.restart_draining,
        closing_out=restart.restart_waiting,
        finished=restart.restart_finished,
        gone=restart.restart_gone,
    ),
}

TABLE: dict[tuple[type[State], type], Cell] = {
    (state, event): cell
    for event, cells in ROWS.items()
    for state, cell in zip(STATE_TYPES, cells, strict=True)
}


def step(
    ctx: Context,
    state: State,
    event: Event,
    table: Mapping[tuple[type[State], type], Cell] = TABLE,
) -> Step:
    """One event at one instance: the next state, and effects for the driver in their order.

    Pure. `table`: another one only to show that a broken rule is found out. Raises
    `RemoteProtocolError` or `LocalProtocolError`, and then nothing has changed.
    """
    subject = event.message if isinstance(event, MessageReceived) else event
    cell = table[type(state), type(subject)]
    if cell is ILLEGAL:
        raise RemoteProtocolError(f"{type(subject).__name__} is not possible for {describe(state)}")
    if isinstance(cell, Verdict):
        return state, ()
    later, effects = cell(ctx, state, event)
    changed = later is not state  # batches come by the thousand and change nothing
    if not changed or isinstance(event, Restarted):  # of which the rule says all that is to do
        return later, effects
    if _waits_for_its_end(ctx, later) and not _waits_for_its_end(ctx, state):
        effects = (*effects, AwaitDrained(stream_ends=True))
    return later, effects


def _waits_for_its_end(ctx: Context, state: State) -> bool:
    """E1 but for the queue; checked at the one exit, since many rules can make it true."""
    return isinstance(state, Active) and finish.at_its_end(ctx, state)
