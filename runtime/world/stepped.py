"""A world that goes on only as far as its caller lets it: for tests of a pipeline, step by step.

    begin ─▶ settle ─▶ the caller changes something ─▶ settle ─▶ … ─▶ finish

It has two times. The timeline goes on as in every world. **Processing time**, which the wall clock
shows, stands still but where a function of the user's waits, and where the caller lets it `pass`:
what instances take to talk to each other does not count. Turns and ways take no time at all, so all
that follows from one thing happens in one moment, in an order that never varies. Whatever is done
periodically, such as heartbeats, is not done: an hour costs as much as a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from anabranch.protocol.states import Active, Finished
from anabranch.runtime.keyed.processor import KeyedProcessor
from anabranch.runtime.live.agent.open_run import open_run
from anabranch.runtime.live.agent.roster import Member, Phase
from anabranch.runtime.live.instance.instance import Instance
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import using
from anabranch.runtime.reporting.report import Report
from anabranch.runtime.values.kinds import EventKind
from anabranch.runtime.world.clock import VirtualClock
from anabranch.runtime.world.load import FOLDER
from anabranch.runtime.world.processes import WorldProcess
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.surroundings import AGENT
from anabranch.runtime.world.threads import Threads
from anabranch.runtime.world.timeline import Deadlock
from anabranch.runtime.world.world import World

SOON_S = 0.05
"""What is due within so long still belongs to what has happened: acknowledgements, commits."""
AT_ONCE = Conditions(latency_s=0.0, jitter_s=0.0, cuts=0.0)


class ProcessingClock(VirtualClock):
    """`passed_s`: of processing time."""

    passed_s = 0.0

    def wall(self) -> float:
        return self.began_s + self.passed_s


class SteppedWorld(World):
    """`began_s`: what the wall clock shows at first."""

    def __init__(self, pipeline: Pipeline, options: Options, began_s: float) -> None:
        super().__init__(pipeline, 0, options=options, conditions=AT_ONCE, began_s=began_s)
        self.timeline.turn_s = (0.0, 0.0)
        self.timeline.periodic = False
        self._threads = self.timeline.threads = Threads()
        self.clock = self._clock = ProcessingClock(self.timeline, self.rng("chance"), began_s)
        self.held: list[WorldProcess] = []
        """They stand still, and what waits for them does."""
        self._open = ExitStack()

    @contextmanager
    def _inside(self) -> Iterator[None]:
        with clock.using(self._clock), using(self._store):
            yield

    # -- its course ------------------------------------------------------------------------

    def begin(self) -> None:
        """Return when all instances are at work."""
        with self._inside():
            self._store.make_folder(FOLDER)
            (of_agent,) = self._open.enter_context(self.loops(AGENT))
            begun = open_run(self.pipeline, self.options)
            self._ended = of_agent.create_task(self._carry_out(*begun), name="run")
            self._until(self._has_begun)
        self.settle()

    def _has_begun(self) -> bool:
        agent = self._agent
        return self._ended.done() or (agent is not None and agent.course.started.done())

    def settle(self) -> None:
        """Return when all that follows from what has happened is over. Raises `Deadlock` if a
        function waits for ever."""
        with self._inside():
            self._until(self._is_settled)

    def pass_(self, seconds: float) -> None:
        """Let processing time pass, in steps from one timer of the pipeline to the next."""
        target_s = self.clock.passed_s + seconds
        self.settle()
        while self.clock.passed_s < target_s:
            dues = [due for i in self.instances() if (due := _next_due(i)) is not None]
            due_s = min(dues, default=math.inf) - self.clock.began_s
            next_s = min(target_s, max(due_s, self.clock.passed_s))
            if self.held or next_s == self.clock.passed_s:
                next_s = target_s
            self._leap(next_s)
            self.settle()

    def _leap(self, to_s: float) -> None:
        gap_s = to_s - self.clock.passed_s
        self.clock.passed_s = to_s
        self.timeline.now += gap_s
        for process, instance in self.living():
            process.loop.post(instance.pump.listen, gap_s)
            process.loop.post(instance.path.intake.wake)

    def hold(self, process: WorldProcess, keyed: KeyedProcessor) -> None:
        """Let it stand still, as soon as it has brought key groups to rest if it is about to."""
        with self._inside():
            self._until(lambda: bool(keyed.frozen) or self._is_settled())
        process.stop(math.inf)
        self.held.append(process)
        self.settle()

    def release(self) -> None:
        held, self.held = self.held, []
        for process in held:
            process.go_on()
        self.settle()

    def finish(self) -> Report:
        """Return when the run has ended by itself."""
        with self._inside():
            self._until(self._ended.done)
        self.give_up()
        report = self.report()
        assert report is not None
        return report

    def report(self) -> Report | None:
        """None while the run goes on. Raises what has ended it, if that was an error of ours."""
        report: Report | None = self._ended.result() if self._ended.done() else None
        return report

    def give_up(self) -> None:
        """Nothing more happens."""
        with self._inside():
            self._open.close()
        self._threads.close()

    def _until(self, over: Callable[[], bool]) -> None:
        timeline = self.timeline
        while not over():
            gap_s = timeline.next_due() - timeline.now
            if gap_s > 0 and self._threads.working and self._threads.wait(gap_s):
                continue
            if gap_s == math.inf:
                raise Deadlock(timeline.told("nothing is left that could happen"))
            if gap_s > 0:
                self._pass_by(gap_s)
            timeline.take_turn()
            self.check()

    def _pass_by(self, gap_s: float) -> None:
        """Processing time, while functions wait."""
        if self._agent is not None and any(self._works(i) for i in self.instances()):
            self.clock.passed_s += gap_s

    # -- what is there ---------------------------------------------------------------------

    def living(self) -> list[tuple[WorldProcess, Instance]]:
        """Processes with an instance that has begun."""
        living = (p for p in self.processes.all if not p.ended)
        return [(p, p.instance) for p in living if p.instance is not None]

    def instances(self, operator: str | None = None) -> list[Instance]:
        return [i for _, i in self.living() if operator in (None, i.me.operator)]

    def members(self, operator: str | None = None) -> list[Member]:
        assert self._agent is not None
        return self._agent.roster.living(operator)

    def is_keeper(self, instance: Instance) -> bool:
        return any(m.keeper for m in self.members() if m.id == instance.me)

    def last_veto(self) -> str:
        """Why the last thing that was decided was not done."""
        assert self._agent is not None
        kinds = (EventKind.VETO, EventKind.SPAWN_FAILED)
        found = [e.detail for e in self._agent.recorder.events if e.kind in kinds]
        return found[-1] if found else "the others do not agree"

    # -- whether it is at rest ---------------------------------------------------------------

    def _is_settled(self) -> bool:
        timeline = self.timeline
        if self._ended.done():
            return True
        if timeline.next_due() <= timeline.now + SOON_S:
            return False
        if any(self._works(i) for i in self.instances()):
            return False
        return bool(self.held) or all(self._is_at_work(m) for m in self.members())

    def _works(self, instance: Instance) -> bool:
        """Whether a function is at work in it, or about to be."""
        is_held = any(process.instance is instance for process in self.held)
        return not (is_held or instance.pump.hears)

    def _is_at_work(self, member: Member) -> bool:
        if member.phase is not Phase.ACTIVE or member.resuming:
            return False
        found = [i for i in self.instances() if i.me == member.id]
        return all(_is_calm(i) for i in found) and len(found) == 1


def _is_calm(instance: Instance) -> bool:
    state = instance.membership.state
    if isinstance(state, Active):
        return not (state.own or state.expects)
    return isinstance(state, Finished)


def _next_due(instance: Instance) -> float | None:
    keyed = instance.pump.keyed
    return None if keyed is None else keyed.next_due()
