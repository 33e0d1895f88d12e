"""What is made of the tuples of a window, one after the other, without keeping them.

An aggregation is given an accumulator and a tuple and gives the next accumulator. Accumulators
travel with their keys from instance to instance, so they must pickle.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from anabranch.runtime.keyed.parts import PartLog
from anabranch.runtime.keyed.windows import Retraction, WindowResult
from anabranch.runtime.processing.own import copied, copied_all

Value = Callable[[Any], Any]


class Aggregation(ABC):
    """Write one of your own with these four. If `add` raises, the tuple becomes a dead letter, and
    the accumulator is what it was."""

    changes = True
    """Whether an accumulator may be changed in place, by `add` or by `result`."""
    collects = False
    """Whether tuples are kept as they are, and no function sees them before `result`."""

    @abstractmethod
    def new(self) -> Any:
        """The accumulator of a window without tuples."""

    @abstractmethod
    def add(self, accumulator: Any, item: Any) -> Any:
        """The accumulator with one tuple more; it may be changed in place and returned."""

    @abstractmethod
    def result(self, accumulator: Any) -> Any:
        """What is emitted for the window. The accumulator may get more tuples afterwards."""

    @abstractmethod
    def merge(self, first: Any, second: Any) -> Any:
        """One accumulator for the tuples of two, the first of which may be changed in place;
        sessions that grow together need it."""

    def empty(self) -> Any:
        """The value of a window that has lost its tuples: the result of a new accumulator, or None
        if that raises an error."""
        try:
            return self.result(self.new())
        except KeyboardInterrupt:
            raise
        except BaseException:  # such as SystemExit
            return None

    def copy(self, accumulator: Any) -> Any:
        """One that stays as it is, whatever is added to the other. Called when a late tuple changes
        a window that has emitted a result already."""
        return copied(accumulator)

    def handed(self, accumulator: Any) -> Any:
        """What `result` may be given of an accumulator that is still needed."""
        return copied(accumulator) if self.changes else accumulator


def _itself(item: Any) -> Any:
    return item


class _Total(Aggregation):
    changes = False

    def __init__(self, value: Value) -> None:
        self._value = value

    def new(self) -> Any:
        return 0

    def add(self, accumulator: Any, item: Any) -> Any:
        return accumulator + self._value(item)

    def result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, first: Any, second: Any) -> Any:
        return first + second

    def copy(self, accumulator: Any) -> Any:
        return accumulator


class _Tally(_Total):
    def __init__(self) -> None:
        super().__init__(_itself)

    def add(self, accumulator: Any, item: Any) -> Any:
        return accumulator + 1


class _Mean(Aggregation):
    """Sums with the rounding errors kept apart (Neumaier 1974), so that the mean of many does not
    depend on their order by more than the last digit."""

    changes = False

    def __init__(self, value: Value) -> None:
        self._value = value

    def new(self) -> Any:
        return (0.0, 0.0, 0)

    def add(self, accumulator: Any, item: Any) -> Any:
        total, error, n = accumulator
        return (*_added(total, error, float(self._value(item))), n + 1)

    def result(self, accumulator: Any) -> Any:
        total, error, n = accumulator
        return (total + error if math.isfinite(error) else total) / n

    def merge(self, first: Any, second: Any) -> Any:
        total, error = _added(first[0], first[1] + second[1], second[0])
        return total, error, first[2] + second[2]

    def copy(self, accumulator: Any) -> Any:
        return accumulator


def _added(total: float, error: float, value: float) -> tuple[float, float]:
    new = total + value
    if abs(total) >= abs(value):
        return new, error + ((total - new) + value)
    return new, error + ((value - new) + total)


class _Extreme(Aggregation):
    changes = False

    def __init__(self, value: Value, better: Callable[[Any, Any], bool]) -> None:
        self._value = value
        self._better = better

    def new(self) -> Any:
        return None

    def add(self, accumulator: Any, item: Any) -> Any:
        value = self._value(item)
        if accumulator is None or self._better(value, accumulator[0]):
            return (value,)
        return accumulator

    def result(self, accumulator: Any) -> Any:
        return accumulator[0]

    def merge(self, first: Any, second: Any) -> Any:
        if first is None or second is None:
            return second if first is None else first
        return second if self._better(second[0], first[0]) else first

    def copy(self, accumulator: Any) -> Any:
        return accumulator


def _less(a: Any, b: Any) -> bool:
    return bool(a < b)


def _more(a: Any, b: Any) -> bool:
    return bool(a > b)


class Collecting(Aggregation):
    """All tuples, in the order in which they came (of sessions that grew together: one session
    after the other); `finish` makes a value of them."""

    collects = True

    def __init__(self, finish: Callable[[list[Any]], Any]) -> None:
        self._finish = finish

    def new(self) -> PartLog:
        return PartLog()

    def add(self, accumulator: PartLog, item: Any) -> PartLog:
        accumulator.append(item)
        return accumulator

    def result(self, accumulator: PartLog) -> Any:
        return self._finish([*accumulator])

    def merge(self, first: PartLog, second: PartLog) -> PartLog:
        first.extend(second)
        return first

    def copy(self, accumulator: PartLog) -> PartLog:
        return accumulator.copy()

    def handed(self, accumulator: PartLog) -> Any:
        return copied_all([*accumulator])


NO_TUPLES: Any = object()
"""The result of a window of which all was taken back."""


class OfResults(Collecting):
    """Another aggregation, over results of windows that may be corrected or retracted: of each of
    these windows the last result counts, in the place of its first. All of them are kept."""

    def __init__(self, aggregation: Aggregation) -> None:
        super().__init__(self._aggregated)
        self._aggregation = aggregation

    def add(self, accumulator: PartLog, item: Any) -> PartLog:
        if not isinstance(item, Retraction):
            # What cannot count must show it now, not whenever the window is emitted.
            self._aggregation.add(copied(self._aggregation.new()), copied(item))
        return super().add(accumulator, item)

    def empty(self) -> Any:
        return self._aggregation.empty()

    def _aggregated(self, items: list[Any]) -> Any:
        latest = latest_of(items)
        if not latest:
            return NO_TUPLES
        accumulator = copied(self._aggregation.new())
        for one in latest:
            accumulator = self._aggregation.add(accumulator, one)
        return self._aggregation.result(accumulator)


def latest_of(items: Iterable[Any]) -> list[Any]:
    """Without the results that others have replaced or retracted."""
    latest: dict[Any, Any] = {}
    for number, item in enumerate(items):
        if not isinstance(item, WindowResult):
            latest[number] = item
            continue
        of_window = item.key, item.start
        before = latest.get(of_window)
        if before is None or before.revision <= item.revision:
            latest[of_window] = item
    return [item for item in latest.values() if not isinstance(item, Retraction)]


class Folded(Aggregation):
    """A fold, tuple by tuple: of the tuples nothing is kept but its value."""

    def __init__(self, initial: Any, fn: Callable[[Any, Any], Any]) -> None:
        self._initial = initial
        self._fn = fn

    def new(self) -> Any:
        # A function may give the same value for all windows.
        return copied(self._initial() if callable(self._initial) else self._initial)

    def add(self, accumulator: Any, item: Any) -> Any:
        return self._fn(accumulator, item)

    def result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, first: Any, second: Any) -> Any:
        raise TypeError("two values of a fold cannot be made one; sessions keep their tuples")


class Reduced(Folded):
    """As a fold that begins with a copy of the first tuple. The accumulator is (value,), or None
    before the first."""

    def __init__(self, fn: Callable[[Any, Any], Any]) -> None:
        super().__init__(None, fn)

    def add(self, accumulator: Any, item: Any) -> Any:
        return (copied(item) if accumulator is None else self._fn(accumulator[0], item),)

    def result(self, accumulator: Any) -> Any:
        return accumulator[0]


class Fold:
    """A fold over the tuples of a window, in their order."""

    def __init__(self, initial: Any, fn: Callable[[Any, Any], Any]) -> None:
        self._initial = initial
        self._fn = fn

    def __call__(self, tuples: list[Any]) -> Any:
        value = copied(self._initial() if callable(self._initial) else self._initial)
        for one in tuples:
            value = self._fn(value, one)
        return value


class Reduce:
    """The first tuple is a copy: it may be needed again, for another window or result."""

    def __init__(self, fn: Callable[[Any, Any], Any]) -> None:
        self._fn = fn

    def __call__(self, tuples: list[Any]) -> Any:
        value = copied(tuples[0])
        for one in tuples[1:]:
            value = self._fn(value, one)
        return value


def total(value: Value = _itself) -> Aggregation:
    """The sum of `value(tuple)`."""
    return _Total(value)


def tally() -> Aggregation:
    """How many tuples."""
    return _Tally()


def mean(value: Value = _itself) -> Aggregation:
    """The arithmetic mean of `value(tuple)`."""
    return _Mean(value)


def least(value: Value = _itself) -> Aggregation:
    """The smallest `value(tuple)`; the first of equals."""
    return _Extreme(value, _less)


def greatest(value: Value = _itself) -> Aggregation:
    """The largest `value(tuple)`; the first of equals."""
    return _Extreme(value, _more)
