"""The steps of one operator as a chain: stage by stage, with retries, dead letters and counts."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.plan.operator import Operator, Step
from anabranch.runtime.processing.own import Came, Saver
from anabranch.runtime.processing.plain_calls import NoLoop
from anabranch.runtime.processing.stages import Parts, Stage, StageFailure, is_async, make_stage
from anabranch.runtime.values.foreign import code_of, describe
from anabranch.runtime.values.raised import located, where_raised


class StepError(RuntimeError):
    """A class given as a function cannot be made into an object, or closing it failed."""


@dataclass(slots=True)
class StepCount:
    """What one step has seen: `received == processed + dead`."""

    name: str
    received: int = 0
    processed: int = 0
    dead: int = 0
    produced: int = 0


class Part:
    """What became of `taken` input tuples, the next in order.

    `dead` of them died and `taken - dead` were processed. `letters` may be more than `dead`:
    behind the first `flat_map` of a fused operator, tuples die that were not input.
    `pended`: tuples of key groups on the move, kept for later and not among those taken.
    `tag`, `last`: the batch that they belong to, and whether it is done with this part.
    `busy_s`: working time; for asynchronous functions time times the used share of `in_flight`.
    `waited_s`: pauses of retries, not part of it.
    `per_step`: (received, dead, produced) of the steps that ran.
    `marks`: of the results (`anabranch.runtime.processing.marks`), if these are asked for.
    """

    __slots__ = (
        "busy_s",
        "dead",
        "last",
        "letters",
        "marks",
        "pended",
        "per_step",
        "results",
        "tag",
        "taken",
        "waited_s",
    )

    def __init__(self, taken: int) -> None:
        self.taken = taken
        self.dead = 0
        self.results: list[Any] = []
        self.letters: list[DeadLetter] = []
        self.pended = 0
        self.tag: Any = None
        self.last = True
        self.busy_s = 0.0
        self.waited_s = 0.0
        self.per_step: list[tuple[int, int, int]] = []
        self.marks: list[float] | None = None

    def mark(self, mark: float) -> None:
        """Results that have come since the last time have this mark."""
        if self.marks is not None and len(self.marks) < len(self.results):
            self.marks += [mark] * (len(self.results) - len(self.marks))


class Chain:
    """`drops`: results are dropped."""

    def __init__(self, operator: Operator, drops: bool = False) -> None:
        self.operator = operator
        self._made: list[tuple[Step, Any]] = []
        self._saver = Saver()
        self._stages = [make_stage(step, self._function(step), drops) for step in operator.steps]
        self.counts = [StepCount(step.name) for step in operator.steps]
        kinds = [step.kind for step in operator.steps]
        self._expands_at = kinds.index("flat_map") if "flat_map" in kinds else len(kinds)

    def ask_before_stopping(self, stops: Callable[[], bool]) -> None:
        """`stops`: whether it is the runtime that cancels the tasks of asynchronous functions."""
        for stage in self._stages:
            stage.stops = stops

    @property
    def is_async(self) -> bool:
        return any(is_async(stage.fn) for stage in self._stages)

    @property
    def has_batches(self) -> bool:
        """Whether any step wants batches."""
        return any(stage.is_batch for stage in self._stages)

    @property
    def takes_batches(self) -> bool:
        """Whether all asynchronous steps want batches; else the unit of work is one tuple."""
        return all(stage.is_batch for stage in self._stages if is_async(stage.fn))

    async def apply(
        self, tuples: list[Any], came: Came | None = None, marks: list[float] | None = None
    ) -> Part:
        """All tuples through all steps. `came`: the tuples, for code that must see them as they
        were. Raises only what is not the tuples' fault."""
        part = Part(len(tuples))
        part.marks = marks
        unchanging = False
        """Whether it is known that these tuples cannot change."""
        no_loop = NoLoop()  # hidden once for steps in a row
        try:
            for number, stage in enumerate(self._stages):
                if not tuples:
                    break
                if came is None or number:
                    came = Came.here(tuples) if unchanging else self._saver.save(tuples)
                    unchanging = came.are(tuples)
                if marks is not None:
                    stage.keep_apart()
                if stage.plain:
                    no_loop.hide()
                    results, parts = stage.call(tuples)
                else:
                    no_loop.show()
                    results, parts = await stage.run(tuples)
                dead = len(part.letters)
                if parts is not None:
                    no_loop.show()
                    results = await self._mend(stage, len(tuples), came, parts, part)
                if part.marks is not None and stage.is_batch:
                    part.marks = stage.marks(part.marks, results)
                self._note(number, len(tuples), len(part.letters) - dead, len(results), part)
                unchanging = unchanging and stage.selects
                tuples = results
        finally:
            no_loop.show()
        part.results = tuples
        return part

    def _note(self, number: int, received: int, dead: int, produced: int, part: Part) -> None:
        """What a step has done with its tuples."""
        if number <= self._expands_at:
            part.dead += dead
        part.per_step.append((received, dead, produced))

    def refuse(self, one: Any, reason: str) -> Part:
        """What becomes of a tuple that is not processed."""
        part = Part(1)
        part.dead = 1
        part.per_step.append((1, 1, 0))
        part.letters.append(DeadLetter(reason, one, *self._place()))
        return part

    def _place(self) -> tuple[str, str]:
        """Where to look, and the step, as far as that is known of a tuple that was refused."""
        if len(self._stages) == 1:
            return where_defined(self._stages[0].fn), self._stages[0].step.name
        names = ", ".join(repr(stage.step.name) for stage in self._stages)
        return f"in one of the steps {names}", ""

    def count(self, part: Part) -> None:
        for count, (received, dead, produced) in zip(self.counts, part.per_step, strict=False):
            count.received += received
            count.dead += dead
            count.processed += received - dead
            count.produced += produced

    async def close(self) -> None:
        """Call `close()` of the objects made here, all of them; raises `StepError` afterwards."""
        problems = []
        for step, made in self._made:
            try:
                with NoLoop():
                    result = made.close() if hasattr(made, "close") else None
                if inspect.isawaitable(result):
                    await result
            except (KeyboardInterrupt, asyncio.CancelledError):
                raise
            except BaseException as error:  # such as SystemExit
                problems.append(f"step {step.name!r}: close() raised {describe(error)}")
        self._made.clear()
        if problems:
            raise StepError("; ".join(problems))

    def _function(self, step: Step) -> Any:
        """The step's function; an object of it if it is a class whose objects can be called."""
        fn = step.fn
        if not isinstance(fn, type) or not any("__call__" in vars(c) for c in fn.__mro__):
            return fn
        try:
            with NoLoop():
                made = fn()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise StepError(
                f"operator {self.operator.name!r}, step {step.name!r}: "
                f"{fn.__name__}() raised {located(error)}"
            ) from error
        self._made.append((step, made))
        return made

    async def _mend(self, stage: Stage, n: int, came: Came, parts: Parts, part: Part) -> list[Any]:
        """Try the failed tuples again, all of them once per pause; the rest are dead."""
        if stage.is_batch:
            return await self._mend_batch(stage, range(n), came, parts, part)
        failed = [i for i, entry in enumerate(parts) if isinstance(entry, StageFailure)]
        for attempt in range(self.operator.retry.attempts if failed else 0):
            await self._pause(attempt, part)
            for i in failed:
                results, again = await stage.run([came.again(i)])
                parts[i] = again[0] if again else results
            failed = [i for i in failed if isinstance(parts[i], StageFailure)]
            if not failed:
                break
        for i in failed:
            self._bury(stage, came[i], parts[i], part)
            parts[i] = []
        if part.marks is not None:
            sizes = map(len, parts)  # type: ignore[arg-type]
            part.marks = [*chain.from_iterable(map(repeat, part.marks, sizes))]
        return list(chain.from_iterable(parts))  # type: ignore[arg-type]

    async def _mend_batch(
        self, stage: Stage, which: range, came: Came, parts: Parts, part: Part, whole: bool = True
    ) -> list[Any]:
        """The whole batch again as often as configured, then its halves, then single tuples."""
        if whole or len(which) == 1:
            for attempt in range(self.operator.retry.attempts):
                await self._pause(attempt, part)
                results, again = await stage.run([came.again(i) for i in which])
                if again is None:
                    return results
                parts = again
        if len(which) == 1:
            self._bury(stage, came[which[0]], parts[0], part)
            return []
        mended: list[Any] = []
        middle = len(which) // 2
        for half in (which[:middle], which[middle:]):
            results, again = await stage.run([came.again(i) for i in half])
            if again is not None:
                results = await self._mend_batch(stage, half, came, again, part, whole=False)
            mended += results
        return mended

    async def _pause(self, attempt: int, part: Part) -> None:
        seconds = self.operator.retry.pause_s(attempt)
        part.waited_s += seconds
        await asyncio.sleep(seconds)

    def _bury(self, stage: Stage, one: Any, entry: list[Any] | StageFailure, part: Part) -> None:
        assert isinstance(entry, StageFailure)
        error = entry.error
        where = where_raised(error) or where_defined(stage.fn)
        part.letters.append(DeadLetter(describe(error), one, where, stage.step.name))


def where_defined(fn: Any) -> str:
    """For errors that no frame belongs to, such as those of functions written in C."""
    code = code_of(fn)
    return f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}" if code else ""
