"""A whole run in one process: the agent and its instances, as they are, on virtual time, and
troubles that come to them.

Everything that a run meets is drawn from the seed: the same seed gives the same run to the byte
(in a program with the same `PYTHONHASHSEED`, if functions of the pipeline depend on the order of
sets).
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from anabranch.runtime.hosts.placement import HostRoom
from anabranch.runtime.hosts.pool import PooledRun
from anabranch.runtime.live.agent.agent import Agent
from anabranch.runtime.live.agent.host_sites import HOME, Elsewhere
from anabranch.runtime.live.agent.journal_writer import CannotWrite
from anabranch.runtime.live.agent.open_run import open_run
from anabranch.runtime.live.agent.pins import check_pin
from anabranch.runtime.live.agent.run_journal import BY_MAJORITY
from anabranch.runtime.live.agent.state_dir import StateDir, kept_in
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.ports import clock, descriptors
from anabranch.runtime.ports.disk import use, using
from anabranch.runtime.ports.sockets import take
from anabranch.runtime.reporting.report import Report
from anabranch.runtime.savepoint.folder import SAVEPOINT, Savepoint
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.world.agent_disk import GIVEN_UP, LATE_TRIES_MAX, PAUSE_S, REFUSED, ByOwner
from anabranch.runtime.world.clock import BEGAN_WALL_S, VirtualClock
from anabranch.runtime.world.disk import Killed
from anabranch.runtime.world.disk_faults import NO_FAULTS, ByChance, DiskFaults, SomeOf
from anabranch.runtime.world.far_hosts import FarHosts
from anabranch.runtime.world.guests import Guest
from anabranch.runtime.world.load import FOLDER
from anabranch.runtime.world.loop import VirtualLoop
from anabranch.runtime.world.observer import Observer
from anabranch.runtime.world.pool_of_hosts import WorldPool
from anabranch.runtime.world.processes import WorldProcess
from anabranch.runtime.world.standard_streams import StandardStreams
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.surroundings import AGENT, Surroundings, WorldError, WorldFolder
from anabranch.runtime.world.troubles import TroubleMaker, Troubles

STATE_FOLDER, NEXT_FOLDER = FOLDER / "state", FOLDER / "next"
BOUND_S = 600.0
"""Of virtual time: a world that is not over by then does not end."""
TURNS_MAX = 1_000_000
AGAIN_S = 0.5
"""Until a run that does not go on without a host is told once more."""
HERE = "world"
"""Name of the store of the world itself."""


class End(NamedTuple):
    """All processes of a world end at this time, the agent too. `power`: it is lost, and with it
    something of what was not synced. `gap_s`: those of other hosts live on, for so long without an
    agent; None: they end, too."""

    at_s: float
    power: bool
    gap_s: float | None = None


NEVER = End(math.inf, power=False)


class HostDrain(NamedTuple):
    """All instances on this host relocate from this time on, and none comes any more."""

    at_s: float
    host: str


class Loss(NamedTuple):
    """This host is lost at this time, and given up by a user `after_s` later, unless a majority,
    if it may after `agreed_s`, has given it up before. `is_there`: only home does not reach it, for
    `seconds`; `is_cut`: nor does any other host; otherwise it has lost all its processes, and is
    away for so long."""

    at_s: float
    host: str
    after_s: float
    seconds: float
    is_there: bool
    is_cut: bool = False
    agreed_s: float = 0.0


class Pinning(NamedTuple):
    """A user sets at this time how many instances an operator has; None: its policy decides."""

    at_s: float
    operator: str
    instances: int | None


class SavepointStop(NamedTuple):
    """The input of the run ends at this time for it, and it leaves a savepoint. A run of `then`,
    which is the same pipeline with other numbers of instances, begins from that."""

    at_s: float
    then: Pipeline


class World(Surroundings):
    """`disk_faults`: of the disk as instances see it; `agent_faults`: as the agent does, until the
    troubles are over: they may kill it, or let it give up. `ends`: after each of them another agent
    goes on with the run; after a death of the agent in a call, `agent_power`: whether power was
    lost. `observer`: looks at all cores, and at `rest_at_s` whether the world is at rest.
    `began_s`: what the wall clock shows when the world begins. `guests`: live in it, too, whatever
    becomes of the run. `hosts`: on which its instances are; none: on one; `apart`: all but the
    first have a worker and files of their own; `drains`: of these; `fixed`: operators that stay
    then. `pins`: each is set once, and again if the agent could not take it. `losses`: of hosts.
    `stop`: two runs happen, one after the other. `streams`: standard input and output. `pooled`:
    hosts open and close, as a controller plans.

    Large because it leads a run through all its agents, and each of its parts has something to do
    at the beginning and at the end of each."""

    def __init__(
        self,
        pipeline: Pipeline,
        seed: int,
        *,
        options: Options | None = None,
        conditions: Conditions | None = None,
        troubles: Troubles | None = None,
        disk_faults: DiskFaults = NO_FAULTS,
        agent_faults: DiskFaults = NO_FAULTS,
        agent_power: bool = False,
        ends: Sequence[End] = (),
        began_s: float = BEGAN_WALL_S,
        observer: Observer | None = None,
        rest_at_s: float | None = None,
        guests: Sequence[Guest] = (),
        hosts: Sequence[HostRoom] = (),
        apart: bool = False,
        drains: Sequence[HostDrain] = (),
        fixed: Collection[str] = (),
        pins: Sequence[Pinning] = (),
        losses: Sequence[Loss] = (),
        stop: SavepointStop | None = None,
        streams: StandardStreams | None = None,
        pooled: bool = False,
    ) -> None:
        others = {HERE, *(guest.name for guest in guests), *(host.name for host in hosts)}
        faults = ByOwner(
            disk_faults, agent_faults, agent=AGENT, others=others, is_spared=self._spares_agent
        )
        super().__init__(pipeline, seed, conditions or Conditions(), faults)
        self.ends, self.observer = ends, observer
        self.options = _first_options(options or Options(), seed, goes_on=bool(ends), stop=stop)
        own, rng = troubles or Troubles(), self.rng("troubles")
        self.troubles = TroubleMaker(own, self.processes, self.network, rng, observer)
        self._tell_troubles(disk_faults)
        self._rest_at_s, self._guests, self._agent_power = rest_at_s, guests, agent_power
        self._drains, self._losses, self._agreed = drains, losses, set[str]()
        self._elsewhere = Elsewhere(HOME, lambda: hosts)
        self._far: FarHosts | None = None
        self.pool: WorldPool | None = None
        if apart:
            self._set_apart(hosts, pooled=pooled)
        self._fixed = dict.fromkeys(fixed, "the scene says so")
        both = [pipeline] if stop is None else [pipeline, stop.then]
        self._pins, self._taken_pins = _possible(pins, both), list[Pinning]()
        self._stop, self._streams = stop, streams
        self.reports: list[Report] = []
        """Of the runs that have ended."""
        self.disk_faults, self.agent_faults = disk_faults, agent_faults
        self._clock = VirtualClock(self.timeline, self.rng("chance"), began_s)
        self._safe_from_s = math.inf if troubles is None else troubles.until_s
        self._store = self._agent_store = self.disk.store_of(HERE)
        self._agent: Agent | None = None
        self._agent_died, self._why_not = False, ""
        """The second: why the last agent has not gone on."""

    def _lose(self, loss: Loss) -> None:
        assert self._far is not None
        if not self._has_begun():  # a run that cannot begin is refused
            asyncio.get_running_loop().call_later(AGAIN_S, self._lose, loss)
        elif loss.is_there:
            self._far.hide(loss.host, loss.seconds)
            self._remark(f"home does not reach {loss.host} for {loss.seconds:.3f} s")
        elif loss.is_cut:
            self._far.cut_off(loss.host, loss.seconds)
            self._remark(f"{loss.host} is cut off for {loss.seconds:.3f} s")
        else:
            self._far.lose(loss.host, loss.seconds)
            self._remark(f"{loss.host} is lost for {loss.seconds:.3f} s")

    def _give_up(self, loss: Loss) -> None:
        """Another agent than the one that was told first is told again, which changes nothing."""
        if loss.agreed_s and loss.host in self._agreed:
            return
        if (agent := self._agent) is not None and not agent.course.is_over:
            with suppress(CannotWrite):
                why = agent.copying.give_ups.give_up(loss.host)
                self._remark(f"{loss.host} is given up{why and f', but not yet: {why}'}")
                self.troubles.done["given up"] += not why
                if why:
                    asyncio.get_running_loop().call_later(AGAIN_S, self._give_up, loss)

    def _note_given_up(self, host: str, by: str) -> None:
        assert self._far is not None
        if self.observer is not None:
            self.observer.given_up.update(self._far.living_on(host))
        if by == BY_MAJORITY:  # a user need not do it any more
            self._agreed.add(host)
            self.troubles.done["given up by majority"] += 1
            self._remark(f"{host} is given up by majority")

    def _set_apart(self, hosts: Sequence[HostRoom], *, pooled: bool) -> None:
        home = hosts[0].name
        far = self._far = self.troubles.far = FarHosts(
            home,
            [host.name for host in hosts],
            self.pipeline.operators,
            self.processes,
            self.network,
            self.timeline,
            self.disk,
            self.rng("hosts"),
            self._note_error,
        )
        self._elsewhere = Elsewhere(
            home, lambda: hosts, far.make, listen=home, placing=far.place, begins=far.begins
        )
        if pooled:
            told = partial(_as_told, lambda: self._agent)
            pool = self.pool = WorldPool(
                hosts, far, self.timeline, self.rng("pool"), told, self._note_fault
            )
            self._elsewhere = replace(
                self._elsewhere, rooms=pool.rooms, drained=pool.drained, limits=pool.limits
            )

    def _note_fault(self, fault: str) -> None:
        if self.observer is not None:
            self.observer.faults.append(fault)

    def run(self, bound_s: float = BOUND_S, turns_max: int = TURNS_MAX) -> Report:
        """The report of the last run. Raises `Deadlock` or `TooLong` if a run does not end,
        `WorldError` if an error of its own code was left uncaught."""
        self.pipeline.validate()
        self._store.make_folder(FOLDER)
        self._store.sync_folder(FOLDER.parent)
        if self._streams is not None:
            self._streams.reader = self._store
        piped = nullcontext() if self._streams is None else descriptors.using(self._streams)
        observing = nullcontext() if self.observer is None else self.observer.observing()
        ends, late_tries = [*self.ends, NEVER], 0
        here = using(self._store)  # what is begun meanwhile never sees the real disk
        with (
            clock.using(self._clock),
            here,
            piped,
            observing,
            self.loops_of(self._guests),
            self._hosts(),
        ):
            while (report := self._go_on(ends[0], bound_s, turns_max)) is None or self._follows(
                report
            ):
                if report is not None:
                    continue
                if self.timeline.now >= ends[0].at_s:
                    self._pass_without_agent(ends.pop(0).gap_s or 0.0)
                else:
                    self.timeline.pass_by(PAUSE_S)
                    late_tries += self.timeline.now >= self._safe_from_s
                    if late_tries > LATE_TRIES_MAX:
                        raise WorldError(self._why_not)
        return report

    def _follows(self, report: Report) -> bool:
        """Whether another run begins, now that one has ended."""
        self.reports.append(report)
        stop, self._stop = self._stop, None
        if stop is None or not report.finished:
            return False
        self._remark("another run begins from the savepoint")
        self.pipeline = self.processes.pipeline = stop.then
        self.options = replace(
            self.options,
            state=NEXT_FOLDER,
            until_committed=False,
            begin_from=STATE_FOLDER / SAVEPOINT,
        )
        if self.observer is not None:
            operators = stop.then.operators
            self.observer.go_on_with({str(name): one for name, one in operators.items()})
        return True

    @contextmanager
    def _hosts(self) -> Iterator[None]:
        """Meanwhile they are there."""
        try:
            yield
        finally:
            if self._far is not None:
                processes = (process.loop for process in self.processes.all)
                self._clear_away([*self._far.loops, *processes])

    def _pass_without_agent(self, seconds: float) -> None:
        until = self.timeline.now + seconds
        while self.timeline.next_due() <= until:
            self.timeline.take_turn()
        self.timeline.now = until

    def _lives_on(self, process: WorldProcess) -> bool:
        return self._far is not None and bool(process.on_host) and not process.ended

    def _go_on(self, end: End, bound_s: float, turns_max: int) -> Report | None:
        """Until the run has ended. None: this end has come, or the disk has failed the agent."""
        self._agent, self._agent_died = None, False
        with self.loops(AGENT, "troubles") as (of_agent, of_troubles):
            disk = self.disk.store_of(AGENT, partial(self._note_death, of_agent))
            self._agent_store = disk
            of_agent.context.run(use, disk)  # also for what other loops call there
            with using(disk):
                try:
                    begun = open_run(self.pipeline, self.options)
                except REFUSED as error:
                    self._note_failure(f"the agent does not begin: {error!r}")
                    return None
                except Killed:
                    self._end_all(End(self.timeline.now, self._agent_power))
                    return None
                self._begin_to_disturb(of_agent, of_troubles)
                ended = of_agent.create_task(self._carry_out(*begun), name="run")
                self.timeline.run(
                    lambda: ended.done() or self._agent_died or self._has_come(end),
                    until_s=bound_s,
                    turns_max=turns_max,
                )
                self.check()
                if self._agent_died:
                    end = End(self.timeline.now, self._agent_power)
                if self._agent_died or not ended.done():
                    self._end_all(end)  # before the loops are cleared away, which changes nothing
                    return None
                report: Report = ended.result()
                disk.kill()
        if report.failure is not None and any(why in report.failure for why in GIVEN_UP):
            self._note_failure(f"the agent gives up: {report.failure}")
            return None
        return report

    def _begin_to_disturb(self, of_agent: VirtualLoop, of_troubles: VirtualLoop) -> None:
        of_troubles.create_task(self.troubles.run(), name="troubles")
        if self.pool is not None:
            of_troubles.create_task(self.pool.keep(), name="pool")
        for drain in self._drains:
            at_s = max(drain.at_s, self.timeline.now)
            of_agent.call_at(at_s, self._drain, drain.host)
        for loss in self._losses:
            if loss.at_s >= self.timeline.now:
                of_troubles.call_at(loss.at_s, self._lose, loss)
            of_agent.call_at(max(loss.at_s + loss.after_s, self.timeline.now), self._give_up, loss)
        for pin in self._pins:
            of_agent.call_at(max(pin.at_s, self.timeline.now), self._pin, pin)
        if self._stop is not None:
            stop_at_s = max(self._stop.at_s, self.timeline.now)
            of_agent.call_at(stop_at_s, self._end_input)
        if self._rest_at_s is not None and self._rest_at_s > self.timeline.now:
            of_troubles.call_at(self._rest_at_s, self._look_whether_at_rest)

    def _note_failure(self, why: str) -> None:
        self._why_not = why
        self._remark(why)

    def _note_death(self, of_agent: VirtualLoop) -> None:
        """Of the agent, in a call to its disk."""
        self._agent_died = True
        of_agent.kill()

    def _tell_troubles(self, of_disk: DiskFaults) -> None:
        """What they need of the world."""
        self.troubles.has_begun = self._has_begun
        if isinstance(of_disk, ByChance):
            of_disk.spares = self._spares

    def _has_begun(self) -> bool:
        return self._agent is not None and self._agent.course.started.done()

    def _spares(self, process: str) -> bool:
        """Deaths in calls to the disk count as all others."""
        return self.troubles.spares(self.processes.of_store(process))

    def _spares_agent(self) -> bool:
        return self.timeline.now >= self._safe_from_s or self._is_complete()

    def _has_come(self, end: End) -> bool:
        return self.timeline.now >= end.at_s and not self._is_complete()

    def _remark(self, text: str) -> None:
        if self.observer is not None:
            self.observer.remark(self.timeline.now, text)

    def _is_complete(self) -> bool:
        """Whether the run is about to remove what it has kept: another one would begin anew."""
        agent = self._agent
        return agent is not None and agent.course.started.done() and not kept_in(self.options.state)

    def _drain(self, host: str) -> None:
        """Another agent than the one that got it first gets it again."""
        if self._agent is not None:
            self._remark(f"{host} is drained")
            self._agent.drains.fixed.update(self._fixed)
            self._agent.tasks.start(f"drain {host}", self._agent.drains.drain(host))

    def _end_input(self) -> None:
        if self._agent is not None:
            self._agent.tasks.start("stop", self._say_stop(self._agent))

    async def _say_stop(self, agent: Agent) -> None:
        await asyncio.shield(agent.course.started)
        self._remark("the input ends, and the stream does not")
        agent.end_input()

    def _pin(self, pin: Pinning) -> None:
        if self._agent is not None and pin not in self._taken_pins:
            self._agent.tasks.start("pin", self._say_pin(self._agent, pin))

    async def _say_pin(self, agent: Agent, pin: Pinning) -> None:
        await asyncio.shield(agent.course.started)
        with suppress(CannotWrite):  # the run has failed, and is begun again
            agent.pin(pin.operator, pin.instances)
            self._taken_pins.append(pin)
            self._remark(f"{pin.operator} is to have {pin.instances or 'any number of'} instances")

    def _other_numbers(self) -> Iterator[str]:
        """Operators that have not come to the number which a user has set last."""
        assert self._agent is not None
        for operator, wanted in {pin.operator: pin.instances for pin in self._taken_pins}.items():
            kept = self._agent.snapshot().operator(operator).pinned
            if kept != wanted:
                yield f"of {operator}, a user has said {wanted}, and the run has kept {kept}"
            count = len(self._agent.roster.active(operator))
            if wanted not in (None, count):
                yield f"{operator} has {count} instances, and is to have {wanted}"

    def _left_behind(self) -> Iterator[str]:
        assert self._agent is not None
        for drain in self._drains:
            if drain.at_s < self.timeline.now:
                for member in self._agent.drains.movable(drain.host):
                    yield f"{member.text} is on {drain.host}, which was drained"

    def _look_whether_at_rest(self) -> None:
        assert self.observer is not None
        self.observer.faults += [*self._left_behind(), *self._other_numbers()]
        self.observer.remark(self.timeline.now, "nothing has gone wrong for long")
        self.observer.faults += self.observer.at_rest(self.processes.instances)

    def _end_all(self, end: End) -> None:
        if end.gap_s is not None:
            self._remark("all processes at home end")
            self.processes.end_all(only_at_home=True)
            self._agent_store.kill()
            self._store = self.disk.store_of(HERE)
            return
        self._remark("all processes end" + ", and power is lost" * end.power)
        self.processes.end_all()
        if self._far is not None:
            self._far.end_all()
        self.disk.end_all()
        if end.power:
            self.disk.lose_power(SomeOf(self.rng(f"end at {end.at_s}")))
        self._store = self.disk.store_of(HERE)

    def written(self, path: Path) -> bytes:
        """What is in a file of the world; nothing if it is not there."""
        return self._store.read(path) if self._store.exists(path) else b""

    def names(self, folder: Path) -> list[str]:
        """Of what is in a folder of the world; none if it is not there."""
        return sorted(self._store.names(folder))

    async def _carry_out(self, state: StateDir | None, savepoint: Savepoint | None) -> Report:
        if self._far is not None:
            take(self._far.transport_at_home())
        agent = self._agent = Agent(
            self.pipeline,
            self.options,
            self.processes,
            state,
            savepoint,
            make_run_dir=WorldFolder,
            elsewhere=self._elsewhere,
        )
        agent.copying.give_ups.on_given_up = self._note_given_up
        return agent.report(await agent.run())


def _as_told(agent_now: Callable[[], Agent | None]) -> PooledRun:
    """What a pool of hosts hears of the run."""
    agent = agent_now()
    if agent is None or not agent.course.started.done() or agent.course.is_over:
        return PooledRun("the run", answers=False)
    shown = agent.recorder.controllers.values()
    hosts = [member.host for member in agent.roster.living()]
    return PooledRun(
        "the run",
        planned=max((each.hosts for each in shown if each.hosts is not None), default=None),
        instances=Counter([*hosts, *(one.host for one in agent.roster.ending.values())]),
        drained=frozenset(agent.drains.hosts.drained),
        away=frozenset(agent.sites.away(hosts)),
    )


def _first_options(
    options: Options, seed: int, *, goes_on: bool, stop: SavepointStop | None
) -> Options:
    """Of the first run. `goes_on`: another agent may have to."""
    is_kept = goes_on or stop is not None
    return replace(
        options,
        seed=seed,
        transport="unix",
        state=STATE_FOLDER if is_kept else None,
        resume_or_begin=is_kept,
        until_committed=stop is not None,
    )


def _possible(pins: Sequence[Pinning], pipelines: Sequence[Pipeline]) -> list[Pinning]:
    """Others would be refused."""
    found = []
    for pin in pins:
        with suppress(PipelineError):
            for pipeline in pipelines:
                check_pin(pipeline.operators, pin.operator, pin.instances)
            found.append(pin)
    return found
