"""One instance's keyed operator: the state of its keys, and what happens to tuples in its turn.

    run ──▶ groups that are mine ──▶ handler ──▶ results (emit)
       └──▶ groups on the move: kept in order, each with the watermark of its arrival
    freeze ▶ export ▶ chunks ▶ install, at the new owner: state, timers, then what was kept

A key that is known is mine, so the usual tuple costs one look into a dictionary. Only while groups
move are tuples sorted by group first. Order: tuples of one key are processed in the order of
their arrival, whoever owns it when; what comes along with the state goes before what was kept
here. A tuple is judged late by the watermark with which it came.
"""

from __future__ import annotations

import asyncio
import math
import pickle
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

from anabranch.runtime.ends import DeadLetter
from anabranch.runtime.graph import Operator
from anabranch.runtime.keyed.groups import GroupCache
from anabranch.runtime.keyed.handler import Handler, KeyTime, Timer
from anabranch.runtime.keyed.late import Late
from anabranch.runtime.keyed.timers import Timers
from anabranch.runtime.payload import describe
from anabranch.runtime.steps import Part, StepError

SLICE_TUPLES_FIRST = 64
HEAT_EVERY = 8
"""One of so many slices is looked at to see which groups are hot."""
HEAT_KEPT = 0.9
"""How much of the heat stays when the next sample is added."""

_MISSING = object()
_ATOMS = frozenset((type(None), bool, int, float, str, bytes, complex))


class Kept(NamedTuple):
    """A tuple of a group on the move."""

    key: Any
    item: Any
    side: int
    watermark: float


class Chunk(NamedTuple):
    """A piece of the state of one group: `entries` are (key, state, event timers, processing
    timers)."""

    group: int
    entries: list[tuple[Any, Any, dict[str, float], dict[str, float]]]
    kept: list[Kept]
    last: bool


class _Time(KeyTime):
    """The time as the present key meets it."""

    def __init__(self, event: Timers, processing: Timers) -> None:
        self.watermark = -math.inf
        self.now = 0.0
        self.key: Any = None
        self.lates: list[tuple[Any, float]] = []
        self._timers = {False: event, True: processing}

    def set_timer(self, at: float, name: str = "", *, processing: bool = False) -> None:
        self._timers[processing].set(self.key, name, at)

    def cancel_timer(self, name: str = "", *, processing: bool = False) -> None:
        self._timers[processing].cancel(self.key, name)

    def late(self, item: Any, by_s: float) -> None:
        self.lates.append((item, by_s))


class KeyedProcessor:
    """See the module. `emit` gets a `Part` for each slice of a batch (with its tag), and others
    without a tag for timers and for kept tuples. `turn` is awaited between two slices."""

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
        assert operator.keyed is not None
        self.operator = operator
        self.owned: frozenset[int] = frozenset()
        self.frozen: frozenset[int] = frozenset()
        self.pended = 0
        """Kept tuples."""
        self.pended_out = 0
        self.pended_in = 0
        self.late: Counter[str] = Counter()
        """Late tuples, by what became of them."""
        self.watermark = -math.inf
        self._spec = operator.keyed
        self._handler = self._make()
        self._emit = emit
        self._turn = turn
        self._clock = clock
        self._wall = wall
        self._slice_s = slice_s
        self._slice_tuples = SLICE_TUPLES_FIRST
        self._slices = 0
        self._turn_at = clock()
        self._group_of = GroupCache(groups)
        self._states: dict[Any, Any] = {}
        self._keys: list[set[Any]] = [set() for _ in range(groups)]
        self._event, self._processing = Timers(), Timers()
        self._time = _Time(self._event, self._processing)
        self._kept: dict[int, deque[Kept]] = {}
        self._arriving: dict[int, list[Kept]] = {}
        self._heat = [0.0] * groups
        self._expected: set[Any] = set()
        self._steady = True
        """Whether every tuple that can come is of a group that is mine."""

    def _make(self) -> Handler:
        try:
            return self._spec.make()
        except Exception as error:
            name = self.operator.name
            raise StepError(
                f"operator {name!r}: what it does cannot be made: {describe(error)}"
            ) from error

    # -- ownership -------------------------------------------------------------------------

    def own(self, groups: Iterable[int]) -> None:
        """Groups that are mine from the beginning, with nothing in them."""
        self.owned |= frozenset(groups)
        self._look()

    def expect(self, sender: Any) -> None:
        """State is to come from `sender`; tuples of its groups may come first, and are kept."""
        self._expected.add(sender)
        self._look()

    def all_came(self, sender: Any) -> None:
        self._expected.discard(sender)
        self._look()

    def freeze(self, groups: Iterable[int]) -> None:
        """Process nothing of these any more; keep what comes."""
        groups = frozenset(groups)
        self.owned -= groups
        self.frozen |= groups
        self._look()

    def _look(self) -> None:
        self._steady = not (self.frozen or self._arriving or self._expected)

    def heat(self) -> list[float]:
        """Tuples per group in the samples of late."""
        return list(self._heat)

    def sizes(self) -> list[int]:
        """Keys per group."""
        return [len(keys) for keys in self._keys]

    def states(self) -> dict[Any, Any]:
        """All states by key, for those who look on."""
        return self._states

    # -- tuples ----------------------------------------------------------------------------

    async def run(self, keys: list[Any], tuples: list[Any], side: int, tag: Any = None) -> None:
        """Take a batch: process or keep all of it."""
        at, end = 0, len(tuples)
        while True:
            n = self._slice_tuples
            whole = at == 0 and n >= end
            some_keys = keys if whole else keys[at : at + n]
            some = tuples if whole else tuples[at : at + n]
            at += len(some)
            part = await self._slice(some_keys, some, side)
            part.tag, part.last = tag, at >= end
            self._emit(part)
            await self._give_turn()
            if at >= end:
                return

    async def _slice(self, keys: list[Any], tuples: list[Any], side: int) -> Part:
        self._slices += 1
        if self._slices % HEAT_EVERY == 0:
            self._sample(keys)
        pended = 0
        if not self._steady:
            keys, tuples, pended = self._sort_out(keys, tuples, side)
        began = self._clock()
        part = await self._work(keys, tuples, side)
        part.busy_s = self._clock() - began - part.waited_s
        part.pended = pended
        self._adapt(len(tuples), part.busy_s)
        return part

    def _adapt(self, taken: int, busy_s: float) -> None:
        if taken:
            fitting = int(taken * self._slice_s / busy_s) if busy_s > 0 else 2 * taken
            self._slice_tuples = max(1, min(fitting, 2 * max(taken, self._slice_tuples)))

    async def _give_turn(self) -> None:
        if self._clock() - self._turn_at > self._slice_s:
            await self._turn()
            self._turn_at = self._clock()

    def _sample(self, keys: list[Any]) -> None:
        self._heat = [HEAT_KEPT * h for h in self._heat]
        for group, n in Counter(map(self._group_of.__getitem__, keys)).items():
            self._heat[group] += n

    def _sort_out(
        self, keys: list[Any], tuples: list[Any], side: int
    ) -> tuple[list[Any], list[Any], int]:
        """Keep the tuples of groups which are not mine now."""
        mine_keys, mine = [], []
        group_of, owned, kept = self._group_of, self.owned, self._kept
        for key, item in zip(keys, tuples, strict=True):
            group = group_of[key]
            if group in owned:
                mine_keys.append(key)
                mine.append(item)
            else:
                queue = kept.get(group)
                if queue is None:
                    queue = kept[group] = deque()
                queue.append(Kept(key, item, side, self.watermark))
        pended = len(tuples) - len(mine)
        self.pended += pended
        return mine_keys, mine, pended

    async def _work(self, keys: list[Any], tuples: list[Any], side: int) -> Part:
        part = Part(len(tuples))
        if self._spec.folds:
            done = self._fold(keys, tuples, part)
            keys, tuples = keys[done:], tuples[done:]
        for key, item in zip(keys, tuples, strict=True):
            await self._one(key, item, side, self.watermark, part)
        return part

    def _fold(self, keys: list[Any], tuples: list[Any], part: Part) -> int:
        """A plain fold in a loop of its own; returns how many tuples it has done, fewer than all
        if one failed. What it emits is a picture of the state, which lives on."""
        states, fn = self._states, self._handler.fn  # type: ignore[attr-defined]
        results: list[Any] = part.results
        add = results.append
        try:
            for key, item in zip(keys, tuples, strict=True):
                state = states.get(key, _MISSING)
                if state is _MISSING:
                    state = fn(self._meet(key), item)
                    self._keys[self._group_of[key]].add(key)
                else:
                    state = fn(state, item)
                states[key] = state
                add((key, state if type(state) in _ATOMS else deepcopy(state)))
        except (Exception, SystemExit):
            return len(results)
        return len(tuples)

    def _meet(self, key: Any) -> Any:
        """The state of a key that is new here."""
        group = self._group_of[key]
        if group not in self.owned:
            raise AssertionError(f"key {key!r} is of group {group}, which is not owned here")
        return self._handler.new_state(key)

    async def _one(self, key: Any, item: Any, side: int, watermark: float, part: Part) -> None:
        """One tuple, with its retries."""
        time = self._time
        time.key, time.watermark, time.now = key, watermark, self._wall()
        retry = self.operator.retry
        for attempt in range(retry.attempts + 1):
            try:
                state = self._states.get(key, _MISSING)
                if state is _MISSING:
                    state = self._meet(key)
                state, results = self._handler.on_tuple(key, state, item, side, time)
                results = list(results)
            except (Exception, SystemExit) as error:
                time.lates.clear()
                if attempt < retry.attempts:
                    await _pause(retry.backoff_s * 2**attempt, part)
                    continue
                part.dead += 1
                part.letters.append(DeadLetter(describe(error), item, f"key {key!r}"))
                results = []
            else:
                self._store(key, state)
            break
        part.results += results
        if time.lates:
            self._note_lates(key, part)

    def _store(self, key: Any, state: Any) -> None:
        if self._handler.is_empty(state) and not self._has_timers(key):
            self._states.pop(key, None)
            self._keys[self._group_of[key]].discard(key)
        else:
            if key not in self._states:
                self._keys[self._group_of[key]].add(key)
            self._states[key] = state

    def _has_timers(self, key: Any) -> bool:
        return self._event.has(key) or self._processing.has(key)

    def _note_lates(self, key: Any, part: Part) -> None:
        """Late tuples leave the stream as the operator says; counted, whichever way."""
        lates, self._time.lates = self._time.lates, []
        rule = self._spec.late
        self.late[rule] += len(lates)
        for item, by_s in lates:
            if rule == "emit":
                part.results.append(Late(key, item, by_s))
                continue
            part.dead += 1
            reason = f"late: by {by_s:g} s" if rule == "bury" else "dropped as late"
            part.letters.append(DeadLetter(reason, item, f"key {key!r}"))

    # -- time ------------------------------------------------------------------------------

    def advance(self, watermark: float) -> None:
        """Event time has come to `watermark`: call the timers that are due, in their order."""
        if watermark <= self.watermark:
            return
        self.watermark = watermark
        self._fire(self._event, watermark, processing=False)

    def next_due(self) -> float | None:
        """When the next timer in processing time is due."""
        at = self._processing.next_at()
        return None if at == math.inf else at

    def fire_due(self, now: float) -> None:
        self._fire(self._processing, now, processing=True)

    def _fire(self, timers: Timers, until: float, *, processing: bool) -> None:
        part = Part(0)
        held: list[tuple[Any, str, float]] = []
        while (due := timers.pop_due(until)) is not None:
            key, name, at = due
            if self._group_of[key] in self.owned:
                self._call(key, Timer(name, at, processing), part)
            else:
                held.append(due)
        for key, name, at in held:  # on the move: its next owner will call it
            timers.set(key, name, at)
        self._emit_own(part)

    def _call(self, key: Any, timer: Timer, part: Part) -> None:
        time = self._time
        time.key, time.watermark, time.now = key, self.watermark, self._wall()
        try:
            state = self._states.get(key, _MISSING)
            if state is _MISSING:
                state = self._meet(key)
            state, results = self._handler.on_timer(key, state, timer, time)
            part.results += results
        except (Exception, SystemExit) as error:
            words = f"timer {timer.name!r} at {timer.at:g} of key {key!r}: {describe(error)}"
            part.letters.append(DeadLetter(words, None, f"key {key!r}"))
        else:
            self._store(key, state)

    def _emit_own(self, part: Part) -> None:
        part.tag, part.last = None, True
        if part.taken or part.results or part.letters:
            self._emit(part)

    # -- moving ----------------------------------------------------------------------------

    def export(self, groups: Iterable[int], chunk_bytes: int) -> Iterator[bytes]:
        """Give away frozen groups, piece by piece; what was given is no longer here."""
        for group in sorted(groups):
            assert group in self.frozen, f"group {group} is not frozen"
            yield from self._export(group, chunk_bytes)
            self._heat[group] = 0.0
            self.frozen -= {group}
            self._look()

    def _export(self, group: int, chunk_bytes: int) -> Iterator[bytes]:
        per_chunk = 16
        keys = self._keys[group]
        while keys:
            some = [keys.pop() for _ in range(min(per_chunk, len(keys)))]
            entries = [
                (k, self._states.pop(k), self._event.take(k), self._processing.take(k))
                for k in some
            ]
            data = pickle.dumps(Chunk(group, entries, [], False), 5)
            per_chunk = max(1, min(4 * per_chunk, int(per_chunk * chunk_bytes / len(data))))
            yield data
        kept = self._kept.pop(group, deque())
        while len(kept) > 256:
            some_kept = [kept.popleft() for _ in range(256)]
            yield self._kept_chunk(group, some_kept, last=False)
        yield self._kept_chunk(group, list(kept), last=True)

    def _kept_chunk(self, group: int, kept: list[Kept], *, last: bool) -> bytes:
        self.pended -= len(kept)
        self.pended_out += len(kept)
        return pickle.dumps(Chunk(group, [], [*kept], last), 5)

    async def install(self, data: bytes) -> None:
        """A piece from the old owner. With the last one of a group it is mine."""
        chunk: Chunk = pickle.loads(data)
        group = chunk.group
        self._arriving.setdefault(group, []).extend(chunk.kept)
        for key, state, event, processing in chunk.entries:
            self._states[key] = state
            self._keys[group].add(key)
            self._event.put(key, event)
            self._processing.put(key, processing)
        self.pended_in += len(chunk.kept)
        self.pended += len(chunk.kept)
        self._look()
        if chunk.last:
            await self._take_over(group)

    async def _take_over(self, group: int) -> None:
        """Work off what came along, then what was kept here; then it is a group as any other."""
        waiting = deque(self._arriving[group])
        self.owned |= {group}
        while waiting or self._kept.get(group):
            if not waiting:
                waiting = self._kept.pop(group)
            await self._work_off(waiting)
            await self._give_turn()
        del self._arriving[group]
        self._kept.pop(group, None)
        self._look()
        part = Part(0)
        for at, key, name in self._event.due_of(list(self._keys[group]), self.watermark):
            self._event.cancel(key, name)
            self._call(key, Timer(name, at), part)
        self._emit_own(part)

    async def _work_off(self, waiting: deque[Kept]) -> None:
        began = self._clock()
        part = Part(0)
        while waiting:
            kept = waiting.popleft()
            self.pended -= 1
            part.taken += 1
            await self._one(kept.key, kept.item, kept.side, kept.watermark, part)
            if self._clock() - began > self._slice_s:
                break
        part.busy_s = self._clock() - began - part.waited_s
        self._emit_own(part)

    async def close(self) -> None:
        self._handler.close()


async def _pause(seconds: float, part: Part) -> None:
    part.waited_s += seconds
    await asyncio.sleep(seconds)
