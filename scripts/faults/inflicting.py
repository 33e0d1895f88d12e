"""Does to a run what the plan says, to the processes that are there when it is due."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from faults import processes
from faults.cutting import CUT_ALL, CUT_ONE
from faults.incarnation import Incarnation
from faults.plan import Fault
from faults.processes import Seen, send
from faults.storm import Times

CHILD_WAIT_S = 1.5
STANDBY_WAIT_S = 60.0
VICTIM_WAIT_S = 60.0
"""All that a fault could hit may have died, and are resumed when the host has time for it."""
LOOK_S = 0.002
WORK_S, REST_S = 0.01, 0.04
"""A slow instance works and rests in turns."""


@dataclass(frozen=True, slots=True)
class Blow:
    """Something that was done: `instance` was hit at `at_s` on this machine's clock."""

    at_s: float
    kind: str
    instance: str
    pid: int
    deadly: bool


@dataclass(slots=True)
class Inflicting:
    """`scaled`: operators that scripts may name."""

    scaled: Sequence[str]
    blows: list[Blow] = field(default_factory=list)
    missed: list[tuple[Fault, str]] = field(default_factory=list)
    """Faults that met no process, and why."""
    under_way: set[asyncio.Task[None]] = field(default_factory=set)

    async def inflict(self, fault: Fault, incarnation: Incarnation) -> None:
        """All kinds but those that end the run. Returns when it is done; stops and slowness go on
        meanwhile."""
        match fault.kind:
            case "leaver" | "mover":
                await self._hit_after_decision(fault, incarnation)
            case "child" | "creator":
                await self._hit_at_birth(fault, incarnation)
            case "stop":
                for one in await self._hit_when_there(fault, incarnation, signal.SIGSTOP):
                    self._begin(self._let_go_on(fault, one))
            case "slow":
                for one in await self._hit_when_there(fault, incarnation, signal.SIGSTOP):
                    self._begin(self._slow_down(fault, one))
            case "cut":
                await self._hit_when_there(fault, incarnation, CUT_ONE)
            case "cut_all":
                await self._hit_when_there(fault, incarnation, CUT_ALL)
            case "standby" | "parent" | "parents":
                await self._hit_parents(fault, incarnation)
            case _:
                await self._hit_when_there(fault, incarnation)

    async def heal(self) -> None:
        """Whatever is stopped goes on."""
        for task in list(self.under_way):
            task.cancel()
        await asyncio.gather(*self.under_way, return_exceptions=True)

    async def _hit_when_there(
        self, fault: Fault, incarnation: Incarnation, number: signal.Signals = signal.SIGKILL
    ) -> list[Seen]:
        """Those that were hit; none if there was none to be hit for long, or the run is over."""
        deadline = time.monotonic() + VICTIM_WAIT_S
        while not (hit := self._hit(fault, _victims(fault, incarnation), number)):
            if incarnation.over or time.monotonic() > deadline:
                self.missed.append((fault, "no process was there"))
                break
            await asyncio.sleep(LOOK_S)
        return hit

    def _hit(
        self, fault: Fault, victims: Sequence[Seen], number: signal.Signals = signal.SIGKILL
    ) -> list[Seen]:
        hit = [one for one in victims if send(one, number)]
        at_s = time.monotonic()
        deadly = number == signal.SIGKILL
        self.blows += [Blow(at_s, fault.kind, one.name, one.pid, deadly) for one in hit]
        return hit

    def _hit_one(self, fault: Fault, victims: Sequence[Seen]) -> None:
        if not self._hit(fault, _picked(victims, fault.roll)):
            self.missed.append((fault, "no process was there"))

    async def _hit_parents(self, fault: Fault, incarnation: Incarnation) -> None:
        """The parent, its standby, or both. There is a standby again, of the process that is
        the parent then, when this returns: the death of both is a kind of its own."""
        standbys = await _standbys(incarnation, set())
        parent = processes.seen(incarnation.parent)
        parents = [] if parent is None else [parent]
        if fault.kind == "parents":
            for one in parents:
                send(one, signal.SIGSTOP)  # or it might make another standby
        hit = {"standby": standbys, "parent": parents, "parents": [*standbys, *parents]}[fault.kind]
        if not self._hit(fault, hit):
            self.missed.append((fault, "no process was there"))
        await _standbys(incarnation, {one.pid for one in standbys})

    async def _hit_after_decision(self, fault: Fault, incarnation: Incarnation) -> None:
        action = {"leaver": "leave", "mover": "move"}[fault.kind]
        if await self._decision(fault, incarnation, action):
            await asyncio.sleep(fault.after_s)
            there = _of(processes.instances(incarnation.parent), fault.operator)
            if fault.kind == "leaver":  # keepers stay
                keeper = incarnation.keeper(fault.operator)
                there = [one for one in there if one.pid != keeper]
            self._hit_one(fault, there)

    async def _hit_at_birth(self, fault: Fault, incarnation: Incarnation) -> None:
        """A newcomer as soon as its process is there; or one that was there before, and may well
        have made it."""
        before = {one.name for one in processes.instances(incarnation.parent)}
        if not await self._decision(fault, incarnation, "duplicate"):
            return
        deadline = time.monotonic() + CHILD_WAIT_S
        while time.monotonic() < deadline:
            there = _of(processes.instances(incarnation.parent), fault.operator)
            if new := [one for one in there if one.name not in before]:
                old = [one for one in there if one.name in before]
                await asyncio.sleep(fault.after_s)
                self._hit_one(fault, new if fault.kind == "child" else old)
                return
            await asyncio.sleep(LOOK_S)
        self.missed.append((fault, "no newcomer came"))

    async def _decision(self, fault: Fault, incarnation: Incarnation, action: str) -> bool:
        """Wait until the operator is told to do this; whether it will be."""
        now_s = time.monotonic() - incarnation.began_s
        at_s = Times(incarnation.script, self.scaled).next(fault.operator, action, now_s)
        if at_s is None:
            self.missed.append((fault, f"{fault.operator} is not told to {action} any more"))
            return False
        await asyncio.sleep(at_s - now_s)
        return True

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)

    async def _let_go_on(self, fault: Fault, one: Seen) -> None:
        try:
            await asyncio.sleep(fault.for_s)
        finally:
            send(one, signal.SIGCONT)

    async def _slow_down(self, fault: Fault, one: Seen) -> None:
        until_s = time.monotonic() + fault.for_s
        try:
            while time.monotonic() < until_s and send(one, signal.SIGSTOP):
                await asyncio.sleep(REST_S)
                send(one, signal.SIGCONT)
                await asyncio.sleep(WORK_S)
        finally:
            send(one, signal.SIGCONT)


def _victims(fault: Fault, incarnation: Incarnation) -> list[Seen]:
    """Of what is there now, what the fault would hit."""
    there = processes.instances(incarnation.parent)
    ours = _of(there, fault.operator)
    match fault.kind:
        case "keeper":
            keeper = incarnation.keeper(fault.operator)
            return [one for one in ours if one.pid == keeper]
        case "neighbours":
            others = _of(there, fault.other)
            return [*_picked(ours, fault.roll), *_picked(others, fault.roll)]
        case "operator":
            return ours
        case "everyone":
            return there
        case "idle":
            return _picked(processes.named(incarnation.parent, processes.IDLE), fault.roll)
        case "instance" | "stop" | "slow" | "cut" | "cut_all":
            return _picked(ours, fault.roll)
        case _:
            raise ValueError(f"there is no way to do {fault.kind!r}")


async def _standbys(incarnation: Incarnation, known: set[int]) -> list[Seen]:
    """Waits, for a while, for a standby that is none of the known ones."""
    deadline = time.monotonic() + STANDBY_WAIT_S
    while time.monotonic() < deadline and not incarnation.over:
        standbys = processes.named(incarnation.parent, processes.STANDBY)
        if {one.pid for one in standbys} - known:
            return standbys
        await asyncio.sleep(LOOK_S)
    return []


def _of(there: Sequence[Seen], operator: str) -> list[Seen]:
    return [one for one in there if one.operator == operator]


def _picked(victims: Sequence[Seen], roll: float) -> list[Seen]:
    return [victims[int(roll * len(victims))]] if victims else []
