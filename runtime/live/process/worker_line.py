"""The end of a tunnel at home: dials the worker on another host again and again, for ever."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from anabranch.runtime.live.hosts.refused import HostRefused
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.live.process.remote_clock import RemoteClock
from anabranch.runtime.live.process.tunnel import (
    OWN_BYTES,
    STREAM_BYTES_MAX,
    HomeGreeting,
    TellTime,
    Tunnel,
    TunnelError,
    TunnelMessage,
    WorkerGreeting,
    WorkerPlace,
    decode_from_worker,
    read_frame,
    written,
)
from anabranch.runtime.live.process.tunnel_stream import SILENCE_S, TunnelStream, heard
from anabranch.runtime.ports import clock

Dial = Callable[[], Awaitable[FrameStream]]
"""A stream at whose other end a worker speaks the tunnel. Raises `OSError` to be tried again, and
`HostRefused` otherwise."""
PAUSE_FIRST_S = 0.2
PAUSE_MAX_S = 5.0
CLOSE_S = 1.0
TOLD_MAX = 8
"""Reasons why a worker cannot be reached, until it can."""


class WorkerLine:
    """`handle` gets each message of the worker; `taken` the notes of what it has acknowledged;
    `began` is called when a worker has greeted that is not the one before, with the notes of what
    that had not acknowledged; `changed` while the worker can be reached, `refused` when it never
    will be, and `away` with each reason why it cannot be for now."""

    def __init__(
        self,
        host: str,
        dial: Dial,
        *,
        handle: Callable[[Any], None],
        taken: Callable[[list[object]], None],
        began: Callable[[list[object]], None],
        changed: Callable[[], None],
        refused: Callable[[str], None],
        away: Callable[[str], None],
    ) -> None:
        self.host = host
        self.refused: Counter[str] = Counter()
        """Streams that were ended for what came over them, by reason."""
        self._dial = dial
        self._handle = handle
        self._taken = taken
        self._began = began
        self._changed = changed
        self._on_refused = refused
        self._on_away = away
        self._told: set[str] = set()
        """Of the reasons since it could be reached last."""
        self._home = clock.secret(OWN_BYTES)
        self._worker = b""
        self._former: set[bytes] = set()
        """Workers that are no more."""
        self._tunnel = Tunnel(host, decode_from_worker)
        self._place: WorkerPlace | None = None
        self._clock = RemoteClock()
        self._carrier: TunnelStream | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def is_reachable(self) -> bool:
        carrier = self._carrier
        return (
            carrier is not None
            and self._clock.is_known
            and clock.monotonic() - carrier.heard_s < SILENCE_S
        )

    @property
    def has_begun(self) -> bool:
        """Whether any worker has greeted."""
        return self._place is not None

    @property
    def is_over(self) -> bool:
        """Whether the worker is not dialled any more."""
        return self._dialling is not None and self._dialling.done()

    @property
    def place(self) -> WorkerPlace:
        assert self._place is not None, "no worker has greeted yet"
        return replace(self._place, ahead_s=self._clock.ahead_s)

    def send(self, message: TunnelMessage, note: object = None) -> None:
        self._tunnel.send(message, note)

    def start(self) -> None:
        if self._dialling is None:
            loop = asyncio.get_running_loop()
            self._dialling = loop.create_task(self._keep_dialling(), name=f"tunnel to {self.host}")
            self._dialling.add_done_callback(self._note_end)

    async def close(self) -> None:
        """The worker still learns that everything of it has come, if it can be reached."""
        self._closing = True
        if self._dialling is None:
            return
        if self._carrier is not None:
            self._carrier.end()
            await asyncio.wait([self._dialling], timeout=CLOSE_S)
        self._dialling.cancel()
        await asyncio.wait([self._dialling])

    def _note_end(self, dialling: asyncio.Task[None]) -> None:
        """Of the task. An error of our own is reported, since otherwise the run would hang."""
        if not dialling.cancelled() and (error := dialling.exception()) is not None:
            told = {"message": "a tunnel has ended with an error", "exception": error}
            asyncio.get_running_loop().call_exception_handler(told)
            self._on_refused(f"the tunnel to it has ended with {error!r}")

    async def _keep_dialling(self) -> None:
        pause_s = PAUSE_FIRST_S
        while True:
            try:
                stream = await self._dial()
            except HostRefused as error:
                self._on_refused(str(error))
                return
            except OSError as error:
                self._tell_away(error)
            else:
                if await self._use(stream):
                    pause_s = PAUSE_FIRST_S
                    self._told.clear()
                if self._closing:
                    return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _tell_away(self, error: OSError) -> None:
        """Once each, and few: it may be so for days."""
        why = error.strerror or str(error)
        if why and why not in self._told and len(self._told) < TOLD_MAX:
            self._told.add(why)
            self._on_away(why)

    async def _use(self, stream: FrameStream) -> bool:
        """Return when the stream has ended: whether a worker was there."""
        try:
            stream.allow(STREAM_BYTES_MAX)
            body = await heard(stream)
            if body is None:
                if stream.broken:
                    raise TunnelError("a frame that is too large")
                return False
            self._greet(stream, body)
            await self._carry(stream)
            if stream.broken:
                raise TunnelError("a frame that is too large")
        except TunnelError as error:
            self.refused[error.reason] += 1
            return False
        finally:
            stream.abort()
        return True

    def _greet(self, stream: FrameStream, body: bytes) -> None:
        """Raises `TunnelError`."""
        greeting = read_frame(body)
        if not isinstance(greeting, WorkerGreeting):
            raise TunnelError("a frame that has no place there")
        if greeting.worker in self._former:
            raise TunnelError("a worker that another one has followed")
        if greeting.worker != self._worker:
            if greeting.expected != 1:
                raise TunnelError("a worker of another process")
            self._follow(greeting.worker)
        self._place = greeting.place
        self._taken(self._tunnel.begin(greeting.expected))
        stream.send(written(HomeGreeting(self._home, self._worker, self._tunnel.expected)))

    def _follow(self, worker: bytes) -> None:
        """It is another worker than the last one."""
        former, tunnel = self._worker, self._tunnel
        self._worker, self._clock = worker, RemoteClock()
        if former:
            self._former.add(former)
            self._tunnel = Tunnel(self.host, decode_from_worker)
            self._began(tunnel.notes)

    async def _carry(self, stream: FrameStream) -> None:
        """Raises `TunnelError`."""
        carrier = TunnelStream(stream, self._tunnel, self._handle, self._taken, asks=True)
        carrier.on_time = self._note_time
        self._carrier = carrier
        try:
            await carrier.carry()
        finally:
            self._carrier = None

    def _note_time(self, told: TellTime, now: float) -> None:
        self._clock.note(told.sent_s, told.here_s, now)
        self._changed()
