"""Pieces of output on their way to a target, a file or a table. Each is recorded in the journal,
then written to the target, and then dropped. The next incarnation writes again what was not
dropped; the target recognises by the number what it has already."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from anabranch.runtime.live.journal.journal import JournalError
from anabranch.runtime.storage.patience import Patience

if TYPE_CHECKING:
    from anabranch.runtime.live.commit.commits import Commits

WAITING_BYTES_MAX = 4 * 2**20
"""An instance that makes more than this waits until some of it is written."""

Put = Callable[[int, bytes], Awaitable[None]]


class OutputBuffer:
    """`kind`: name of the pieces in the journal; `commits`: None if they are not recorded.
    `put`: writes a piece with its number. On a full disk and the like, the stream waits."""

    def __init__(self, kind: str, commits: Commits | None, put: Put, patience: Patience) -> None:
        self.number = 0
        self._kind = kind
        self._commits = commits
        self._put = put
        self._patience = patience
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._lock = asyncio.Lock()
        self._moved = asyncio.Event()

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def done(self) -> int:
        """Number of the last piece that is at the target, and all before it."""
        return self._waiting[0][0] - 1 if self._waiting else self.number

    def add(self, data: bytes) -> None:
        """Add a piece, which belongs to the present commit."""
        if data:
            self.number += 1
            self._wait(self.number, data)

    def restore(self, number: int, waiting: dict[int, bytes], last_put: int = 0) -> None:
        """In a new incarnation: pieces that the last one had recorded and perhaps not written.
        `last_put`: number of the last piece that the target has. Raises `JournalError` if that is
        not recorded: the target would take new pieces of the same numbers for those it has."""
        if last_put > number:
            raise JournalError(
                f"the target of the {self._kind} has piece {last_put:,} of this instance, and its "
                f"journal{self._place} ends before piece {number + 1:,}: it is an older one, or "
                "has lost its last records; put it back as it was and resume the run, or begin a "
                "new one"
            )
        self.number = number
        for at in sorted(waiting):
            self._wait(at, waiting[at])

    @property
    def _place(self) -> str:
        return "" if self._commits is None else f" {str(self._commits.path)!r}"

    def _wait(self, number: int, data: bytes) -> None:
        self._waiting.append((number, data))
        self._bytes += len(data)
        if self._commits is not None:
            self._commits.keep(self._kind, number, data)

    @property
    def has_room(self) -> bool:
        return self._bytes <= WAITING_BYTES_MAX

    async def room(self) -> None:
        """Backpressure: return when there is room."""
        while not self.has_room:
            self._moved.clear()
            await self._moved.wait()

    async def all_done(self) -> None:
        """Return when everything added so far is at the target. Raises `OSError` if it cannot be
        written and waiting does not help."""
        last = self.number
        if self._commits is not None:
            await self._commits.committed()
        async with self._lock:
            while self._waiting and self._waiting[0][0] <= last:
                number, data = self._waiting[0]
                await self._patience.outlast(functools.partial(self._put, number, data))
                self._waiting.popleft()
                self._bytes -= len(data)
                self._moved.set()
                if self._commits is not None:
                    self._commits.drop(self._kind, number)
