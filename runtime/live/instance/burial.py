"""Dead letters on their way to the file; exactly once each, whatever dies, if that is promised."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from anabranch.runtime.live.commit.puts import Puts
from anabranch.runtime.plan.ends import DeadLetter

if TYPE_CHECKING:
    from anabranch.runtime.live.instance.instance import Instance

LETTERS = "letters"


class Burial:
    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._letters = instance.dead_letters
        turns = instance.turns if instance.exact else None
        put = self._letters.put if instance.exact else self._put_next
        self._puts = Puts(LETTERS, turns, put, instance.patience)
        self._task: asyncio.Task[None] | None = None

    def bury(self, letters: list[DeadLetter]) -> None:
        self._puts.add(self._letters.stage(letters))
        self.go_on()

    def remember(self, number: int, waiting: dict[int, bytes]) -> None:
        self._puts.remember(number, waiting)
        self.go_on()

    @property
    def waiting(self) -> bool:
        """Whether letters are not in the file."""
        return self._puts.waiting

    @property
    def number(self) -> int:
        return self._puts.number

    @property
    def done(self) -> int:
        """Number of the last letters that are in the file, and all before them."""
        return self._puts.done

    @property
    def has_room(self) -> bool:
        return self._puts.has_room

    async def room(self) -> None:
        """Backpressure: return when not too many letters wait to be written."""
        await self._puts.room()

    async def _put_next(self, _number: int, data: bytes) -> None:
        self._letters.put_next(data)

    def go_on(self) -> None:
        if self._puts.waiting and not self._is_writing:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._puts.all_done(), name="dead letters")
            self._task.add_done_callback(self._written)

    @property
    def _is_writing(self) -> bool:
        return self._task is not None and not self._task.done()

    def _written(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._instance.fail(
                error if isinstance(error, Exception) else RuntimeError(repr(error))
            )
        else:
            self._instance.safety.look()
            self.go_on()

    async def close(self) -> None:
        while self._puts.waiting:
            await self._puts.all_done()
        self._instance.safety.look()
        self._letters.close()
