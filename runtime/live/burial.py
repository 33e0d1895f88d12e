"""Dead letters on their way to the file: with a journal, exactly once each, whatever dies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from anabranch.runtime.ends import DeadLetter
from anabranch.runtime.live.puts import Puts

if TYPE_CHECKING:
    from anabranch.runtime.live.instance import Instance

LETTERS = "letters"


class Burial:
    """Without a journal they are written at once."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._letters = instance.dead_letters
        self._puts: Puts | None = None
        if instance.turns is not None:
            self._puts = Puts(LETTERS, instance.turns, self._letters.put, "dead letters")
        self._task: asyncio.Task[None] | None = None

    def bury(self, letters: list[DeadLetter]) -> None:
        if self._puts is None:
            self._letters.write(letters)
            return
        self._puts.add(self._letters.stage(letters))
        self.go_on()

    def remember(self, number: int, waiting: dict[int, bytes]) -> None:
        if self._puts is not None:
            self._puts.remember(number, waiting)
            self.go_on()

    @property
    def number(self) -> int:
        return self._puts.number if self._puts is not None else 0

    def go_on(self) -> None:
        if self._puts is not None and self._puts.waiting and not self._is_writing:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._puts.all_done(), name="dead letters")
            self._task.add_done_callback(self._written)

    @property
    def _is_writing(self) -> bool:
        return self._task is not None and not self._task.done()

    def _written(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._instance.fail(
                error if isinstance(error, Exception) else RuntimeError(repr(error))
            )
        else:
            self.go_on()

    async def close(self) -> None:
        while self._puts is not None and self._puts.waiting:
            await self._puts.all_done()
        self._letters.close()
