"""A source as a user writes one for something outside that sends, and keeps only what nobody has
confirmed, as a broker does. No other reader can read what one has taken: the source `drains`.

    sender ── numbers that are due ──▶ session of a reader ── read ──▶ recorded: the sender forgets

The sender lives outside of all processes, so it outlives them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from anabranch.runtime.plan.ends import Chunk, Reader, RunContext, Source, Split
from anabranch.runtime.ports import clock

TAKEN_MAX = 20
"""How much a reader takes at once, of which it may read less."""
SESSIONS = 100
"""More than readers that ever come."""


@dataclass(slots=True)
class SenderSession:
    """`first`: the place of the oldest number that is kept."""

    first: int = 0
    kept: list[int] = field(default_factory=list)


class Sender:
    """`bursts`: when each is due, and how many numbers it has."""

    def __init__(self, bursts: tuple[tuple[float, int], ...]) -> None:
        dues = (at_s for at_s, count in bursts for _ in range(count))
        self._left = deque(enumerate(dues))
        self._sessions: dict[int, SenderSession] = {}

    def next_due_s(self) -> float | None:
        """None: nothing will come any more."""
        return self._left[0][1] if self._left else None

    def take(self, session: int, now_s: float) -> None:
        """The session gets some of what is due."""
        kept = self._sessions.setdefault(session, SenderSession()).kept
        for _ in range(TAKEN_MAX):
            if not self._left or self._left[0][1] > now_s:
                return
            kept.append(self._left.popleft()[0])

    def since(self, session: int, place: int) -> list[int]:
        """What the session has taken from that place on. Raises `ValueError` if that is forgotten,
        or was never sent."""
        found = self._sessions.setdefault(session, SenderSession())
        if not found.first <= place <= found.first + len(found.kept):
            raise ValueError(f"session {session} asks from {place} on, after {found.first}")
        return found.kept[place - found.first :]

    def forget(self, session: int, place: int) -> None:
        """It is recorded that everything before was read."""
        found = self._sessions.setdefault(session, SenderSession())
        if place > found.first:
            del found.kept[: place - found.first]
            found.first = place


@dataclass(frozen=True)
class Outside(Source):
    sender: Sender
    make: Callable[[int], Any]

    drains = True
    positions = False

    def splits(self) -> Iterator[Split]:
        return ({"session": n} for n in range(SESSIONS))

    def open(self, split: Split, context: RunContext) -> Reader:
        return OutsideReader(split, self, context.started_s)


class OutsideReader(Reader):
    def __init__(self, split: Split, source: Outside, started_s: float) -> None:
        self._session: int = split["session"]
        self._place: int = split.get("place", 0)
        self._source = source
        self._started_s = started_s
        self._drains = asyncio.Event()
        self._ended = False

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        sender, began_s = self._source.sender, clock.monotonic()
        while not self._ended:
            if not self._drains.is_set():
                sender.take(self._session, clock.monotonic() - self._started_s)
            if found := sender.since(self._session, self._place)[:tuples_max]:
                self._place += len(found)
                waited_s = clock.monotonic() - began_s
                return Chunk([self._source.make(n) for n in found], waited_s=waited_s)
            due_s = sender.next_due_s()
            if self._drains.is_set() or due_s is None:
                self._ended = True
            else:
                await self._until(self._started_s + due_s)
        return None

    async def _until(self, due_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(due_s - clock.monotonic()):
                await self._drains.wait()

    def remainder(self) -> Split | None:
        return None if self._ended else {"session": self._session, "place": self._place}

    def recorded(self, remainder: Split) -> None:
        self._source.sender.forget(self._session, remainder.get("place", 0))

    def drain(self, *, leaves: bool) -> None:
        self._drains.set()

    def done(self) -> None:
        self._source.sender.forget(self._session, self._place)
