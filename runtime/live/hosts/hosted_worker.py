"""The worker of a run on this host, as the agent sees it: a process that makes the run's others.

    run process ══ stream ══ agent ── relays ══ socket pair ══ worker
                                   ── control ══ socket pair ══

Each stream of the run process gets a socket pair of its own, whose other end is sent to the worker
over the control socket. A newer stream takes the place of the older one. The worker ends when its
control socket does, that is with the agent.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from anabranch.runtime.hosts.hosting import RELAYED_BYTES_MAX
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.live.link.link import encode
from anabranch.runtime.ports import clock

ATTACH = b"s"
"""With it comes one end of a socket pair."""
READY = b"r"
"""By the worker: it has read the pipeline."""
KEEPS, IS_DONE = 0, 3
"""Exit codes: whether the files of the run are to be kept."""
LINE_BYTES_MAX = 4096
TAIL_LINES = 20
LAST_WORDS_S = 2.0
"""For what it has printed, once it has ended: a process of it may still have the pipe."""


class WorkerOrder(msgspec.Struct, frozen=True):
    """The first frame over the control socket. `listen`: the address of this host that instances
    bind, and are dialled at. `tls`: the folder of its certificate, "" without."""

    agent_pid: int
    listen: str
    state_dir: str
    tls: str


class HostedWorker:
    """`on_line`: gets what it prints."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        control: socket.socket,
        output: tuple[asyncio.StreamReader, asyncio.BaseTransport],
        on_line: Callable[[str], None],
    ) -> None:
        self.pid = process.pid
        self.heard_s = clock.monotonic()
        """When the run process has last sent something."""
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.code: int | None = None
        """As `ended` has it; None while it lives."""
        self._process = process
        self._control = control
        self._output, self._pipe = output
        self._on_line = on_line
        self._relayed: tuple[FrameStream, FrameStream] | None = None

    @classmethod
    async def begin(
        cls,
        command: Sequence[str],
        folder: Path,
        order: WorkerOrder,
        lock_fd: int,
        on_line: Callable[[str], None],
    ) -> HostedWorker:
        """`command` gets the numbers of its control socket and of its lock as the last word. Raises
        `OSError`."""
        ours, theirs = socket.socketpair()
        reader, pipe, printed = await _pipe()
        try:
            ours.sendall(encode(order))
            process = await asyncio.create_subprocess_exec(
                *command,
                f"{theirs.fileno()},{lock_fd}",
                cwd=folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                pass_fds=[theirs.fileno(), lock_fd],
                start_new_session=True,  # Ctrl-C in the agent's terminal is for the agent
            )
        except BaseException:
            ours.close()
            pipe.close()
            raise
        finally:
            theirs.close()
            os.close(printed)
        ours.setblocking(False)
        return cls(process, ours, (reader, pipe), on_line)

    @property
    def is_gone(self) -> bool:
        """Whether its end of the control socket is closed."""
        try:
            return not self._control.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def ready(self) -> bool:
        """Return when it has read the pipeline; False: it has ended before."""
        loop = asyncio.get_running_loop()
        with suppress(ConnectionError):
            return await loop.sock_recv(self._control, 1) == READY
        return False

    async def relay(self, stream: FrameStream) -> None:
        """Until it or the worker has ended, or a newer one comes. Raises `OSError` if the worker is
        gone."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._control, [ATTACH], [theirs.fileno()])
            ours.setblocking(False)
            near = FrameStream(RELAYED_BYTES_MAX)
            await asyncio.get_running_loop().create_unix_connection(lambda: near, sock=ours)
        except BaseException:
            ours.close()
            raise
        stream.allow(RELAYED_BYTES_MAX)
        self.hang_up()
        self._relayed = pair = (stream, near)
        self._note_heard()
        ways = [
            asyncio.create_task(_pass_on(stream, near, self._note_heard), name="to a worker"),
            asyncio.create_task(_pass_on(near, stream), name="from a worker"),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for end in pair:
                end.close()
            if self._relayed is pair:
                self._relayed = None

    def hang_up(self) -> None:
        """End the stream that it has."""
        if self._relayed is not None:
            for end in self._relayed:
                end.close()

    async def ended(self) -> int:
        """Its exit code, or minus the signal that has killed it. Its own processes may still be
        about to end."""
        reading = asyncio.create_task(self._read(), name=f"lines of worker {self.pid}")
        code = await self._process.wait()
        self.hang_up()
        self._control.close()
        await asyncio.wait([reading], timeout=LAST_WORDS_S)
        reading.cancel()
        self._pipe.close()
        self.code = code
        return code

    async def _read(self) -> None:
        rest = b""
        while data := await self._output.read(LINE_BYTES_MAX):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._tell(line)
            if len(rest) > LINE_BYTES_MAX:
                self._tell(rest)
                rest = b""
        if rest:
            self._tell(rest)

    def kill(self) -> None:
        """All that it has made ends with it."""
        with suppress(ProcessLookupError):
            self._process.kill()

    def _tell(self, line: bytes) -> None:
        text = line.decode("utf-8", "backslashreplace")
        self.tail.append(text)
        self._on_line(text)

    def _note_heard(self) -> None:
        self.heard_s = clock.monotonic()


def order_for(listen: str, state: Path, tls: str) -> WorkerOrder:
    return WorkerOrder(os.getpid(), listen, str(state), tls)


async def _pipe() -> tuple[asyncio.StreamReader, asyncio.BaseTransport, int]:
    """A pipe of our own: asyncio takes a process for ended only when its pipes are closed, and
    processes that it has begun may hold these. Raises `OSError`."""
    read, write = os.pipe()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    loop = asyncio.get_running_loop()
    try:
        file = os.fdopen(read, "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(lambda: protocol, file)
    except BaseException:
        os.close(write)
        raise
    return reader, transport, write


async def _pass_on(
    source: FrameStream, target: FrameStream, heard: Callable[[], None] = lambda: None
) -> None:
    while (body := await source.receive()) is not None:
        heard()
        target.send(body)
        if not await target.drained():
            return
