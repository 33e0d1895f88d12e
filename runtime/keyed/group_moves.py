"""Moves key groups to and from an instance, with the tuples that were kept for them meanwhile.

freeze ▶ export ▶ chunks ▶ install, at the new owner: state and timers, then what was kept
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from anabranch.runtime.keyed.emitter import Emitter
from anabranch.runtime.keyed.group_chunks import copied, taken
from anabranch.runtime.keyed.heat import Heat
from anabranch.runtime.keyed.holdings import Holdings
from anabranch.runtime.keyed.moving import Giver, Head, Kept
from anabranch.runtime.keyed.slices import Slices
from anabranch.runtime.keyed.suspected_tuples import Care
from anabranch.runtime.keyed.timer_calls import TimerCalls
from anabranch.runtime.keyed.work import Worker
from anabranch.runtime.processing.plain_calls import NoLoop
from anabranch.runtime.processing.steps import Part


class GroupMoves:
    """`journaled`: a group stays here, and in the journal, until all of its chunks are sent."""

    def __init__(
        self,
        held: Holdings,
        worker: Worker,
        emitter: Emitter,
        slices: Slices,
        *,
        timers: TimerCalls,
        heat: Heat,
        care: Care,
        journaled: bool,
    ) -> None:
        self._held = held
        self._worker = worker
        self._emitter = emitter
        self._slices = slices
        self._timers = timers
        self._heat = heat
        self._care = care
        self._journaled = journaled

    # -- groups of mine ------------------------------------------------------------------------

    def own(self, groups: Iterable[int]) -> None:
        groups = frozenset(groups)
        if waiting := sorted(groups & self._held.kept.keys()):
            raise ValueError(f"groups {waiting} have tuples already: install their state instead")
        self._held.own(groups)
        for group in groups:
            self._held.store.wake(group)
        self._emitter.noted()

    def resume(self, owned: frozenset[int], frozen: frozenset[int]) -> None:
        held = self._held
        if self._journaled:
            lost = (owned | frozen) - held.here
            strange = held.here - owned - frozen
            if lost or strange:
                raise ValueError(
                    f"operator {held.operator!r}: expected to resume the groups that the "
                    f"journal tells of; it has nothing of {sorted(lost)}, and those of "
                    f"{sorted(strange)} have no owner"
                )
        held.resume(owned - frozen, frozen)
        for group in held.owned:
            held.store.wake(group)
        self._emitter.noted()

    # -- going -----------------------------------------------------------------------------------

    def freeze(self, groups: Iterable[int]) -> None:
        self._held.freeze(groups)
        self._emitter.noted()

    def export(self, groups: Iterable[int], chunk_bytes: int, incarnation: int) -> Iterator[bytes]:
        held, clock = self._held, self._slices.clock
        groups = sorted(groups)
        if strange := sorted({*groups} - held.frozen):
            raise ValueError(f"groups {strange} are not frozen here: freeze them first")
        gives = copied if self._journaled else taken
        leave = None if self._journaled else self._leave
        giver = Giver(held.operator, chunk_bytes, incarnation, leave)
        yield from gives(held, giver, groups, lambda g: self._heat.take(g, clock()))
        self._emitter.noted()

    def _leave(self, key: Any, error: BaseException) -> None:
        """The state of a key cannot be sent, and no next incarnation can repeat the key's tuples:
        leave the key out, with a dead letter."""
        part, began = self._emitter.part(), self._slices.clock()
        self._worker.leave(key, error, part)
        self._emitter.done(part, began)

    # -- coming ----------------------------------------------------------------------------------

    def arrive(self, chunk: bytes) -> int:
        """Take in a chunk; returns its group."""
        held, group = self._held, Head.of(chunk).group
        if group in held.here:
            raise ValueError(f"group {group} is here already: a chunk of it came once more")
        if not held.arrive(chunk):
            raise ValueError(f"a chunk of group {group} came, but not the one before")
        return group

    def awaits(self, chunk: bytes) -> bool:
        group = Head.of(chunk).group
        return group not in self._held.here and self._held.awaits(chunk)

    async def open(self, groups: Iterable[int], *, in_any_case: bool = False) -> None:
        held = self._held
        for group in sorted({*groups} - held.owned):
            if group not in held.behind:
                if group not in held.whole:
                    if not in_any_case:
                        raise ValueError(f"group {group} was not installed to its last chunk")
                    held.arriving.pop(group, None)
                self._worker.forget()
                self._heat.put(group, held.open(group), self._slices.clock())
                self._emitter.noted()
            await self._catch_up(group)

    async def catch_up(self) -> None:
        await self._timers.fire_events()
        for group in sorted(self._held.behind):
            await self._catch_up(group)

    async def _catch_up(self, group: int) -> None:
        held = self._held
        if self._worker.handler.time_by_key:
            held.hold_time_back(group)
        while kept := held.kept.get(group):
            if refused := await self._care.refusal(group):
                part, began = self._emitter.part(), self._slices.clock()
                self._worker.refuse(kept[0].key, kept[0].item, refused, part)
                self._worked_off(group, 1, part, began)
            else:
                await self._work_off(group, kept)
            await self._slices.give_turn_if_due()
        held.caught_up(group)
        held.store.wake(group)
        await self._timers.fire_events()

    async def _work_off(self, group: int, kept: deque[Kept]) -> None:
        clock, length_s = self._slices.clock, self._slices.length_s
        part, began, done, failed = self._emitter.part(), clock(), 0, None
        try:
            with NoLoop():
                for one in kept if self._care.before is None else islice(kept, 1):
                    failed = self._worker.one(one, part)
                    if failed is not None:
                        break
                    done += 1
                    if clock() - began > length_s:
                        break
        finally:
            if done:
                self._worked_off(group, done, part, began)
        if failed is not None:
            part, began = self._emitter.part(), clock()
            await self._worker.mend(failed, part, in_any_case=True)
            self._worked_off(group, 1, part, began)

    def _worked_off(self, group: int, n: int, part: Part, began: float) -> None:
        self._held.changes.touch([kept.key for kept in islice(self._held.kept[group], n)])
        self._held.work_off(group, n)
        self._emitter.done(part, began)
