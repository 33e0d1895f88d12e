"""A world in which a controller scales operators and hosts: what the agent of the home host does to
open and close hosts is done here, by the rules and the check of live hosts.

    Tides plans ─▶ HostPool ─▶ a host boots, sometimes in vain ─▶ it is drained ─▶ empty ─▶ closed

That a host is drained takes its time to be known. The pool ends with the agent of the run, for both
are on one host, and the next one knows the names of its hosts and no more.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from anabranch.runtime.hosts.placement import HostRoom
from anabranch.runtime.hosts.pool import (
    ClosePoolHost,
    DrainPoolHost,
    HostPool,
    OpenHost,
    PoolAct,
    PooledHost,
    PooledRun,
    PoolPhase,
    PoolRules,
    why_in_use,
)
from anabranch.runtime.live.hosts.host_provider import CheckedProvider, ProviderFailed
from anabranch.runtime.policies.controller import Controller
from anabranch.runtime.policies.look_and_plan import Look, Plan
from anabranch.runtime.policies.policy import Heritage
from anabranch.runtime.policies.settings import setting
from anabranch.runtime.world.far_hosts import FarHosts
from anabranch.runtime.world.timeline import Timeline

LOOK_S = 0.1
BOOT_S = 0.5
"""The deadline; half of it is usually enough."""
IN_VAIN = 0.15
"""Of the attempts to open a host."""
TOLD_S = 0.4
"""Until all know at the latest that a host is drained."""


@dataclass(slots=True)
class Heirlooms:
    """What the controllers of a world, one after the other, have left. `offered`: plans that they
    have counted; `kept`: those of them that are in the journal for sure. `inherited`: how many
    each of the next ones knew when it began."""

    offered: int = 0
    kept: int = 0
    inherited: list[int] = field(default_factory=list)
    fault: str = ""

    def look(self, known: int) -> None:
        """Of a controller that knows of so many. What it has left before, the journal has now."""
        if known < self.kept:
            self.fault = f"a controller knows of {known} plans, and {self.kept} were kept"
        self.kept = max(self.kept, self.offered)


@dataclass(frozen=True)
class Tides(Controller[int]):
    """Another number of instances and hosts every now and then, by chance; remembers how many plans
    there were. `heirlooms`: of the world that a subclass is made for."""

    heirlooms: ClassVar[Heirlooms] = Heirlooms()

    seed: int = setting(0, "of chance")
    every_s: float = setting(0.4, "time between two plans", unit="s", above=0)

    def born(self, heritage: Heritage, now_s: float) -> int:
        if known := int(heritage.get("plans", 0)):  # those of instances never plan
            self.heirlooms.inherited.append(known)
        return known

    def heritage(self, memory: int, now_s: float) -> Heritage:
        self.heirlooms.offered = max(self.heirlooms.offered, memory)
        return {"plans": memory}

    def assess(self, look: Look, memory: int, rng: random.Random) -> tuple[Plan | None, int]:
        self.heirlooms.look(memory)
        slot = int(look.now_s / self.every_s)
        tide = random.Random(f"{self.seed} {slot}")
        wanted = {name: tide.randint(1, 4) for name in look.controlled}
        return Plan(wanted, f"tide {slot}", hosts=tide.randint(1, 4)), memory + 1


class WorldPool:
    """`hosts`: home first; the others can be opened. `run`: what the run tells now; `fault`: is
    told what must not be."""

    def __init__(
        self,
        hosts: Sequence[HostRoom],
        far: FarHosts,
        timeline: Timeline,
        rng: random.Random,
        run: Callable[[], PooledRun],
        fault: Callable[[str], None],
    ) -> None:
        self._hosts = {host.name: host for host in hosts}
        self._home = hosts[0].name
        self._far = far
        self._timeline = timeline
        self._rng = rng
        self._run = run
        self._fault = fault
        self._pool = HostPool(PoolRules("host-", len(hosts) - 1, BOOT_S))
        self._booted: set[str] = set()
        self._marked: set[str] = set()
        """Drained, as the hosts know themselves."""
        self._known: set[str] = set()
        """Drained, as the run has heard."""
        self._provider = CheckedProvider(self, self._in_use)
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self.done: Counter[str] = Counter()
        for name in far.hosts:
            far.close(name)

    # -- for the run -----------------------------------------------------------------------

    def rooms(self) -> list[HostRoom]:
        return [host for name, host in self._hosts.items() if name in self._there()]

    def drained(self) -> set[str]:
        return set(self._known)

    def limits(self) -> tuple[int, str]:
        return len(self._hosts), self._pool.refused

    def _there(self) -> set[str]:
        now_s = self._timeline.now
        up = {name for name in self._booted if self._far.hosts[name].away_until_s <= now_s}
        return {self._home, *up}

    # -- the agent of the home host --------------------------------------------------------

    async def keep(self) -> None:
        """For as long as an agent lives."""
        self._under_way = {}
        self._tell()
        now_s = self._timeline.now
        kept = (
            PooledHost(name, PoolPhase.OPENING, now_s, due_s=now_s + LOOK_S, joined=True)
            for name in self._pool.hosts
        )
        self._pool = replace(self._pool, hosts={host.name: host for host in kept})
        while True:
            await asyncio.sleep(LOOK_S)
            self._look()

    def _look(self) -> None:
        there = self._there() - {self._home}
        run = self._run()
        acts, pool = self._pool.step(
            self._pool.sight([run], self._timeline.now, 1, there, self._marked)
        )
        busy = {*self._under_way}
        self._pool = pool
        for act in acts:
            if act.name not in busy:
                task = asyncio.get_running_loop().create_task(self._carry_out(act))
                self._under_way[act.name] = task
                task.add_done_callback(partial(self._is_done, act.name))

    def _is_done(self, name: str, _task: asyncio.Task[None]) -> None:
        self._under_way.pop(name, None)

    async def _carry_out(self, act: PoolAct) -> None:
        try:
            match act:
                case OpenHost(name):
                    await self._provider.open(name)
                case DrainPoolHost(name, drained):
                    self._mark(name, drained=drained)
                case ClosePoolHost(name):
                    await self._provider.close(name)
                    self._pool = self._pool.closed(name, "", self._timeline.now)
        except ProviderFailed as error:
            self.done["refusals of hosts"] += 1
            now_s = self._timeline.now
            if isinstance(act, OpenHost):
                self._pool = self._pool.failed(act.name, str(error), now_s)
            else:
                self._pool = self._pool.closed(act.name, str(error), now_s)

    def _mark(self, name: str, *, drained: bool) -> None:
        """The run hears of it later."""
        (self._marked.add if drained else self._marked.discard)(name)
        asyncio.get_running_loop().call_later(self._rng.uniform(0.0, TOLD_S), self._tell)

    def _tell(self) -> None:
        self._known = {*self._marked}

    async def _in_use(self, name: str) -> str:
        self._mark(name, drained=True)
        return why_in_use([self._run()], name, is_known=name in self._booted)

    # -- the provider ----------------------------------------------------------------------

    async def open(self, name: str) -> None:
        """Raises `ProviderFailed`."""
        if self._rng.random() < IN_VAIN:
            raise ProviderFailed("no room in this world")
        await asyncio.sleep(self._rng.uniform(0.0, BOOT_S))
        self.done["hosts opened"] += 1
        self._booted.add(name)
        self._far.open(name)

    async def close(self, name: str) -> None:
        await asyncio.sleep(self._rng.uniform(0.0, 2 * LOOK_S))
        if there := sum(one.task is not None for one in self._far.living_on(name)):
            self._fault(f"host {name} closes with {there} instances on it")
        self.done["hosts closed"] += 1
        self._booted.discard(name)
        self._far.close(name)

    async def leave(self) -> None:
        return
