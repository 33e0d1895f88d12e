"""One instance's keyed operator: the state of its keys, and what happens to tuples in its turn.

    run ──▶ groups that are open here ──▶ handler ──▶ results (emit)
       └──▶ groups on the move: kept in order, each tuple with the watermark that it met
    freeze ▶ export ▶ chunks ▶ install, at the new owner: state and timers, then what was kept

`Batches` takes tuples to the handler, `TimerCalls` its timers, `GroupMoves` its key groups to other
instances and from them; `Keeping` records all of it for the journal.

- **Order**: tuples of one key are processed as they have come, whichever instance owns it. What
  comes along with the state goes before what was kept here.
- **Late**: each tuple is judged by its mark (`runtime.processing.marks`), and by the watermark that
  it met when it came. Timers are called by the watermark; where that follows the marks of a batch,
  in the midst of it: before the first tuple whose mark has come to the time of the timer.
- **Failure**: as in `runtime.processing.operators`, but a tuple is tried again at once, before
  others, which may be of the same key. A timer that fails becomes a dead letter too.
- **Careful** (`before` is set): one tuple at a time.
- **Cancelling** `run` loses nothing: what has not been processed goes on with the next `run`.
- **Journaled**: `tell` records what has changed, as bytes. It may be called whenever this awaits:
  what is here then fits to the parts that were emitted, for a part is emitted before the pause of
  a retry. `restore` and `resume` make the same processor of all that was recorded.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from anabranch.runtime.keyed.batches import Batches
from anabranch.runtime.keyed.emitter import Emitter
from anabranch.runtime.keyed.group_moves import GroupMoves
from anabranch.runtime.keyed.heat import Heat
from anabranch.runtime.keyed.journal_view import Keeping
from anabranch.runtime.keyed.keyed_batch import KeyedBatch
from anabranch.runtime.keyed.marking import Marking
from anabranch.runtime.keyed.slices import Slices
from anabranch.runtime.keyed.suspected_tuples import Before, Care
from anabranch.runtime.keyed.timer_calls import TimerCalls
from anabranch.runtime.keyed.work import Worker
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.ports.clock import monotonic
from anabranch.runtime.ports.clock import wall as wall_s
from anabranch.runtime.processing.plain_calls import NoLoop
from anabranch.runtime.processing.steps import Part, StepError
from anabranch.runtime.values.foreign import describe


class KeyedProcessor(Keeping):
    """`emit` gets a `Part` for each slice of a batch (with its tag), and others without a tag for
    timers and for kept tuples. `turn` is awaited between two slices; anything may be called then.

    `changed`: gets what `tell` records. Without it nothing is recorded. `noted` is called
    when there may be something to record.
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
        super().__init__(operator, groups, changed)
        held, self._clock = self._held, clock
        self._heat = Heat(groups, held.store.group_of, clock())
        self._care = Care()
        self._worker = Worker(operator, held, wall)
        self.marking = Marking(held, time_by_key=self._worker.handler.time_by_key)
        self._emitter = Emitter(held, emit, noted, clock)
        parts = held, self._worker, self._emitter, Slices(clock, slice_s, turn)
        self._timers = TimerCalls(*parts)
        self._batches = Batches(*parts, marking=self.marking, heat=self._heat, care=self._care)
        self._moves = GroupMoves(
            *parts,
            timers=self._timers,
            heat=self._heat,
            care=self._care,
            journaled=changed is not None,
        )

    @property
    def marks_results(self) -> bool:
        """Whether parts have the marks of their results."""
        return self._emitter.marks_results

    @marks_results.setter
    def marks_results(self, marks: bool) -> None:
        self._emitter.marks_results = marks

    @property
    def before(self) -> Before | None:
        """If it is set, tuples are worked on one at a time, as `Care` decides."""
        return self._care.before

    @before.setter
    def before(self, before: Before | None) -> None:
        self._care.before = before

    def be_careful(self) -> None:
        """Look at states of any size after each call, and put them back when it fails."""
        self._held.careful = True
        self._worker.be_careful()

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
        self._batches.add(KeyedBatch(keys, tuples, side, tag, marks, follows, by_key), read)
        await self._batches.drain()

    async def drain(self) -> None:
        """Process what a cancelled `run` has left."""
        await self._batches.drain()

    # -- time --------------------------------------------------------------------------------

    async def advance(self, watermark: float) -> None:
        """Event time has come to `watermark`: call the timers that are due; returns when they have
        been called."""
        await self._timers.advance(watermark)

    @property
    def lags(self) -> bool:
        """Whether timers in event time are due that are not called yet."""
        return self._timers.lags

    def next_due(self) -> float | None:
        """When the next timer in processing time is due."""
        at = self._held.store.processing.next_at()
        return None if at == math.inf else at

    async def fire_due(self, now: float) -> None:
        """Call the timers in processing time that are due, unless another call does so already."""
        await self._timers.fire_due(now)

    async def end(self) -> None:
        """The stream has ended: event time is over, and timers in processing time, which nothing
        will wait for, fire now. Those set by them do not fire."""
        await self._timers.end()

    # -- key groups --------------------------------------------------------------------------

    def own(self, groups: Iterable[int]) -> None:
        """Groups that are mine from the beginning, with nothing in them but what a savepoint has
        recorded."""
        self._moves.own(groups)

    def resume(self, owned: frozenset[int], frozen: frozenset[int]) -> None:
        """Groups of mine that are open here: `frozen` ones lie at rest, the others are processed
        again; those with kept tuples when `catch_up` is called."""
        self._moves.resume(owned, frozen)

    async def catch_up(self) -> None:
        """After `resume`, before anything else is processed: fire what was due, and process what
        was kept for groups of mine."""
        await self._moves.catch_up()

    def freeze(self, groups: Iterable[int]) -> None:
        """Process nothing of these any more, as far as they are mine; keep what comes."""
        self._moves.freeze(groups)

    def export(
        self, groups: Iterable[int], chunk_bytes: int, incarnation: int = 1
    ) -> Iterator[bytes]:
        """Give away frozen groups in chunks. Other keys may be worked on between two chunks, and
        tuples of these groups are kept until the last.

        What was given is not here any more. If journaled, it stays until the iterator is exhausted
        and is gone then with one change; a later `incarnation` that still has it gives all of it
        again.
        """
        return self._moves.export(groups, chunk_bytes, incarnation)

    async def install(self, chunk: bytes, *, opens: bool = True) -> None:
        """A chunk from the former owner; the first of a later incarnation replaces all those of
        earlier ones. With the last one of a group it is `open`ed, unless the caller is to do
        that."""
        group = self._moves.arrive(chunk)
        self._tell_chunk(chunk)
        if opens and group in self._held.whole:
            await self.open((group,))

    def awaits(self, chunk: bytes) -> bool:
        """Whether it can be installed: it follows those that have come, of a group not here."""
        return self._moves.awaits(chunk)

    async def open(self, groups: Iterable[int], *, in_any_case: bool = False) -> None:
        """Begin to process groups that were installed; returns when all that was kept for them is
        processed. One that has not come whole begins with nothing `in_any_case`, or `ValueError`
        is raised."""
        await self._moves.open(groups, in_any_case=in_any_case)
