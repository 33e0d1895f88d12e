"""The keys of tuples, as a function of the user gives them; tuples without one are dead letters."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Generic, NamedTuple, TypeVar

from anabranch.runtime.keyed.groups import plain_key, plain_keys
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.processing.plain_calls import NoLoop
from anabranch.runtime.processing.stages import call_each
from anabranch.runtime.values.foreign import describe

T = TypeVar("T")
G = TypeVar("G")


class WithKeys(NamedTuple, Generic[G]):
    """Tuples, their keys and what was looked up for these, side by side; and those without a
    key."""

    tuples: list[Any]
    keys: list[Any]
    looked_up: list[G]
    marks: list[float]
    dead: list[DeadLetter]


def with_keys(
    operator: str,
    key: Callable[[Any], Any],
    look_up: Callable[[Any], G],
    tuples: list[Any],
    marks: list[float],
) -> WithKeys[G]:
    """Ask for the key of each tuple, once. `operator`: that the keys are for. `look_up`: what is
    wanted by plain key, such as its group; raises for what is no key. `marks`: of the tuples, or
    none."""
    dead: list[DeadLetter] = []
    with NoLoop():
        keys, failed = call_each(key, tuples)
        if failed:
            tuples, marks = _sound(operator, tuples, failed, dead), _left(marks, failed)
        keys, failed = _plain(keys)
        if failed:
            tuples, marks = _sound(operator, tuples, failed, dead), _left(marks, failed)
        looked_up, failed = call_each(look_up, keys)
        if failed:
            keys = _left(keys, failed)
            tuples, marks = _sound(operator, tuples, failed, dead), _left(marks, failed)
    return WithKeys(tuples, keys, looked_up, marks, dead)


def _plain(keys: list[Any]) -> tuple[list[Any], dict[int, BaseException]]:
    try:
        return plain_keys(keys), {}
    except KeyboardInterrupt:
        raise
    except BaseException:  # one of them has code of its own
        return call_each(plain_key, keys)


def _sound(
    operator: str, tuples: list[Any], failed: dict[int, BaseException], dead: list[DeadLetter]
) -> list[Any]:
    """Those that have not failed; the others are `dead`."""
    for at, error in failed.items():
        dead.append(
            DeadLetter(f"has no key for operator {operator!r}: {describe(error)}", tuples[at])
        )
    return _left(tuples, failed)


def _left(values: list[T], failed: Container[int]) -> list[T]:
    return [value for at, value in enumerate(values) if at not in failed]
