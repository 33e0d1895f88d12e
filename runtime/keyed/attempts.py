"""A handler applied to one tuple at a time: tried again, kept for later, or a dead letter.

A tuple or timer has an effect once its call has ended well: a state that a function has changed
before it failed is what it was (`Undo`).
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from anabranch.runtime.keyed.calling import Caller, place
from anabranch.runtime.keyed.handler import NOTHING
from anabranch.runtime.keyed.moving import Kept
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.processing.own import copied
from anabranch.runtime.processing.plain_calls import NoLoop
from anabranch.runtime.processing.steps import Part
from anabranch.runtime.processing.undo import Unpicklable
from anabranch.runtime.values.foreign import describe, shown


class FailedTuple(NamedTuple):
    """A tuple that is to be tried again, after a pause."""

    error: BaseException
    kept: Kept


class Attempts(Caller):
    """What becomes of tuples that are not worked on with others."""

    def _put_aside(self, group: int, kept: Kept, part: Part) -> None:
        self._held.keep(group, kept)
        part.pended += 1

    def be_careful(self) -> None:
        for undo in (self._undo, self.handler.undo):
            undo.always = undo.twice = True

    def leave(self, key: Any, error: BaseException, part: Part) -> None:
        """The state of a key cannot move with its group: the key begins anew at the new owner."""
        reason = self._reason(Unpicklable(describe(error)))
        part.letters.append(DeadLetter(f"{reason}; it is left out", None, f"key {shown(key)}"))

    def forget(self) -> None:
        """Drop what is remembered of states: they may have come from another instance, which has
        changed them."""
        self._undo.forget()
        self.handler.undo.forget()

    def one(self, kept: Kept, part: Part) -> FailedTuple | None:
        """Process a tuple that was kept, wherever its group belongs."""
        error = self._try(kept._replace(item=copied(kept.item)), part)
        return None if error is None else self._failed(error, kept, part)

    def _failed(self, error: BaseException, kept: Kept, part: Part) -> FailedTuple | None:
        """A tuple has failed: bury it, unless it is to be tried again."""
        self._time.said.clear()
        if self._retry.attempts:
            return FailedTuple(error, kept)
        self._bury(error, kept, part)
        return None

    async def mend(self, failed: FailedTuple, part: Part, *, in_any_case: bool = False) -> None:
        """Try a tuple again, as often as the operator allows, then bury it. Others may be at work
        during the pauses. `in_any_case`: wherever its group belongs."""
        error, kept = failed
        for attempt in range(self._retry.attempts):
            seconds = self._retry.pause_s(attempt)
            part.waited_s += seconds
            await asyncio.sleep(seconds)
            if not in_any_case and self._gone(kept, part):
                return
            with NoLoop():
                again = self._try(kept._replace(item=copied(kept.item)), part)
            if again is None:
                return
            error = again
        self._bury(error, kept, part)

    def _gone(self, kept: Kept, part: Part) -> bool:
        """Whether its group was frozen while it waited: then it is kept."""
        try:
            group = self._store.group_of[kept.key]
        except Exception:
            return False
        if group in self._held.owned:
            return False
        self._put_aside(group, kept, part)
        return True

    def _try(self, kept: Kept, part: Part) -> BaseException | None:
        """Process a tuple. Returns what it raised; then the state is as before."""
        handler, time, key = self.handler, self._time, kept.key
        self._call_all_before(kept, part)
        time.watermark, time.reached = max(kept.watermark, kept.mark), kept.watermark
        state, saved = NOTHING, None
        try:
            group = self._store.group_of[key]
            state = self._store.states.get(key, NOTHING)
            if handler.undone and state is not NOTHING:
                saved = self._undo.save(key, state)
            before = handler.new_state(key) if state is NOTHING else state
            after, made = handler.on_tuple(key, before, kept.item, kept.side, time)
            made = [*made]
            if handler.undone:
                after = self._undo.checked(key, after)
            part.results += made
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if saved is not None:
                self._store.states[key] = self._undo.put_back(state, saved)
            time.said.clear()
            return error
        part.taken += 1
        if handler.keeps_state:
            self._store.add(key, group, after)
            self._settle(key, part, of_tuple=True)
            if handler.forgets_false and not after:
                self.shed((key,))
        part.mark(time.watermark)
        self._call_due(key, time.watermark, part, time.watermark)
        return None

    def _bury(self, error: BaseException, kept: Kept, part: Part) -> None:
        part.taken += 1
        part.dead += 1
        where = place(error, kept.key)
        part.letters.append(DeadLetter(self._reason(error), kept.item, where))

    def refuse(self, key: Any, item: Any, reason: str, part: Part) -> None:
        """What becomes of a tuple that is not processed."""
        part.taken += 1
        part.dead += 1
        part.letters.append(DeadLetter(reason, item, f"key {shown(key)}"))
