"""Between the agent of a host and a run of it: a socket pair, framed as a link.

The agent asks, and the run replies with its figures; it tells the run to end; and the run ends when
the agent is gone.

    attended run ── Attendance ══ socket pair ══ RunProcess ── agent of the host
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from anabranch.runtime.live.link.link import Link, LinkError, receive_blocking, send_blocking

ASK, END, STOP = "ask", "end", "stop"
"""Figures; end the input and finish; stop at once, so that the run is kept."""
READ_BYTES = 2**16


class Attendance:
    """In the run's process: a thread that hears the agent. `figures` and `told` are set when there
    is a run; `told` hears END or STOP, and STOP when the agent is gone. Before that, STOP ends the
    process: nothing has begun."""

    def __init__(self, fd: int, gone_code: int) -> None:
        self.figures: Callable[[], dict[str, Any]] | None = None
        self._told: Callable[[str], None] | None = None
        self._pending: list[str] = []
        self._lock = threading.Lock()
        self._gone_code = gone_code
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(True)
        os.set_inheritable(fd, False)
        threading.Thread(target=self._listen, name="attendance", daemon=True).start()

    def attend(self, figures: Callable[[], dict[str, Any]], told: Callable[[str], None]) -> None:
        with self._lock:
            self.figures, self._told = figures, told
            for what in self._pending:
                told(what)

    def _listen(self) -> None:
        while True:
            body = None
            with suppress(OSError, LinkError):
                body = receive_blocking(self._socket)
            what = STOP if body is None else msgspec.msgpack.decode(body, type=str)
            if what == ASK:
                figures = self.figures
                with suppress(OSError):
                    send_blocking(self._socket, {} if figures is None else figures())
            else:
                self._tell(what)
            if body is None:
                return

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
        """It has told figures of its run."""
        self._process = process
        self._on_output = on_output
        self._waiting: list[asyncio.Future[dict[str, Any]]] = []
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
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append(reply)
        self._link.send(ASK)
        either: list[asyncio.Future[Any]] = [reply, self._link.closed]
        first = asyncio.FIRST_COMPLETED
        await asyncio.wait(either, timeout=timeout_s, return_when=first)
        if reply.done():
            return reply.result()
        self._waiting.remove(reply)
        return None

    def tell(self, what: str) -> None:
        self._link.send(what)

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
        figures = msgspec.msgpack.decode(body, type=dict[str, Any])
        self.answered = self.answered or bool(figures)
        if self._waiting:
            self._waiting.pop(0).set_result(figures)
