"""Processors of one operator beside each other, as a driver uses them, and what they emit."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.keyed.groups import group_of
from anabranch.runtime.keyed.processor import KeyedProcessor
from anabranch.runtime.pipeline.graph import KeyedStream, Pipeline
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.processing.steps import Part
from anabranch.runtime.sources import items

Build = Callable[[KeyedStream], object]


def operator(build: Build, groups: int = 8) -> Operator:
    """What `build` adds, under the name `work`, behind a stream keyed by the tuple itself."""
    pipeline = Pipeline("p", groups=groups)
    build(pipeline.source("in", items([])).key_by(lambda item: item))
    return pipeline.operators[OperatorName("work")]


class Ticking:
    """A clock that goes on by itself when it is read."""

    def __init__(self, tick_s: float = 0.0) -> None:
        self.now = 0.0
        self.tick_s = tick_s

    def __call__(self) -> float:
        self.now += self.tick_s
        return self.now


class Bench:
    """`parts`: of all instances, in the order in which they were emitted. With `tick_s` above 0
    every tuple is a slice of its own, and `on_turn` is called behind it."""

    def __init__(
        self, build: Build, *, groups: int = 8, instances: int = 1, tick_s: float = 0.0
    ) -> None:
        self.groups = groups
        self.operator = operator(build, groups)
        self.parts: list[Part] = []
        self.clock = Ticking(tick_s)
        self.wall = Ticking()
        self.on_turn: Callable[[], Awaitable[None]] | None = None
        self.commits = 0
        self.all = [self._processor(number) for number in range(instances)]
        self.all[0].own(range(groups))

    def _processor(self, number: int) -> KeyedProcessor:
        return KeyedProcessor(
            self.operator,
            groups=self.groups,
            slice_s=0.005,
            emit=self.parts.append,
            turn=self._turn,
            clock=self.clock,
            wall=self.wall,
        )

    async def _turn(self) -> None:
        self.commits += 1
        if self.on_turn is not None:
            await self.on_turn()

    @property
    def one(self) -> KeyedProcessor:
        return self.all[0]

    def group(self, key: Any) -> int:
        return group_of(key, self.groups)

    async def over(self, *pairs: tuple[Any, Any], side: int = 0, at: int = 0) -> list[Any]:
        """Run a batch of (key, tuple); the results of all parts since."""
        before = len(self.parts)
        await self.all[at].run([k for k, _ in pairs], [t for _, t in pairs], side, "tag")
        return [r for part in self.parts[before:] for r in part.results]

    async def since(self, act: Awaitable[object]) -> list[Any]:
        """The results that `act` makes."""
        before = len(self.parts)
        await act
        return [r for part in self.parts[before:] for r in part.results]

    async def move(self, groups: set[int], chunk_bytes: int = 4096) -> list[bytes]:
        """All of these from the first instance to the second."""
        self.all[0].freeze(groups)
        chunks = list(self.all[0].export(groups, chunk_bytes))
        for chunk in chunks:
            await self.all[1].install(chunk)
        return chunks

    @property
    def results(self) -> list[Any]:
        return [r for p in self.parts for r in p.results]

    @property
    def letters(self) -> list[Any]:
        return [letter for p in self.parts for letter in p.letters]

    @property
    def taken(self) -> int:
        return sum(p.taken for p in self.parts)

    @property
    def pended(self) -> int:
        return sum(p.pended for p in self.parts)


class Moves:
    """Groups that move between the instances of a bench, a step at a time, as the protocol has it:
    frozen, then routed to the new owner, then transferred. Tuples are sent as they are routed."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.route = [0] * bench.groups
        self.sent: defaultdict[Any, list[Any]] = defaultdict(list)
        self._steps: dict[int, Iterator[Callable[[], Awaitable[None]]]] = {}
        self._acting: set[int] = set()
        self._busy: set[int] = set()
        self.watermark = -math.inf

    async def send(self, key: Any, item: Any, side: int = 0) -> None:
        self.sent[key].append((item, self.watermark))
        owner = self.bench.all[self.route[self.bench.group(key)]]
        await owner.run([key], [item], side, None)

    async def send_batch(self, keys: list[Any], first: int, meanwhile: list[Any]) -> None:
        """Tuples numbered from `first`; groups go on moving between their slices."""
        self.bench.on_turn = self._next_of(deque(meanwhile))
        batches: defaultdict[int, list[tuple[Any, int]]] = defaultdict(list)
        for number, key in enumerate(keys, first):
            batches[self.route[self.bench.group(key)]].append((key, number))
        for pairs in batches.values():
            for key, number in pairs:
                self.sent[key].append((number, self.watermark))
        for owner, pairs in batches.items():
            self._busy.add(owner)
            await self._send_to(owner, pairs)
            self._busy.discard(owner)
        self.bench.on_turn = None

    async def _send_to(self, owner: int, pairs: list[tuple[Any, int]]) -> None:
        await self.bench.over(*pairs, at=owner)

    def _next_of(self, groups: deque[int]) -> Callable[[], Awaitable[None]]:
        async def on_turn() -> None:
            if groups:
                await self.step(groups.popleft())

        return on_turn

    async def advance(self, watermark: float) -> None:
        self.watermark = max(watermark, self.watermark)
        for processor in self.bench.all:
            await processor.advance(self.watermark)

    def begin(self, group: int, to: int) -> None:
        if group not in self._steps and self.route[group] != to:
            self._steps[group] = self._move(group, self.route[group], to)

    def _move(self, group: int, giver: int, to: int) -> Iterator[Callable[[], Awaitable[None]]]:
        source, target = self.bench.all[giver], self.bench.all[to]

        async def freeze() -> None:
            source.freeze({group})

        async def announce() -> None:
            self.route[group] = to

        yield freeze
        yield announce
        way: deque[bytes] = deque()
        chunks = source.export({group}, 64)

        async def export() -> None:
            way.append(next(chunks))

        async def install() -> None:
            await target.install(way.popleft())

        while group in source.frozen:
            while giver in self._busy:  # tuples of the group may be in its batch
                yield nothing
            yield export
            if len(way) > 2:
                yield install
        way.extend(chunks)
        while way:
            yield install

    async def step(self, group: int) -> None:
        """The next thing that happens to a group that moves."""
        steps = self._steps.get(group)
        if steps is None or group in self._acting:
            return
        act = next(steps, None)
        if act is None:
            del self._steps[group]
            return
        self._acting.add(group)
        try:
            await act()
        finally:
            self._acting.discard(group)

    async def finish(self) -> None:
        while self._steps:
            for group in list(self._steps):
                await self.step(group)


async def nothing() -> None:
    """An act that changes nothing."""
