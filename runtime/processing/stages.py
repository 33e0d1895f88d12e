"""One step of an operator applied to a list of tuples, at the speed of C loops.

A stage is called with a list and gives back the results of all of it. Only if the function of
the user has failed for some tuple does it give one entry per tuple instead, so that the results
stay in order while the failed tuples are tried again. The happy path costs no line of Python per
tuple beyond the user's own.
"""

from __future__ import annotations

import asyncio
import inspect
import marshal
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, compress
from types import CoroutineType
from typing import Any

from anabranch.runtime.plan.operator import Step
from anabranch.runtime.processing.foreign_tasks import is_ours, take_back, was_cancelled
from anabranch.runtime.processing.own import OwnWatch, apart
from anabranch.runtime.processing.plain_calls import NoLoop
from anabranch.runtime.values.foreign import type_name

_PLAIN_LISTS = frozenset((list, tuple))
_HAVE_TRUTH = frozenset((bool, int, float, str, bytes, type(None), list, tuple, dict, set))
"""Types whose truth no code of a user decides."""


@dataclass(slots=True)
class StageFailure:
    """What a function raised for one tuple."""

    error: BaseException


Parts = list[list[Any] | StageFailure]
Ran = tuple[list[Any], Parts | None]
"""All results and None; or, if something failed, nothing and an entry per tuple in order."""


class Stage(ABC):
    """`is_batch`: `run` gives a single part for all tuples if it fails. `apart`: otherwise `run`
    gives entries whenever one tuple may have another number of results than one. `plain`: `call`
    does the same without awaiting anything, for callers that have hidden the loop (`NoLoop`).
    `selects`: the results are some of the tuples."""

    is_batch = False
    plain = False
    selects = False
    apart = False

    def __init__(self, step: Step, fn: Callable[..., Any]) -> None:
        self.step = step
        self.fn = fn
        self.stops: Callable[[], bool] = lambda: True
        """Whether the runtime is about to end the task in which `run` is awaited."""
        self.watch = OwnWatch()

    @abstractmethod
    async def run(self, tuples: list[Any]) -> Ran: ...

    def call(self, tuples: list[Any]) -> Ran:
        raise NotImplementedError

    def taken(self, result: Any) -> Any:
        """What goes on instead of what the function has returned, while that is watched."""
        taken = self.watch.taken(result)
        if self.step.kind == "flat_map" and type(taken) in _PLAIN_LISTS:
            return apart(taken)
        return taken

    def keep_apart(self) -> None:
        """From now on it must be seen which result is of which tuple."""
        self.apart = True

    def marks(self, marks: list[float], results: list[Any]) -> list[float]:
        """Those of all results, where these were made of many tuples at once. If there is not one
        result for each tuple, it is not known which tuples a result is of, so all get the earliest
        mark."""
        if self.step.kind != "flat_map" and len(results) == len(marks):
            return marks
        return [min(marks)] * len(results)


class EachStage(Stage):
    """A function that is called once per tuple. Subclasses define what its results mean."""

    one_each = False
    plain = True

    async def run(self, tuples: list[Any]) -> Ran:
        with NoLoop():
            return self.call(tuples)

    def call(self, tuples: list[Any]) -> Ran:
        if self.watch.on:
            results, errors = call_each(self._watched, tuples)
            self.watch.look()
        else:
            results, errors = call_each(self.fn, tuples)
        return self.gather(tuples, results, errors)

    def _watched(self, one: Any) -> Any:
        return self.taken(self.fn(one))

    def gather(
        self, tuples: list[Any], results: list[Any], errors: dict[int, BaseException]
    ) -> Ran:
        """`results` and `errors` as `call_each` returns them."""
        together = self.one_each or not self.apart
        if together and not errors:
            out = self.together(tuples, results)
            if out is not None:
                return out, None
        values, bad = call_each(self.convert, results)
        if together and not errors and not bad:
            return [v for i, value in enumerate(values) for v in self.one(tuples[i], value)], None
        good, returned, parts = iter(values), 0, Parts()
        for index, one in enumerate(tuples):
            if index in errors:
                parts.append(StageFailure(errors[index]))
                continue
            if returned in bad:
                parts.append(StageFailure(bad[returned]))
            else:
                parts.append(self.one(one, next(good)))
            returned += 1
        return [], parts

    @abstractmethod
    def together(self, tuples: list[Any], results: list[Any]) -> list[Any] | None:
        """What the step gives for all tuples; None if a result needs a closer look."""

    @abstractmethod
    def convert(self, result: Any) -> Any:
        """The closer look at one result; raises what is wrong with it."""

    @abstractmethod
    def one(self, one: Any, value: Any) -> list[Any]:
        """What the step gives for one tuple, from its converted result."""


class MapStage(EachStage):
    one_each = True

    def together(self, tuples: list[Any], results: list[Any]) -> list[Any]:
        return results

    def convert(self, result: Any) -> Any:
        return result

    def one(self, one: Any, value: Any) -> list[Any]:
        return [value]


class DroppingStage(MapStage):
    """Drops the results, so that only this stage can see a coroutine that never ran."""

    def together(self, tuples: list[Any], results: list[Any]) -> list[Any] | None:  # type: ignore[override]
        return None if CoroutineType in set(map(type, results)) else results

    def convert(self, result: Any) -> Any:
        return _no_coroutine(self.step.kind, result)


class FilterStage(EachStage):
    selects = True

    def together(self, tuples: list[Any], results: list[Any]) -> list[Any] | None:
        bools = _as_bools(results)
        if bools == len(results) * b"T":
            return list(tuples)
        if bools or _HAVE_TRUTH.issuperset(map(type, results)):
            return list(compress(tuples, results))
        return None

    def convert(self, result: Any) -> Any:
        return bool(_no_coroutine(self.step.kind, result))

    def one(self, one: Any, value: Any) -> list[Any]:
        return [one] if value else []


class FlatMapStage(EachStage):
    """Atomic per tuple: if a generator raises midway, nothing of that tuple comes out."""

    def together(self, tuples: list[Any], results: list[Any]) -> list[Any] | None:
        if _PLAIN_LISTS.issuperset(map(type, results)):
            return list(chain.from_iterable(results))
        return None

    def convert(self, result: Any) -> Any:
        try:
            each = iter(result)
        except TypeError:
            raise TypeError(
                f"flat_map expects a list or another iterable back, got {_a(result)}"
            ) from None
        return list(map(self.watch.taken, each) if self.watch.on else each)

    def one(self, one: Any, value: Any) -> list[Any]:
        return value  # type: ignore[no-any-return]


class AsyncStage(Stage):
    """Awaits the function for one tuple after the other; operators open several such calls."""

    def __init__(self, plain: EachStage) -> None:
        super().__init__(plain.step, plain.fn)
        self._plain = plain
        self._generates = inspect.isasyncgenfunction(_callee(plain.fn))

    def keep_apart(self) -> None:
        self._plain.keep_apart()

    async def run(self, tuples: list[Any]) -> Ran:
        results: list[Any] = []
        errors: dict[int, BaseException] = {}
        task = asyncio.current_task()
        for index, one in enumerate(tuples):
            try:
                if self._generates:
                    results.append([self._yielded(item) async for item in self.fn(one)])
                else:
                    results.append(self._taken(await self.fn(one)))
                if was_cancelled(task) and not self.stops():
                    results.pop()
                    raise asyncio.CancelledError
            except BaseException as error:
                if is_ours(error, task, self.stops):
                    raise
                await take_back(task)
                errors[index] = error
        with NoLoop():
            self.watch.look()
            return self._plain.gather(tuples, results, errors)

    def _yielded(self, item: Any) -> Any:
        return self.watch.taken(item) if self.watch.on else item

    def _taken(self, result: Any) -> Any:
        return self.taken(result) if self.watch.on else result


class BatchStage(Stage):
    """A function that is called with a list of tuples and returns a list; `drops`: or anything."""

    is_batch = True

    def __init__(self, step: Step, fn: Callable[..., Any], drops: bool = False) -> None:
        super().__init__(step, fn)
        self._drops = drops
        self._is_async = is_async(fn)

    async def run(self, tuples: list[Any]) -> Ran:
        task = asyncio.current_task()
        try:
            with NoLoop():
                result = self.fn(list(tuples))  # a copy: the function may sort or empty it
                if type(result) is list:
                    return self._checked(tuples, result), None
            if inspect.isawaitable(result):
                # A task of its own, where the one in work is not the function's.
                result = await (result if self._is_async else asyncio.ensure_future(result))
                if was_cancelled(task) and not self.stops():
                    raise asyncio.CancelledError
            with NoLoop():
                return self._checked(tuples, result), None
        except BaseException as error:
            if is_ours(error, task, self.stops):
                raise
            await take_back(task)
            return [], [StageFailure(error)]

    def _checked(self, tuples: list[Any], result: Any) -> list[Any]:
        if self._drops:
            return []
        kind = self.step.kind
        if not isinstance(result, (list, tuple)):
            raise TypeError(f"{kind} with batch=True expects a list back, got {_a(result)}")
        if kind == "map" and len(result) != len(tuples):
            raise ValueError(
                f"map with batch=True expects one result per tuple: "
                f"got {len(result)} for {len(tuples)}"
            )
        if kind == "filter" and len(result) > len(tuples):
            raise ValueError(
                f"filter with batch=True cannot return more than it got: "
                f"{len(result)} of {len(tuples)}"
            )
        if self.watch.on:
            self.watch.look()
            return list(map(self.watch.taken, result))
        return list(result)  # the function may keep its own


def make_stage(step: Step, fn: Callable[..., Any], drops: bool) -> Stage:
    """`fn` is the step's function, or the object made from its class.

    `drops`: results are dropped, so a batch function may return anything.
    """
    if step.batch:
        return BatchStage(step, fn, drops)
    kinds: dict[str, type[EachStage]] = {
        "map": MapStage,
        "filter": FilterStage,
        "flat_map": FlatMapStage,
    }
    if is_async(fn):
        return AsyncStage(kinds[step.kind](step, fn))
    return DroppingStage(step, fn) if drops and step.kind == "map" else kinds[step.kind](step, fn)


def is_async(fn: Callable[..., Any]) -> bool:
    callee = _callee(fn)
    return inspect.iscoroutinefunction(callee) or inspect.isasyncgenfunction(callee)


def _callee(fn: Callable[..., Any]) -> Any:
    """What runs when `fn` is called: of an object its `__call__`."""
    while isinstance(fn, partial):
        fn = fn.func
    if inspect.isroutine(fn) or isinstance(fn, type):
        return fn
    return getattr(fn, "__call__", fn)  # noqa: B004 - it may be async


def call_each(
    fn: Callable[[Any], Any], tuples: Sequence[Any]
) -> tuple[list[Any], dict[int, BaseException]]:
    """Results of the calls that succeeded, in order, and by index what the others raised.

    An exception ends the C loop; the iterator then stands behind the tuple which caused it, so
    the loop is simply entered again. `StopIteration` ends it silently: a function such as
    `lambda it: next(it)` would swallow tuples, were the counts not compared.
    """
    results: list[Any] = []
    errors: dict[int, BaseException] = {}
    remaining = iter(tuples)
    while True:
        try:
            results.extend(map(fn, remaining))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            errors[len(results) + len(errors)] = error
        else:
            if len(results) + len(errors) == len(tuples):
                return results, errors
            errors[len(results) + len(errors)] = RuntimeError("the function raised StopIteration")


def _as_bools(results: list[Any]) -> bytes:
    """A byte for each of them, `T` for what is True, if all are bools, or None; else nothing.

    Looked at by `marshal`, which is much faster than `map(type, results)`: a bool takes one byte
    there, and nothing else does but three constants that have a truth. Five begin the list."""
    if not results or type(results[0]) is not bool:
        return b""
    try:
        data = marshal.dumps(results)
    except ValueError:
        return b""
    return data[5:] if len(data) == len(results) + 5 else b""


def _no_coroutine(kind: str, result: Any) -> Any:
    """It would never run, and is true whatever it would return."""
    if type(result) is CoroutineType:
        result.close()
        raise TypeError(f"{kind} got a coroutine back: define the function with `async def`")
    return result


def _a(value: Any) -> str:
    return "None" if value is None else f"a value of type {type_name(value)}"
