"""A handler applied to many tuples, one after the other.

Three loops, for what handlers need: those which keep a value are called as plain functions, those
which keep nothing are not called at all. What a tuple costs is spent in them, so they call nothing
for it that can be written in a line. One that fails goes the way of `Attempts`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, repeat
from operator import length_hint
from typing import Any, NamedTuple

from anabranch.runtime.keyed.attempts import Attempts, FailedTuple
from anabranch.runtime.keyed.functions import Processing, results_of
from anabranch.runtime.keyed.handler import NOTHING, Handler, ValueHandler
from anabranch.runtime.keyed.moving import Kept
from anabranch.runtime.processing.plain_calls import NoLoop
from anabranch.runtime.processing.steps import Part
from anabranch.runtime.processing.undo import NAMED, NESTED
from anabranch.runtime.values.flat import has_atoms
from anabranch.runtime.values.sharing import ATOMS

Original = Callable[[int], Any]
"""A tuple of a slice as it has come, by its number there."""


NEVER = math.nan
"""No time is as late as this one."""


class Marks(NamedTuple):
    """Marks of some tuples, none before the watermark. `exact`: event time here follows them, so a
    timer is called before the first tuple whose mark has reached its time. `by_key`: event time of
    each key follows them, for handlers with `time_by_key`."""

    values: list[float]
    exact: bool
    by_key: bool = False

    @property
    def reached(self) -> bool:
        """Whether event time has reached each tuple when it comes, for its key at least."""
        return self.exact or self.by_key


class Slice(NamedTuple):
    """Tuples to be worked on, as `Worker.work` gets them."""

    keys: list[Any]
    tuples: list[Any]
    side: int
    watermark: float
    part: Part
    original: Original
    marks: Marks | None


class Worker(Attempts):
    """Processes the tuples of groups that are owned, and keeps those of others."""

    def work(
        self,
        keys: list[Any],
        tuples: list[Any],
        side: int,
        watermark: float,
        part: Part,
        original: Original,
        marks: Marks | None = None,
    ) -> FailedTuple | None:
        """Process or keep tuples: all of them, or those before one that has failed and is to be
        tried again, or before which a timer is due. `part` gets each at once, so it is right
        also if this is interrupted. `original`: the tuples of this slice as they have come."""
        handler = self.handler
        with NoLoop():
            if not handler.keeps_state:
                self._pass(keys, tuples, side, watermark, part)
                return None
            todo = Slice(keys, tuples, side, watermark, part, original, marks)
            if isinstance(handler, ValueHandler):
                return self._replace(handler, todo)
            if isinstance(handler, Processing):
                return self._process(handler, todo)
            return self._change(handler, todo)

    def _replace(self, handler: ValueHandler, todo: Slice) -> FailedTuple | None:
        keys, tuples, side, watermark, part, original, marks = todo
        states, following = self._store.states, handler.following
        value_of, give, undo = states.get, part.results.append, self._undo
        items, before = iter(tuples), len(part.results)
        passed: set[int] = set()
        """Numbers of the tuples that have no result."""
        atom: type = int
        """The type of the last value that cannot change; of most it is the same."""
        saved: Any = None
        try:
            for key, item in zip(keys, items, strict=True):
                value = NOTHING
                try:
                    value = value_of(key, NOTHING)
                    if value is not NOTHING:
                        if type(value) is not atom and type(value) not in ATOMS:
                            saved = undo.save(key, value)
                        result = after = following(value, item)
                        if type(after) is not atom:
                            del result
                            # Held by a name here, or by two of them and in `states`.
                            after = undo.kept(key, after, 3 if after is value else 1)
                            result = undo.another(key, after)
                            atom = type(after) if type(after) in ATOMS else atom
                        states[key] = after
                    else:
                        group = self._store.group_of[key]
                        if group not in self._held.owned:
                            passed.add(number := _number(items, tuples))
                            kept = _kept(key, item, side, watermark, marks, number)
                            self._put_aside(group, kept, part)
                            continue
                        after = undo.kept(key, handler.first(item), 0)
                        result = undo.another(key, after)
                        self._store.add(key, group, after)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    if value is not NOTHING and type(value) not in ATOMS:
                        states[key] = undo.put_back(value, saved)
                    passed.add(number := _number(items, tuples))
                    item = original(number)
                    kept = _kept(key, item, side, watermark, marks, number)
                    failed = self._failed(error, kept, part)
                    if failed is not None:
                        return failed
                    continue
                give((key, result))
        finally:
            done = len(part.results) - before
            part.taken += done
            if part.marks is not None and marks is not None:
                told = (mark for n, mark in enumerate(marks.values) if n not in passed)
                part.marks += islice(told, done)
        return None

    def _change(self, handler: Handler, todo: Slice) -> FailedTuple | None:
        keys, tuples, side, watermark, part, original, marks = todo
        states, on_tuple, time = self._store.states, handler.on_tuple, self._time
        state_of, results = states.get, part.results
        time.watermark = time.reached = watermark
        exact = marks is not None and marks.exact
        heap, sheds = self._store.event.heap, handler.forgets_false
        due = self._store.event.next_at() if exact else NEVER
        each: Iterable[float] = repeat(watermark, len(keys)) if marks is None else marks.values
        items = iter(tuples)
        for key, item, mark in zip(keys, items, each, strict=True):
            if marks is not None:
                if mark >= due and mark > time.reached:
                    return None
                time.watermark = mark
                if exact:
                    time.reached = mark
            try:
                state = state_of(key, NOTHING)
                if state is not NOTHING:
                    after, made = on_tuple(key, state, item, side, time)
                    results += made
                    if after is not state:
                        states[key] = after
                else:
                    group = self._store.group_of[key]
                    if group not in self._held.owned:
                        self._put_aside(group, Kept(key, item, side, time.reached, mark), part)
                        continue
                    after, made = on_tuple(key, handler.new_state(key), item, side, time)
                    results += made
                    self._store.add(key, group, after)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                item = original(_number(items, tuples))
                failed = self._failed(error, Kept(key, item, side, time.reached, mark), part)
                if failed is not None:
                    return failed
                continue
            part.taken += 1
            if time.said:
                self._settle(key, part, of_tuple=True)
            if exact and heap:
                due = heap[0]
            if part.marks is not None:
                part.mark(mark)
            if sheds and not after:
                self.shed((key,))
        return None

    def _process(self, handler: Processing, todo: Slice) -> FailedTuple | None:
        """Long because a call for each tuple would cost more than what is done in it."""
        keys, tuples, side, watermark, part, original, marks = todo
        call, takes_time, time = handler.function, handler.takes_time, self._time
        states, results, undo = self._store.states, part.results, self._undo
        state_of, like_of = states.get, undo.likes.get
        time.watermark = time.reached = watermark
        exact = marks is not None and marks.exact
        by_key = marks is not None and marks.by_key
        may_be_due = self._timers.may_be_due
        due = self._store.event.next_at() if exact else NEVER
        each: Iterable[float] = repeat(watermark, len(keys)) if marks is None else marks.values
        items = iter(tuples)
        for key, item, mark in zip(keys, items, each, strict=True):
            if marks is not None:
                if mark >= due and mark > time.reached:
                    return None
                if by_key and may_be_due(key, mark) and not self._call_before(key, mark, part):
                    return None
                time.watermark = mark
                if exact or by_key:
                    time.reached = mark
            saved: Any = None
            held: Any = None
            group, like = -1, NESTED
            try:
                state = state_of(key, NOTHING)
                if state is NOTHING:
                    group = self._store.group_of[key]
                    if group not in self._held.owned:
                        self._put_aside(group, Kept(key, item, side, time.reached, mark), part)
                        continue
                    state = handler.new_state(key)
                elif (like := like_of(key, NESTED)) < NESTED:
                    held = state.__dict__ if like == NAMED else state
                    saved = held.copy()
                else:
                    saved = undo.save(key, state)
                made = call(key, state, item, time) if takes_time else call(key, state, item)
                if type(made) is not list:
                    made = results_of(made)
                else:
                    for one in made:
                        if type(one) is tuple:
                            for inner in one:
                                if type(inner) not in ATOMS:
                                    break
                            else:
                                continue
                        elif type(one) in ATOMS:
                            continue
                        made = results_of(made)
                        break
                after = state
                if like == NAMED:
                    for one in held.values():
                        if type(one) not in ATOMS:
                            after = undo.checked(key, state)
                            break
                elif held is None or (held and not has_atoms(held)):
                    after = undo.checked(key, state)
                results += made
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                if saved is not None:
                    states[key] = undo.put_back(state, saved)
                item = original(_number(items, tuples))
                failed = self._failed(error, Kept(key, item, side, time.reached, mark), part)
                if failed is not None:
                    return failed
                continue
            if group >= 0:
                self._store.add(key, group, after)
            elif after is not state:
                states[key] = after
            part.taken += 1
            if time.said:
                self._settle(key, part, of_tuple=True)
                if exact:
                    due = self._store.event.next_at()
            if part.marks is not None:
                part.mark(mark)
            if self._due:
                self._call_due(key, time.watermark, part, mark)
        return None

    def _pass(
        self, keys: list[Any], tuples: list[Any], side: int, watermark: float, part: Part
    ) -> None:
        group_of = self._store.group_of
        if self.open(keys, self._held.owned):
            part.results += tuples
            part.taken += len(tuples)
            return
        for key, item in zip(keys, tuples, strict=True):
            kept = Kept(key, item, side, watermark)
            try:
                group = group_of[key]
            except Exception as error:
                self._bury(error, kept, part)
                continue
            if group in self._held.owned:
                part.results.append(item)
                part.taken += 1
            else:
                self._put_aside(group, kept, part)

    def open(self, keys: list[Any], groups: frozenset[int]) -> bool:
        """Whether all keys are valid and belong to these groups."""
        try:
            return groups.issuperset(map(self._store.group_of.__getitem__, keys))
        except Exception:
            return False


def _kept(
    key: Any, item: Any, side: int, watermark: float, marks: Marks | None, number: int
) -> Kept:
    """A tuple of a slice, by its number there."""
    if marks is None:
        return Kept(key, item, side, watermark)
    mark = marks.values[number]
    return Kept(key, item, side, mark if marks.exact else watermark, mark)


def _number(items: Iterator[Any], tuples: list[Any]) -> int:
    """Of the tuple that an iterator over these has given last."""
    return len(tuples) - length_hint(items) - 1
