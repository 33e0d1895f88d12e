"""Equal keys belong to one group, everywhere and always; what cannot be a key is refused."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.keyed import groups
from anabranch.runtime.keyed.groups import (
    GroupCache,
    KeyTypeError,
    group_of,
    plain_key,
    plain_keys,
)

GROUPS = 32_768
"""So many that two keys hardly share one by chance."""

keys = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=8,
)


class Level(IntEnum):
    LOW = 1


class Mood(StrEnum):
    GOOD = "good"


class OldMood(str, Enum):  # noqa: UP042 - as it was written before there was StrEnum
    GOOD = "good"


class Place(NamedTuple):
    x: Any
    y: Any


@pytest.mark.parametrize(
    "equal",
    [
        [1, 1.0, True, Level.LOW, np.float64(1), np.int8(1), np.True_],
        [0, 0.0, -0.0, False],
        [2**53, float(2**53)],
        [10**22, 1e22],
        [-(2**63) - 1, (-(2**63) - 1)],
        ["good", Mood.GOOD, OldMood.GOOD, np.str_("good")],
        [b"good", np.bytes_(b"good")],
        [0.5, np.float32(0.5)],
        [(1, "a"), Place(1, "a"), (np.int64(1), np.str_("a")), (True, "a"), Place(1.0, "a")],
        [((0,), None), ((-0.0,), None)],
        [math.inf, float("inf")],
    ],
)
def test_equal_keys_belong_to_one_group(equal: list[Any]) -> None:
    assert len({*equal}) == 1
    assert len({group_of(key, GROUPS) for key in equal}) == 1


class AnyCase(str):
    """A text that equals others."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and str(self).lower() == str(other).lower()

    def __hash__(self) -> int:
        return hash(str(self).lower())


def disguised(key: Any) -> Any:
    """An equal key of other types."""
    match key:
        case bool():
            return float(key)
        case int():
            return float(key) if abs(key) < 2**53 else key
        case float() if key.is_integer():
            return int(key)
        case str():
            return np.str_(key) if "\0" not in key else key
        case (x, y):
            return Place(disguised(x), disguised(y))
        case tuple():
            return tuple(map(disguised, key))
    return key


@given(keys)
def test_whatever_is_one_key_of_a_dictionary_belongs_to_one_group(key: Any) -> None:
    other = disguised(key)
    assert {key: "same"}[other] == "same"
    assert group_of(key, GROUPS) == group_of(other, GROUPS)
    assert 0 <= group_of(key, 7) < 7


def test_keys_that_look_alike_but_differ_have_groups_of_their_own() -> None:
    alike = ["1", b"1", 1, (1,), ("1",), ((1,),), None, ()]
    assert len({group_of(key, GROUPS) for key in alike}) == len(alike)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (Decimal("0.1"), "Decimal Decimal\\('0.1'\\) cannot be a key: no int or float equals it"),
        (Decimal("1e999999999"), "Decimal"),
        (frozenset([1]), "frozenset cannot be a key"),
        ((1, Decimal("0.1")), "Decimal"),
        (Fraction(1, 3), "Fraction"),
        (1j, "complex"),
        (np.datetime64(1, "ns"), "datetime64 cannot be a key"),
        (np.timedelta64(1, "ns"), "timedelta64 cannot be a key"),
        (np.longdouble("0.1"), "longdouble"),
        (AnyCase("a"), "AnyCase cannot be a key"),
        (math.nan, "NaN"),
        ((0, math.nan), "NaN"),
    ],
)
def test_what_cannot_be_a_key_is_refused_by_name(key: Any, message: str) -> None:
    with pytest.raises(KeyTypeError, match=message):
        group_of(key, 16)
    with pytest.raises(KeyTypeError, match=message):
        GroupCache(16)[key]


def test_tuples_within_tuples_have_a_depth_that_is_refused_and_not_a_crash() -> None:
    key: Any = ()
    for _ in range(100_0):
        key = (key,)
    with pytest.raises(KeyTypeError, match="too deep"):
        group_of(key, 16)


def test_long_numbers_and_half_characters_are_keys() -> None:
    assert 0 <= group_of(10**5000, 16) < 16
    assert 0 <= group_of("\ud800", 16) < 16


@pytest.mark.parametrize(
    "many",
    [
        range(4096),
        [0.5 * n for n in range(4096)],
        [f"sensor-{n:04}" for n in range(4096)],
        [(n // 64, f"s{n % 64}") for n in range(4096)],
        [256 * n for n in range(4096)],
    ],
    ids=["ints", "floats", "names", "tuples", "multiples"],
)
def test_regular_keys_spread_over_all_groups(many: Any) -> None:
    sizes = Counter(group_of(key, 64) for key in many)
    assert len(sizes) == 64
    assert max(sizes.values()) < 2 * 4096 / 64


def test_another_process_finds_the_same_groups() -> None:
    some = ["a", 1, 2.5, None, b"x", ("a", 1)]
    code = (
        "from anabranch.runtime.keyed.groups import group_of\n"
        f"print([group_of(key, {GROUPS}) for key in {some!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7"},
    )
    assert done.stdout.strip() == str([group_of(key, GROUPS) for key in some])


def test_the_memory_of_groups_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "CACHED_MAX", 10)
    cache = GroupCache(16)
    found = [cache[n] for n in range(100)]
    assert len(cache) <= 10
    assert found == [group_of(n, 16) for n in range(100)]


@pytest.mark.parametrize("foreign", [AnyCase("a"), (AnyCase("a"), 1), ((AnyCase("a"),),)])
def test_what_equals_a_key_is_no_key_whatever_has_come_before(foreign: Any) -> None:
    cache = GroupCache(16)
    for known in ("a", ("a", 1), (("a",),)):
        cache[known]
    assert foreign in cache
    with pytest.raises(KeyTypeError, match="cannot be a key"):
        plain_keys([1, foreign])


def test_scalars_and_numbers_become_the_keys_that_they_equal() -> None:
    scalars = [np.int64(1), np.float32(0.1), np.True_, np.str_("a"), (np.int8(2), "b")]
    keys = [*scalars, Decimal(1), Decimal("0.5"), Fraction(1, 2), Decimal(2**60 + 1)]
    plain = plain_keys(keys)
    assert plain == keys
    assert [type(key) for key in plain] == [int, float, bool, str, tuple, int, float, float, int]
    assert type(plain[4][0]) is int


def test_members_of_enums_and_named_tuples_stay_what_they_are() -> None:
    for key in (Level.LOW, Mood.GOOD, Place(1, "a")):
        assert plain_key(key) is key
    assert plain_key(Place(np.int64(1), "a")) == Place(1, "a")
    assert type(plain_key(Place(np.int64(1), "a"))) is Place


def test_plain_keys_are_not_copied() -> None:
    keys = [1, "a", None, (1, b"a")]
    assert plain_keys(keys) is keys
