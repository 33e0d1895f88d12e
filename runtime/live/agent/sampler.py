"""Looks at the whole run again and again: samples for the report, and dead letters that are too
many."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.runtime.live.agent.clock import RunClock
from anabranch.runtime.live.agent.recorder import Recorder
from anabranch.runtime.live.agent.roster import Roster
from anabranch.runtime.live.agent.run_journal import RunRecord, Sampled
from anabranch.runtime.measuring.cpu import HostUse
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.ports.clock import monotonic
from anabranch.runtime.reporting.dead_limit import exceeded


class Sampler:
    """`log`: into the journal."""

    def __init__(
        self,
        pipeline: Pipeline,
        roster: Roster,
        recorder: Recorder,
        clock: RunClock,
        log: Callable[[RunRecord], None],
    ) -> None:
        self._pipeline = pipeline
        self._roster = roster
        self._recorder = recorder
        self._clock = clock
        self._log = log
        self.host_use = HostUse(monotonic())

    def sample(self) -> None:
        self._recorder.forget_all_but({member.text for member in self._roster.living()})
        tick = self._recorder.sample(self._clock.now_s, self._instances())
        if tick is not None:
            self._log(Sampled(t=tick[0], rows=tick[1]))
        self.host_use.look(monotonic())

    def sample_last(self) -> None:
        self._recorder.sample(self._clock.now_s, self._instances())

    def too_many_dead(self) -> str:
        """Why the run fails by its dead letters; empty if it does not."""
        operators = self._pipeline.operators.values()
        rows = [(o, self._recorder.latest(o.name)) for o in operators]
        return exceeded(
            self._pipeline.dead_max,
            dead=sum(row.dead for _, row in rows),
            read=sum(row.tuples_in for o, row in rows if o.source is not None),
            delivered=sum(row.tuples_out for o, row in rows if o.sink is not None),
            ended=False,
        )

    def _instances(self) -> dict[str, int]:
        return {name: len(self._roster.active(name)) for name in self._pipeline.operators}
