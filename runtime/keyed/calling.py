"""Timers called one after the other, and what a handler has requested done once its call has ended
well.

Of handlers with `time_by_key` each key has an event time of its own: it goes on with the marks of
its tuples and with each timer that is called, and never waits for those of other keys.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from anabranch.runtime.keyed.current_time import IsLate, Present, SetTimer
from anabranch.runtime.keyed.handler import NOTHING, Handler, Timer, ValueHandler
from anabranch.runtime.keyed.holdings import Holdings
from anabranch.runtime.keyed.late import Late
from anabranch.runtime.keyed.moving import Kept
from anabranch.runtime.keyed.state_changes import StateChanges
from anabranch.runtime.keyed.timers import mark_of_end
from anabranch.runtime.keyed.window_ends import WindowEnds
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.processing.plain_calls import NoLoop
from anabranch.runtime.processing.steps import Part, StepError
from anabranch.runtime.processing.undo import Undo, Unpicklable
from anabranch.runtime.values.foreign import describe, is_a, shown
from anabranch.runtime.values.raised import where_raised

CALLS_MAX = 1000
"""Of timers ahead of one tuple, before others have their turn; and of timers that are set one after
the other for a time which has come."""


class Caller:
    """Calls the timers of a handler."""

    def __init__(self, operator: Operator, held: Holdings, wall: Callable[[], float]) -> None:
        assert operator.keyed is not None
        self.handler: Handler = _made(operator)
        self.handler.journaled = isinstance(held.changes, StateChanges)
        self._retry = operator.retry
        self._timers = held.store.timers
        if self.handler.holds_windows:
            ends = WindowEnds(held.store.states, self.handler.lateness_s)
            held.store.event = self.handler.ends = ends
        self._rule = operator.keyed.late
        self._held = held
        self._store = held.store
        self._time = Present(wall)
        by_value = isinstance(self.handler, ValueHandler)  # their results are copies in any case
        self._undo = Undo(always=by_value or operator.retry.attempts > 0)
        self.handler.undo.always = operator.retry.attempts > 0
        self._at_end: Counter[Any] = Counter()
        self._due: list[tuple[float, str]] = []
        """A heap of timers of the key in work, times and names, to be called before anything else
        happens to it."""
        self._until = -math.inf
        """Timers of it that are set for a time up to this are called, too."""

    # -- timers ------------------------------------------------------------------------------

    def call(self, key: Any, timer: Timer, watermark: float, part: Part, mark: float) -> None:
        """A timer is due. Its results are of no input tuple, and so is its dead letter. `mark`: of
        its results."""
        self._call(key, timer, watermark, part, mark)
        if self._due:
            self._call_due(key, watermark, part, mark)

    def _call_before(self, key: Any, mark: float, part: Part) -> bool:
        """Event time of this key comes to `mark`, with a tuple: call what is due by then. False: it
        takes long, so others are to have a turn before it goes on."""
        self._due = self._timers.due_of(key, mark)
        return self._call_due(key, -math.inf, part, -math.inf, until=mark, calls_max=CALLS_MAX)

    def _call_all_before(self, kept: Kept, part: Part) -> None:
        """The same, ahead of a tuple that was kept."""
        key, until = kept.key, kept.watermark
        if self.handler.time_by_key and self._timers.has(key):
            self._due = self._timers.all_due_of(key, until)
            self._call_due(key, -math.inf, part, -math.inf, until=until)

    def _call_due(
        self,
        key: Any,
        watermark: float,
        part: Part,
        mark: float,
        *,
        until: float = -math.inf,
        calls_max: float = math.inf,
    ) -> bool:
        """Call the timers in `_due`, and those which they set for a time up to `until`, or which
        has come."""
        event, called, still = self._timers, 0, 0
        self._until = until
        while self._due and called < calls_max and still <= CALLS_MAX:
            at, name = heapq.heappop(self._due)
            if event.stands(key, name, at):
                event.cancel(key, name)
                called, still = called + 1, still + 1 if at <= watermark else 0
                watermark, mark = max(watermark, at), max(mark, mark_of_end(at))
                self._call(key, Timer(name, at), watermark, part, mark)
        self._until = -math.inf
        if still > CALLS_MAX:
            self._stop_calling(key, part)
        event.put_back(key, self._due)
        done = not self._due
        self._due = []
        return done

    def _stop_calling(self, key: Any, part: Part) -> None:
        reason = (
            f"on_timer has set more than {CALLS_MAX:,} timers one after the other for a time that "
            "has come; set them for a time after time.watermark"
        )
        for at, name in self._due:
            if self._timers.stands(key, name, at):
                self._timers.cancel(key, name)
                where = f"key {shown(key)}, timer {shown(name)} at {at:g}"
                part.letters.append(DeadLetter(reason, None, where))
        self._due = []

    def _call(self, key: Any, timer: Timer, watermark: float, part: Part, mark: float) -> None:
        handler, time = self.handler, self._time
        time.watermark = time.reached = watermark
        state = self._store.states[key]
        saved = self._undo.save(key, state) if handler.undone else None
        try:
            after, made = handler.on_timer(key, state, timer, time)
            if type(made) is not tuple:
                made = [*made]
            if handler.undone:
                after = self._undo.checked(key, after)
            if handler.timers_at_end_max is not None:
                self._check_end(key, watermark, handler.timers_at_end_max)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            time.said.clear()
            where = f"{place(error, key)}, timer {shown(timer.name)} at {timer.at:g}"
            part.letters.append(DeadLetter(self._reason(error), None, where))
            if saved is not None:
                state = self._store.states[key] = self._undo.put_back(state, saved)
            return
        part.results += made
        if after is not state:
            self._store.states[key] = after
        if time.said:
            self._settle(key, part, of_tuple=False)
        if part.marks is not None:
            part.mark(mark)

    def _check_end(self, key: Any, watermark: float, most: int) -> None:
        """At the end of the stream every timer fires at once: one that sets itself again would
        fire for ever."""
        if watermark < math.inf:
            return
        sets = any(isinstance(s, SetTimer) and s.at is not None for s in self._time.said)
        self._at_end[key] += sets
        if self._at_end[key] > most:
            raise RuntimeError(
                f"the stream has ended, and on_timer has set more than {most:,} timers since; "
                "set none when time.watermark is math.inf"
            )

    # -- what was requested -----------------------------------------------------------------------

    def _settle(self, key: Any, part: Part, *, of_tuple: bool) -> None:
        """Do what the handler has requested."""
        died = False
        by_key, until, present = self.handler.time_by_key, self._until, self._time.watermark
        if by_key and until < present < math.inf:
            until = present
        for word in self._time.said:
            if isinstance(word, IsLate):
                died = self._note_late(key, word, part) or died
                continue
            timers = self._store.processing if word.processing else self._timers
            if word.at is None:
                timers.cancel(key, word.name)
            else:
                timers.set(key, word.name, word.at)
                if by_key and not word.processing and word.at <= until:
                    heapq.heappush(self._due, (word.at, word.name))
        self._time.said.clear()
        part.dead += died and of_tuple

    def _note_late(self, key: Any, late: IsLate, part: Part) -> bool:
        """A late tuple goes where the operator sends late ones; whether it died of it."""
        self._held.late[self._rule] += 1
        if self._rule == "emit":
            part.results.append(Late(key, late.item, late.by_s))
        elif self._rule == "bury":
            reason = f"late: by {late.by_s:g} s"
            part.letters.append(DeadLetter(reason, late.item, f"key {shown(key)}"))
            return True
        return False

    def shed(self, keys: Iterable[Any]) -> None:
        """Forget those of these keys that have nothing worth keeping."""
        if self.handler.forgets_false:
            state_of = self._store.states.get
            self._held.forget([key for key in keys if not state_of(key, NOTHING)])

    def _reason(self, error: BaseException) -> str:
        if is_a(error, Unpicklable):
            name = self._held.operator
            return f"the state of operator {name!r} for this key cannot be pickled: {error}"
        return describe(error)


def _made(operator: Operator) -> Handler:
    assert operator.keyed is not None
    try:
        with NoLoop():
            handler: Handler = operator.keyed.make()
            return handler
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # such as SystemExit
        raise StepError(
            f"operator {operator.name!r}: what it does cannot be made: {describe(error)}"
        ) from error


def place(error: BaseException, key: Any) -> str:
    """Where to look for what was raised."""
    where = where_raised(error)
    return f"{where}, key {shown(key)}" if where else f"key {shown(key)}"
