"""The folders of a run must stay: without them no instance could be reached or resumed any more,
and the run would hang."""

from __future__ import annotations

from anabranch.runtime.live.agent.outcome import Course
from anabranch.runtime.live.agent.roster import Roster
from anabranch.runtime.live.agent.run_files import RunFiles
from anabranch.runtime.live.channel.ended import EndedMarks, ended_dir
from anabranch.runtime.live.process.run_dir import RunFolder
from anabranch.runtime.plan.ends import passing
from anabranch.runtime.reporting.failure import Failure


class FolderCheck:
    """`can_resume`: the run can go on with another agent."""

    def __init__(
        self,
        files: RunFiles,
        run_dir: RunFolder,
        roster: Roster,
        course: Course,
        *,
        can_resume: bool,
    ) -> None:
        self._files = files
        self._run_dir = run_dir
        self._roster = roster
        self._course = course
        self._can_resume = can_resume
        self._marks = EndedMarks(ended_dir(files.ends))

    def check(self) -> None:
        told = "was removed, or something in it, while the run needs it; begin a new run"
        if not self._files.is_there:
            self._course.fail(Failure(f"the folder {str(self._files.path)!r} {told}"))
        elif not self._run_dir.is_there:
            resume = ", or resume this one" * self._can_resume
            self._course.fail(Failure(f"the folder {str(self._run_dir.path)!r} {told}{resume}"))
        else:
            self._renew_marks()

    def _renew_marks(self) -> None:
        """Make marks of ended instances again: without them, neighbours would wait for these for
        ever."""
        try:
            for operator in self._roster.next_number:
                if self._marks.are_to_renew(operator):
                    self._marks.renew(operator, self._roster.ended(operator))
        except OSError as error:
            if not passing(error):
                told = f"cannot note which instances have ended: {error}"
                self._course.fail(Failure(told))
