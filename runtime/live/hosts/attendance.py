"""Between the agent of a host and a run of it: a socket pair, framed as a link.

The agent asks, and the run replies with its figures, or whether it does what it is asked; the agent
sends when the run has to end, and which hosts there are; and the run ends when the agent is gone. A
reply has the number of what it replies to: one that comes too late is none to the next question.

    attended run ── Attendance ══ socket pair ══ RunProcess ── agent of the host
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from anabranch.runtime.hosts.hosting import Home, HostOffer
from anabranch.runtime.live.hosts.host_directory import HostDirectory
from anabranch.runtime.live.link.link import Link, LinkError, receive_blocking, send_blocking

ASK, END, STOP, SCALE, HOSTS = "ask", "end", "stop", "scale", "hosts"
GIVE_UP = "give_up"
"""Figures; end the input and finish; stop at once, so that the run is kept; how many instances an
operator is to have; which hosts there are now; go on without a host."""
READ_BYTES = 2**16


class ToRun(msgspec.Struct, frozen=True, array_like=True):
    """By the agent. `operator`, `instances`: of SCALE; None: as its policy decides. `home`,
    `hosts`: of HOSTS; all that are known. `host`: of GIVE_UP."""

    number: int
    what: str
    operator: str = ""
    instances: int | None = None
    home: Home | None = None
    hosts: list[HostOffer] = []
    host: str = ""


class RunReply(msgspec.Struct, frozen=True, array_like=True):
    """`figures`: of ASK; `refused`: why SCALE or GIVE_UP is not done."""

    number: int
    figures: dict[str, Any] = {}
    refused: str = ""


class Attendance:
    """In the run's process: a thread that receives from the agent. `attend` is called when there is
    a run: `told` gets END or STOP, and STOP when the agent is gone; `scale` and `give_up` return
    why they do not do it. Before that, STOP ends the process: nothing has begun. `hosts`: those
    that it has got."""

    def __init__(self, fd: int, gone_code: int) -> None:
        self.hosts = HostDirectory()
        self._figures: Callable[[], dict[str, Any]] | None = None
        self._told: Callable[[str], None] | None = None
        self._scale: Callable[[str, int | None], str] | None = None
        self._give_up: Callable[[str], str] | None = None
        self._pending: list[str] = []
        self._lock = threading.Lock()
        self._gone_code = gone_code
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(True)
        os.set_inheritable(fd, False)
        threading.Thread(target=self._listen, name="attendance", daemon=True).start()

    def attend(
        self,
        figures: Callable[[], dict[str, Any]],
        told: Callable[[str], None],
        scale: Callable[[str, int | None], str] | None = None,
        give_up: Callable[[str], str] | None = None,
    ) -> None:
        with self._lock:
            self._figures, self._told, self._scale = figures, told, scale
            self._give_up = give_up
            for what in self._pending:
                told(what)

    def _listen(self) -> None:
        while True:
            body = None
            with suppress(OSError, LinkError):
                body = receive_blocking(self._socket)
            if body is None:
                self._tell(STOP)
                return
            said = msgspec.msgpack.decode(body, type=ToRun)
            if said.what == HOSTS:
                self.hosts.learn(said.home, said.hosts)
            elif said.what in (ASK, SCALE, GIVE_UP):
                with suppress(OSError):
                    send_blocking(self._socket, self._reply(said))
            else:
                self._tell(said.what)

    def _reply(self, said: ToRun) -> RunReply:
        if said.what == ASK:
            figures = self._figures
            return RunReply(said.number, {} if figures is None else figures())
        if said.what == SCALE and self._scale is not None:
            return RunReply(said.number, refused=self._scale(said.operator, said.instances))
        if said.what == GIVE_UP and self._give_up is not None:
            return RunReply(said.number, refused=self._give_up(said.host))
        return RunReply(said.number, refused="its run has not begun yet")

    def _tell(self, what: str) -> None:
        with self._lock:
            if self._told is not None:
                self._told(what)
            elif what == STOP:
                os._exit(self._gone_code)
            else:
                self._pending.append(what)


class RunProcess:
    """In the agent: the process of a run. `on_output` gets what it prints."""

    def __init__(
        self, process: asyncio.subprocess.Process, on_output: Callable[[bytes], None]
    ) -> None:
        self.pid = process.pid
        self.answered = False
        """It has sent figures of its run."""
        self._process = process
        self._on_output = on_output
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[RunReply]] = {}
        self._link: Link

    @classmethod
    async def begin(
        cls, command: Sequence[str], folder: Path, on_output: Callable[[bytes], None]
    ) -> RunProcess:
        """`command` gets the number of its socket as its last word. Raises `OSError`."""
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                str(theirs.fileno()),
                cwd=folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C in the agent's terminal is for the agent
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        begun = cls(process, on_output)
        begun._link = await Link.attach(ours, begun._take)
        return begun

    async def ask(self, timeout_s: float) -> dict[str, Any] | None:
        """Figures of the run; empty before it has begun; None if it does not answer."""
        reply = await self._replied(ToRun(next(self._numbers), ASK), timeout_s)
        return None if reply is None else reply.figures

    async def scale(self, operator: str, instances: int | None, timeout_s: float) -> str | None:
        """Why it does not do so, "" if it does; None if it does not answer."""
        said = ToRun(next(self._numbers), SCALE, operator, instances)
        reply = await self._replied(said, timeout_s)
        return None if reply is None else reply.refused

    async def give_up(self, host: str, timeout_s: float) -> str | None:
        """As `scale`."""
        said = ToRun(next(self._numbers), GIVE_UP, host=host)
        reply = await self._replied(said, timeout_s)
        return None if reply is None else reply.refused

    def tell(self, what: str) -> None:
        self._link.send(ToRun(next(self._numbers), what))

    def tell_hosts(self, home: Home, hosts: Sequence[HostOffer]) -> None:
        self._link.send(ToRun(next(self._numbers), HOSTS, home=home, hosts=[*hosts]))

    async def _replied(self, said: ToRun, timeout_s: float) -> RunReply | None:
        reply: asyncio.Future[RunReply] = asyncio.get_running_loop().create_future()
        self._waiting[said.number] = reply
        try:
            self._link.send(said)
            either: list[asyncio.Future[Any]] = [reply, self._link.closed]
            first = asyncio.FIRST_COMPLETED
            await asyncio.wait(either, timeout=timeout_s, return_when=first)
        finally:
            del self._waiting[said.number]
        return reply.result() if reply.done() else None

    async def ended(self) -> int:
        """Its exit code, or minus the signal that has killed it, once all is read that it has
        printed."""
        assert self._process.stdout is not None
        while data := await self._process.stdout.read(READ_BYTES):
            self._on_output(data)
        code = await self._process.wait()
        self._link.close()
        return code

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    def _take(self, body: bytes) -> None:
        replied = msgspec.msgpack.decode(body, type=RunReply)
        self.answered = self.answered or bool(replied.figures)
        waiting = self._waiting.get(replied.number)
        if waiting is not None and not waiting.done():
            waiting.set_result(replied)
