"""Where the agent of a host listens: it takes a stream to what its first frame asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.ports.sockets import transport
from anabranch.runtime.ports.transport import Listening

FIRST_S = 5.0
"""For the first frame of a stream."""
FIRST_BYTES_MAX = 8 * 2**10
STREAMS_MAX = 128
"""At a time; more are closed at once, and counted."""

Served = Callable[[FrameStream], Awaitable[None]]


class Door:
    """`serves`: by first frame, what carries on with the stream, and closes it."""

    def __init__(self, serves: dict[bytes, Served]) -> None:
        self.refused = 0
        """Streams that began with something else, or were too many."""
        self._serves = serves
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: Listening | None = None

    async def open(self, bind: str) -> str:
        """Listen; the address, with its port. Raises `OSError`."""
        made = lambda: FrameStream(FIRST_BYTES_MAX, self._accept)  # noqa: E731
        self._listening = await transport().listen(f"tcp:{bind}", made)
        return self._listening.address.removeprefix("tcp:")

    def close(self) -> None:
        """And end what goes on over the streams."""
        if self._listening is not None:
            self._listening.close()
        for task in self._tasks:
            task.cancel()

    def _accept(self, stream: FrameStream) -> None:
        if len(self._tasks) >= STREAMS_MAX:
            self.refused += 1
            stream.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve(stream), name="a stream")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, stream: FrameStream) -> None:
        try:
            serve = await self._first(stream)
            if serve is None:
                self.refused += 1
            else:
                await serve(stream)
        finally:
            stream.close()

    async def _first(self, stream: FrameStream) -> Served | None:
        try:
            async with asyncio.timeout(FIRST_S):
                body = await stream.receive()
        except TimeoutError:
            return None
        return None if body is None else self._serves.get(body)
