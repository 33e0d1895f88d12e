"""What goes wrong in a world, at times drawn from its seed."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields

from anabranch.runtime.reporting.status import id_from_wire
from anabranch.runtime.world.network import Network
from anabranch.runtime.world.processes import WorldProcess, WorldProcesses


@dataclass(frozen=True, slots=True)
class Troubles:
    """How often each happens in a second, until `until_s`: `kills` of a process, `cuts` of a
    connection, `clogs` of one way of a connection, `stops` of a process that goes on later.
    `*_s`: at most how long. What is cut may be half open for so long: one end knows nothing.
    `kills_each_max`: of one instance. One that is killed again and again fails the run in the end,
    or takes what it works on for the reason."""

    until_s: float = 0.0
    kills: float = 0.0
    cuts: float = 0.0
    half_open_s: float = 0.0
    clogs: float = 0.0
    clog_s: float = 0.2
    stops: float = 0.0
    stop_s: float = 0.5
    kills_each_max: float = math.inf

    @property
    def rates(self) -> dict[str, float]:
        return {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if not f.name.endswith(("_s", "_max"))
        }


class TroubleMaker:
    """`done`: how often each has happened."""

    def __init__(
        self,
        troubles: Troubles,
        processes: WorldProcesses,
        network: Network,
        rng: random.Random,
    ) -> None:
        self.done: Counter[str] = Counter()
        self._troubles = troubles
        self._processes = processes
        self._network = network
        self._rng = rng
        self._killed: Counter[str] = Counter()
        """By instance."""

    async def run(self) -> None:
        rates = self._troubles.rates
        acts: dict[str, Callable[[], bool]] = {
            "kills": self._kill,
            "cuts": self._cut,
            "clogs": self._clog,
            "stops": self._stop,
        }
        loop, every = asyncio.get_running_loop(), sum(rates.values())
        while every > 0:
            await asyncio.sleep(self._rng.expovariate(every))
            if loop.time() > self._troubles.until_s:
                return
            (what,) = self._rng.choices([*rates], [*rates.values()])
            self.done[what] += acts[what]()

    def _process(self) -> WorldProcess | None:
        found = [process for process in self._processes.all if not process.ended]
        return self._rng.choice(found) if found else None

    def _kill(self) -> bool:
        process = self._process()
        if process is None or self.spares(process):
            return False
        self._processes.kill_now(process)
        return True

    def spares(self, process: WorldProcess) -> bool:
        """Whether a process that is to be killed is not: its instance was, as often as may be."""
        who = process.seen.name if process.task is None else str(id_from_wire(process.task.id))
        self._killed[who] += 1
        return self._killed[who] > self._troubles.kills_each_max

    def _stop(self) -> bool:
        """As SIGSTOP, and SIGCONT later: what comes in meanwhile waits."""
        if (process := self._process()) is not None:
            process.loop.rest(self._rng.uniform(0.0, self._troubles.stop_s))
        return process is not None

    def _cut(self) -> bool:
        if ends := self._network.open_ends:
            later_s = self._rng.choice((0.0, self._rng.uniform(0.0, self._troubles.half_open_s)))
            self._network.cut(self._rng.choice(ends), later_s)
        return bool(ends)

    def _clog(self) -> bool:
        if ends := self._network.open_ends:
            self._rng.choice(ends).clog(self._rng.uniform(0.0, self._troubles.clog_s))
        return bool(ends)
