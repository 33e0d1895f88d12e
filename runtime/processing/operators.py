"""The work of an operator: the user's functions part to a stream of batches.

A `Processor` takes batches and hands out `Part`s, in the order of the tuples:

    processor = make_processor(operator, slice_s=limits.slice_s, emit=emit, turn=turn)
    await processor.run(tuples, tag)      # returns when the next batch may come
    await processor.drain()               # returns when every part has been emitted
    await processor.close()               # calls `close()` of objects made from classes

- **Synchronous functions** run in slices of about `slice_s`, measured; between two slices `turn`
  is awaited, there control messages get their chance and backpressure its effect. `run` returns
  when its batch is done.
- **Asynchronous functions** have up to `in_flight` calls open, across batches: `run` returns when
  the last tuple of its batch has been started, and parts are emitted as the oldest calls end.
- **Failure**: a tuple whose function raises is tried again as `Retry` sets (the pause doubles each
  time) and then becomes a dead letter; the others go on. A function with `batch=True` is tried
  again with its whole batch first; then the batch is halved until the guilty tuples are alone.
  A new attempt gets the tuple as it has come, and so does the dead letter.
- **Cancelling** `run` or `drain` loses nothing: what has not been emitted is still inside, and the
  next `run` or `drain` goes on with it. Functions may be called again for a slice in work.
- **Careful** (`before` is set): one tuple at a time, also of functions with `batch=True`. `before`
  is awaited ahead of each with the tag of its batch, and may return why not to work on it.
- **Classes** whose objects can be called are made into one object per instance, in its process.

Whatever a function raises is a failure of its tuple: `SystemExit` and `GeneratorExit` too, and a
cancellation by other code than the runtime. Only `KeyboardInterrupt` passes.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.ports.clock import monotonic
from anabranch.runtime.processing.own import Came
from anabranch.runtime.processing.steps import Chain, Part, StepCount

__all__ = ["AsyncProcessor", "Part", "Processor", "SyncProcessor", "make_processor"]

Turn = Callable[[], Awaitable[None]]
Before = Callable[[Any], Awaitable[str]]
Clock = Callable[[], float]

SLICE_TUPLES_FIRST = 1
"""Tuples of the first slice, while their cost is unknown; slices at most double. They may take a
second each, and what was done of a slice when its process dies is done again."""
BATCH_TUPLES_FIRST = 64
"""The same where a function takes many at once, which is to make them cheaper."""


class Unit(NamedTuple):
    """What an asynchronous function works on at once. `last`: the end of its batch."""

    tuples: list[Any]
    marks: list[float] | None
    tag: Any
    last: bool
    came: Came | None


class Processor(ABC):
    """One instance's operator. `open`: tuples taken by `run` and not emitted yet."""

    def __init__(self, chain: Chain, emit: Callable[[Part], None], clock: Clock) -> None:
        self.open = 0
        self.before: Before | None = None
        self._chain = chain
        self._emit = emit
        self._clock = clock

    @property
    def steps(self) -> list[StepCount]:
        """Per step of a fused operator: received = processed + dead, and what it produced."""
        return self._chain.counts

    @abstractmethod
    async def run(
        self,
        tuples: list[Any],
        tag: Any = None,
        read: Callable[[], list[Any]] | None = None,
        *,
        marks: list[float] | None = None,
    ) -> None:
        """Take a batch; see the module. `read` makes the tuples anew, as they have come (and
        perhaps others before them); without it they are saved before functions get them. `marks`:
        of the tuples; parts give those of results then."""

    @abstractmethod
    async def drain(self) -> None: ...

    async def close(self) -> None:
        """Drop what is open and close the user's objects; raises what their `close` raises."""
        await self._chain.close()

    def _done(self, part: Part, tag: Any, last: bool, busy_s: float) -> None:
        part.tag, part.last, part.busy_s = tag, last, busy_s
        self.open -= part.taken
        self._chain.count(part)
        self._emit(part)


class SyncProcessor(Processor):
    def __init__(
        self,
        chain: Chain,
        *,
        slice_s: float,
        emit: Callable[[Part], None],
        turn: Turn,
        clock: Clock,
    ) -> None:
        super().__init__(chain, emit, clock)
        self._slice_s = slice_s
        self._turn = turn
        self._pending: deque[tuple[list[Any], Any, Came | None, list[float] | None]] = deque()
        self._slice_tuples = BATCH_TUPLES_FIRST if chain.has_batches else SLICE_TUPLES_FIRST
        self._turn_at = clock()

    async def run(
        self,
        tuples: list[Any],
        tag: Any = None,
        read: Callable[[], list[Any]] | None = None,
        *,
        marks: list[float] | None = None,
    ) -> None:
        self._pending.append((tuples, tag, Came(read, len(tuples)) if read else None, marks))
        self.open += len(tuples)
        await self.drain()

    async def drain(self) -> None:
        pending = self._pending
        while pending:
            tuples, tag, came, marks = pending[0]
            n, refused = self._slice_tuples, ""
            if self.before is not None and tuples:
                n, refused = 1, await self.before(tag)
            began = self._clock()
            if refused:
                part = self._chain.refuse(tuples[0], refused)
            else:
                now, now_marks = tuples, marks
                if len(tuples) > n:
                    now, now_marks = tuples[:n], None if marks is None else marks[:n]
                part = await self._chain.apply(now, came, now_marks)
            if len(tuples) <= n:
                pending.popleft()
            else:
                rest, rest_marks = tuples[n:], None if marks is None else marks[n:]
                pending[0] = (rest, tag, came.last(len(rest)) if came else None, rest_marks)
            ended = self._clock()
            busy_s = ended - began - part.waited_s
            self._adapt(part.taken, busy_s)
            self._done(part, tag, len(tuples) <= n, busy_s)
            if ended - self._turn_at > self._slice_s:
                await self._turn()
                self._turn_at = self._clock()

    def _adapt(self, taken: int, busy_s: float) -> None:
        """Size the next slice for the cost of this one; at most double, at once down."""
        if taken:
            fitting = int(taken * self._slice_s / busy_s) if busy_s > 0 else 2 * taken
            self._slice_tuples = max(1, min(fitting, 2 * max(taken, self._slice_tuples)))


class AsyncProcessor(Processor):
    """Every unit (one tuple; a whole batch for functions with `batch=True`) is a task."""

    def __init__(
        self, chain: Chain, *, in_flight: int, emit: Callable[[Part], None], clock: Clock
    ) -> None:
        super().__init__(chain, emit, clock)
        chain.ask_before_stopping(self._stops)
        self._in_flight = in_flight
        self._driver: asyncio.Task[Any] | None = None
        """The task that has called last; with it ends what is open here."""
        self._closing = False
        self._name = f"{chain.operator.name} call"
        self._waiting: deque[Unit] = deque()
        self._tasks: deque[tuple[asyncio.Task[Part], Any, bool]] = deque()
        self._moved = asyncio.Event()
        self._broken: BaseException | None = None
        self._busy_s = 0.0
        self._busy_at = clock()

    def _stops(self) -> bool:
        """Whether it is the runtime that has calls cancelled: it closes this, or ends its loop."""
        driver = self._driver
        return self._closing or (driver is not None and (driver.done() or driver.cancelling() > 0))

    async def run(
        self,
        tuples: list[Any],
        tag: Any = None,
        read: Callable[[], list[Any]] | None = None,
        *,
        marks: list[float] | None = None,
    ) -> None:
        n = len(tuples)
        came = Came(read, n) if read else None
        if not n or (self._chain.takes_batches and self.before is None):
            self._waiting.append(Unit(tuples, marks, tag, True, came))
        else:
            self._waiting.extend(
                Unit(
                    [one],
                    None if marks is None else [marks[i]],
                    tag,
                    i == n - 1,
                    came.last(n - i) if came else None,
                )
                for i, one in enumerate(tuples)
            )
        self.open += len(tuples)
        await self._one_by_one()
        self._start()
        await self._until(lambda: not self._waiting)

    async def drain(self) -> None:
        await self._one_by_one()
        self._start()
        await self._until(lambda: not self._waiting and not self._tasks)

    async def close(self) -> None:
        self._closing = True
        self._waiting.clear()
        tasks = [task for task, _, _ in self._tasks]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await super().close()

    async def _until(self, reached: Callable[[], bool]) -> None:
        self._driver = asyncio.current_task()
        while not reached() and self._broken is None:
            self._moved.clear()
            await self._moved.wait()
        if self._broken is not None:
            raise self._broken

    async def _one_by_one(self) -> None:
        """Careful: return when all that waits has been started, each behind the end of the last."""
        while self._waiting and self.before is not None:
            await self._until(lambda: not self._tasks)
            tuples, _, tag, last, _ = self._waiting[0]
            refused = await self.before(tag) if tuples else ""
            if refused:
                self._waiting.popleft()
                self._done(self._chain.refuse(tuples[0], refused), tag, last, 0.0)
            else:
                self._note_busy()
                self._open_next()

    def _start(self) -> None:
        self._note_busy()
        if self.before is None:
            while self._waiting and len(self._tasks) < self._in_flight:
                self._open_next()

    def _open_next(self) -> None:
        tuples, marks, tag, last, came = self._waiting.popleft()
        work = self._chain.apply(tuples, came, marks)
        task = asyncio.get_running_loop().create_task(work, name=self._name)
        self._tasks.append((task, tag, last))
        task.add_done_callback(self._ended)

    def _ended(self, _task: asyncio.Task[Part]) -> None:
        """Emit the finished calls up to the oldest open one, then open others."""
        self._note_busy()
        while self._broken is None and self._tasks and self._tasks[0][0].done():
            task, tag, last = self._tasks.popleft()
            if task.cancelled():  # before it began, or with everything else
                self._broken = asyncio.CancelledError()
                break
            if (error := task.exception()) is not None:
                self._broken = error
                break
            busy_s, self._busy_s = self._busy_s, 0.0
            self._done(task.result(), tag, last, busy_s)
        self._start()
        if not (self._waiting and self._tasks) or self._broken is not None:
            self._moved.set()

    def _note_busy(self) -> None:
        now = self._clock()
        self._busy_s += (now - self._busy_at) * len(self._tasks) / self._in_flight
        self._busy_at = now


async def _yield_once() -> None:
    await asyncio.sleep(0)


def make_processor(
    operator: Operator,
    *,
    slice_s: float,
    emit: Callable[[Part], None],
    turn: Turn = _yield_once,
    clock: Clock = monotonic,
    drops: bool = False,
) -> Processor:
    """The processor of one instance; objects are made from classes here.

    `drops`: results are dropped, so functions may return what they like.
    Raises `StepError` if the user's class cannot be made into an object.
    """
    chain = Chain(operator, drops)
    if chain.is_async:
        return AsyncProcessor(chain, in_flight=operator.in_flight, emit=emit, clock=clock)
    return SyncProcessor(chain, slice_s=slice_s, emit=emit, turn=turn, clock=clock)
