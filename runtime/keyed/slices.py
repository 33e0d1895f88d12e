"""Work is done in slices, between which others have a turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable


class Slices:
    """`turn` is awaited between two slices of `length_s` each."""

    def __init__(
        self, clock: Callable[[], float], length_s: float, turn: Callable[[], Awaitable[None]]
    ) -> None:
        self.clock = clock
        self.length_s = length_s
        self._turn = turn
        self._turn_at = clock()

    async def give_turn(self) -> None:
        await self._turn()
        self._turn_at = self.clock()

    async def give_turn_if_due(self) -> None:
        if self.clock() - self._turn_at > self.length_s:
            await self.give_turn()
