"""One instance's keyed operator: the state of its keys, and what happens to tuples in its turn.

    run ──▶ groups that are open here ──▶ handler ──▶ results (emit)
       └──▶ groups on the move: kept in order, each tuple with the watermark that it met
    freeze ▶ export ▶ chunks ▶ install, at the new owner: state and timers, then what was kept

A key that has state here is open, so the usual tuple costs one look into a dictionary. Only while
groups are frozen, or what was kept for one is worked off, are tuples sorted by group first.

- **Order**: tuples of one key are processed as they have come, whoever owns it when. What comes
  along with the state goes before what was kept here. Each is judged by the watermark it met.
- **Failure**: as in `anabranch.runtime.operators`, but a tuple is tried again at once, before
  others, which may be of the same key. A timer that fails becomes a dead letter too.
- **Cancelling** `run` loses nothing: what has not been processed goes on with the next `run`.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from anabranch.runtime.graph import Operator
from anabranch.runtime.keyed.handler import Timer
from anabranch.runtime.keyed.heat import Heat
from anabranch.runtime.keyed.moving import Arrival, Giver, Kept, group_in
from anabranch.runtime.keyed.store import Store
from anabranch.runtime.keyed.timers import Timers
from anabranch.runtime.keyed.work import Worker
from anabranch.runtime.payload import describe
from anabranch.runtime.steps import Part, StepError

SLICE_TUPLES_FIRST = 64


class KeyedProcessor:
    """`emit` gets a `Part` for each slice of a batch (with its tag), and others without a tag for
    timers and for kept tuples. `turn` is awaited between two slices; anything may be called then.

    `owned`: groups whose tuples are processed here. `frozen`: those which were. `pended`: kept
    tuples; `pended_in`, `pended_out`: how many have come and gone with their groups. `late`: late
    tuples, by what became of them.
    """

    def __init__(
        self,
        operator: Operator,
        *,
        groups: int,
        slice_s: float,
        emit: Callable[[Part], None],
        turn: Callable[[], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.operator = operator
        self.frozen: frozenset[int] = frozenset()
        self.pended_out = 0
        self.pended_in = 0
        self.watermark = -math.inf
        self._store = Store(groups)
        self._worker = Worker(operator, self._store, wall, self._keep)
        self._heat = Heat(groups, self._store.group_of, clock())
        self._emit = emit
        self._turn = turn
        self._clock = clock
        self._slice_s = slice_s
        self._slice_tuples = SLICE_TUPLES_FIRST
        self._turn_at = clock()
        self._batches: deque[tuple[list[Any], list[Any], int, Any]] = deque()
        self._kept: dict[int, deque[Kept]] = {}
        self._arriving: dict[int, Arrival] = {}
        self._behind: frozenset[int] = frozenset()
        """Groups that are mine as soon as what was kept for them is processed."""
        self._shut: frozenset[int] = frozenset()
        """Groups with state here whose tuples must not be processed: `frozen` and `_behind`."""

    @property
    def owned(self) -> frozenset[int]:
        return self._worker.owned

    @property
    def pended(self) -> int:
        kept = sum(map(len, self._kept.values())) if self._kept else 0
        return kept + sum(len(a.kept) for a in self._arriving.values())

    @property
    def late(self) -> Counter[str]:
        return self._worker.late

    def heat(self) -> list[float]:
        """Tuples per group of late, estimated from samples."""
        return self._heat.values(self._clock())

    def sizes(self) -> list[int]:
        """Keys per group."""
        return self._store.sizes()

    def states(self) -> dict[Any, Any]:
        """All states by key, for those who look on."""
        return self._store.states

    async def close(self) -> None:
        """Raises what closing the user's object raises."""
        try:
            self._worker.handler.close()
        except Exception as error:
            name = self.operator.name
            raise StepError(f"operator {name!r}: close() raised {describe(error)}") from error

    # -- ownership ---------------------------------------------------------------------------

    def own(self, groups: Iterable[int]) -> None:
        """Groups that are mine from the beginning, with nothing in them."""
        groups = frozenset(groups)
        if waiting := sorted(groups & self._kept.keys()):
            raise ValueError(f"groups {waiting} have tuples already: install their state instead")
        self._worker.owned |= groups

    def freeze(self, groups: Iterable[int]) -> None:
        """Process nothing of these any more, as far as they are mine; keep what comes."""
        groups = frozenset(groups) & self.owned
        self._worker.owned -= groups
        self.frozen |= groups
        self._look()

    def _look(self) -> None:
        self._shut = self.frozen | self._behind

    def _may_fire(self, key: Any) -> bool:
        return not self._shut or self._store.group_of[key] in self.owned

    # -- tuples ------------------------------------------------------------------------------

    async def run(self, keys: list[Any], tuples: list[Any], side: int, tag: Any = None) -> None:
        """Take a batch: process or keep all of it."""
        self._batches.append((keys, tuples, side, tag))
        await self.drain()

    async def drain(self) -> None:
        """Work off what a cancelled `run` has left."""
        while self._batches:
            await self._slice(*self._batches[0])
            await self._give_turn()

    async def _slice(self, keys: list[Any], tuples: list[Any], side: int, tag: Any) -> None:
        n, began, part = self._slice_tuples, self._clock(), Part(0)
        later_keys, later = keys[n:], tuples[n:]
        if later:
            keys, tuples = keys[:n], tuples[:n]
        self._heat.note(keys, began)
        if self._shut and tuples:
            keys, tuples = self._sort_out(keys, tuples, side, part)
        sorted_out = part.pended
        try:
            await self._worker.work(keys, tuples, side, self.watermark, part)
        finally:
            done = part.taken + part.pended - sorted_out
            if done < len(tuples):
                later_keys, later = keys[done:] + later_keys, tuples[done:] + later
            part.tag, part.last = tag, not later
            if part.last:
                self._batches.popleft()
            else:
                self._batches[0] = later_keys, later, side, tag
            self._done(part, began)
        self._adapt(part)

    def _sort_out(
        self, keys: list[Any], tuples: list[Any], side: int, part: Part
    ) -> tuple[list[Any], list[Any]]:
        """Keep the tuples of groups that are shut; the others."""
        if self._worker.open(keys, self.owned):
            return keys, tuples
        open_keys, open_tuples = [], []
        for key, item in zip(keys, tuples, strict=True):
            try:
                group = self._store.group_of[key]
            except TypeError:
                group = -1  # no key: the worker says so
            if group in self._shut:
                self._keep(group, Kept(key, item, side, self.watermark))
                part.pended += 1
            else:
                open_keys.append(key)
                open_tuples.append(item)
        return open_keys, open_tuples

    def _keep(self, group: int, kept: Kept) -> None:
        queue = self._kept.get(group)
        if queue is None:
            queue = self._kept[group] = deque()
        queue.append(kept)

    def _adapt(self, part: Part) -> None:
        """Size the next slice for the cost of this one; at most double, at once down."""
        if taken := part.taken:
            fitting = int(taken * self._slice_s / part.busy_s) if part.busy_s > 0 else 2 * taken
            self._slice_tuples = max(1, min(fitting, 2 * max(taken, self._slice_tuples)))

    async def _give_turn(self) -> None:
        if self._clock() - self._turn_at > self._slice_s:
            await self._turn()
            self._turn_at = self._clock()

    def _done(self, part: Part, began: float) -> None:
        part.busy_s = self._clock() - began - part.waited_s
        self._emit(part)

    # -- time --------------------------------------------------------------------------------

    def advance(self, watermark: float) -> None:
        """Event time has come to `watermark`: call the timers that are due, by time and key."""
        if watermark > self.watermark:
            self.watermark = watermark
            self._fire(self._store.event, watermark, processing=False)

    def next_due(self) -> float | None:
        """When the next timer in processing time is due."""
        at = self._store.processing.next_at()
        return None if at == math.inf else at

    def fire_due(self, now: float) -> None:
        self._fire(self._store.processing, now, processing=True)

    def end(self) -> None:
        """The stream has ended: event time is over, and timers in processing time, which nobody
        will wait for, fire now. Those set by them do not fire."""
        self.advance(math.inf)
        part, began = Part(0), self._clock()
        for key, name, at in self._store.processing.drain():
            self._worker.call(key, Timer(name, at, True), self.watermark, part)
        if part.results or part.letters:
            self._done(part, began)

    def _fire(self, timers: Timers, until: float, *, processing: bool) -> None:
        part, began = Part(0), self._clock()
        for key, name, at in timers.due(until, self._may_fire):
            self._worker.call(key, Timer(name, at, processing), self.watermark, part)
            if self._clock() - began > self._slice_s:
                self._done(part, began)
                part, began = Part(0), self._clock()
        if part.results or part.letters:
            self._done(part, began)

    # -- moving ------------------------------------------------------------------------------

    def export(self, groups: Iterable[int], chunk_bytes: int) -> Iterator[bytes]:
        """Give away frozen groups in chunks; what was given is not here any more. Other keys may
        be worked on between two chunks, and tuples of these groups are kept until the last."""
        groups = sorted(groups)
        if strange := sorted({*groups} - self.frozen):
            raise ValueError(f"groups {strange} are not frozen here: freeze them first")
        giver = Giver(self.operator.name, self._store, chunk_bytes)
        for group in groups:
            yield from giver.keys(group)
            kept = self._kept.get(group)
            if kept is None:
                kept = self._kept[group] = deque()
            for chunk, tuples in giver.tuples(group, kept):
                self.pended_out += tuples
                yield chunk
            self.pended_out += len(kept)
            chunks = giver.last(group, kept, self._heat.take(group, self._clock()))
            del self._kept[group]
            self.frozen -= {group}
            self._look()
            yield from chunks

    async def install(self, chunk: bytes, *, opens: bool = True) -> None:
        """A chunk from the former owner. With the last one of a group it is mine, and `open`ed
        unless the caller is to do that."""
        group = group_in(chunk)
        arrival = self._arriving.setdefault(group, Arrival())
        self.pended_in += arrival.take(self.operator.name, chunk)
        if arrival.complete:
            del self._arriving[group]
            self._behind |= {group}
            self._look()
            self._heat.put(group, arrival.heat, self._clock())
            self._store.put(group, arrival.entries)
            self._kept[group] = deque([*arrival.kept, *self._kept.get(group, ())])
            if opens:
                await self.open((group,))

    async def open(self, groups: Iterable[int]) -> None:
        """Begin to process groups that were installed; returns when all that was kept for them is
        processed. Raises `ValueError` if one has not come whole."""
        for group in sorted(groups):
            if group not in self._behind:
                raise ValueError(f"group {group} was not installed, or not to its last chunk")
            await self._catch_up(group)

    async def _catch_up(self, group: int) -> None:
        kept = self._kept[group]
        while kept:
            await self._work_off(kept)
            await self._give_turn()
        del self._kept[group]
        self._behind -= {group}
        self._worker.owned |= {group}
        self._look()
        self._store.wake(group)
        self._fire(self._store.event, self.watermark, processing=False)

    async def _work_off(self, kept: deque[Kept]) -> None:
        part, began = Part(0), self._clock()
        try:
            while kept:
                await self._worker.one(kept[0], part)
                kept.popleft()
                if self._clock() - began - part.waited_s > self._slice_s:
                    break
        finally:
            self._done(part, began)
