"""How often an instance or a service may die before it is given up, and what is reported then."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from anabranch.runtime.live.process.process import describe_ends
from anabranch.runtime.ports import clock
from anabranch.runtime.values.kinds import Cause, Ending

RESUMES_MAX = 5
RESUMES_WINDOW_S = 30.0
"""More deaths than this in such a time, with nothing done in between, will not stop."""
OFTEN = 3
"""So many of these are reported during the run."""
IDLE_LIFETIME_S = 2.0
"""An incarnation of at least so long, and with nothing left to do, was not ended by what it was
given."""


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a process that should not have ended."""

    at_s: float
    end: Ending
    done: int
    """How much was done by then, as far as that was reported."""
    in_vain: bool = True
    """False: the next incarnation has learnt from it which tuple was tried."""


@dataclass(slots=True)
class Deaths:
    """The latest ones, without anything done in between."""

    _latest: list[Death] = field(default_factory=list)
    _lessons: int = 0

    @property
    def ends(self) -> list[Ending]:
        """How each of them came, oldest first."""
        return [death.end for death in self._latest]

    @property
    def often(self) -> str | None:
        """A word to the user when it becomes likely that it will be given up."""
        if len(self._latest) != OFTEN:
            return None
        passed_s = self._latest[-1].at_s - self._latest[0].at_s
        return (
            f"{OFTEN} times within {passed_s:.1f} s with nothing done in between: {self._ways}; "
            f"after {RESUMES_MAX + 1} times the run fails"
        )

    @property
    def _ways(self) -> str:
        return describe_ends(end.how for end in self.ends)

    @property
    def _in_vain(self) -> int:
        return sum(death.in_vain for death in self._latest)

    @property
    def next_is_last(self) -> bool:
        return self._in_vain >= RESUMES_MAX

    @property
    def too_many(self) -> bool:
        return self._in_vain > RESUMES_MAX

    def note(self, end: Ending, done: int, lived_s: float, *, busy: bool) -> None:
        """`done`: grows whenever something gets done. `busy`: something was left to do."""
        now = clock.monotonic()
        if self._latest and done > self._latest[-1].done:
            self._latest.clear()
        hung = end.cause is Cause.HANG
        # One that hung may have had no time to report its work, and hangs for longer than that.
        if busy or hung or lived_s < IDLE_LIFETIME_S or end.cause is Cause.STATE:
            if not hung:
                self._latest = [d for d in self._latest if now - d.at_s <= RESUMES_WINDOW_S]
            self._latest.append(Death(now, end, done))

    def note_lessons(self, lessons: int) -> None:
        """What the next incarnation reports: the number of deaths that were not in vain for it. If
        it reports the same again, nothing was written down in between, and nothing was learnt."""
        if lessons > self._lessons and self._latest:
            self._latest[-1] = replace(self._latest[-1], in_vain=False)
        self._lessons = lessons

    def told(self, who: str) -> str:
        """Why it is not resumed once more, and where to look."""
        passed_s = self._latest[-1].at_s - self._latest[0].at_s
        return (
            f"{who} died {len(self._latest)} times within {passed_s:.1f} s and got nothing done "
            f"in between: {self._ways}. See whether the host is out of memory (dmesg), or what "
            "ends the process where no single tuple can be left out: a source, a timer, a service"
        )
