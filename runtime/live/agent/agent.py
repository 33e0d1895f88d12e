"""The agent of one host: carries out one run of a pipeline.

It makes processes, sends the first ones their neighbours, keeps the boards of the sources and
listens. It is no master: it takes no decision of scaling, no tuple passes through it, and
instances join and leave among themselves.

    begin ── parent, services, founders from the sinks up, or all that lived ──▶ running
    running ── a process ends early ──▶ running, with a new one in its place (see `supervisor`)
            ── all instances gone ──▶ completed      an instance reports that it failed ──▶ failed
            ── stop() ──▶ stopped                    (the first of these counts)
    finish ── services linger, every process ended, folder removed, report

Every wait is bounded except the one for the stream itself: how long the input lasts is not ours
to say.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from anabranch.runtime.live.agent.assignments import Assignments
from anabranch.runtime.live.agent.attendant import Attendant
from anabranch.runtime.live.agent.attendants import Attendants
from anabranch.runtime.live.agent.boards import Boards, InputChanged, SplitsError
from anabranch.runtime.live.agent.clock import RunClock
from anabranch.runtime.live.agent.completion import Completion
from anabranch.runtime.live.agent.copying import Copying
from anabranch.runtime.live.agent.death_register import DeathRegister
from anabranch.runtime.live.agent.departed import Departed
from anabranch.runtime.live.agent.dispatcher import Dispatcher, SplitDesk
from anabranch.runtime.live.agent.drains import Drains
from anabranch.runtime.live.agent.folder_check import FolderCheck
from anabranch.runtime.live.agent.host_sites import ONE_HOST, Elsewhere, HostSites
from anabranch.runtime.live.agent.incarnations import Incarnations
from anabranch.runtime.live.agent.inputs import Inputs
from anabranch.runtime.live.agent.journal_writer import RunJournalWriter
from anabranch.runtime.live.agent.member_reports import MemberReports
from anabranch.runtime.live.agent.messenger import Messenger
from anabranch.runtime.live.agent.moves import Moves
from anabranch.runtime.live.agent.outcome import Course, Outcome
from anabranch.runtime.live.agent.recorder import Recorder
from anabranch.runtime.live.agent.recovery import Recorded, rebuild, snapshot
from anabranch.runtime.live.agent.roster import KNOWN, Member, Phase, Roster
from anabranch.runtime.live.agent.run_events import RunEvents
from anabranch.runtime.live.agent.run_files import RunFiles, run_file_of, take_letters
from anabranch.runtime.live.agent.run_hosts import RunHosts
from anabranch.runtime.live.agent.run_journal import read_records
from anabranch.runtime.live.agent.sampler import Sampler
from anabranch.runtime.live.agent.scripted import follow
from anabranch.runtime.live.agent.showing import show
from anabranch.runtime.live.agent.spawner import Spawner
from anabranch.runtime.live.agent.starter import Starter, StartError, StartOrders
from anabranch.runtime.live.agent.startup import Founders, resume
from anabranch.runtime.live.agent.state_dir import (
    JOURNAL,
    RunFile,
    StateDir,
    as_before,
    outlives_power,
    span_in,
)
from anabranch.runtime.live.agent.supervisor import Supervisor
from anabranch.runtime.live.agent.tasks import Tasks
from anabranch.runtime.live.agent.views import Observed, report_of, snapshot_of
from anabranch.runtime.live.agent.watchdog import Watchdog, Watched
from anabranch.runtime.live.process.processes import ForkError, MakeProcesses
from anabranch.runtime.live.process.run_dir import RunDir, RunFolder
from anabranch.runtime.pipeline.definition import edges
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.pipeline.order import bound
from anabranch.runtime.policies.controller import controllers_of
from anabranch.runtime.policies.script import Script
from anabranch.runtime.ports import clock
from anabranch.runtime.reporting.failure import Failure
from anabranch.runtime.reporting.report import COMPLETED, DURATION, Report
from anabranch.runtime.reporting.snapshot import RunSnapshot
from anabranch.runtime.savepoint.folder import SAVEPOINT, Savepoint, SavepointError
from anabranch.runtime.storage.record_log import CannotSync, LogDamaged
from anabranch.runtime.values.kinds import EventKind
from anabranch.runtime.values.texts import carried, original

if TYPE_CHECKING:
    from anabranch.runtime.live.agent.pins import Pins

COULD_NOT_START = (
    *(ForkError, StartError, InputChanged, SplitsError, SavepointError),
    LogDamaged,  # which it was not a moment ago, when the folder was opened
)
SEED_BITS = 32
TOKEN_BYTES = 32


class Agent:
    """To be made and used inside one running event loop. `state` belongs to it from then on.

    Large because it is the one place that holds all parts of a run: it has an attribute for each,
    and half of it makes them. They have each other only as far as they are given here.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        options: Options,
        make_processes: MakeProcesses,
        state: StateDir | None = None,
        savepoint: Savepoint | None = None,
        make_run_dir: Callable[[Path | None], RunFolder] = RunDir,
        elsewhere: Elsewhere = ONE_HOST,
    ) -> None:
        self.resumed = None if state is None else state.resumed
        self.span = options.backfill
        """Of the event times that are taken; None: all are."""
        if self.resumed is not None:
            options = as_before(options, self.resumed)
            self.span = span_in(self.resumed)
        elif savepoint is not None:
            self.span = savepoint.head.span
        elif elsewhere.processes is not None:
            options = replace(options, transport="tcp", host=elsewhere.listen)
        # A savepoint is made of journals that are all here; from another host no socket is seen
        # that is a file here.
        if options.until_committed or savepoint is not None or options.transport != "tcp":
            elsewhere = elsewhere if elsewhere.processes is None else ONE_HOST
        self.pipeline = pipeline
        self.options = options
        self.seed = clock.chance().getrandbits(SEED_BITS) if options.seed is None else options.seed
        self.say = options.on_output or show
        """What instances print, and what the agent shows the user."""
        self._state = state
        self._savepoint = savepoint
        self._make_run_dir = make_run_dir
        self._elsewhere = elsewhere
        self.course = Course()
        self.tasks = Tasks(self.course.crash)
        self._make_records()
        self._make_processes(make_processes)
        self._make_incarnations()
        self._make_parts()

    def _make_records(self) -> None:
        """What is known of the run, and written down."""
        pipeline, options, resumed, state = self.pipeline, self.options, self.resumed, self._state
        operators = pipeline.operators
        if resumed is not None:
            began = datetime.fromisoformat(resumed.started_at)
            self.clock = RunClock(began, resumed.earlier_s)
            self.run_dir = self._make_run_dir(Path(original(resumed.run_dir)))
        else:
            before = self._savepoint
            self.clock = RunClock(None, 0.0 if before is None else before.head.passed_s)
            self.run_dir = self._make_run_dir(None)
        folder = self.run_dir.path / "state" if state is None else state.path
        self.files = RunFiles(folder, operators, keep_finished=options.until_committed)
        self.journal = RunJournalWriter(
            state,
            self.clock,
            self.tasks,
            self.course,
            lambda *told: self.run_events.note("agent", *told),
        )
        log = self.journal.log
        self.roster = Roster(pipeline, log)
        self.recorder = Recorder(
            operators, options.limits.status_period_s, edges(operators.values())
        )
        alert = options.on_alert or partial(self.say, "agent")
        self.run_events: RunEvents = RunEvents(self.roster, self.recorder, self.clock, log, alert)
        self.messenger = Messenger(self.roster, self.journal)
        self.boards = Boards(pipeline, self.messenger.send, log)
        self._recorded = Recorded(self.roster, self.recorder, self.boards, left={}, pinned={})
        self._pins: Pins | None = None
        self.sampler = Sampler(pipeline, self.roster, self.recorder, self.clock, log)
        self._folder_check = FolderCheck(
            self.files, self.run_dir, self.roster, self.course, can_resume=state is not None
        )

    def _make_processes(self, make: MakeProcesses) -> None:
        """What makes processes, and leads them."""
        options, pipeline = self.options, self.pipeline
        self.forker = make(self.say, self._parent_lost, self._parent_followed)
        self.sites = HostSites(
            self.forker,
            options.warm,
            self.tasks,
            self._elsewhere,
            options.import_deadline_s,
            self.say,
            self._host_refused,
            partial(take_letters, pipeline),
        )
        self._departed = Departed(self.roster, self.files, self.sites)
        self.starter = Starter(options.limits.start_deadline_s)
        self.services = Attendants(
            pipeline,
            partial(
                Attendant,
                starter=self.starter,
                site=self.sites.home,
                tasks=self.tasks,
                boards=self.boards,
                run_events=self.run_events,
                course=self.course,
            ),
        )
        self._hosts = RunHosts(
            pipeline, self.roster, self._elsewhere, self.sites.may_be_used, self._busy
        )
        self.copying = Copying(
            pipeline,
            self.roster,
            self.journal,
            self.messenger,
            self.starter,
            self.sites,
            self._elsewhere,
            self.files,
            self.tasks,
            self.run_events,
            self.course,
            self._recorded.given_up,
        )

    def _make_incarnations(self) -> None:
        """What gives members their processes, one after the other."""
        self._assignments = Assignments(
            self.services,
            self.files,
            self.journal,
            self.boards,
            self.messenger,
            self._recorded.pinned,
            self._hosts,
            self.sites,
            Moves(self.roster, self.messenger),
            self.copying.desk,
        )
        self._deaths = DeathRegister(self.run_events, self.recorder, self.course, self.journal.log)
        self._incarnations = Incarnations(
            self.starter,
            self.sites,
            self.tasks,
            self._assignments,
            self._deaths,
            lambda member, body: self._dispatcher.receive(member, body),
        )
        self._supervisor = Supervisor(
            self._incarnations,
            self._deaths,
            self.roster,
            self.tasks,
            self.course,
            self.run_events,
            self._member_ended,
        )

    def _make_parts(self) -> None:
        """What receives from instances, looks after them and sends to them."""
        roster, run_events, messenger, log = (
            self.roster,
            self.run_events,
            self.messenger,
            self.journal.log,
        )
        self.drains = Drains(self.pipeline, self._hosts, roster, messenger, run_events, self.course)
        self._spawner = Spawner(roster, self._incarnations, self.tasks, messenger, run_events)
        self._completion: Completion = Completion(
            roster, self._supervisor, self._spawner, self.course, self.sites.is_reachable
        )
        self._inputs = Inputs(self.pipeline, self.boards, roster, messenger, self.course)
        self._watchdog = Watchdog(
            self._watched, self.sites, run_events, partial(self.say, "agent"), self.options.hang_s
        )
        self._dispatcher: Dispatcher = Dispatcher(
            self.starter,
            self._spawner,
            roster,
            messenger,
            SplitDesk(self.boards, messenger, self.course),
            MemberReports(roster, self.recorder, self.boards, run_events, self.course, log),
            self._watchdog,
        )
        self._dispatcher.on_copy = self.copying.desk.completed
        self._observed = Observed(
            self.pipeline,
            self.options.decides,
            self.clock,
            roster,
            self.recorder,
            self.boards,
            self.services,
            self.sampler.host_use,
            self._recorded.pinned,
            self._hosts.drained,
            self.copying.desk.lack_of,
            self._recorded.given_up,
        )

    def _watched(self) -> Iterator[Watched]:
        """Those that others may wait for: not between two processes, nor on a host cut off."""
        for member in self.roster.living():
            if not self.sites.is_reachable(member.host):
                member.heard_s = clock.monotonic()
            elif member.phase in KNOWN and not member.resuming:
                yield member
        yield from self.services.present
        yield from self.copying.keepers.watched()

    # -- from outside, in the agent's thread -----------------------------------------------

    async def run(self) -> Outcome:
        """The whole run; every process has ended when this returns or raises."""
        self.tasks.start("begin", self._begin())
        try:
            if (await self.course.over()).ended == COMPLETED:
                self.course.phase = "closing"
                await self._unless_stopped(self.services.close())
                await self._save()
        finally:
            await self._end_everything()
        return self.course.outcome

    async def _save(self) -> None:
        """Write a savepoint of what the instances have left in their journals, which stay if that
        fails. Nothing interrupts it: it ends soon."""
        if not self.options.until_committed:
            return
        try:
            from anabranch.runtime.live.agent import savepoints

            run = savepoints.stopped(
                self.pipeline,
                self.files,
                self.boards,
                self.recorder,
                self.clock,
                self.span,
                self._recorded.pinned,
            )
            await asyncio.to_thread(savepoints.write, run, self.files.path / SAVEPOINT)
        except Exception as error:
            told = f"the savepoint could not be written: {error}; resume the run to try again"
            self.course.fail(Failure(told, traceback.format_exc()))

    def end_input(self, source: str | None = None, by: str = "") -> None:
        """Let the sources, or one, act as if their input had ended. `by`: see `Boards`. A backfill
        stops, and can be resumed: its savepoint would stand for input that was not read."""
        if self.options.backfill is not None:
            self.stop()
            return
        self._inputs.end(source, by)

    def pin(self, operator: str, n: int | None) -> None:
        """Bring the operator to `n` instances and keep it there; None: its policy decides again.
        See `check_pin`. Raises `CannotWrite`."""
        self._keep_pins(is_resumed=False).set(operator, n)

    def stop(self) -> None:
        self.course.stop()

    def snapshot(self) -> RunSnapshot:
        return snapshot_of(self._observed, self.course.phase, self.sites)

    def report(self, outcome: Outcome) -> Report:
        """To be called after the run has ended."""
        return report_of(self._observed, outcome, self.seed, resumed=self.resumed is not None)

    # -- the way of a run ------------------------------------------------------------------

    async def _begin(self) -> None:
        try:
            await self.forker.start(self.options.import_deadline_s)
            self.forker.guard(self.run_dir.path)
            self.tasks.start("watchdog", self._watchdog.watch(), periodic=True)
            self._set_the_clock()
            self.sites.home.pool.refill()
            self.forker.keep_standby()
            await self.services.start(self._assignments.orders)
            await self._bring_up()
        except COULD_NOT_START as error:
            self._could_not_start(str(error))
        except (OSError, CannotSync) as error:
            self._could_not_start(f"cannot begin in {str(self.files.path)!r}: {error}")
        else:
            if not self.course.is_over:
                self.course.start()
                self._start_tasks()
                self._completion.check()

    def _could_not_start(self, why: str) -> None:
        self.course.fail(Failure(f"pipeline {self.pipeline.name!r} did not start: {why}"))

    def _set_the_clock(self) -> None:
        power = outlives_power(self.pipeline)
        if self.resumed is None:
            self.clock.begin()
        else:
            records = read_records(self.files.path / JOURNAL, power=power)
            self.clock.go_on(rebuild(self._recorded, records))
            self._note_that_it_stops(self.resumed)
        orders = self._assignments.orders = self._make_orders()
        self._elsewhere.begins(orders.token)
        self.copying.begin(orders)
        if self._state is None:
            self.files.make()
        elif self.resumed is None:
            savepoint = self._savepoint
            begun_from = "" if savepoint is None else carried(savepoint.path)
            self._state.begin(run_file_of(self.pipeline, orders, self.clock, begun_from))
            self._open_journal()

    def _note_that_it_stops(self, run: RunFile) -> None:
        """A run that was begun without `until_committed` ends with a savepoint all the same, if the
        end of an input has not had effects yet."""
        if self._state is not None and self.options.until_committed and not run.until_committed:
            self.boards.refuse_if_ended()
            self._state.rewrite(msgspec.structs.replace(run, until_committed=True))

    def _open_journal(self) -> None:
        self.journal.open(
            lambda: snapshot(self._recorded, self.clock.now_s), power=outlives_power(self.pipeline)
        )

    def _make_orders(self) -> StartOrders:
        token = clock.secret(TOKEN_BYTES) if self.resumed is None else self.resumed.token
        return StartOrders(
            pipeline=self.pipeline.name,
            run_dir=self.run_dir.path,
            started_s=self.clock.started_s - self.clock.earlier_s,
            token=token,
            transport=self.options.transport,
            host=self.options.host,
            seed=self.seed,
            scaling=self.options.decides,
            dry_run=self.options.policy_dry_run,
            limits=self.options.limits,
            delivery=self.pipeline.delivery,
            state_dir=self.files.ends,
            stays_open=self.options.until_committed,
            span=self.span,
            tls=self._elsewhere.tls,
        )

    async def _bring_up(self) -> None:
        """The first instances, or all that lived."""
        roster, run_events = self.roster, self.run_events
        if self.resumed is not None:
            self._open_journal()
            gone = self.resumed.gone
            await resume(roster, self._supervisor, self.files.ends, run_events, gone, self.say)
        else:
            if self._savepoint is not None:
                await self._restore(self._savepoint)
            founders = Founders(
                self.pipeline,
                roster,
                self._incarnations,
                self._deaths,
                self.files,
                self.sites,
                run_events,
            )
            await founders.start()
            self.journal.founded()

    async def _restore(self, savepoint: Savepoint) -> None:
        from anabranch.runtime.live.agent import savepoints
        from anabranch.runtime.savepoint.inputs import positions_of

        begun = await asyncio.to_thread(positions_of, self.pipeline, savepoint)
        log = self.journal.log
        savepoints.restore_sources(self.boards, savepoint, begun, log)
        savepoints.restore_pins(self.pipeline, savepoint, self._recorded.pinned, log, self.say)
        await asyncio.to_thread(savepoints.lay_bases, self.pipeline, self.files, savepoint)

    def _start_tasks(self) -> None:
        options, operators = self.options, self.pipeline.operators
        self.tasks.start("sampler", self._sample(), periodic=True)
        self.tasks.start("time", self.journal.keep_time(), periodic=True)
        if self._elsewhere.processes is not None:
            self.tasks.start("drains", self.drains.follow(self._elsewhere.drained, self.tasks))
        if options.decides and controllers_of(operators.values()):
            self.tasks.start("controllers", self._control())
        if self._recorded.pinned:
            self._keep_pins(is_resumed=True)
        if options.script is not None:
            self.tasks.start("script", self._follow(options.script))
        if options.duration_s is not None:
            self.tasks.start("duration", self._end_input_after(options.duration_s))

    async def _control(self) -> None:
        from anabranch.runtime.live.agent.controllers import Controllers, Looks

        operators = self.pipeline.operators.values()
        looks = Looks(operators, self.roster, self.recorder, self._hosts.pool)
        log, before, learnt = self.journal.log, self._recorded, self.options.learnt_file
        controllers = Controllers(
            looks, self.messenger, self.run_events, log, before.left, before.pinned, learnt
        )
        period_s, is_resumed = self.options.limits.status_period_s, self.resumed is not None
        await controllers.run(operators, self.seed, period_s, is_resumed=is_resumed)

    def _keep_pins(self, *, is_resumed: bool) -> Pins:
        if self._pins is None:
            from anabranch.runtime.live.agent.controllers import Looks
            from anabranch.runtime.live.agent.pins import Pins

            looks = Looks(self.pipeline.operators.values(), self.roster, self.recorder)
            self._pins = Pins(
                self.pipeline.operators,
                self._recorded.pinned,
                looks,
                self.roster,
                self.messenger,
                self.journal.log,
                random.Random(f"{self.seed}:pins"),
            )
            self.tasks.start("pins", self._pins.keep(is_resumed=is_resumed))
        return self._pins

    async def _follow(self, script: Script) -> None:
        """Not decisions from before the run was resumed, which had their time."""
        operators = self.pipeline.operators
        scalable = [o.name for o in operators.values() if o.can_scale]
        begins_s = 0.0 if self.resumed is None else self.clock.now_s
        all_decisions = script.decisions(scalable, bound(operators))
        decisions = (d for d in all_decisions if d.at_s >= begins_s)
        rng = random.Random(f"{self.seed}:script")
        await follow(decisions, self.clock, self.roster, self.messenger, self.run_events, rng)

    async def _member_ended(self, member: Member) -> None:
        self._completion.check()
        if member.phase in (Phase.GONE, Phase.DISCARDED):
            await self.journal.caught_up()  # that it has ended is written first
            self.copying.desk.see_off(member)
            await self._departed.see_off(member)
        self.roster.ending.pop(member.id, None)

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Do `work`, but give it up when the run is to stop."""
        done = self.tasks.start("close services", work)
        stopped = self.tasks.start("hurry", self.course.stopped())
        await asyncio.wait([done, stopped], return_when=asyncio.FIRST_COMPLETED)

    async def _end_everything(self) -> None:
        self.course.finalize()
        self.services.give_up()
        self.sites.close()
        async with AsyncExitStack() as endings:
            # From the last to the first, and each of them even if another one fails.
            endings.callback(self.run_dir.remove)
            endings.callback(lambda: self.journal.close(completed=self.course.has_completed))
            endings.push_async_callback(self.tasks.cancel_all)
            endings.push_async_callback(self.sites.stop, keep=not self.course.has_completed)
            self.sampler.sample_last()

    async def _sample(self) -> None:
        while True:
            self.sampler.sample()
            self._folder_check.check()
            if told := self.sampler.too_many_dead():
                self.course.fail(Failure(f"too many tuples died: {told}"))
            await asyncio.sleep(self.options.limits.status_period_s)

    async def _end_input_after(self, duration_s: float) -> None:
        await asyncio.sleep(duration_s - self.clock.now_s)
        self.end_input(by=DURATION)

    def _parent_followed(self) -> None:
        """All instances and services have died; their next incarnations come from another
        parent."""
        self.sites.home.pool.renew()

    def _host_refused(self, host: str, why: str) -> None:
        """Those that are there can go on nowhere else: their journals are there."""
        there = [m.text for m in self.roster.living() if m.host == host and m.has_begun]
        told = f"host {host!r} makes no processes for this run: {why}"
        self.run_events.note("agent", EventKind.START_FAILED, told)
        if there and not self.course.is_over:
            self.course.fail(Failure(f"{told}; on it are {', '.join(there)}"))

    def _busy(self, instance: str) -> float:
        """The share of a core that it has used lately."""
        status = self.recorder.statuses.get(instance)
        return 0.0 if status is None else status.busy

    def _parent_lost(self, message: str) -> None:
        if not (self.course.is_over and self.services.all_over):  # otherwise it is not needed now
            self.course.fail(Failure(message))
