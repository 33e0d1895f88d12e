"""What goes wrong in a world, at times drawn from its seed."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from anabranch.runtime.world.far_hosts import FarHosts
from anabranch.runtime.world.network import Network
from anabranch.runtime.world.observer import Observer
from anabranch.runtime.world.processes import WorldProcess, WorldProcesses
from anabranch.runtime.world.stream import StreamEnd

KINDS = (
    *(
        "kills",
        "service_kills",
        "host_kills",
        "cuts",
        "hang_ups",
        "clogs",
        "deafs",
        "stops",
        "slows",
    ),
    *("halts", "spins", "hangs", "service_hangs", "parent_stops", "host_cuts", "host_losses"),
)


@dataclass(frozen=True, slots=True)
class Troubles:
    """How often each happens in a second, until `until_s`: `kills` of a process, `service_kills`
    of one that runs a service, `host_kills` of all processes of one of so many `hosts`, `cuts` of a
    connection, `hang_ups` at one end of it, `clogs` of one way of a connection, `deafs` of all ways
    to a process, `stops` of a process that goes on later, `slows` of a process that takes
    `slowness` times as long for a time, `halts` of one that stays stopped, `spins` of one that
    computes, `hangs` of one that waits for ever, `service_hangs` of one that runs a service and is
    stopped or waits for ever, `parent_stops` of the process that all are forked
    from, `host_cuts` of a host from all others, `host_losses` of all processes of a host, its
    worker included, which is away then. `*_s`: at most how long. What is cut may be half open for
    so long: one end notices nothing.
    `early`: the share of halts and hangs that may come before the run has begun, which it is then
    given up for. `aimed`: the share of kills that hit an instance in the middle of an operation, if
    there is one, or an instance of the operator `prey`. `sudden`: how probable it is that a step of
    an operation on the graph is followed by the death of its process, within `SUDDEN_S`; the share
    `at_once` of these deaths comes before the step is in the journal. `kills_each_max`: of one
    instance, `halts` and `hangs` included. One that is killed again and again fails the
    run in the end, or takes what it works on for the reason."""

    until_s: float = 0.0
    kills: float = 0.0
    aimed: float = 0.0
    prey: str = ""
    sudden: float = 0.0
    service_kills: float = 0.0
    at_once: float = 0.0
    host_kills: float = 0.0
    hosts: int = 2
    cuts: float = 0.0
    half_open_s: float = 0.0
    hang_ups: float = 0.0
    clogs: float = 0.0
    clog_s: float = 0.2
    deafs: float = 0.0
    stops: float = 0.0
    stop_s: float = 0.5
    slows: float = 0.0
    slowness: float = 20.0
    halts: float = 0.0
    spins: float = 0.0
    spin_s: float = 8.0
    hangs: float = 0.0
    service_hangs: float = 0.0
    parent_stops: float = 0.0
    host_cuts: float = 0.0
    cut_off_s: float = 0.0
    host_losses: float = 0.0
    away_s: float = 0.0
    early: float = 1.0
    kills_each_max: float = math.inf

    @property
    def rates(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in KINDS}

    @property
    def kill(self) -> bool:
        """Whether processes die by them."""
        return (
            self.kills
            + self.service_kills
            + self.host_kills
            + self.host_losses
            + self.halts
            + self.hangs
            + self.service_hangs
            + self.sudden
            > 0
        )


NO_TROUBLES = Troubles()
SUDDEN_S = 0.003
"""About what passes until the step is in the journal, and sent to others."""


class TroubleMaker:
    """`done`: how often each has happened. `observer`: has which processes are busy, and gets each
    trouble."""

    def __init__(
        self,
        troubles: Troubles,
        processes: WorldProcesses,
        network: Network,
        rng: random.Random,
        observer: Observer | None = None,
    ) -> None:
        self.done: Counter[str] = Counter()
        self.far: FarHosts | None = None
        """Hosts that can be cut off and lost."""
        self.has_begun: Callable[[], bool] = lambda: True
        """Whether all first instances have been ready."""
        self._troubles = troubles
        self._processes = processes
        self._network = network
        self._rng = rng
        self._killed: Counter[str] = Counter()
        """By instance."""
        self._observer = observer
        if observer is not None and troubles.sudden:
            observer.on_step = self._after_step

    async def run(self) -> None:
        rates = self._troubles.rates
        acts: dict[str, Callable[[], str]] = {
            "kills": self._kill,
            "service_kills": self._kill_service,
            "host_kills": self._kill_host,
            "cuts": self._cut,
            "hang_ups": self._hang_up,
            "clogs": self._clog,
            "deafs": self._deafen,
            "stops": self._stop,
            "slows": self._slow,
            "halts": self._halt,
            "spins": self._spin,
            "hangs": self._hang,
            "service_hangs": self._hang_service,
            "parent_stops": self._stop_parent,
            "host_cuts": self._cut_host,
            "host_losses": self._lose_host,
        }
        loop, every = asyncio.get_running_loop(), sum(rates.values())
        while every > 0:
            await asyncio.sleep(self._rng.expovariate(every))
            if loop.time() > self._troubles.until_s:
                return
            (what,) = self._rng.choices([*rates], [*rates.values()])
            if told := acts[what]():
                self.done[what] += 1
                if self._observer is not None:
                    self._observer.remark(loop.time(), f"trouble: {told}")

    def _process(self, among: Callable[[WorldProcess], bool] | None = None) -> WorldProcess | None:
        living = [
            process for process in self._processes.all if not (process.ended or process.hangs)
        ]
        found = [process for process in living if among is not None and among(process)] or living
        return self._rng.choice(found) if found else None

    def _kill(self) -> str:
        aimed = self._troubles.aimed and self._rng.random() < self._troubles.aimed
        process = self._process(self._is_aimed_at if aimed else None)
        return self._strike(process, self._processes.kill_now, "is killed")

    def _kill_service(self) -> str:
        process = self._process(lambda one: one.is_service)
        return self._strike(process, self._processes.kill_now, "is killed")

    def _is_aimed_at(self, process: WorldProcess) -> bool:
        if self._troubles.prey:
            me = process.me
            return me is not None and me.operator == self._troubles.prey
        return self._observer is not None and self._observer.is_busy(process)

    def _after_step(self, process: WorldProcess) -> None:
        timeline = process.loop.timeline
        if timeline.now < self._troubles.until_s and self._rng.random() < self._troubles.sudden:
            at_s = timeline.now + self._rng.uniform(0.0, SUDDEN_S)
            if self._troubles.at_once and self._rng.random() < self._troubles.at_once:
                at_s = timeline.now
            self._processes.agent.post(self._kill_suddenly, process, at=at_s)

    def _kill_suddenly(self, process: WorldProcess) -> None:
        if process.ended or self.spares(process):
            return
        self.done["sudden"] += 1
        if self._observer is not None:
            told = f"trouble: {process.loop.name} is killed in the middle of an operation"
            self._observer.remark(process.loop.timeline.now, told)
        self._processes.kill_now(process)

    def _halt(self) -> str:
        return self._silence(self._process(), hangs=False)

    def _hang(self) -> str:
        return self._silence(self._process(), hangs=True)

    def _hang_service(self) -> str:
        process = self._process(lambda one: one.is_service)
        return self._silence(process, hangs=self._rng.random() < 0.5)

    def _silence(self, process: WorldProcess | None, *, hangs: bool) -> str:
        """For good."""
        if not self.has_begun() and self._rng.random() >= self._troubles.early:
            return ""
        if hangs:
            return self._strike(process, WorldProcess.hang, "hangs")
        return self._strike(process, lambda one: one.stop(math.inf), "is stopped")

    def _strike(
        self, process: WorldProcess | None, blow: Callable[[WorldProcess], None], how: str
    ) -> str:
        """What a process does not outlive."""
        if process is None or self.spares(process):
            return ""
        blow(process)
        return f"{process.loop.name} {how}"

    def _kill_host(self) -> str:
        host = self._rng.randrange(self._troubles.hosts)
        of_host = [
            process
            for process in self._processes.all
            if not process.ended and self._is_on(process, host) and not self.spares(process)
        ]
        for process in of_host:
            self._processes.kill_now(process)
        killed = " ".join(process.loop.name for process in of_host)
        return killed and f"all of host {host} are killed: {killed}"

    def _is_on(self, process: WorldProcess, host: int) -> bool:
        """If the run has one host, its processes die as if they were on several."""
        if process.task is not None and process.task.on_host:
            return process.task.on_host == f"host-{host}"
        return process.pid % self._troubles.hosts == host

    def spares(self, process: WorldProcess) -> bool:
        """Whether a process that is to be killed is not: its instance was, as often as may be."""
        who = str(process.me or process.seen.name)
        self._killed[who] += 1
        return self._killed[who] > self._troubles.kills_each_max

    def _stop(self) -> str:
        """As SIGSTOP, and SIGCONT later: what comes in meanwhile waits."""
        process = self._process()
        if process is None:
            return ""
        seconds = self._rng.uniform(0.0, self._troubles.stop_s)
        process.stop(seconds)
        return f"{process.loop.name} is stopped for {seconds:.3f} s"

    def _spin(self) -> str:
        process = self._process()
        if process is None:
            return ""
        seconds = self._rng.uniform(0.0, self._troubles.spin_s)
        process.spin(seconds)
        return f"{process.loop.name} computes for {seconds:.3f} s"

    def _stop_parent(self) -> str:
        self._processes.parent_stopped = True
        return "the template process is stopped"

    def _far_host(self) -> tuple[FarHosts, str] | None:
        if self.far is None or not self.far.hosts:
            return None
        return self.far, self._rng.choice([*self.far.hosts])

    def _cut_host(self) -> str:
        if (found := self._far_host()) is None:
            return ""
        far, name = found
        seconds = self._rng.uniform(0.0, self._troubles.cut_off_s)
        far.cut_off(name, seconds)
        return f"{name} is cut off for {seconds:.3f} s"

    def _lose_host(self) -> str:
        """Not if that would kill one too often."""
        if (found := self._far_host()) is None or not self.has_begun():
            return ""
        far, name = found
        spared = [self.spares(process) for process in far.living_on(name)]
        if any(spared):
            return ""
        seconds = self._rng.uniform(0.0, self._troubles.away_s)
        far.lose(name, seconds)
        return f"{name} loses all its processes, and is away for {seconds:.3f} s"

    def _slow(self) -> str:
        process = self._process()
        if process is None:
            return ""
        seconds, factor = self._rng.uniform(0.0, 4 * self._troubles.stop_s), self._troubles.slowness
        process.loop.slowness = factor
        asyncio.get_running_loop().call_later(seconds, setattr, process.loop, "slowness", 1.0)
        return f"{process.loop.name} is {factor:g} times slower for {seconds:.3f} s"

    def _deafen(self) -> str:
        process = self._process()
        if process is None:
            return ""
        seconds = self._rng.uniform(0.0, self._troubles.clog_s)
        for end in self._network.open_ends:
            if end.loop is process.loop:
                end.clog(seconds)
        return f"nothing comes to {process.loop.name} for {seconds:.3f} s"

    def _end(self) -> StreamEnd | None:
        ends = self._network.open_ends
        return self._rng.choice(ends) if ends else None

    def _cut(self) -> str:
        end = self._end()
        if end is None:
            return ""
        later_s = self._rng.choice((0.0, self._rng.uniform(0.0, self._troubles.half_open_s)))
        self._network.cut(end, later_s)
        return f"the connection {end.name} is cut, which the other end hears {later_s:.3f} s later"

    def _hang_up(self) -> str:
        """One end closes it; what that had sent still arrives."""
        end = self._end()
        if end is None:
            return ""
        end.close()
        return f"the connection {end.name} is closed"

    def _clog(self) -> str:
        end = self._end()
        if end is None:
            return ""
        seconds = self._rng.uniform(0.0, self._troubles.clog_s)
        end.clog(seconds)
        return f"nothing comes over {end.name} for {seconds:.3f} s"
