"""What happens in a run goes three ways: into the report, into the journal of the agent, so that
the report of a resumed run has it too, and, if a user should act on it, to the terminal at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from anabranch.runtime.live.agent.clock import RunClock
from anabranch.runtime.live.agent.journal_writer import CannotWrite
from anabranch.runtime.live.agent.recorder import Recorder
from anabranch.runtime.live.agent.roster import Member, Roster
from anabranch.runtime.live.agent.run_journal import Happened, RunRecord
from anabranch.runtime.reporting.report import Event
from anabranch.runtime.values.kinds import Cause, EventKind

URGENT = frozenset(
    {
        EventKind.LIMITED,
        EventKind.WOULD_DO,
        EventKind.POLICY_FAILED,
        EventKind.REFUSED,
        EventKind.START_FAILED,
        EventKind.DIES_OFTEN,
        EventKind.BURIED,
        EventKind.BUSY_LONG,
        EventKind.HANGS,
        EventKind.ENDED_BY_FORCE,
    }
)
"""A user should see these while the run goes on. What waits for the system (`WAITS`) says so in
the log, which is seen at once too."""
QUIET_S = 10.0
"""The same event of an operator is not reported again within this time; the next has the count."""


class Alerts:
    """`say` gets each line that a user should see at once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told_s: dict[tuple[str, EventKind], float] = {}
        self._left_out: dict[tuple[str, EventKind], int] = {}

    def hear(self, event: Event) -> None:
        if event.kind not in URGENT or not event.detail:
            return
        whose = event.instance if event.kind is EventKind.HANGS else event.operator
        which = whose, event.kind
        if event.t - self._told_s.get(which, -QUIET_S) < QUIET_S:
            self._left_out[which] = self._left_out.get(which, 0) + 1
            return
        self._told_s[which] = event.t
        left_out = self._left_out.pop(which, 0)
        more = f" (and {left_out:,} times more since the last time)" if left_out else ""
        self._say(f"{line_of(event)}{more}")

    def tell(self, detail: str) -> None:
        self._say(detail)


def line_of(event: Event) -> str:
    """`work.0 hangs: no word and no work for 60 s; ...`"""
    words = f"{event.instance or event.operator} {event.kind.replace('_', ' ')}"
    return f"{words}: {event.detail}" if event.detail else words


class RunEvents:
    """`log`: into the journal; `say`: see `Alerts`."""

    def __init__(
        self,
        roster: Roster,
        recorder: Recorder,
        clock: RunClock,
        log: Callable[[RunRecord], None],
        say: Callable[[str], None],
    ) -> None:
        self._roster = roster
        self._recorder = recorder
        self._clock = clock
        self._log = log
        self._alerts = Alerts(say)

    def note(
        self,
        operator: str,
        kind: EventKind,
        detail: str = "",
        *,
        instance: str = "",
        label: str = "",
        cause: Cause | None = None,
        t: float | None = None,
        at_once: bool = False,
    ) -> None:
        """`t`: on the clock of the host; now if not given. `at_once`: a user sees the detail while
        the run goes on, whatever its kind."""
        event = Event(
            t=self._clock.now_s if t is None else round(t - self._clock.started_s, 4),
            operator=operator,
            kind=kind,
            instances=len(self._roster.active(operator)),
            instance=instance,
            detail=detail,
            label=label,
            cause=cause,
        )
        self._recorder.note(event)
        if at_once:
            self._alerts.tell(detail)
        else:
            self._alerts.hear(event)
        with suppress(CannotWrite):  # then the run has failed
            self._log(Happened(event=event))

    def of(
        self,
        member: Member,
        kind: EventKind,
        detail: str = "",
        *,
        label: str = "",
        cause: Cause | None = None,
        t: float | None = None,
    ) -> None:
        """About one instance."""
        self.note(
            member.id.operator,
            kind,
            detail,
            instance=member.text,
            label=label,
            cause=cause,
            t=t,
        )
