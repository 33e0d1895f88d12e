"""One instance's keyed operator: the state of its keys, and what happens to tuples in its turn.

    run ──▶ groups that are open here ──▶ handler ──▶ results (emit)
       └──▶ groups on the move: kept in order, each tuple with the watermark that it met
    freeze ▶ export ▶ chunks ▶ install, at the new owner: state and timers, then what was kept

A key that has state here is open, so the usual tuple costs one look into a dictionary. Only while
groups are frozen, or what was kept for one is worked off, are tuples sorted by group first.

- **Order**: tuples of one key are processed as they have come, whoever owns it when. What comes
  along with the state goes before what was kept here.
- **Late**: each tuple is judged by its mark (`runtime.processing.marks`), and by the watermark that
  it met when it came. Timers are called by the watermark; where that follows the marks of a batch,
  in the midst of it: before the first tuple whose mark has come to the time of the timer.
- **Failure**: as in `runtime.processing.operators`, but a tuple is tried again at once, before
  others, which may be of the same key. A timer that fails becomes a dead letter too.
- **Careful** (`before` is set): one tuple at a time. `before` is awaited ahead of each, with the
  tag of its batch or, if it was kept, with its group, and may say why not to work on it.
- **Cancelling** `run` loses nothing: what has not been processed goes on with the next `run`.
- **Journaled**: `tell` tells what has changed, as bytes. It may be called whenever this awaits:
  what is here then fits to the parts that were emitted, for a part is emitted before the pause of
  a retry. `restore` and `resume` make the same processor of all that was told.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from anabranch.runtime.keyed.firing import Due, Firing
from anabranch.runtime.keyed.giving import copied, taken
from anabranch.runtime.keyed.handler import Timer
from anabranch.runtime.keyed.heat import Heat
from anabranch.runtime.keyed.keeping import Keeping
from anabranch.runtime.keyed.moving import Giver, Head, Kept
from anabranch.runtime.keyed.timers import mark_of_end
from anabranch.runtime.keyed.work import Failed, Marks, Worker
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.ports.clock import monotonic
from anabranch.runtime.ports.clock import wall as wall_s
from anabranch.runtime.processing import own
from anabranch.runtime.processing.own import Came, Saver
from anabranch.runtime.processing.plain_calls import NoLoop
from anabranch.runtime.processing.steps import Part, StepError
from anabranch.runtime.values.foreign import describe

SLICE_TUPLES_FIRST = 64

Aside = tuple[int, int, Kept]
"""The place in its slice of a tuple to be kept, its group, the tuple."""


class Lot(NamedTuple):
    """A batch, or what is left of it. `marks`: of its tuples, if they have any; `follows`: the
    watermark of their sender follows these; `by_key`: that of each key does."""

    keys: list[Any]
    tuples: list[Any]
    side: int
    tag: Any
    marks: list[float] | None = None
    follows: bool = False
    by_key: bool = False

    def first(self, n: int) -> Lot:
        return self if n >= len(self.tuples) else self._part(slice(n))

    def without(self, n: int) -> Lot:
        return self._part(slice(n, None)) if n else self

    def _part(self, part: slice) -> Lot:
        marks = None if self.marks is None else self.marks[part]
        return self._replace(keys=self.keys[part], tuples=self.tuples[part], marks=marks)

    def beginning_with(self, item: Any) -> Lot:
        """The same with another first tuple."""
        return self._replace(tuples=[item, *self.tuples[1:]])

    def chosen(self, at: Sequence[int]) -> Lot:
        """Some of its tuples, by their places."""
        if len(at) == len(self.tuples):
            return self
        marks = None if self.marks is None else [self.marks[n] for n in at]
        keys, tuples = [self.keys[n] for n in at], [self.tuples[n] for n in at]
        return self._replace(keys=keys, tuples=tuples, marks=marks)


class KeyedProcessor(Keeping):
    """`emit` gets a `Part` for each slice of a batch (with its tag), and others without a tag for
    timers and for kept tuples. `turn` is awaited between two slices; anything may be called then.

    `changed`: gets what `tell` tells. Without it nothing is noted for a journal. `noted` is called
    when there may be something to tell.

    `marks_results`: parts have the marks of their results. Where the watermark follows the marks of
    a batch, `heard` is told by its tag how far they have come, and is to `advance`; that is as far
    as `limit` says at most.
    """

    def __init__(
        self,
        operator: Operator,
        *,
        groups: int,
        slice_s: float,
        emit: Callable[[Part], None],
        turn: Callable[[], Awaitable[None]],
        clock: Callable[[], float] = monotonic,
        wall: Callable[[], float] = wall_s,
        changed: Callable[[bytes], None] | None = None,
        noted: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(operator, groups, emit, clock, changed, noted)
        self._worker = Worker(operator, self._held, wall)
        self._events = Firing(self._store.event, self._may_fire)
        self._processing = Firing(self._store.processing, self._may_fire)
        self._heat = Heat(groups, self._store.group_of, clock())
        self._saver = Saver()
        self._turn = turn
        self._slice_s = slice_s
        self._slice_tuples = SLICE_TUPLES_FIRST
        self._turn_at = clock()
        self.before: Callable[[Any], Awaitable[str]] | None = None
        self._batches: deque[Lot] = deque()
        self._came: deque[Came] = deque()
        """The tuples of each batch as they have come."""
        self.marks_results = False
        self.limit: Callable[[Any], float] = lambda _tag: -math.inf
        self.heard: Callable[[Any, float], Awaitable[None]] = _not_heard
        self._before_end = -math.inf
        """How far event time had come when the stream ended."""

    def heat(self) -> list[float]:
        """Tuples per group of late, estimated from samples."""
        return self._heat.values(self._clock())

    async def close(self) -> None:
        """Raises what closing the user's object raises."""
        try:
            with NoLoop():
                self._worker.handler.close()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # such as SystemExit
            name = self.operator.name
            raise StepError(f"operator {name!r}: close() raised {describe(error)}") from error

    def be_careful(self) -> None:
        """Look at states of any size after each call, and put them back when it fails."""
        self._held.careful = True
        self._worker.be_careful()

    # -- ownership ---------------------------------------------------------------------------

    def own(self, groups: Iterable[int]) -> None:
        """Groups that are mine from the beginning, with nothing in them but what a savepoint has
        told."""
        groups = frozenset(groups)
        if waiting := sorted(groups & self._held.kept.keys()):
            raise ValueError(f"groups {waiting} have tuples already: install their state instead")
        self._held.own(groups)
        for group in groups:
            self._store.wake(group)
        self._noted()

    def freeze(self, groups: Iterable[int]) -> None:
        """Process nothing of these any more, as far as they are mine; keep what comes."""
        self._held.freeze(groups)
        self._noted()

    def _may_fire(self, key: Any) -> bool:
        return not self._held.shut or self._store.group_of[key] in self._held.owned

    # -- tuples ------------------------------------------------------------------------------

    async def run(
        self,
        keys: list[Any],
        tuples: list[Any],
        side: int,
        tag: Any = None,
        read: Callable[[], list[Any]] | None = None,
        *,
        marks: list[float] | None = None,
        follows: bool = False,
        by_key: bool = False,
    ) -> None:
        """Take a batch: process or keep all of it. `read` makes the tuples anew, as they have come
        (and perhaps others before them); without it they are saved before functions get them."""
        self._batches.append(Lot(keys, tuples, side, tag, marks, follows, by_key))
        self._came.append(Came(read, len(tuples)) if read else self._saver.save(tuples))
        await self.drain()

    async def drain(self) -> None:
        """Work off what a cancelled `run` has left."""
        while self._batches:
            lot = self._batches[0]
            refused = await self.before(lot.tag) if self.before is not None and lot.tuples else ""
            if refused:
                self._refuse(refused)
            else:
                await self._slice(lot)
            await self._give_turn()

    def _refuse(self, reason: str) -> None:
        """Do not work on the first tuple of the first batch."""
        part, began = self._part(), self._clock()
        lot = self._batches[0]
        self._worker.refuse(lot.keys[0], lot.tuples[0], reason, part)
        self._go_on_with(lot.without(1))
        self._done_of_batch(part, began, lot.tag, last=len(lot.tuples) == 1)

    async def _slice(self, lot: Lot) -> None:
        now = lot.first(self._slice_tuples if self.before is None else 1)
        await self._hear_first(now)
        began, part = self._clock(), self._part()
        self._heat.note(now.keys, began)
        marks = self._marks_of(now)
        at, aside = self._sort_out(now, marks)
        ready, failed = now.chosen(at), None
        if marks is not None and ready is not now:
            marks = marks._replace(values=[marks.values[n] for n in at])
        self._held.notes.touch(ready.keys)
        came = self._came[0].last(len(lot.tuples))
        try:
            failed = self._worker.work(
                ready.keys,
                ready.tuples,
                lot.side,
                self.watermark,
                part,
                lambda n: came[at[n]],
                marks,
            )
        finally:
            done = part.taken + part.pended
            done = at[done] if done < len(at) else len(now.tuples)
            part.pended += self._keep(aside, done)
            left = lot.without(done)
            if failed is not None:
                left = left.beginning_with(own.copied(failed.kept.item))
            self._go_on_with(left)
            if failed is None or part.taken or part.pended:
                self._done_of_batch(part, began, lot.tag, last=not left.tuples)
        self._adapt(part)
        if marks is not None and done:
            await self._hear_last(lot, done, exact=marks.exact)
        if failed is not None:
            await self._mend(failed, lot.tag)

    async def _mend(self, failed: Failed, tag: Any) -> None:
        """Try the first tuple of the batch again."""
        part, began = self._part(), self._clock()
        try:
            await self._worker.mend(failed, part)
        finally:
            if part.taken or part.pended:
                self._held.notes.touch((failed.kept.key,))
                left = self._batches[0].without(1)
                self._go_on_with(left)
                self._done_of_batch(part, began, tag, last=not left.tuples)

    def _go_on_with(self, left: Lot) -> None:
        """This is left of the first batch."""
        if left.tuples:
            self._batches[0] = left
        else:
            self._batches.popleft()
            self._came.popleft()

    def _done_of_batch(self, part: Part, began: float, tag: Any, *, last: bool) -> None:
        part.tag, part.last = tag, last
        self._done(part, began)

    def _sort_out(self, lot: Lot, marks: Marks | None) -> tuple[Sequence[int], list[Aside]]:
        """The places of tuples that may be processed, and those of groups that are shut."""
        held, everything = self._held, range(len(lot.tuples))
        if not held.shut or not lot.tuples or self._worker.open(lot.keys, held.owned):
            return everything, []
        at, aside = [], list[Aside]()
        for number, (key, item) in enumerate(zip(lot.keys, lot.tuples, strict=True)):
            try:
                group = self._store.group_of[key]
            except Exception:
                group = -1  # no key: the worker says so
            if group in held.shut:
                mark = held.watermark if marks is None else marks.values[number]
                met = mark if marks is not None and marks.reached else held.watermark
                aside.append((number, group, Kept(key, item, lot.side, met, mark)))
            else:
                at.append(number)
        return at, aside

    def _keep(self, aside: list[Aside], before: int) -> int:
        """Keep those that were put aside, before one of a slice; how many that are."""
        kept = [one for one in aside if one[0] < before]
        for _, group, one in kept:
            self._held.keep(group, one)
        return len(kept)

    def _part(self) -> Part:
        part = Part(0)
        if self.marks_results:
            part.marks = []
        return part

    # -- marks -------------------------------------------------------------------------------

    def _marks_of(self, lot: Lot) -> Marks | None:
        """By what the tuples are judged; None: all by the watermark, and nobody asks for more."""
        if not lot.tuples or (lot.marks is None and not self.marks_results):
            return None
        watermark = self.watermark
        if lot.marks is None:
            return Marks([watermark] * len(lot.tuples), exact=False)
        limit = self.limit(lot.tag)
        exact = lot.follows and lot.marks[-1] <= limit
        # By another way tuples may come that its watermark has passed, as their group moves.
        by_key = lot.by_key and self._worker.handler.time_by_key and limit == math.inf
        if min(lot.marks) >= watermark:
            return Marks(lot.marks, exact, by_key)
        return Marks([max(mark, watermark) for mark in lot.marks], exact, by_key)

    async def _hear_first(self, lot: Lot) -> None:
        """Event time goes on to the first tuple, if nobody else holds it up."""
        if lot.follows and lot.marks and lot.marks[0] > self.watermark:
            await self.heard(lot.tag, lot.marks[0])

    async def _hear_last(self, lot: Lot, done: int, *, exact: bool) -> None:
        """Event time has gone on with tuples that are processed. Where that was exact, no timer
        is due but those which they have set behind it: these wait until it goes on again."""
        if lot.follows and lot.marks:
            if exact:
                self._held.watermark = max(self._held.watermark, lot.marks[done - 1])
            await self.heard(lot.tag, lot.marks[done - 1])

    def _adapt(self, part: Part) -> None:
        """Size the next slice for the cost of this one; at most double, at once down."""
        if taken := part.taken:
            fitting = int(taken * self._slice_s / part.busy_s) if part.busy_s > 0 else 2 * taken
            self._slice_tuples = max(1, min(fitting, 2 * max(taken, self._slice_tuples)))

    async def _give_turn(self) -> None:
        if self._clock() - self._turn_at > self._slice_s:
            await self._turn()
            self._turn_at = self._clock()

    # -- time --------------------------------------------------------------------------------

    async def advance(self, watermark: float) -> None:
        """Event time has come to `watermark`: call the timers that are due, by time and key, in
        slices; returns when they have been called."""
        if watermark > self.watermark:
            self._before_end = self.watermark
            self._held.watermark = watermark
            self._noted()
            await self._fire_events()

    @property
    def lags(self) -> bool:
        """Whether timers in event time are due that are not called yet."""
        return self._events.running > 0

    def next_due(self) -> float | None:
        """When the next timer in processing time is due."""
        at = self._store.processing.next_at()
        return None if at == math.inf else at

    async def fire_due(self, now: float) -> None:
        """Call the timers in processing time that are due, unless somebody is at it."""
        if not self._processing.running:
            await self._fire(self._processing, lambda: now, processing=True)

    async def end(self) -> None:
        """The stream has ended: event time is over, and timers in processing time, which nobody
        will wait for, fire now. Those set by them do not fire."""
        await self.advance(math.inf)
        every = self._store.processing.drain()
        while self._fire_slice(every, processing=True):
            await self._next_turn()

    async def _fire_events(self) -> None:
        await self._fire(self._events, lambda: self.watermark, processing=False)

    async def _fire(self, firing: Firing, until: Callable[[], float], *, processing: bool) -> None:
        firing.running += 1
        try:
            while firing.any(until()):
                if self._fire_slice(firing.due(until()), processing) or firing.any(until()):
                    await self._next_turn()
        finally:
            firing.running -= 1

    async def _next_turn(self) -> None:
        await self._turn()
        self._turn_at = self._clock()

    def _fire_slice(self, due: Iterator[Due], processing: bool) -> bool:
        """Call some timers; whether more may be due."""
        part, began = self._part(), self._clock()
        clock, call, until = self._clock, self._worker.call, began + self._slice_s
        timer, known, mark = Timer("", math.nan), math.nan, math.nan
        called: list[Any] = []
        more = False
        try:
            with NoLoop():
                for key, name, at in due:
                    called.append(key)
                    if at != timer.at:  # many are due at the same time
                        timer = Timer(name, at, processing)
                        known = self._known_to(timer)
                        mark = self._mark_of(at, processing=processing)
                    elif name != timer.name:
                        timer = Timer(name, at, processing)
                    call(key, timer, known, part, mark)
                    if more := clock() > until:
                        break
                self._worker.shed(called)
        finally:
            self._held.notes.touch(called)
        self._done_if_told(part, began)
        return more

    def _known_to(self, timer: Timer) -> float:
        """The watermark that a timer meets."""
        if timer.processing or not self._worker.handler.time_by_key:
            return self.watermark
        ends = self.watermark == math.inf and timer.at > self._before_end
        return math.inf if ends else timer.at

    def _mark_of(self, at: float, *, processing: bool) -> float:
        """Of what comes of a timer, which was not known before its time; at the end of the stream,
        not before the last that event time had come to."""
        mark = self.watermark if self.watermark < math.inf else self._before_end
        return mark if processing else min(mark, mark_of_end(at))

    # -- moving ------------------------------------------------------------------------------

    def export(
        self, groups: Iterable[int], chunk_bytes: int, incarnation: int = 1
    ) -> Iterator[bytes]:
        """Give away frozen groups in chunks. Other keys may be worked on between two chunks, and
        tuples of these groups are kept until the last.

        What was given is not here any more. If journaled, it stays until the iterator is exhausted
        and is gone then with one change; a later `incarnation` that still has it gives all of it
        again.
        """
        groups = sorted(groups)
        if strange := sorted({*groups} - self.frozen):
            raise ValueError(f"groups {strange} are not frozen here: freeze them first")
        gives = taken if self._notes is None else copied
        leave = self._leave if self._notes is None else None
        giver = Giver(self.operator.name, chunk_bytes, incarnation, leave)
        yield from gives(self._held, giver, groups, lambda g: self._heat.take(g, self._clock()))
        self._noted()

    def _leave(self, key: Any, error: BaseException) -> None:
        """A key cannot be given away. No incarnation comes that could do again what was done with
        it."""
        part, began = self._part(), self._clock()
        self._worker.leave(key, error, part)
        self._done(part, began)

    async def install(self, chunk: bytes, *, opens: bool = True) -> None:
        """A chunk from the former owner; the first of a later incarnation replaces all those of
        earlier ones. With the last one of a group it is `open`ed, unless the caller is to do
        that."""
        held, group = self._held, Head.of(chunk).group
        if group in held.owned | held.frozen | held.behind:
            raise ValueError(f"group {group} is here already: a chunk of it came once more")
        if not held.arrive(chunk):
            raise ValueError(f"a chunk of group {group} came, but not the one before")
        self._tell_chunk(chunk)
        if opens and group in held.whole:
            await self.open((group,))

    def awaits(self, chunk: bytes) -> bool:
        """Whether it can be installed: it follows those that have come, of a group not here."""
        group = Head.of(chunk).group
        return group not in self.known - self._held.whole and self._held.awaits(chunk)

    async def open(self, groups: Iterable[int], *, in_any_case: bool = False) -> None:
        """Begin to process groups that were installed; returns when all that was kept for them is
        processed. One that has not come whole begins with nothing `in_any_case`, or `ValueError`
        is raised."""
        for group in sorted({*groups} - self.owned):
            if group not in self._held.behind:
                if group not in self._held.whole:
                    if not in_any_case:
                        raise ValueError(f"group {group} was not installed to its last chunk")
                    self._held.arriving.pop(group, None)
                self._worker.forget()
                self._heat.put(group, self._held.open(group), self._clock())
                self._noted()
            await self._catch_up(group)

    async def _catch_up(self, group: int) -> None:
        held = self._held
        if self._worker.handler.time_by_key:
            held.hold_time_back(group)
        while kept := held.kept.get(group):
            refused = await self.before(group) if self.before is not None else ""
            if refused:
                part, began = self._part(), self._clock()
                self._worker.refuse(kept[0].key, kept[0].item, refused, part)
                self._worked_off(group, 1, part, began)
            else:
                await self._work_off(group, kept)
            await self._give_turn()
        held.caught_up(group)
        self._store.wake(group)
        await self._fire_events()

    async def _work_off(self, group: int, kept: deque[Kept]) -> None:
        part, began, done, failed = self._part(), self._clock(), 0, None
        try:
            with NoLoop():
                for one in kept if self.before is None else islice(kept, 1):
                    failed = self._worker.one(one, part)
                    if failed is not None:
                        break
                    done += 1
                    if self._clock() - began > self._slice_s:
                        break
        finally:
            if done:
                self._worked_off(group, done, part, began)
        if failed is not None:
            part, began = self._part(), self._clock()
            await self._worker.mend(failed, part, in_any_case=True)
            self._worked_off(group, 1, part, began)

    def _worked_off(self, group: int, n: int, part: Part, began: float) -> None:
        self._held.notes.touch([kept.key for kept in islice(self._held.kept[group], n)])
        self._held.work_off(group, n)
        self._done(part, began)

    # -- the journal -------------------------------------------------------------------------

    def resume(self, owned: frozenset[int], frozen: frozenset[int]) -> None:
        """Groups of mine, as the core knows them: `frozen` ones lie at rest, the others are
        processed again; those with kept tuples, or not opened yet, when `catch_up` is called."""
        held = self._held
        if self._notes is not None:
            lost = (owned | frozen) - self.known
            strange = self.known - held.whole - owned - frozen
            if lost or strange:
                raise ValueError(
                    f"operator {self.operator.name!r}: expected to resume the groups that the "
                    f"journal tells of; it has nothing of {sorted(lost)}, and those of "
                    f"{sorted(strange)} belong to nobody"
                )
        held.resume(owned - frozen, frozen)
        for group in held.owned:
            self._store.wake(group)
        self._noted()

    async def catch_up(self) -> None:
        """After `resume`, before anything else is processed: fire what was due, and work off what
        was kept for groups of mine."""
        await self._fire_events()
        for group in sorted(self._held.behind):
            await self._catch_up(group)


async def _not_heard(_tag: Any, _mark: float) -> None:
    """Nobody follows marks."""
