"""Batches of tuples on their way through a handler, slice by slice.

A key that has state here is open, so the usual tuple costs one look into a dictionary. Only while
groups are frozen, or what was kept for one is processed, are tuples sorted by group first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.runtime.keyed.attempts import FailedTuple
from anabranch.runtime.keyed.emitter import Emitter
from anabranch.runtime.keyed.heat import Heat
from anabranch.runtime.keyed.holdings import Holdings
from anabranch.runtime.keyed.keyed_batch import KeyedBatch
from anabranch.runtime.keyed.marking import Marking
from anabranch.runtime.keyed.moving import Kept
from anabranch.runtime.keyed.slices import Slices
from anabranch.runtime.keyed.suspected_tuples import Care
from anabranch.runtime.keyed.work import Marks, Worker
from anabranch.runtime.processing import own
from anabranch.runtime.processing.own import Came, Saver
from anabranch.runtime.processing.steps import Part

SLICE_TUPLES_FIRST = 64

Aside = tuple[int, int, Kept]
"""The place in its slice of a tuple to be kept, its group, the tuple."""


class Batches:
    def __init__(
        self,
        held: Holdings,
        worker: Worker,
        emitter: Emitter,
        slices: Slices,
        *,
        marking: Marking,
        heat: Heat,
        care: Care,
    ) -> None:
        self._held = held
        self._worker = worker
        self._emitter = emitter
        self._slices = slices
        self._marking = marking
        self._heat = heat
        self._care = care
        self._saver = Saver()
        self._slice_tuples = SLICE_TUPLES_FIRST
        self._waiting: deque[KeyedBatch] = deque()
        self._came: deque[Came] = deque()
        """The tuples of each batch as they have come."""

    def add(self, batch: KeyedBatch, read: Callable[[], list[Any]] | None) -> None:
        tuples = batch.tuples
        self._waiting.append(batch)
        self._came.append(Came(read, len(tuples)) if read else self._saver.save(tuples))

    async def drain(self) -> None:
        while self._waiting:
            batch = self._waiting[0]
            refused = await self._care.refusal(batch.tag) if batch.tuples else ""
            if refused:
                self._refuse(refused)
            else:
                await self._slice(batch)
            await self._slices.give_turn_if_due()

    def _refuse(self, reason: str) -> None:
        """Do not work on the first tuple of the first batch."""
        part, began = self._emitter.part(), self._slices.clock()
        batch = self._waiting[0]
        self._worker.refuse(batch.keys[0], batch.tuples[0], reason, part)
        self._go_on_with(batch.without(1))
        self._done_of_batch(part, began, batch.tag, last=len(batch.tuples) == 1)

    async def _slice(self, batch: KeyedBatch) -> None:
        now = batch.first(self._slice_tuples if self._care.before is None else 1)
        await self._marking.hear_first(now)
        began, part = self._slices.clock(), self._emitter.part()
        self._heat.note(now.keys, began)
        marks = self._marking.marks_of(now, asked=part.marks is not None)
        at, aside = self._sort_out(now, marks)
        ready, failed = now.chosen(at), None
        if marks is not None and ready is not now:
            marks = marks._replace(values=[marks.values[n] for n in at])
        self._held.changes.touch(ready.keys)
        came = self._came[0].last(len(batch.tuples))
        try:
            failed = self._worker.work(
                ready.keys,
                ready.tuples,
                batch.side,
                self._held.watermark,
                part,
                lambda n: came[at[n]],
                marks,
            )
        finally:
            done = part.taken + part.pended
            done = at[done] if done < len(at) else len(now.tuples)
            part.pended += self._keep(aside, done)
            left = batch.without(done)
            if failed is not None:
                left = left.beginning_with(own.copied(failed.kept.item))
            self._go_on_with(left)
            if failed is None or part.taken or part.pended:
                self._done_of_batch(part, began, batch.tag, last=not left.tuples)
        self._adapt(part)
        if marks is not None and done:
            await self._marking.hear_last(batch, done, exact=marks.exact)
        if failed is not None:
            await self._mend(failed, batch.tag)

    async def _mend(self, failed: FailedTuple, tag: Any) -> None:
        """Try the first tuple of the batch again."""
        part, began = self._emitter.part(), self._slices.clock()
        try:
            await self._worker.mend(failed, part)
        finally:
            if part.taken or part.pended:
                self._held.changes.touch((failed.kept.key,))
                left = self._waiting[0].without(1)
                self._go_on_with(left)
                self._done_of_batch(part, began, tag, last=not left.tuples)

    def _go_on_with(self, left: KeyedBatch) -> None:
        """This is left of the first batch."""
        if left.tuples:
            self._waiting[0] = left
        else:
            self._waiting.popleft()
            self._came.popleft()

    def _done_of_batch(self, part: Part, began: float, tag: Any, *, last: bool) -> None:
        part.tag, part.last = tag, last
        self._emitter.done(part, began)

    def _sort_out(
        self, batch: KeyedBatch, marks: Marks | None
    ) -> tuple[Sequence[int], list[Aside]]:
        """The places of tuples that may be processed, and those of groups that are shut."""
        held, everything = self._held, range(len(batch.tuples))
        if not held.shut or not batch.tuples or self._worker.open(batch.keys, held.owned):
            return everything, []
        at, aside = [], list[Aside]()
        for number, (key, item) in enumerate(zip(batch.keys, batch.tuples, strict=True)):
            try:
                group = held.store.group_of[key]
            except Exception:
                group = -1  # no key: the worker says so
            if group in held.shut:
                mark = held.watermark if marks is None else marks.values[number]
                met = mark if marks is not None and marks.reached else held.watermark
                aside.append((number, group, Kept(key, item, batch.side, met, mark)))
            else:
                at.append(number)
        return at, aside

    def _keep(self, aside: list[Aside], before: int) -> int:
        """Keep those that were put aside, before one of a slice; how many that are."""
        kept = [one for one in aside if one[0] < before]
        for _, group, one in kept:
            self._held.keep(group, one)
        return len(kept)

    def _adapt(self, part: Part) -> None:
        """Size the next slice for the cost of this one; at most double, at once down."""
        if taken := part.taken:
            length_s, busy_s = self._slices.length_s, part.busy_s
            fitting = int(taken * length_s / busy_s) if busy_s > 0 else 2 * taken
            self._slice_tuples = max(1, min(fitting, 2 * max(taken, self._slice_tuples)))
