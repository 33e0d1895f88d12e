"""Looks at processes that have fallen silent, of instances, of copy keepers, and of services such
as the gateway to Spark: stopped, at work, or hanging.

Silence proves nothing: a function of the user's may compute for an hour, and a host may have no
processor to spare. So no process is ended for silence. What the system reports of it decides:

    stopped (SIGSTOP, a debugger that left it so) ──▶ ended, and resumed in a new process
    runs, waits for a disk, or has used processor time ──▶ works; reported once
    sleeps and has used none ──▶ reported after `HANG_S`; ended only if the user has set `hang_s`

The template process is looked at, too. No process can be ended or made without it, so when it is
stopped it gets SIGCONT.

If the system does not report it (no /proc), silence is reported after `HANG_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.agent.host_sites import HostSites
from anabranch.runtime.live.agent.run_events import RunEvents
from anabranch.runtime.live.process.kernel_view import ENDED, STOPPED
from anabranch.runtime.live.process.process import Process
from anabranch.runtime.plan.ends import passing
from anabranch.runtime.ports import clock
from anabranch.runtime.values.kinds import Cause, Ending, EventKind

LOOK_PERIOD_S = 0.5
SUSPECT_S = 5.0
"""Silence after which a process is looked at; an instance sends something four times a second, and
a service or a copy keeper once."""
WITNESS_S = 1.0
"""The same if a neighbour has received nothing from it either."""
WITNESS_COUNTS_S = 5.0
HANG_S = 60.0
LAG_S = 0.1
"""If the agent itself is later than this, the members were not silent."""

_WORKING = "RD"


class Watched(Protocol):
    """One that has a process. `heard_s`: when that last sent something; `doubt`: why the agent has
    ended it."""

    heard_s: float
    doubt: Ending | None

    @property
    def process(self) -> Process | None: ...

    @property
    def host(self) -> str: ...

    @property
    def operator(self) -> str: ...

    @property
    def text(self) -> str: ...


@dataclass(slots=True)
class _Silence:
    idle_since_s: float
    cpu: int = -1
    told_busy: bool = False
    told_long: bool = False
    told_hang: bool = False


class Watchdog:
    """`watched`: those that are ready, and send something from time to time. `hang_s`: see
    `Options.hang_s`; `say` gets what the user should see at once."""

    def __init__(
        self,
        watched: Callable[[], Iterator[Watched]],
        sites: HostSites,
        run_events: RunEvents,
        say: Callable[[str], None],
        hang_s: float | None,
    ) -> None:
        self._watched = watched
        self._sites = sites
        self._run_events = run_events
        self._say = say
        self._hang_s = hang_s
        self._silences: dict[tuple[str, int], _Silence] = {}
        """By the host and the key of the process."""
        self._suspected: dict[str, float] = {}
        self._doubted = asyncio.Event()
        self._parent_goes_s = clock.monotonic()
        """When the parent was last seen not to be stopped."""

    def hear(self, peer: InstanceId) -> None:
        """A neighbour has received nothing from `peer` for some time."""
        self._suspected[str(peer)] = clock.monotonic()
        self._doubted.set()

    async def watch(self) -> None:
        """For as long as the run lasts."""
        while True:
            self._doubted.clear()
            due_s = clock.monotonic() + LOOK_PERIOD_S
            try:
                async with asyncio.timeout(LOOK_PERIOD_S):
                    await self._doubted.wait()
            except TimeoutError:
                self._forgive(clock.monotonic() - due_s)
            try:
                self._look_at_all(clock.monotonic())
                self._look_at_parent(clock.monotonic())
            except OSError as error:
                if not passing(error):
                    raise  # otherwise it is looked at again soon

    def _forgive(self, lag_s: float) -> None:
        """The agent was stopped itself, or the host was busy: that is not the others' silence."""
        if lag_s > LAG_S:
            for one in self._watched():
                one.heard_s += lag_s

    def _look_at_all(self, now: float) -> None:
        self._suspected = {i: t for i, t in self._suspected.items() if now - t < WITNESS_COUNTS_S}
        silent = {(one.host, process.key): (one, process) for one, process in self._silent(now)}
        self._silences = {key: s for key, s in self._silences.items() if key in silent}
        for one, process in silent.values():
            self._look(one, process, now)

    def _look_at_parent(self, now: float) -> None:
        home = self._sites.home.processes
        pid = home.parent_pid
        look = home.look(pid)
        if look is None or look.state != STOPPED:
            self._parent_goes_s = now
        elif now - self._parent_goes_s > SUSPECT_S:
            home.go_on(pid)
            self._say(f"process {pid} was stopped, and gets SIGCONT")

    def _silent(self, now: float) -> Iterator[tuple[Watched, Process]]:
        for one in self._watched():
            bound_s = WITNESS_S if one.text in self._suspected else SUSPECT_S
            if one.process is not None and not one.doubt and now - one.heard_s > bound_s:
                yield one, one.process

    def _look(self, one: Watched, process: Process, now: float) -> None:
        silence = self._silences.setdefault((one.host, process.key), _Silence(one.heard_s))
        silent = f"no word for {now - one.heard_s:.1f} s"
        look = self._sites.of(one.host).processes.look(process.pid)
        if look is not None and look.state == STOPPED:
            self._end(one, process, Ending(Cause.STOPPED, "was stopped (SIGSTOP)"), silent)
            return
        if look is not None and look.state in ENDED:
            return  # its parent will reap it and report it
        if look is not None and (look.state in _WORKING or -1 < silence.cpu < look.cpu):
            silence.idle_since_s = now
            self._tell_busy(one, process, silence, now)
        silence.cpu = -1 if look is None else look.cpu
        self._consider_hanging(one, process, silence, now)

    def _tell_busy(self, one: Watched, process: Process, silence: _Silence, now: float) -> None:
        told = f"no word for {now - one.heard_s:.1f} s; its process works"
        if not silence.told_busy:
            self._write(one, EventKind.BUSY, told)
        elif now - one.heard_s > HANG_S and not silence.told_long:
            how = _how_to_see(process.pid)
            self._write(one, EventKind.BUSY_LONG, f"{told}; to see at what: {how}")
            silence.told_long = True
        silence.told_busy = True

    def _consider_hanging(
        self, one: Watched, process: Process, silence: _Silence, now: float
    ) -> None:
        idle_s = now - silence.idle_since_s
        idle = f"no word and no work for {idle_s:.0f} s"
        if idle_s > HANG_S and not silence.told_hang:
            silence.told_hang = True
            how = _how_to_see(process.pid)
            self._write(one, EventKind.HANGS, f"{idle}; to see where it waits: {how}")
        if self._hang_s is not None and idle_s > self._hang_s:
            self._end(one, process, Ending(Cause.HANG, f"hung for {idle_s:.0f} s"), idle)

    def _end(self, one: Watched, process: Process, why: Ending, seen: str) -> None:
        one.doubt = why
        self._write(one, EventKind.ENDED_BY_FORCE, f"{seen}; it {why.how}")
        self._sites.of(one.host).processes.kill(process)

    def _write(self, one: Watched, kind: EventKind, detail: str) -> None:
        self._run_events.note(one.operator, kind, detail, instance=one.text)


def _how_to_see(pid: int) -> str:
    return f"py-spy dump --pid {pid}"
