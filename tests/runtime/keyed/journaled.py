"""Processors whose changes are journaled, and which die and are restored from their journals."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from anabranch.runtime.keyed.processor import KeyedProcessor
from anabranch.runtime.processing.steps import Part
from tests.runtime.keyed.bench import Bench, Build, Moves, nothing
from tests.runtime.keyed.test_processor_moves import counting

MANY = [(f"key {n}", n) for n in range(50)]


def contents(processor: KeyedProcessor) -> dict[str, Any]:
    """All that a processor holds."""
    held = processor._held
    return {
        "states": dict(held.store.states),
        "keys": [{*held.store.keys(group)} for group in range(held.groups)],
        "event": dict(held.store.timers._set),
        "processing": dict(held.store.processing._set),
        "timers": (len(held.store.timers), len(held.store.processing)),
        "kept": {group: [*kept] for group, kept in held.kept.items() if kept},
        "arriving": {group: arrival.as_plain() for group, arrival in held.arriving.items()},
        "groups": (held.owned, held.frozen, held.behind, held.shut),
        "counts": (held.pended, held.pended_in, held.pended_out, +held.late),
        "watermark": held.watermark,
    }


class Journal:
    """Changes in their order, as a driver keeps them; a whole snapshot makes older ones
    needless."""

    def __init__(self) -> None:
        self.changes: list[bytes] = []
        self.dropped = 0
        self._snapshot: Iterator[bytes] | None = None
        self._begins = 0

    def add(self, change: bytes) -> None:
        if change:
            self.changes.append(change)

    def begin_snapshot(self, processor: KeyedProcessor, keys_max: int) -> None:
        self._snapshot, self._begins = processor.snapshot(keys_max), len(self.changes)
        self.add_piece()

    def add_piece(self) -> None:
        if self._snapshot is None:
            return
        piece = next(self._snapshot, None)
        if piece is not None:
            self.changes.append(piece)
            return
        self._snapshot = None
        self.dropped += self._begins
        del self.changes[: self._begins]

    def close(self) -> None:
        """Whoever wrote it has died: an unfinished snapshot stays where it is."""
        self._snapshot = None


@dataclass
class Batch:
    """What has become of a batch: so many of its tuples are done, the first ones."""

    keys: list[Any]
    tuples: list[Any]
    done: int = 0


class DeathError(Exception):
    """An instance dies in its turn."""


class Mortals(Bench):
    """A bench whose processors are journaled. `dying`: in how many turns an instance dies.

    `tells_at_once`: whatever changes is told then; else when somebody asks, and before a death."""

    def __init__(
        self,
        build: Build,
        *,
        groups: int = 8,
        instances: int = 1,
        tick_s: float = 0.0,
        tells_at_once: bool = True,
    ) -> None:
        self.tells_at_once = tells_at_once
        self.journals = [Journal() for _ in range(instances)]
        self.incarnations = [1] * instances
        self.dying: dict[int, int] = {}
        self.deaths = 0
        self._nested = 0
        super().__init__(build, groups=groups, instances=instances, tick_s=tick_s)

    def _processor(self, number: int) -> KeyedProcessor:
        return KeyedProcessor(
            self.operator,
            groups=self.groups,
            slice_s=0.005,
            emit=partial(self._emit, number),
            turn=partial(self._turn_of, number),
            clock=self.clock,
            wall=self.wall,
            changed=self.journals[number].add,
            noted=partial(self._noted, number),
        )

    def _noted(self, number: int) -> None:
        if self.tells_at_once:
            self.all[number].tell()

    def _emit(self, number: int, part: Part) -> None:
        self.parts.append(part)
        if isinstance(part.tag, Batch):
            part.tag.done += part.taken + part.pended

    async def _turn_of(self, number: int) -> None:
        self.commits += 1
        if number in self.dying:
            self.dying[number] -= 1
            if self.dying[number] < 0:
                del self.dying[number]
                raise DeathError
        if self.on_turn is not None and not self._nested:
            self._nested = 1
            try:
                await self.on_turn()
            finally:
                self._nested = 0

    def restored(self, number: int) -> KeyedProcessor:
        """The next incarnation of an instance, which must hold what the last one held."""
        before = self.all[number]
        before.tell()
        self.journals[number].close()
        self.deaths += 1
        self.incarnations[number] += 1
        after = self.all[number] = self._processor(number)
        after.restore(self.journals[number].changes)
        assert contents(after) == contents(before)
        return after


class Faults(Moves):
    """Moves between instances that may die at any moment."""

    bench: Mortals

    def __init__(self, bench: Mortals) -> None:
        super().__init__(bench)
        self._running: set[int] = set()

    async def die(self, number: int) -> None:
        """Die and be restored, unless something is under way: then at its next turn."""
        if number in self._running:
            self.bench.dying[number] = 0
        else:
            await self._revive(number)

    async def _revive(self, number: int) -> None:
        before = self.bench.all[number]
        after = self.bench.restored(number)
        after.resume(before.owned | before.frozen | before._held.behind, before.frozen)
        await self._alive(number, after.catch_up)

    async def _alive(self, number: int, act: Callable[[], Awaitable[None]]) -> bool:
        """Whether an act was done; if its instance has died of it, the next one lives."""
        if number in self._running:
            await act()  # whoever began ends it
            return True
        with self._run(number):
            try:
                await act()
                return True
            except DeathError:
                pass
        await self._revive(number)
        return False

    @contextmanager
    def _run(self, number: int) -> Iterator[None]:
        self._running.add(number)
        try:
            yield
        finally:
            self._running.discard(number)

    async def send(self, key: Any, item: Any, side: int = 0) -> None:
        self.sent[key].append((item, self.watermark))
        await self._process(self.route[self.bench.group(key)], Batch([key], [item]), side)

    async def _process(self, number: int, batch: Batch, side: int) -> None:
        """A batch, again and again what is not done of it."""
        while batch.done < len(batch.keys):
            keys, tuples = batch.keys[batch.done :], batch.tuples[batch.done :]
            run = partial(self.bench.all[number].run, keys, tuples, side, batch)
            await self._alive(number, run)

    async def advance(self, watermark: float) -> None:
        """Of all instances; one that dies while its timers are called goes on in its next
        incarnation."""
        self.watermark = max(watermark, self.watermark)
        for number in range(len(self.bench.all)):
            while not await self._alive(number, partial(self._advance, number)):
                pass

    async def _advance(self, number: int) -> None:
        await self.bench.all[number].advance(self.watermark)

    async def _send_to(self, owner: int, pairs: list[tuple[Any, int]]) -> None:
        batch = Batch([key for key, _ in pairs], [item for _, item in pairs])
        await self._process(owner, batch, 0)

    def _move(self, group: int, giver: int, to: int) -> Iterator[Callable[[], Awaitable[None]]]:
        bench, way = self.bench, deque[bytes]()

        async def freeze() -> None:
            bench.all[giver].freeze({group})

        async def announce() -> None:
            self.route[group] = to

        async def export() -> None:
            if (chunk := next(chunks, None)) is not None:
                way.append(chunk)

        async def install() -> None:
            await bench.all[to].install(way.popleft(), opens=False)

        async def open_() -> None:
            await self._alive(to, partial(bench.all[to].open, (group,)))

        yield freeze
        yield announce
        incarnation = 0
        while group in bench.all[giver].frozen:
            while giver in self._busy:  # tuples of the group may be in its batch
                yield nothing
            if incarnation != bench.incarnations[giver]:
                incarnation = bench.incarnations[giver]
                chunks = bench.all[giver].export({group}, 64, incarnation)
            yield export
            if len(way) > 2:
                yield install
        while way:
            yield install
        yield open_


async def moving(keys: int = 20) -> Mortals:
    """One group at rest, and two instances of which the second is to have it."""
    bench = Mortals(counting, groups=1, instances=2)
    await bench.over(*MANY[:keys])
    bench.one.freeze({0})
    return bench


async def install(processor: KeyedProcessor, chunks: list[bytes]) -> None:
    for chunk in chunks:
        await processor.install(chunk, opens=False)
