"""What is on its way to a target outside, a file or a table: recorded first, put there then, and
forgotten when that is done. A later life puts again what was not done; the target knows by the
number what it has."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from anabranch.runtime.ends import passing

if TYPE_CHECKING:
    from anabranch.runtime.live.turns import Turns

log = logging.getLogger("anabranch.sink")

RETRY_FIRST_S = 0.05
RETRY_MAX_S = 2.0

Put = Callable[[int, bytes], Awaitable[None]]


class Puts:
    """`kind`: name of the pieces in the journal; `what`: is written, for messages. `number`: of
    the last piece."""

    def __init__(self, kind: str, turns: Turns, put: Put, what: str) -> None:
        self.number = 0
        self._kind = kind
        self._turns = turns
        self._put = put
        self._what = what
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._lock = asyncio.Lock()

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def add(self, data: bytes) -> None:
        """Belongs to the present turn."""
        if data:
            self.number += 1
            self._waiting.append((self.number, data))
            self._turns.keep(self._kind, self.number, data)

    def remember(self, number: int, waiting: dict[int, bytes]) -> None:
        """In a new life: what the last one had recorded and not put for certain."""
        self.number = number
        for at in sorted(waiting):
            self._waiting.append((at, waiting[at]))
            self._turns.keep(self._kind, at, waiting[at])

    async def all_done(self) -> None:
        """Return when everything added so far is at the target. Raises `OSError` if it cannot be,
        and waiting would not help."""
        last = self.number
        await self._turns.committed()
        async with self._lock:
            while self._waiting and self._waiting[0][0] <= last:
                number, data = self._waiting[0]
                await self._put_patiently(number, data)
                self._waiting.popleft()
                self._turns.drop(self._kind, number)

    async def _put_patiently(self, number: int, data: bytes) -> None:
        """A full disk and the like stop the stream, and not the run."""
        delay_s = RETRY_FIRST_S
        while True:
            try:
                await self._put(number, data)
                break
            except OSError as error:
                if not passing(error):
                    raise
                if delay_s == RETRY_FIRST_S:
                    log.warning("cannot write %s: %s; the stream waits", self._what, error)
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, RETRY_MAX_S)
        if delay_s > RETRY_FIRST_S:
            log.warning("%s can be written again", self._what)
