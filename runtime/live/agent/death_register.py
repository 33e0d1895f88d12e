"""Deaths of members: reported, recorded and counted; and whether a member goes on after one."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.runtime.live.agent.outcome import Course
from anabranch.runtime.live.agent.process_exit import how_ended
from anabranch.runtime.live.agent.recorder import Recorder
from anabranch.runtime.live.agent.roster import KNOWN, Member
from anabranch.runtime.live.agent.run_events import RunEvents
from anabranch.runtime.live.agent.run_journal import MemberDied, RunRecord
from anabranch.runtime.live.process.process import Process
from anabranch.runtime.ports import clock
from anabranch.runtime.reporting.failure import Failure
from anabranch.runtime.reporting.status import id_to_wire
from anabranch.runtime.values.kinds import Ending, EventKind


class DeathRegister:
    """`log`: into the journal."""

    def __init__(
        self,
        run_events: RunEvents,
        recorder: Recorder,
        course: Course,
        log: Callable[[RunRecord], None],
    ) -> None:
        self._run_events = run_events
        self._recorder = recorder
        self._course = course
        self._log = log

    def is_to_resume(self, member: Member) -> bool:
        return self._may_die(member) and member.phase in KNOWN

    def _may_die(self, member: Member) -> bool:
        return not self._course.is_over and member.failed is None

    def died_early(self, member: Member) -> bool:
        """Whether its process, which has not got ready, has died and not reported why. Noted if
        so."""
        process = member.process
        if process is None or process.exit_code is None or not self._may_die(member):
            return False
        self._count(member, member.doubt or how_ended(process))
        return True

    def note(self, member: Member, process: Process, failure: Failure) -> None:
        """Its process has died; the run fails if that happens again and again."""
        end = member.doubt or how_ended(process)
        self._count(member, end)
        lived_s = clock.monotonic() - member.begun_s
        member.deaths.note(end, self._done(member), lived_s, busy=self._was_busy(member))
        if (often := member.deaths.often) is not None:
            self._run_events.of(member, EventKind.DIES_OFTEN, often, cause=end.cause)
        if member.deaths.too_many:
            self._course.fail(Failure(member.deaths.told(member.who), failure.detail))

    def _count(self, member: Member, end: Ending) -> None:
        self._run_events.of(member, EventKind.DIED, end.how, cause=end.cause)
        self._log(MemberDied(id=id_to_wire(member.id)))
        self._recorder.deaths[member.id.operator] += 1

    def _was_busy(self, member: Member) -> bool:
        """Unless its present incarnation has reported that nothing is left to do."""
        status = self._recorder.statuses.get(member.text)
        return status is None or status.t < member.begun_s or status.queued > 0

    def _done(self, member: Member) -> int:
        """Grows whenever the member gets something done, however much waits meanwhile."""
        status = self._recorder.statuses.get(member.text)
        if status is None:
            return 0
        return status.tuples_in + status.tuples_out + status.dead
