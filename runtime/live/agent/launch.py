"""Begins runs: for a script in a thread of its own, for the command line in the main thread."""

from __future__ import annotations

import asyncio
import atexit
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType

import msgspec

from anabranch.runtime.live.agent.agent import Agent
from anabranch.runtime.live.agent.host_sites import ONE_HOST, Elsewhere
from anabranch.runtime.live.agent.journal_writer import CannotWrite
from anabranch.runtime.live.agent.open_run import open_run
from anabranch.runtime.live.agent.outcome import Outcome
from anabranch.runtime.live.agent.state_dir import StateDir
from anabranch.runtime.live.process.forker import Forker
from anabranch.runtime.live.process.origin import DEFAULT_ENTRY, Origin, being_loaded, find_origin
from anabranch.runtime.live.process.process import OnOutput
from anabranch.runtime.live.process.template_process import (
    TemplateProcess,
    choose_way,
    fork_template,
    import_template,
)
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.pipeline.order import bound
from anabranch.runtime.pipeline.places import check_kept_learnt, check_places, check_report
from anabranch.runtime.pipeline.spans import check_backfill
from anabranch.runtime.policies.learnt_file import learnt_file
from anabranch.runtime.ports import clock
from anabranch.runtime.reporting.dead_limit import exceeded
from anabranch.runtime.reporting.failure import Failure, RunFailed
from anabranch.runtime.reporting.report import (
    CTRL_C,
    Report,
    check_writable,
    put_report,
    write_report,
)
from anabranch.runtime.reporting.snapshot import RunSnapshot
from anabranch.runtime.savepoint.folder import Savepoint
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.working_folder import check_working_folder

STOP_TIMEOUT_S = 15.0
"""More than everything that ends a run may take."""
NOTED_S = 10.0
View = Callable[[RunSnapshot], None]


def start(
    pipeline: Pipeline,
    options: Options | None = None,
    *,
    entry: str = DEFAULT_ENTRY,
    elsewhere: Elsewhere = ONE_HOST,
) -> Run:
    """Begin a run and return when its first instances are ready. `elsewhere`: hosts that it may
    use.

    Works in any program: see `Options.preload` for how instances get the pipeline. Raises
    `PipelineError` if the pipeline cannot run, what `prepare` of its ends raises, and `RunFailed`
    if instances do not start.
    """
    return Run(_prepare(pipeline, options or Options(), entry, elsewhere))


def run(
    pipeline: Pipeline,
    options: Options | None = None,
    *,
    view: View | None = None,
    view_period_s: float = 0.25,
    entry: str = DEFAULT_ENTRY,
) -> Report:
    """Carry out a whole run in this, the main, thread. Raises as `start` does.

    Ctrl-C ends the input, so that the stream is finished properly; a second one, or SIGTERM,
    stops everything; a signal that this process ignores stays ignored. `view` gets a snapshot
    every `view_period_s` and one at the end.
    """
    prepared = _prepare(pipeline, options or Options(), entry)

    def began(agent: Agent) -> None:
        _take_signals(agent)
        if view is not None:
            agent.tasks.start("view", _show_again(view, agent, view_period_s))

    try:
        report = asyncio.run(_carry_out(prepared, began, view or _nobody_looks))
    finally:
        prepared.abandon()
    return report


class Run:
    """A run in progress. Also a context manager: leaving it ends the input of unbounded sources
    and waits for the end; leaving it by an exception stops the run."""

    def __init__(self, prepared: Prepared) -> None:
        self.pipeline = prepared.pipeline
        self._prepared = prepared
        self._began = threading.Event()
        self._ended = threading.Event()
        self._stop_wanted = False
        self._agent: Agent | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._snapshot: RunSnapshot | None = None
        self._report: Report | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._live, name="anabranch-agent", daemon=True)
        self._thread.start()
        atexit.register(self._stop_at_exit)
        try:
            self._began.wait()
        except BaseException:
            # Ctrl-C while instances start: there will be no `Run` that could be stopped.
            self._stop_at_exit()
            raise
        if self._error is not None:
            self._over()
            atexit.unregister(self._stop_at_exit)
            raise self._error

    @property
    def resumed_from(self) -> str | None:
        """When the run began with which this one goes on; None: it has begun by itself."""
        state = self._prepared.state
        return None if state is None or state.resumed is None else state.resumed.started_at

    def wait(self, timeout_s: float | None = None) -> Report:
        """The report, when the run has ended. Raises `RunFailed`, or `TimeoutError` if it goes on.

        A run that was stopped is no failure: see `Report.ended`.
        """
        if not self._over(timeout_s):
            raise TimeoutError(f"run of {self.pipeline.name!r} goes on after {timeout_s} s")
        atexit.unregister(self._stop_at_exit)
        if self._error is not None:
            raise self._error
        assert self._report is not None
        return self._report

    def end_input(self, operator: str | None = None) -> None:
        """Let one source, or all, act as if its input had ended; then `wait`.

        Raises `PipelineError` if there is no such source.
        """
        known = [o.name for o in self.pipeline.operators.values() if o.source is not None]
        if operator is not None and operator not in known:
            raise PipelineError(f"{operator!r} is no source; known: {', '.join(known)}")
        self._tell(lambda agent: agent.end_input(operator))

    def cut_short(self, by: str) -> None:
        """As `end_input`, and the report has that the run ended early, and `by` what."""
        self._tell(lambda agent: agent.end_input(by=by))

    def scale(self, operator: str, n: int | None) -> None:
        """Bring an operator to `n` instances, and keep it there: its policy decides nothing until
        this is called with None. Return when the run has noted it; instances come and leave
        later. Raises `PipelineError` if it cannot have so many."""
        from anabranch.runtime.live.agent.pins import check_pin

        check_pin(self.pipeline.operators, operator, n)
        self._have_noted(lambda agent: agent.pin(operator, n))

    def give_up(self, host: str) -> None:
        """Go on without a host that is lost for good. Return when the run has noted it. Raises
        `PipelineError` if it cannot."""

        def give_up(agent: Agent) -> None:
            if why := agent.copying.give_ups.give_up(host):
                raise PipelineError(why)

        self._have_noted(give_up)

    def _have_noted(self, order: Callable[[Agent], None]) -> None:
        """Raises `PipelineError`."""
        noted: Future[None] = Future()

        def note(agent: Agent) -> None:
            try:
                order(agent)
                noted.set_result(None)
            except CannotWrite as error:
                noted.set_exception(PipelineError(f"the run has failed: {error.__cause__}"))
            except PipelineError as error:
                noted.set_exception(error)

        self._tell(note)
        deadline = clock.monotonic() + NOTED_S
        while not noted.done():
            if self._ended.wait(0.02):
                raise PipelineError(f"the run of {self.pipeline.name!r} has ended")
            if clock.monotonic() > deadline:
                raise PipelineError(f"the run of {self.pipeline.name!r} does not answer")
        noted.result()

    def stop(self) -> Report:
        """End everything now, give up what is on its way, and return when nothing is left."""
        self._tell(Agent.stop)
        return self.wait(STOP_TIMEOUT_S)

    def snapshot(self) -> RunSnapshot:
        """What the run looks like; renewed about four times a second."""
        assert self._snapshot is not None
        return self._snapshot

    def service_address(self, operator: str) -> str:
        """Where the service of a source or sink listens; empty if it has none."""
        return self.snapshot().operator(operator).service_address

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._tell(Agent.stop)
            self._over(STOP_TIMEOUT_S)
            return
        for operator in self.pipeline.operators.values():
            if operator.source is not None and not operator.source.bounded:
                self.end_input(operator.name)
        self.wait()

    def _live(self) -> None:
        try:
            self._report = asyncio.run(_carry_out(self._prepared, self._agent_made, self._look))
        except BaseException as error:
            # Raised again where the user waits for it.
            self._error = error
        finally:
            self._prepared.abandon()
            self._ended.set()
            self._began.set()

    def _agent_made(self, agent: Agent) -> None:
        self._agent = agent
        self._loop = asyncio.get_running_loop()
        if self._stop_wanted:
            agent.stop()
        self._look(agent.snapshot())
        agent.tasks.start("view", _show_again(self._look, agent, 0.25))
        agent.course.started.add_done_callback(self._agent_started)

    def _agent_started(self, started: asyncio.Future[None]) -> None:
        if not started.cancelled() and self._agent is not None:
            self._look(self._agent.snapshot())
            self._began.set()

    def _look(self, snapshot: RunSnapshot) -> None:
        self._snapshot = snapshot

    def _tell(self, order: Callable[[Agent], None]) -> None:
        """Have the agent's thread do it; nothing to do once the run has ended."""
        loop, agent = self._loop, self._agent
        if loop is None or agent is None:
            return
        try:
            loop.call_soon_threadsafe(order, agent)
        except RuntimeError:
            # The loop was closed, so the run has ended.
            return

    def _stop_at_exit(self) -> None:
        """The program ends without having waited."""
        self._stop_wanted = True
        self._tell(Agent.stop)
        self._over(STOP_TIMEOUT_S)

    def _over(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; whether it has come.

        Python 3.11 takes a thread for ended if Ctrl-C interrupts a `join`, so that is done only
        when it takes no time.
        """
        if not self._ended.wait(timeout_s):
            return False
        self._thread.join()
        return True


@dataclass(slots=True)
class Prepared:
    """A pipeline that can run, and how its processes will get it."""

    pipeline: Pipeline
    options: Options
    entry: str
    origin: Origin | None
    parent: TemplateProcess | None
    state: StateDir | None
    savepoint: Savepoint | None = None
    elsewhere: Elsewhere = ONE_HOST

    def agent(self) -> Agent:
        """To be called in the thread that carries out the run."""
        if self.parent is None:
            assert self.origin is not None
            self.parent = import_template(self.pipeline, self.origin, self.entry)
        make = partial(_forker, self.parent, self._another_parent)
        return Agent(
            self.pipeline,
            self.options,
            make,
            self.state,
            self.savepoint,
            elsewhere=self.elsewhere,
        )

    def _another_parent(self) -> TemplateProcess | None:
        """One that reads the pipeline's file again, when no copy of it is left in any process.

        None if that would run the user's program a second time, which has not been asked for.
        """
        origin = self.origin or find_origin(self.pipeline)
        if origin is None or (origin.is_program and self.origin is None):
            return None
        return import_template(self.pipeline, origin, self.entry)

    def abandon(self) -> None:
        """End the parent, if it is there; all others end with it. Harmless after a run."""
        parent, self.parent = self.parent, None
        self._end(parent)
        if self.state is not None:
            self.state.close()

    def _end(self, parent: TemplateProcess | None) -> None:
        if parent is None:
            return
        parent.kill()
        deadline = clock.monotonic() + 2.0
        while not parent.ended() and clock.monotonic() < deadline:
            clock.pause(0.002)
        parent.close()


def _forker(
    parent: TemplateProcess,
    another: Callable[[], TemplateProcess | None],
    on_output: OnOutput,
    on_lost: Callable[[str], None],
    on_taken_over: Callable[[], None],
) -> Forker:
    return Forker(parent, on_output, on_lost, on_taken_over, another)


def _prepare(
    pipeline: Pipeline, options: Options, entry: str, elsewhere: Elsewhere = ONE_HOST
) -> Prepared:
    if being_loaded():
        raise PipelineError(
            "a run was started while the pipeline's file is read again for another run; put the "
            'call under `if __name__ == "__main__":`'
        )
    pipeline.validate()
    _check_copies(pipeline, options, elsewhere)
    check_working_folder()
    if options.report is not None:
        check_writable(options.report)
        check_report(pipeline, options.report)
        # The program may change the working directory, or remove it, before the run has ended.
        options = replace(options, report=options.report.absolute())
    if options.learnt is not None and options.learnt_file is not None:
        options.learnt_file.check(options.learnt, pipeline.operators.values())
    if options.keep_learnt is not None:
        check_kept_learnt(pipeline, options.keep_learnt, options.report)
        options = replace(options, keep_learnt=options.keep_learnt.absolute())
    if options.script is not None:
        operators = pipeline.operators
        scalable = [o.name for o in operators.values() if o.can_scale]
        options.script.decisions(scalable, bound(operators))
    check_places(pipeline, options.report)
    if options.backfill is not None:
        check_backfill(pipeline.operators)
    way, origin = choose_way(pipeline, options.preload)
    state, savepoint = open_run(pipeline, options)
    try:
        parent = fork_template(pipeline, entry) if way == "fork" else None
    except BaseException:
        if state is not None:
            state.close()
        raise
    return Prepared(pipeline, options, entry, origin, parent, state, savepoint, elsewhere)


def _check_copies(pipeline: Pipeline, options: Options, elsewhere: Elsewhere) -> None:
    """Raises `PipelineError` if there can be no copies of journals."""
    if not pipeline.has_copies:
        return
    told = f'pipeline {pipeline.name!r} is durable="hosts"'
    if elsewhere.processes is None:
        raise PipelineError(
            f"{told}, and this run has one host: no other one can have copies of its journals. "
            "Submit it to an agent that knows other hosts (anabranch submit), or leave out "
            'durable="hosts"'
        )
    if options.until_committed or options.begin_from is not None:
        raise PipelineError(
            f"{told}, and a run that ends with a savepoint, or begins from one, has one host: the "
            "journals of all instances must be there"
        )


async def _carry_out(prepared: Prepared, began: Callable[[Agent], None], view: View) -> Report:
    agent = prepared.agent()
    began(agent)
    outcome = await agent.run()
    view(agent.snapshot())
    return _finish(agent, outcome)


def _finish(agent: Agent, outcome: Outcome) -> Report:
    report = agent.report(outcome)
    failure = outcome.failure or _failure_by_deaths(agent.pipeline, report)
    if failure is not None and report.failure is None:
        report = msgspec.structs.replace(report, ended="failed", failure=failure.message)
    if agent.options.report is not None and not (failure is not None and failure.refused):
        try:
            write_report(report, agent.options.report)
        except OSError as error:
            told = f"the report could not be written to {str(agent.options.report)!r}: {error}"
            failure = failure or Failure(told)
            report = msgspec.structs.replace(report, failure=failure.message)
    refused = failure is not None and failure.refused
    if agent.options.keep_learnt is not None and not refused:
        failure = _keep_learnt(agent, agent.options.keep_learnt, failure)
        if failure is not None:
            report = msgspec.structs.replace(report, failure=failure.message)
    if failure is not None:
        raise RunFailed(failure, report)
    return report


def _keep_learnt(agent: Agent, path: Path, failure: Failure | None) -> Failure | None:
    """Whether the run has failed, also by this."""
    learnt = agent.recorder.learnt
    if learnt is None:
        return failure
    file = learnt_file(agent.pipeline.operators.values(), learnt(clock.monotonic()))
    try:
        put_report(file.to_json(), path)
    except OSError as error:
        told = f"what was learnt could not be written to {str(path)!r}: {error}"
        return failure or Failure(told)
    return failure


def _failure_by_deaths(pipeline: Pipeline, report: Report) -> Failure | None:
    """Of a run that came to its end: too many tuples have died."""
    ledger = report.ledger
    told = exceeded(
        pipeline.dead_max,
        dead=ledger.dead_letters,
        read=ledger.tuples_in,
        delivered=ledger.tuples_out,
        ended=True,
    )
    if not report.finished or not told:
        return None
    return Failure(f"too many tuples died: {told}")


async def _show_again(view: View, agent: Agent, period_s: float) -> None:
    while True:
        view(agent.snapshot())
        await asyncio.sleep(period_s)


def _nobody_looks(_snapshot: RunSnapshot) -> None:
    return


def _take_signals(agent: Agent) -> None:
    loop = asyncio.get_running_loop()
    interrupts = 0

    def interrupted() -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts == 1 and agent.course.started.done():
            agent.end_input(by=CTRL_C)
        else:
            agent.stop()

    loop.add_signal_handler(signal.SIGTERM, agent.stop)
    for number, act in ((signal.SIGINT, interrupted), (signal.SIGHUP, agent.stop)):
        if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup`, or in a script's background
            loop.add_signal_handler(number, act)
