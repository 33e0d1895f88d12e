"""The agent's side of the control socket: asks the template process to fork, and gets exits.

If the parent is killed, and all its children with it, its standby takes over (`standbys`), as if
nothing had happened but that they have died. If there is none, another parent reads the user's
file again, where that is allowed; and yet another one, if that is killed too, up to a bound.
Otherwise the run is lost.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.runtime.live.link import control as msg
from anabranch.runtime.live.link.link import encode
from anabranch.runtime.live.process.kernel_view import KernelLook, look_at
from anabranch.runtime.live.process.local_process import LocalProcess
from anabranch.runtime.live.process.orphan_wait import until_gone
from anabranch.runtime.live.process.process import OnOutput, Process, describe_ends, describe_exit
from anabranch.runtime.live.process.processes import ForkError
from anabranch.runtime.live.process.standby import Standbys
from anabranch.runtime.live.process.template_link import TemplateLink
from anabranch.runtime.live.process.template_process import TemplateProcess
from anabranch.runtime.values.texts import carried

FORKS_IN_FLIGHT_MAX = 32
"""Keeps what waits in the control socket small, so that writing to it never has to wait."""
STOP_TIMEOUT_S = 3.0
KILL_TIMEOUT_S = 2.0
PARENTS_IN_VAIN_MAX = 5
"""So many in a row may end before they have forked a process. What ends them will not stop then."""
PARENT_ENDED = "the template process has ended"
PARENT_LOST = "the process that all others are forked from is gone"


class _Orphaned(ForkError):
    """The parent was lost before it had answered; the next one may do it."""


@dataclass(slots=True)
class _Request:
    process: LocalProcess
    link: socket.socket
    stderr: int

    def close(self) -> None:
        self.link.close()
        os.close(self.stderr)


def no_other() -> TemplateProcess | None:
    return None


class Forker:
    """`another` begins a parent that has to read the pipeline first, or returns that there is no
    way.

    If the parent ends without an order to, one of these is called: `on_parent_lost`,
    once, if that is the end, and `on_taken_over`, as often as a standby or another parent has taken
    its place.

    Large because a change of the parent touches all of it at once: requests on their way,
    processes that die with the parent, those that wait, and the next standby."""

    def __init__(
        self,
        parent: TemplateProcess,
        on_output: OnOutput,
        on_parent_lost: Callable[[str], None],
        on_taken_over: Callable[[], None] = lambda: None,
        another: Callable[[], TemplateProcess | None] = no_other,
    ) -> None:
        self._link = TemplateLink(parent, self._note, self._lose)
        """To the present parent."""
        self._on_output = on_output
        self._on_parent_lost = on_parent_lost
        self._on_taken_over = on_taken_over
        self._another = another
        self._in_vain: list[TemplateProcess] = []
        """Those that have ended, in a row, before they had forked a process."""
        self._standbys = Standbys(lambda message, fds: self._link.send_with(message, fds))
        self._loop = asyncio.get_running_loop()
        self._load_timeout_s = 0.0
        self._began = False
        """Whether any parent has read the pipeline."""
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._stopping = False
        self._guard: msg.Guard | None = None
        self._next_key = 0
        self._places = asyncio.Semaphore(FORKS_IN_FLIGHT_MAX)
        self._requests: dict[int, _Request] = {}
        self._alive: dict[int, LocalProcess] = {}
        self._open: set[LocalProcess] = set()
        """Processes whose files here are open, those of ended ones included."""
        self._handovers: set[asyncio.Task[None]] = set()
        """All that a change of the parent brings about."""

    @property
    def parent_pid(self) -> int:
        return self._link.parent.pid

    @property
    def is_reachable(self) -> bool:
        return True

    @property
    def standby_pid(self) -> int | None:
        return self._standbys.pid

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the parent, its standby, and all others."""
        standby = () if self.standby_pid is None else (self.standby_pid,)
        return (self.parent_pid, *standby, *(p.pid for p in self.alive if p.pid))

    @property
    def alive(self) -> list[LocalProcess]:
        return list(self._alive.values())

    async def start(self, timeout_s: float) -> None:
        """Wait until the parent, or one that follows it, has read the pipeline. Raises `ForkError`.

        `timeout_s`: for each of them."""
        self._load_timeout_s = timeout_s
        self._link.listen()
        try:
            await self._until_loaded(self._link)
        except _Orphaned:  # those that follow are looked after by `_see_in`
            await self.ready()

    def guard(self, folder: Path) -> None:
        """Have `folder` removed if this process is killed."""
        self._guard = msg.Guard(folder=carried(folder))
        self._standbys.first_order = encode(self._guard)
        self._link.send(self._guard)

    def keep_standby(self) -> None:
        """From now on the run outlives its parent, where the system allows for that."""
        self._standbys.keep()

    async def ready(self) -> None:
        """Return when the present parent can fork. Raises `ForkError` if none will ever."""
        while True:
            link = self._link
            try:
                return await asyncio.shield(link.loaded)
            except _Orphaned:  # it ended while it read the pipeline, and another one follows it
                assert link is not self._link

    async def fork(self) -> LocalProcess:
        """A new idle process. Raises `ForkError`."""
        async with self._places:
            while True:
                try:
                    return await self._fork()
                except _Orphaned:
                    continue

    async def _fork(self) -> LocalProcess:
        """Raises `ForkError`."""
        await self.ready()
        if self._lost.done() or self._stopping:
            raise ForkError(PARENT_ENDED)
        process = LocalProcess(self._next_key, self._on_output)
        self._next_key += 1
        try:
            await self._send_request(process)
        except (BrokenPipeError, ConnectionResetError):
            self._lose()
            raise _Orphaned(PARENT_ENDED) from None
        except OSError as error:
            raise ForkError(f"no process could be made: {error}") from error
        await process.forked
        return process

    def kill(self, process: Process) -> None:
        """SIGKILL, by the parent: it can be sure whether the pid is still that process."""
        if process.exit_code is None and process.pid and not process.orphan_wait:
            self._link.send(msg.Kill(pid=process.pid))

    def look(self, pid: int) -> KernelLook | None:
        return look_at(pid)

    def go_on(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    async def stop(self) -> None:
        """Every process and the parent have ended after this; bounded in time."""
        self._stopping = True
        parent = self._link.parent
        if not self._link.loaded.done():
            # It runs the user's file and reads nothing; it has no children yet.
            parent.kill()
        elif not self._lost.done():
            self._link.send(msg.Stop())
        if not await self._has_ended(parent, STOP_TIMEOUT_S):
            parent.kill()
            await self._has_ended(parent, KILL_TIMEOUT_S)
        self._lose()
        self._standbys.close()
        parent.close()
        if self._handovers:
            await asyncio.wait(self._handovers, timeout=KILL_TIMEOUT_S)
        await asyncio.gather(*(process.closed() for process in self._open))

    async def _until_loaded(self, link: TemplateLink) -> None:
        """Raises `ForkError`."""
        try:
            await asyncio.wait_for(asyncio.shield(link.loaded), self._load_timeout_s)
        except TimeoutError:
            told = f"the pipeline's file could not be read again within {self._load_timeout_s:g} s"
            raise ForkError(told) from None

    async def _has_ended(self, parent: TemplateProcess, timeout_s: float) -> bool:
        deadline = self._loop.time() + timeout_s
        pause_s = 0.001
        while not parent.ended():
            if self._loop.time() > deadline:
                return False
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.05)
        return True

    async def _send_request(self, process: LocalProcess) -> None:
        output, stderr = os.pipe()
        try:
            link, theirs = socket.socketpair()
        except OSError:
            os.close(output)
            os.close(stderr)
            raise
        request = _Request(process, theirs, stderr)
        try:
            await process.open(link, output)
        except BaseException:
            request.close()
            raise
        self._requests[process.key] = request
        self._alive[process.key] = process
        self._open = {p for p in self._open if not p.is_closed} | {process}
        try:
            if not self._link.loaded.done():
                raise _Orphaned(PARENT_ENDED)  # by another one, which reads nothing yet
            self._link.send_with(msg.Fork(key=process.key), [theirs.fileno(), stderr])
        except (OSError, _Orphaned):
            self._forget(process.key)
            process.close()
            raise

    def _note(self, message: msg.FromParent) -> None:
        match message:
            case msg.StandbyMade(pid=pid):
                self._standbys.note_made(self._link.parent, pid)
            case msg.StandbyFailed(reason=reason):
                self._standbys.note_failed(reason)
            case msg.Loaded():
                self._began = True
                self._link.loaded.set_result(None)
            case msg.LoadFailed(message=text):
                _fail(self._link.loaded, ForkError(text))
            case msg.Forked(key=key, pid=pid):
                request = self._requests.pop(key)
                # Kept open until now: macOS may drop a file in flight that its sender has closed.
                request.close()
                request.process.note_forked(pid)
                self._link.has_forked = True
                self._in_vain.clear()
            case msg.ForkFailed(key=key, reason=reason):
                process = self._forget(key)
                process.close()
                _fail(process.forked, ForkError(f"no process could be made: {reason}"))
            case msg.Exited(pid=pid, code=code):
                self._standbys.note_exited(pid)
                for process in self.alive:
                    if process.pid == pid and not process.orphan_wait:
                        self._note_exited(process, code)

    def _note_exited(self, process: LocalProcess, code: int) -> None:
        del self._alive[process.key]
        process.note_exited(code)

    def _forget(self, key: int) -> LocalProcess:
        request = self._requests.pop(key)
        request.close()
        return self._alive.pop(key)

    def _lose(self) -> None:
        """The parent is gone: no exit of its children will be reported any more."""
        if self._lost.done():
            return
        self._link.leave()
        next_one, why = self._next_link()
        for key in list(self._requests):
            process = self._forget(key)
            process.close()
            _fail(process.forked, ForkError(PARENT_ENDED) if next_one is None else _Orphaned())
        if next_one is not None:
            _fail(self._link.loaded, _Orphaned(PARENT_ENDED))
            self._follow(next_one)
            return
        self._lost.set_result(None)
        _fail(self._link.loaded, ForkError(f"{PARENT_ENDED}{why}"))
        if self._began and not self._stopping:
            self._on_parent_lost(f"{PARENT_LOST}{why}")

    def _next_link(self) -> tuple[TemplateLink | None, str]:
        """To the next parent; with the reason if there is none."""
        if self._stopping:
            return None, ""
        if self._link.loaded.done() and (error := self._link.loaded.exception()):
            return None, f", and no other could follow it: {error}"
        if not self._link.has_forked:
            self._in_vain.append(self._link.parent)
        if len(self._in_vain) >= PARENTS_IN_VAIN_MAX:
            self._link.parent.ended()  # so that its exit code is known, if it is by now
            return None, _told_in_vain(self._in_vain)
        if standby := self._standbys.take():
            link = TemplateLink(standby, self._note, self._lose)
            link.loaded.set_result(None)
            return link, ""
        try:
            parent = self._another()
        except Exception as error:  # whatever it is: the run would hang if it were not reported
            return None, f", and no other could be begun: {error!r}"
        if parent is None:
            return None, ""
        # Before it takes the end of the lifeline for the end of the agent, and tidies up.
        self._link.parent.kill()
        # The end of whatever else is left, on every system.
        self._link.parent.cut_lifeline()
        return TemplateLink(parent, self._note, self._lose), ""

    def _follow(self, link: TemplateLink) -> None:
        """To the parent from now on. The children of the last one die with it."""
        former, self._link = self._link.parent, link
        link.listen()
        self._hand_over(self._see_off(former))
        for process in self.alive:
            if not process.orphan_wait:
                process.orphan_wait = True
                self._hand_over(self._see_out(process))
        self._hand_over(self._see_in(link))
        self._on_taken_over()

    async def _see_in(self, link: TemplateLink) -> None:
        """A standby is ready at once, another parent when it has read the pipeline."""
        try:
            await self._until_loaded(link)
        except ForkError as error:
            link.parent.kill()
            _fail(link.loaded, error)
        if link is not self._link or self._stopping or self._lost.done():
            return
        if link.loaded.exception():
            self._lose()
            return
        for order in (msg.TakeOver(), self._guard):
            if order is not None:
                link.send(order)
        self._standbys.keep()

    def _hand_over(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, name="hand over")
        self._handovers.add(task)
        task.add_done_callback(self._handovers.discard)

    async def _see_off(self, parent: TemplateProcess) -> None:
        """Mostly it has ended; one that only did not listen any more is ended."""
        parent.kill()
        await self._has_ended(parent, KILL_TIMEOUT_S)
        parent.let_go()

    async def _see_out(self, process: LocalProcess) -> None:
        await until_gone(process)
        self._note_exited(process, -signal.SIGKILL)


def _told_in_vain(parents: list[TemplateProcess]) -> str:
    """Why no other one is begun, and where to look."""
    ends = [describe_exit(parent.exit_code) for parent in parents if parent.exit_code is not None]
    ways = f": {describe_ends(ends)}" if ends else ""
    return (
        f", and {len(parents)} in a row ended before they could take its place{ways}. See whether "
        "the host is out of memory (dmesg), or whether the pipeline's file ends the process that "
        "reads it"
    )


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        # Marked as seen: perhaps no task waits for it any more.
        future.exception()
