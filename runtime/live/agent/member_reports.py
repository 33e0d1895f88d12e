"""Handles the reports of instances about themselves: status, notes, end, failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anabranch.runtime.live.agent.boards import Boards
from anabranch.runtime.live.agent.outcome import Course
from anabranch.runtime.live.agent.process_exit import describe_end
from anabranch.runtime.live.agent.recorder import Recorder
from anabranch.runtime.live.agent.roster import KNOWN, LIVING, Member, Phase, Roster
from anabranch.runtime.live.agent.run_events import RunEvents
from anabranch.runtime.live.agent.run_journal import Final, RunRecord
from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.ports import clock
from anabranch.runtime.reporting.status import IDLE, FinalCount, Status
from anabranch.runtime.values.kinds import Ending, EventKind

DERIVED = frozenset(
    {
        EventKind.STARTED,
        EventKind.JOINED,
        EventKind.LEFT,
        EventKind.FINISHED,
        EventKind.ENDED,
        EventKind.SPAWN_FAILED,
    }
)
"""Notes of instances that the agent writes down itself, once and with the count it then has."""


class MemberReports:
    """`log`: into the journal."""

    def __init__(
        self,
        roster: Roster,
        recorder: Recorder,
        boards: Boards,
        run_events: RunEvents,
        course: Course,
        log: Callable[[RunRecord], None],
    ) -> None:
        self._roster = roster
        self._recorder = recorder
        self._boards = boards
        self._run_events = run_events
        self._course = course
        self._log = log

    def note(self, member: Member, note: msg.EventNote) -> None:
        match note.event:
            case EventKind.STARTED:
                self._activate(member, note.t)
            case EventKind.KEEPER:
                if member.keeper:
                    return
                self._roster.set_keeper(member)
            case EventKind.NO_KEEPER:
                if not member.keeper:
                    return
                self._roster.unset_keeper(member)
            case EventKind.VETO | EventKind.REFUSED:
                member.told_to_leave = False
        if note.event not in DERIVED:
            self._run_events.of(member, note.event, note.detail, label=note.label, t=note.t)

    def status(self, member: Member, status: Status) -> None:
        if status.state != IDLE:
            self._activate(member, status.t)
        if member.phase in LIVING:
            self._recorder.note_status(status)

    def _activate(self, member: Member, t: float) -> None:
        if self._roster.activate(member) and not member.founder:
            self._recorder.joins[member.id.operator] += 1
            detail = f"by {member.id.operator}.{member.id.creator}"
            self._run_events.of(member, EventKind.JOINED, detail, t=t)

    def end(self, member: Member, final: FinalCount) -> None:
        # One that was ready before it could be seen active has taken part all the same.
        self._activate(member, clock.monotonic())
        if member.phase is not Phase.ACTIVE:
            raise ValueError(f"{member.text} says twice that it has ended")
        self._boards.give_back(member.id)
        self._log(Final(count=final))
        member.finished = not final.leaves
        self._roster.end(member, Phase.GONE)
        self._recorder.note_final(final)
        self._run_events.of(member, EventKind.LEFT if final.leaves else EventKind.ENDED)
        member.goodbye.set_result(None)

    def fail(self, member: Member, message: msg.Failed) -> None:
        if message.again is not None:
            member.doubt = Ending(message.again, message.reason)
            return
        member.failed = message
        if member.phase in KNOWN and member.process is not None:
            # At once, not when it exits: its neighbours will soon report its silence.
            failure = describe_end(member.who, member.process, message)
            refused = message.damaged and not self._course.started.done()
            self._course.fail(replace(failure, refused=refused))
