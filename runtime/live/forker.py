"""The agent's side of the control socket: asks the preloaded parent to fork, hears of exits."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from anabranch.runtime.live import control as msg
from anabranch.runtime.live.link import FrameBuffer, encode
from anabranch.runtime.live.parent_process import ParentProcess
from anabranch.runtime.live.process import OnOutput, Process

FORKS_IN_FLIGHT_MAX = 32
"""Keeps what waits in the control socket small, so that writing to it never has to wait."""
STOP_TIMEOUT_S = 3.0
KILL_TIMEOUT_S = 2.0
PARENT_ENDED = "the preloaded parent has ended"
_READ_BYTES = 65536
_decode = msgspec.msgpack.Decoder(msg.FromParent).decode


class ForkError(Exception):
    """A process could not be made. The message says why."""


@dataclass(slots=True)
class _Request:
    process: Process
    link: socket.socket
    stderr: int

    def close(self) -> None:
        self.link.close()
        os.close(self.stderr)


class Forker:
    """`on_parent_lost` is called once if the parent ends without having been told to."""

    def __init__(
        self, parent: ParentProcess, on_output: OnOutput, on_parent_lost: Callable[[str], None]
    ) -> None:
        self._parent = parent
        self._on_output = on_output
        self._on_parent_lost = on_parent_lost
        self._loop = asyncio.get_running_loop()
        self._loaded: asyncio.Future[None] = self._loop.create_future()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._stopping = False
        self._next_key = 0
        self._places = asyncio.Semaphore(FORKS_IN_FLIGHT_MAX)
        self._requests: dict[int, _Request] = {}
        self._alive: dict[int, Process] = {}
        self._open: set[Process] = set()
        """Processes whose files here are open, those of ended ones included."""
        self._frames = FrameBuffer()

    @property
    def parent_pid(self) -> int:
        return self._parent.pid

    @property
    def alive(self) -> list[Process]:
        return list(self._alive.values())

    async def start(self, timeout_s: float) -> None:
        """Wait until the parent has read the pipeline. Raises `ForkError`."""
        self._parent.control.setblocking(False)
        self._loop.add_reader(self._parent.control.fileno(), self._read)
        try:
            await asyncio.wait_for(asyncio.shield(self._loaded), timeout_s)
        except TimeoutError:
            raise ForkError(
                f"the pipeline's file could not be read again within {timeout_s:g} s"
            ) from None

    def guard(self, folder: Path) -> None:
        """Have `folder` removed if this process is killed."""
        self._send(msg.Guard(folder=str(folder)))

    async def fork(self) -> Process:
        """A new idle process. Raises `ForkError`."""
        async with self._places:
            if self._lost.done() or self._stopping:
                raise ForkError(PARENT_ENDED)
            process = Process(self._next_key, self._on_output)
            self._next_key += 1
            try:
                await self._send_request(process)
            except (BrokenPipeError, ConnectionResetError):
                raise ForkError(PARENT_ENDED) from None
            except OSError as error:
                raise ForkError(f"no process could be made: {error}") from error
            await process.forked
            return process

    def kill(self, process: Process) -> None:
        """SIGKILL, by the parent: it knows whether the pid is still that process."""
        if process.exit_code is None and process.pid:
            self._send(msg.Kill(pid=process.pid))

    async def stop(self) -> None:
        """Every process and the parent have ended after this; bounded in time."""
        self._stopping = True
        if not self._loaded.done():
            # It runs the user's file and hears nothing; it has no children yet.
            self._parent.kill()
        elif not self._lost.done():
            self._send(msg.Stop())
        if not await self._parent_ended(STOP_TIMEOUT_S):
            self._parent.kill()
            await self._parent_ended(KILL_TIMEOUT_S)
        self._lose()
        self._parent.close()
        await asyncio.gather(*(process.closed() for process in self._open))

    async def _parent_ended(self, timeout_s: float) -> bool:
        deadline = self._loop.time() + timeout_s
        pause_s = 0.001
        while not self._parent.ended():
            if self._loop.time() > deadline:
                return False
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.05)
        return True

    async def _send_request(self, process: Process) -> None:
        output, stderr = os.pipe()
        try:
            link, theirs = socket.socketpair()
        except OSError:
            os.close(output)
            os.close(stderr)
            raise
        request = _Request(process, theirs, stderr)
        await process.open(link, output)
        self._requests[process.key] = request
        self._alive[process.key] = process
        self._open = {p for p in self._open if not p.is_closed} | {process}
        try:
            fds = [theirs.fileno(), stderr]
            socket.send_fds(self._parent.control, [encode(msg.Fork(key=process.key))], fds)
        except OSError:
            self._forget(process.key)
            process.close()
            raise

    def _send(self, message: msg.ToParent) -> None:
        try:
            self._parent.control.send(encode(message))
        except BlockingIOError:
            # Thousands of commands wait in the socket: it has been stopped, or hangs.
            self._lose()
        except (BrokenPipeError, ConnectionResetError):
            # Its end is noticed by the reader, which knows what to do.
            return

    def _read(self) -> None:
        try:
            data = self._parent.control.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self._lose()
            return
        for body in self._frames.feed(data):
            self._note(_decode(body))

    def _note(self, message: msg.FromParent) -> None:
        match message:
            case msg.Loaded():
                self._loaded.set_result(None)
            case msg.LoadFailed(message=text):
                _fail(self._loaded, ForkError(text))
            case msg.Forked(key=key, pid=pid):
                request = self._requests.pop(key)
                # Kept open until now: macOS may drop a file in flight that its sender has closed.
                request.close()
                request.process.note_forked(pid)
            case msg.ForkFailed(key=key, reason=reason):
                process = self._forget(key)
                process.close()
                _fail(process.forked, ForkError(f"no process could be made: {reason}"))
            case msg.Exited(pid=pid, code=code):
                for process in self.alive:
                    if process.pid == pid:
                        del self._alive[process.key]
                        process.note_exited(code)

    def _forget(self, key: int) -> Process:
        request = self._requests.pop(key)
        request.close()
        return self._alive.pop(key)

    def _lose(self) -> None:
        """The parent is gone: nobody can be forked, and no exit will be told any more."""
        if self._lost.done():
            return
        self._lost.set_result(None)
        self._loop.remove_reader(self._parent.control.fileno())
        error = ForkError(PARENT_ENDED)
        for key in list(self._requests):
            process = self._forget(key)
            process.close()
            _fail(process.forked, error)
        was_loaded = self._loaded.done() and not self._loaded.exception()
        _fail(self._loaded, error)
        if was_loaded and not self._stopping:
            self._on_parent_lost("the process that all others are forked from is gone")


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        # Marked as seen: nobody may be waiting for it any more.
        future.exception()
