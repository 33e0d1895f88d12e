"""Values that are copied by a shallow copy, and what puts states back."""

from __future__ import annotations

import pickle
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.processing.undo import Undo, Unpicklable
from anabranch.runtime.values.flat import NOTHING, PARTS_MAX, flat_copy, is_plain
from anabranch.runtime.values.sharing import share

atoms = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.dates()
fixed = atoms | st.tuples(atoms, atoms)
flat: st.SearchStrategy[Any] = (
    st.lists(fixed, max_size=30)
    | st.dictionaries(fixed, fixed, max_size=30)
    | st.sets(fixed, max_size=5)
    | st.builds(deque, st.lists(fixed, max_size=5))
)
values: st.SearchStrategy[Any] = st.recursive(
    fixed | flat,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(atoms, inner, max_size=4)
        | st.builds(deque, st.lists(inner, max_size=3))
        | st.builds(SimpleNamespace, a=inner, b=inner)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


@given(values)
def test_a_flat_copy_is_equal_and_shares_nothing(value: Any) -> None:
    copy = flat_copy(value)
    if copy is not NOTHING:
        assert copy == value
        assert type(copy) is type(value)
        assert not share([copy, value])


def spoil(value: Any) -> None:
    """Change all that can change in it."""
    if isinstance(value, SimpleNamespace):
        spoil(vars(value))
    elif isinstance(value, dict | list | tuple | deque):
        for one in value.values() if isinstance(value, dict) else value:
            spoil(one)
    if isinstance(value, dict | list | set | deque):
        value.clear()
    if isinstance(value, dict):
        value["spoilt"] = [1]


@given(values, st.integers(0, 2))
def test_a_state_is_put_back_whatever_a_call_has_made_of_it(value: Any, calls: int) -> None:
    undo, before = Undo(always=True), pickle.loads(pickle.dumps(value))
    for _ in range(calls):
        value = undo.checked("name", value)
    assert value == before
    saved = undo.save("name", value)
    spoil(value)
    assert undo.put_back(value, saved) == before


@given(values)
def test_what_is_kept_of_a_state_is_held_by_nothing_else(value: Any) -> None:
    undo = Undo(always=True)
    kept = undo.kept("name", value, 1)
    assert kept == value
    assert kept is value or not share([kept, value])
    assert not share([kept, undo.another("name", kept)])


def test_a_state_that_holds_one_list_twice_does_so_when_it_is_put_back() -> None:
    undo, inner = Undo(), [1]
    state = {"a": inner, "b": inner}
    del inner
    state = undo.checked("name", state)
    saved = undo.save("name", state)
    state.clear()
    again = undo.put_back(state, saved)
    assert again == {"a": [1], "b": [1]}
    assert again["a"] is again["b"]


class Plain:
    def __init__(self) -> None:
        self.n = 1


@dataclass
class Data:
    n: int = 1


class Odd(Plain):
    def __reduce__(self) -> Any:
        return Odd, ()


class Stately(Plain):
    def __getstate__(self) -> Any:
        return None


class Slotted:
    __slots__ = ("n",)


class Listed(list[int]):
    pass


class Colour(Enum):
    RED = 1


@pytest.mark.parametrize(
    ("kind", "plain"),
    [
        (SimpleNamespace, True),
        (Plain, True),
        (Data, True),
        *((kind, False) for kind in (Odd, Stately, Slotted, Listed, Colour, OrderedDict, object)),
        *((kind, False) for kind in (int, type, ValueError)),
    ],
)
def test_plain_objects_are_what_is_in_their_dict(kind: type, plain: bool) -> None:
    assert is_plain(kind) == plain


@pytest.mark.parametrize("make", [dict, Plain, SimpleNamespace])
def test_what_becomes_unpicklable_later_is_found(make: Callable[[], Any]) -> None:
    undo, state = Undo(), make()
    for n in range(3):
        held_by(state)["n"] = n
        state = undo.checked("name", state)
    saved = undo.save("name", state)
    held_by(state)["bad"] = lambda: 1
    with pytest.raises(Unpicklable):
        undo.checked("name", state)
    assert held_by(undo.put_back(state, saved)) == {"n": 2}


def held_by(state: Any) -> dict[str, Any]:
    return state if isinstance(state, dict) else vars(state)


def test_large_containers_are_pickled() -> None:
    assert flat_copy([0] * (PARTS_MAX + 1)) is NOTHING
