"""Dead letters on their way to the file; exactly once each, whatever dies, if that is promised."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from anabranch.runtime.live.commit.commits import Commits
from anabranch.runtime.live.commit.output_buffer import OutputBuffer
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.storage.dead_letters import DeadLetterFile
from anabranch.runtime.storage.patience import Patience

LETTERS = "letters"


class DeadLetterWriter:
    """`commits`: if each letter is to be in the file exactly once. `received`: returns when it is
    recorded that their tuples have come in, which then do not come again; only if none may count
    twice. `written`: called when some have come there; `fail`: when they cannot."""

    def __init__(
        self,
        letters: DeadLetterFile,
        commits: Commits | None,
        patience: Patience,
        *,
        received: Callable[[], Awaitable[None]] | None = None,
        written: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._letters = letters
        self._received = received
        self._tell_written = written
        self._fail = fail
        put = self._put_next if commits is None else letters.put
        self._buffer = OutputBuffer(LETTERS, commits, put, patience)
        self._task: asyncio.Task[None] | None = None

    def bury(self, letters: list[DeadLetter]) -> None:
        self._buffer.add(self._letters.stage(letters))
        self.go_on()

    def restore(self, number: int, waiting: dict[int, bytes]) -> None:
        self._buffer.restore(number, waiting)
        self.go_on()

    @property
    def waiting(self) -> bool:
        """Whether letters are not in the file."""
        return self._buffer.waiting

    @property
    def number(self) -> int:
        return self._buffer.number

    @property
    def done(self) -> int:
        """Number of the last letters that are in the file, and all before them."""
        return self._buffer.done

    @property
    def has_room(self) -> bool:
        return self._buffer.has_room

    async def room(self) -> None:
        """Backpressure: return when not too many letters wait to be written."""
        await self._buffer.room()

    async def _put_next(self, _number: int, data: bytes) -> None:
        if self._received is not None:
            await self._received()
        self._letters.put_next(data)

    def go_on(self) -> None:
        if self._buffer.waiting and not self._is_writing:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._buffer.all_done(), name="dead letters")
            self._task.add_done_callback(self._written)

    @property
    def _is_writing(self) -> bool:
        return self._task is not None and not self._task.done()

    def _written(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        else:
            self._tell_written()
            self.go_on()

    async def close(self) -> None:
        while self._buffer.waiting:
            await self._buffer.all_done()
        self._tell_written()
        self._letters.close()
