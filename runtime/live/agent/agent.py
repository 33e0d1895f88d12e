"""The agent of one host: carries out one run of a pipeline.

It makes processes, tells the first ones who their neighbours are, keeps the boards of the sources
and listens. It is no master: it takes no decision of scaling, no tuple passes through it, and
instances join and leave among themselves.

    begin ── parent, services, founders from the sinks up, or all that lived ──▶ running
    running ── a process ends early ──▶ running, with a new one in its place (see `supervisor`)
            ── all instances gone ──▶ completed      an instance says that it failed ──▶ failed
            ── stop() ──▶ stopped                    (the first of these counts)
    finish ── services linger, every process ended, folder removed, report

Every wait is bounded except the one for the stream itself: how long the input lasts is not ours
to say.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.agent import savepoints
from anabranch.runtime.live.agent.attendants import Attendants
from anabranch.runtime.live.agent.boards import Boards, InputChanged, SplitsError
from anabranch.runtime.live.agent.controllers import Controllers
from anabranch.runtime.live.agent.dispatcher import Dispatcher
from anabranch.runtime.live.agent.journal_writer import RunJournalWriter
from anabranch.runtime.live.agent.news import News
from anabranch.runtime.live.agent.recorder import Recorder
from anabranch.runtime.live.agent.roster import Member, Phase, Roster
from anabranch.runtime.live.agent.run_journal import Begun, Listens, Sampled
from anabranch.runtime.live.agent.scripted import follow
from anabranch.runtime.live.agent.spawner import Spawner
from anabranch.runtime.live.agent.starter import Orders, Starter, StartError
from anabranch.runtime.live.agent.startup import found, orders_of, resume
from anabranch.runtime.live.agent.state_dir import StateDir, as_before
from anabranch.runtime.live.agent.supervisor import Supervisor
from anabranch.runtime.live.agent.tasks import Tasks
from anabranch.runtime.live.agent.warm_pool import WarmPool
from anabranch.runtime.live.agent.watchdog import Watchdog
from anabranch.runtime.live.channel.ended import Marks, ended_dir
from anabranch.runtime.live.commit.recovery import base_bytes
from anabranch.runtime.live.link.messages import EndInput
from anabranch.runtime.live.process.forker import Forker, ForkError, no_other
from anabranch.runtime.live.process.process import Process
from anabranch.runtime.live.process.run_dir import RunDir
from anabranch.runtime.live.process.template_process import TemplateProcess
from anabranch.runtime.measuring.cpu import HostUse
from anabranch.runtime.pipeline.graph import Pipeline, edges
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.plan.ends import passing
from anabranch.runtime.reporting.dead_limit import exceeded
from anabranch.runtime.reporting.failure import Failure
from anabranch.runtime.reporting.report import COMPLETED, DURATION
from anabranch.runtime.reporting.status import id_to_wire
from anabranch.runtime.savepoint.folder import Savepoint, SavepointError
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.texts import carried, original

SEED_BITS = 32
UNUSED_AFTER_S = 2.0
BASE_BYTES_PER_S = 2**20
"""An instance that begins from a savepoint may take longer for what it has to read; on an idle core
it reads ten times as much."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the run ended: completed, stopped or failed."""

    ended: str
    failure: Failure | None = None


class Agent:
    """To be made and used inside one running event loop. `parent` and `state` belong to it from
    then on. `another_parent`: see `Forker`."""

    def __init__(
        self,
        pipeline: Pipeline,
        options: Options,
        parent: TemplateProcess,
        state: StateDir | None = None,
        another_parent: Callable[[], TemplateProcess | None] = no_other,
        savepoint: Savepoint | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        resumed = None if state is None else state.resumed
        if resumed is not None:
            options = as_before(options, resumed)
        self.pipeline = pipeline
        self.options = options
        self.seed = secrets.randbits(SEED_BITS) if options.seed is None else options.seed
        self._savepoint = savepoint if resumed is None else None
        self.begun_from = "" if savepoint is None else carried(savepoint.path)
        self.earlier_s = 0.0 if savepoint is None else savepoint.head.passed_s
        """How long the stream had run before this run."""
        self.phase = "starting"
        self.started_s = time.monotonic()
        self.started_at = datetime.now().astimezone()
        if resumed is not None:
            self.started_at = datetime.fromisoformat(resumed.started_at)
            self.earlier_s = resumed.earlier_s
        self.started: asyncio.Future[None] = loop.create_future()
        """Done when every founder is ready; cancelled if the run ends before."""
        self.run_dir = RunDir(None if resumed is None else Path(original(resumed.run_dir)))
        self.journal_writer = RunJournalWriter(self, state)
        self._marks = Marks(ended_dir(self.journal_writer.ends))
        self.log = self.journal_writer.log
        self.roster = Roster(pipeline, self.log)
        self.recorder = Recorder(
            pipeline.operators, options.limits.status_period_s, edges(pipeline.operators.values())
        )
        self.boards = Boards(pipeline, self.send, self.log)
        self.tasks = Tasks(self._crashed)
        self.host_use = HostUse(time.monotonic())
        self.say = options.on_output or _show
        """What instances print, and what the agent has to tell the user."""
        self.news = News(self, options.on_alert or partial(self.say, "agent"))
        self.forker = Forker(
            parent, self.say, self._parent_lost, self._parent_followed, another_parent
        )
        self.pool = WarmPool(self.forker.fork, options.warm, self.tasks)
        deadline_s = options.limits.start_deadline_s
        self.supervisor = Supervisor(self)
        self.starter = Starter(self.pool, self.forker, deadline_s, self.supervisor.adopt)
        self.spawner = Spawner(self)
        self.controllers = Controllers(self)
        self.dispatcher = Dispatcher(self)
        self.watchdog = Watchdog(self)
        self.services = Attendants(self)
        self._outcome: asyncio.Future[Outcome] = loop.create_future()
        self._late_failure: Failure | None = None
        self._ending = False
        self._hurried = asyncio.Event()
        self._held_back: list[tuple[Process, Any]] = []
        """What is not said before what led to it is written."""
        self._orders: Orders

    # -- from outside, in the agent's thread -----------------------------------------------

    async def run(self) -> Outcome:
        """The whole run; every process has ended when this returns or raises."""
        self.tasks.start("begin", self._begin())
        try:
            outcome = await self._outcome
            if outcome.ended == COMPLETED:
                self.phase = "closing"
                await self._unless_hurried(self.services.close())
                await self._save()
        finally:
            await self._end_everything()
        return outcome if self._late_failure is None else Outcome("failed", self._late_failure)

    async def _save(self) -> None:
        """Write a savepoint of what the instances have left in their journals, which stay if that
        fails. Nothing interrupts it: it ends soon."""
        if not self.options.until_committed:
            return
        try:
            run, path = savepoints.stopped(self), self.journal_writer.path / savepoints.SAVEPOINT
            await asyncio.to_thread(savepoints.write, run, path)
        except Exception as error:
            told = f"the savepoint could not be written: {error}; resume the run to try again"
            self._late_failure = Failure(told, traceback.format_exc())

    def end_input(self, operator: str | None = None, by: str = "") -> None:
        """Let the sources, or one, act as if their input had ended. Raises `PipelineError`.

        `by`: see `Boards.end_input`."""
        sources = [o.name for o in self.pipeline.operators.values() if o.source is not None]
        if operator is not None and operator not in sources:
            raise PipelineError(f"{operator!r} is no source; known: {', '.join(sources)}")
        for name in sources if operator is None else [operator]:
            self.boards.end_input(name, by)
            for member in self.roster.living(name):
                # Those that are not ready yet are told when they are.
                if member.phase is not Phase.STARTING:
                    self.send(member.id, EndInput())
        if all(self.boards.has_ended_early(name) for name in sources) and self.started.done():
            self.phase = "ending"

    def stop(self) -> None:
        """End everything now; what is on its way is given up."""
        self._hurried.set()
        self._end(Outcome("stopped"))

    def fail(self, failure: Failure) -> None:
        """End everything now because it cannot go on. The first failure counts: later ones may
        be its consequences, and those of processes that are being ended are."""
        if self._decided == COMPLETED and not self._ending:
            # A service has failed while it is being closed.
            self._late_failure = self._late_failure or failure
        self._end(Outcome("failed", failure))

    # -- for its parts ---------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """How the run ends is decided: whatever dies from now on stays dead."""
        return self._outcome.done()

    @property
    def _decided(self) -> str:
        """How the run ends: completed, stopped or failed; empty while that is open."""
        outcome = self._outcome
        return outcome.result().ended if outcome.done() and not outcome.cancelled() else ""

    @property
    def now_s(self) -> float:
        """Since the run began."""
        return round(time.monotonic() - self.started_s, 4)

    def send(self, instance: InstanceId, message: Any) -> None:
        member = self.roster.get(instance)
        if member is not None and member.process is not None:
            if self.journal_writer.is_behind:
                self._held_back.append((member.process, message))
            else:
                member.process.send(message)

    def say_held_back(self) -> None:
        """All that led to it is written now."""
        said, self._held_back = self._held_back, []
        for process, message in said:
            process.send(message)

    async def start_member(self, member: Member) -> None:
        """Give it a process, and return when that is ready. Raises `StartError`."""
        operator, wire = member.id.operator, id_to_wire(member.id)
        address = self.services.address_for(operator)
        journal = self.journal_writer.journal_of(operator, member.id.number)
        self.log(Begun(id=wire, incarnation=member.incarnation, bootstrap=member.bootstrap))
        await self.journal_writer.caught_up()
        assign = self._orders.assign(member, address, journal)
        await self.starter.start(member, assign, base_bytes(journal) / BASE_BYTES_PER_S)
        self.log(Listens(id=wire, address=member.address))
        if self.boards.has_ended_early(member.id.operator):
            self.send(member.id, EndInput())

    # -- the way of a run ------------------------------------------------------------------

    async def _begin(self) -> None:
        try:
            await self.forker.start(self.options.import_deadline_s)
            self.forker.guard(self.run_dir.path)
            self._set_the_clock()
            self.pool.refill()
            self.forker.keep_standby()
            await self.services.start(self._orders)
            await self._begin_from()
            await (found(self) if self.journal_writer.resumed is None else resume(self))
        except (ForkError, StartError, InputChanged, SplitsError, SavepointError) as error:
            self.fail(Failure(f"pipeline {self.pipeline.name!r} did not start: {error}"))
            return
        except OSError as error:
            told = f"cannot begin in {str(self.journal_writer.path)!r}: {error}"
            self.fail(Failure(f"pipeline {self.pipeline.name!r} did not start: {told}"))
            return
        if self._outcome.done():
            return
        self.phase = "running"
        self.started.set_result(None)
        self.tasks.start("sampler", self._sample())
        self.tasks.start("time", self.journal_writer.keep_time())
        self.tasks.start("watchdog", self.watchdog.watch())
        if self.options.decides:
            self.tasks.start("controllers", self.controllers.run())
        if self.options.script is not None:
            rng = random.Random(f"{self.seed}:script")
            self.tasks.start("script", follow(self.options.script, self, rng))
        if self.options.duration_s is not None:
            self.tasks.start("duration", self._end_input_after(self.options.duration_s))
        self.check_complete()

    async def _begin_from(self) -> None:
        if self._savepoint is not None:
            savepoints.restore_sources(self, self._savepoint)
            await asyncio.to_thread(savepoints.lay_bases, self, self._savepoint)

    def _set_the_clock(self) -> None:
        passed_s = 0.0
        if self.journal_writer.resumed is not None:
            passed_s = self.journal_writer.read()
        self.started_s = time.monotonic() - passed_s
        self._orders = orders_of(self)
        if self.journal_writer.resumed is None:
            self.started_at = datetime.now().astimezone()
            self.journal_writer.begin(self._orders)

    def check_complete(self) -> None:
        living = self.roster.living()
        if living and all(m.phase is Phase.LISTENING for m in living):
            # Nobody is left who could start them, unless the word that they have been started is
            # still on its way over another link than the one that told of their creator's end.
            asyncio.get_running_loop().call_later(UNUSED_AFTER_S, self._end_unused, living)
        if self.started.done() and self.supervisor.all_ended and not living:
            self._end(Outcome(COMPLETED))

    def _end_unused(self, before: list[Member]) -> None:
        if all(m.phase is Phase.LISTENING for m in self.roster.living()):
            for member in before:
                self.spawner.end_unused(member)

    async def _unless_hurried(self, work: Coroutine[Any, Any, None]) -> None:
        """Do `work`, but give it up when told to stop."""
        done = self.tasks.start("close services", work)
        hurry = self.tasks.start("hurry", self._hurry())
        await asyncio.wait([done, hurry], return_when=asyncio.FIRST_COMPLETED)

    async def _hurry(self) -> None:
        await self._hurried.wait()

    def _end(self, outcome: Outcome) -> None:
        if not self._outcome.done():
            self._outcome.set_result(outcome)

    async def _end_everything(self) -> None:
        self._ending = True
        self.phase = "ended"
        self.started.cancel()
        self.services.give_up()
        self.pool.close()
        async with AsyncExitStack() as endings:
            # From the last to the first, and each of them even if another one fails.
            endings.callback(self.run_dir.remove)
            endings.callback(self._close_chronicle)
            endings.push_async_callback(self.tasks.cancel_all)
            endings.push_async_callback(self.forker.stop)
            self.recorder.sample(time.monotonic() - self.started_s, self.instances())

    def _keep_sample(self) -> None:
        tick = self.recorder.sample(time.monotonic() - self.started_s, self.instances())
        if tick is not None:
            self.log(Sampled(t=tick[0], rows=tick[1]))

    def _close_chronicle(self) -> None:
        completed = self._decided == COMPLETED and self._late_failure is None
        self.journal_writer.close(completed=completed)

    # -- tasks -----------------------------------------------------------------------------

    async def _sample(self) -> None:
        while True:
            self.recorder.forget_all_but({member.text for member in self.roster.living()})
            self._keep_sample()
            self.host_use.look(time.monotonic())
            self._check_folders()
            self._check_dead()
            await asyncio.sleep(self.options.limits.status_period_s)

    def _check_folders(self) -> None:
        """Without them nobody could be reached or resumed any more, and the run would hang."""
        told = "was removed, or something in it, while the run needs it; begin a new run"
        if not self.journal_writer.is_there:
            self.fail(Failure(f"the folder {str(self.journal_writer.path)!r} {told}"))
        elif not self.run_dir.is_there:
            resume = ", or resume this one" * (self.options.state is not None)
            self.fail(Failure(f"the folder {str(self.run_dir.path)!r} {told}{resume}"))
        else:
            self._renew_marks()

    def _renew_marks(self) -> None:
        """Without them, neighbours would wait for instances that have ended."""
        try:
            for operator in self.pipeline.operators:
                if self._marks.are_to_renew(operator):
                    self._marks.renew(operator, self.roster.ended(operator))
        except OSError as error:
            if not passing(error):
                self.fail(Failure(f"cannot note which instances have ended: {error}"))

    def _check_dead(self) -> None:
        operators = self.pipeline.operators.values()
        rows = [(o, self.recorder.latest(o.name)) for o in operators]
        told = exceeded(
            self.pipeline.dead_max,
            dead=sum(row.dead for _, row in rows),
            read=sum(row.tuples_in for o, row in rows if o.source is not None),
            delivered=sum(row.tuples_out for o, row in rows if o.sink is not None),
            ended=False,
        )
        if told:
            self.fail(Failure(f"too many tuples died: {told}"))

    async def _end_input_after(self, duration_s: float) -> None:
        await asyncio.sleep(self.started_s + duration_s - time.monotonic())
        self.end_input(by=DURATION)

    def instances(self) -> dict[str, int]:
        return {name: len(self.roster.active(name)) for name in self.pipeline.operators}

    def _parent_followed(self) -> None:
        """All instances and services have died; their next incarnations come from another
        parent."""
        self.pool.renew()

    def _parent_lost(self, message: str) -> None:
        if not (self.is_over and self.services.all_over):  # otherwise nobody needs it any more
            self.fail(Failure(message))

    def _crashed(self, name: str, error: BaseException) -> None:
        """An error of ours: shown whole, since nobody can do anything else about it."""
        detail = "".join(traceback.format_exception(error)).rstrip()
        self.fail(Failure(f"the agent failed in {name!r}: {error!r}", detail))


def _show(_name: str, line: str) -> None:
    """What instances print goes to the user's standard error, whole lines at a time."""
    if sys.stderr is not None:
        print(line, file=sys.stderr, flush=True)
