"""How much an object keeps: the sizes of all tables that can be reached from it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

SLACK = 30
"""Tables breathe: a batch more is on its way, a neighbour more is known."""


def sizes(root: Any) -> Counter[str]:
    """Entries by the class and attribute that they belong to, all objects of the class together.
    What has a bound by itself does not count."""
    found: Counter[str] = Counter()
    seen: dict[int, Any] = {}
    waiting = [("", root)]
    while waiting:
        way, one = waiting.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one  # kept, or another one may get its id
        if isinstance(one, deque) and one.maxlen is not None:
            continue
        if isinstance(one, Mapping | list | set | frozenset | tuple | deque):
            found[way] += 0 if hasattr(one, "_fields") else len(one)  # a record is no table
            waiting += [(f"{way}[]", each) for each in _elements(one)]
        elif type(one).__module__.startswith("anabranch.runtime.world."):
            continue  # its network leads to all other instances
        elif type(one).__module__.startswith("anabranch."):
            owner = type(one).__name__
            waiting += [(f"{owner}.{name}", value) for name, value in _attributes(one)]
    return found


def grown(before: Counter[str], after: Counter[str]) -> dict[str, tuple[int, int]]:
    return {way: (before[way], after[way]) for way in after if after[way] > before[way] + SLACK}


def _elements(table: Collection[Any]) -> Iterator[Any]:
    yield from table
    if isinstance(table, Mapping):
        yield from table.values()


def _attributes(one: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(one, "__dict__", {}).items()
    for kind in type(one).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(one, name):
                yield name, getattr(one, name)
