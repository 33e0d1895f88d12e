"""The keys of tuples, as a function of the user gives them; tuples without one are dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from anabranch.runtime.ends import DeadLetter
from anabranch.runtime.foreign import describe
from anabranch.runtime.keyed.groups import GroupCache, plain_key, plain_keys
from anabranch.runtime.plain_calls import NoLoop
from anabranch.runtime.stages import call_each


class WithKeys(NamedTuple):
    """Tuples, their keys and the groups of these, side by side; and those without a key."""

    tuples: list[Any]
    keys: list[Any]
    groups: list[int]
    dead: list[DeadLetter]


def with_keys(
    operator: str, key: Callable[[Any], Any], group_of: GroupCache, tuples: list[Any]
) -> WithKeys:
    """Ask for the key of each tuple, once. `operator`: that the keys are for."""
    dead: list[DeadLetter] = []
    with NoLoop():
        keys, failed = call_each(key, tuples)
        if failed:
            tuples = _sound(operator, tuples, failed, dead)
        keys, failed = _plain(keys)
        if failed:
            tuples = _sound(operator, tuples, failed, dead)
        groups, failed = call_each(group_of.__getitem__, keys)
        if failed:
            keys = [k for at, k in enumerate(keys) if at not in failed]
            tuples = _sound(operator, tuples, failed, dead)
    return WithKeys(tuples, keys, groups, dead)


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
    return [one for at, one in enumerate(tuples) if at not in failed]
