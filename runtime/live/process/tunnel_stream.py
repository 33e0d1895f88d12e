"""Carries a tunnel over one stream, after the greetings and until it breaks or falls silent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.live.process.tunnel import (
    Acknowledged,
    AskTime,
    Carried,
    NumberedPiece,
    TellTime,
    Tunnel,
    TunnelError,
    read_frame,
    written,
)
from anabranch.runtime.ports import clock

ASK_S = 2.0
"""Home asks so often, and the worker answers, so that both receive something."""
SILENCE_S = 8.0
"""A stream on which nothing comes for so long is dropped."""


class TunnelStream:
    """`handle` gets each message of the other end once; `taken`: the notes of what that has
    acknowledged. `asks`: this is home."""

    def __init__(
        self,
        stream: FrameStream,
        tunnel: Tunnel,
        handle: Callable[[Any], None],
        taken: Callable[[list[object]], None],
        *,
        asks: bool,
    ) -> None:
        self._stream = stream
        self._tunnel = tunnel
        self._handle = handle
        self._taken = taken
        self._asks = asks
        self._news = asyncio.Event()
        self._answers: list[bytes] = []
        self._ask_at_s = clock.monotonic()
        self.heard_s = clock.monotonic()
        """When something has come."""
        self.on_time: Callable[[TellTime, float], None] = lambda told, now: None
        """Gets each answer to what home has asked, with the time by its own clock."""

    async def carry(self) -> None:
        """Return when the stream has ended. Raises `TunnelError` if the other end has sent what it
        must not."""
        self._tunnel.on_news = self._news.set
        sending = asyncio.get_running_loop().create_task(self._send(), name="tunnel")
        try:
            await self._receive()
        finally:
            self._tunnel.on_news = lambda: None
            self._tunnel.end()
            self._stream.abort()
            sending.cancel()

    def end(self) -> None:
        """Of what is sent here, only that all of the other end has come."""
        if (body := self._tunnel.next_frame()) is not None:
            self._stream.send(body)
        self._stream.close()

    async def _receive(self) -> None:
        while (body := await heard(self._stream)) is not None:
            self.heard_s = clock.monotonic()
            self._take(read_frame(body))
            self._news.set()

    def _take(self, frame: Carried) -> None:
        match frame:
            case NumberedPiece():
                self._tunnel.receive(frame, self._handle)
            case Acknowledged():
                self._taken(self._tunnel.acknowledge(frame))
            case AskTime(sent_s=sent_s) if not self._asks:
                # Answers never pile up: only the last one counts.
                self._answers = [written(TellTime(sent_s, clock.monotonic()))]
            case TellTime() if self._asks:
                self.on_time(frame, self.heard_s)
            case _:
                raise TunnelError("a frame that has no place there")

    async def _send(self) -> None:
        while not self._stream.is_over:
            self._news.clear()
            while (body := self._next()) is not None:
                self._stream.send(body)
                await self._stream.drained()
            try:
                async with asyncio.timeout(self._pause_s()):
                    await self._news.wait()
            except TimeoutError:
                continue

    def _next(self) -> bytes | None:
        if self._asks and clock.monotonic() >= self._ask_at_s:
            self._ask_at_s = clock.monotonic() + ASK_S
            return written(AskTime(clock.monotonic()))
        return self._answers.pop() if self._answers else self._tunnel.next_frame()

    def _pause_s(self) -> float | None:
        return max(0.0, self._ask_at_s - clock.monotonic()) if self._asks else None


async def heard(stream: FrameStream) -> bytes | None:
    """The next frame; None if the stream has ended, or carries nothing for `SILENCE_S`."""
    if stream.has_unread:
        return await stream.receive()
    try:
        async with asyncio.timeout(SILENCE_S):
            return await stream.receive()
    except TimeoutError:
        return None
