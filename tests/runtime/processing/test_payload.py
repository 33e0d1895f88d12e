"""Batches come out of the encoding as they went in: equal, of equal types, in order."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import math
import pickle
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.limits import Limits
from anabranch.runtime.keyed.windows import Moved, Retraction, WindowResult
from anabranch.runtime.processing.payload import Encoder, PayloadError, decode, describe
from anabranch.runtime.processing.salvage import decode_batch


class Text(str):
    __slots__ = ()


class Colour(enum.IntEnum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: int
    y: Any


class Unwilling:
    def __reduce__(self) -> Any:
        raise ValueError("not me")


class TwoArguments(Exception):
    """Can be pickled, but not unpickled: pickle calls it with the one argument of its base."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Spoilt:
    def __init__(self) -> None:
        self.x = 1

    def __setstate__(self, state: Any) -> None:
        raise RuntimeError("cannot be restored")


class BadHash:
    def __init__(self) -> None:
        self.known = True

    def __setstate__(self, state: Any) -> None:
        """Forgets `known`, so that nothing which needs the hash can be made again."""

    def __hash__(self) -> int:
        return hash(self.known)


def gone() -> None:
    """Stands for a function that the receiver does not have."""


def encode(tuples: list[Any], **limits: int) -> tuple[list[Any], list[Any]]:
    """What arrives, and what died on the way."""
    encoded = Encoder(Limits(**limits)).encode_batches(tuples)
    arrived = []
    for batch in encoded.batches:
        one = decode(batch.data)
        assert len(one) == batch.tuples
        arrived += one
    return arrived, [letter.tuple for letter in encoded.dead]


def same(a: Any, b: Any) -> bool:
    """Equal values of equal types, at every depth; NaN is the same as NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(map(same, a.items(), b.items()))
    return bool(a == b)


ODD = [
    None,
    True,
    0,
    -1,
    2**63,
    2**64,
    -(2**63) - 1,
    10**40,
    1.5,
    -0.0,
    math.inf,
    math.nan,
    "",
    "größer ŁĄ ч 漢 🙂",
    "\ud800",
    "a\x00b",
    b"",
    b"\xff",
    bytearray(b"x"),
    (),
    (1, ("a", [2])),
    [bytearray(b"deep")],
    {"a": {"b": (1,)}},
    {1: "int key", None: 2, 1.5: 3, b"k": 4, (1, 2): 5},
    {1: "a", 2.5: "b", None: "c", False: "d"},
    {1, 2},
    frozenset((1,)),
    Text("sub"),
    [Text("sub")],
    {"k": Text("sub")},
    Colour.RED,
    [Colour.RED],
    collections.OrderedDict(a=1),
    collections.Counter("aab"),
    collections.deque([1], maxlen=3),
    datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
    datetime.date(2026, 1, 2),
    decimal.Decimal("1.10"),
    Point(1, (2,)),
    msgpack.ExtType(1, b"x"),
    1j,
    range(3),
    ...,
]


@pytest.mark.parametrize("value", ODD, ids=[repr(v)[:30] for v in ODD])
def test_a_value_arrives_equal_and_of_the_same_type(value: Any) -> None:
    for tuples in ([value], ["plain", value, 7], [value] * 20):
        arrived, dead = encode(tuples)
        assert same(arrived, tuples)
        assert dead == []


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())  # with surrogates
    | st.binary()
    | st.binary().map(bytearray)
    | st.decimals(allow_nan=False)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(st.lists(st.lists(values, max_size=8), max_size=8))
def test_every_batch_of_a_stream_arrives_whatever_came_before_it(stream: list[list[Any]]) -> None:
    encoder = Encoder(Limits())
    for tuples in stream:
        assert same(decode(encoder.encode(tuples)), tuples)


@given(
    st.lists(st.text(max_size=40), max_size=60),
    st.integers(1, 20),
    st.integers(1, 200),
)
def test_batches_keep_the_order_and_the_limits(
    tuples: list[str], tuples_max: int, bytes_max: int
) -> None:
    limits = Limits(batch_tuples_max=tuples_max, batch_bytes_max=bytes_max)
    encoder = Encoder(limits)
    for _ in range(2):  # the second time it knows how long the tuples are
        encoded = encoder.encode_batches(tuples)
        assert [t for b in encoded.batches for t in decode(b.data)] == tuples
        for batch in encoded.batches:
            assert batch.tuples <= tuples_max
            assert len(batch.data) <= bytes_max or batch.tuples == 1


def test_only_the_tuple_that_cannot_be_pickled_dies() -> None:
    bad = Unwilling()
    tuples = [(i,) for i in range(50)]
    arrived, dead = encode([*tuples[:20], bad, *tuples[20:], (1, [lambda: 0])])
    assert arrived == tuples
    assert dead[0] is bad
    assert len(dead) == 2


def test_the_reason_of_an_unpicklable_tuple_names_the_error() -> None:
    encoded = Encoder(Limits()).encode_batches([Unwilling()])
    assert encoded.batches == []
    assert encoded.dead[0].reason == "cannot be sent to another process: ValueError: not me"


def test_only_the_tuple_above_the_limit_dies() -> None:
    arrived, dead = encode(["a", "x" * 2000, "b"], tuple_bytes_max=1000, batch_bytes_max=300)
    assert arrived == ["a", "b"]
    assert dead == ["x" * 2000]


def test_a_tuple_longer_than_a_batch_travels_alone() -> None:
    encoded = Encoder(Limits(batch_bytes_max=100)).encode_batches(["a", "x" * 500, "b"])
    assert [b.tuples for b in encoded.batches] == [1, 1, 1]


def test_a_value_that_contains_itself_arrives() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    (arrived,) = decode(Encoder(Limits()).encode([loop]))
    assert arrived[1] is arrived


def test_a_value_deeper_than_any_format_takes_is_a_dead_letter_alone() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    arrived, dead = encode(["a", deep, "b"])
    assert arrived == ["a", "b"]
    assert dead[0] is deep


def test_plain_text_is_messagepack_and_tuples_are_pickled_without_an_attempt_each_time() -> None:
    encoder = Encoder(Limits())
    assert msgpack.unpackb(encoder.encode(["a", 1])) == ["a", 1]
    attempts = 0
    pack = encoder._pack

    def counting(tuples: Any) -> bytes:
        nonlocal attempts
        attempts += 1
        return pack(tuples)  # type: ignore[no-any-return]

    encoder._pack = counting
    for _ in range(1000):
        assert pickle.loads(encoder.encode([(1,)])) == [(1,)]
    assert attempts < 15
    for _ in range(300):
        data = encoder.encode(["back to text"])
    assert data[0] != 0x80


def test_bytes_in_the_text_of_any_language_stay_messagepack() -> None:
    data = Encoder(Limits()).encode(["ğ Ł Ąą", b"x", 0xC4C5C6])
    assert data[0] != 0x80
    assert decode(memoryview(data)) == ["ğ Ł Ąą", b"x", 0xC4C5C6]


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x80", b"\x80\x05N.", b"\x07", b"\x91", b"\x92\x01"]
)
def test_bytes_that_are_no_batch_raise_a_payload_error(data: bytes) -> None:
    with pytest.raises(PayloadError):
        decode(data)


@pytest.mark.parametrize(
    "bad",
    [
        TwoArguments(1, "x"),
        (1, TwoArguments(1, "x")),
        [{"k": TwoArguments(1, "x")}],
        Spoilt(),
        (Spoilt(), 2),
        {BadHash(): 1},
        {BadHash(), 2},
        frozenset((BadHash(),)),
    ],
    ids=range(8),
)
@pytest.mark.parametrize("others", [0, 1, 2500])
def test_only_the_tuple_that_cannot_be_read_dies(bad: Any, others: int) -> None:
    sound = [(i, "x") for i in range(others)]
    middle = others // 2
    data = Encoder(Limits()).encode([*sound[:middle], bad, *sound[middle:]])
    tuples, letters = decode_batch(data, others + 1)
    assert tuples == sound
    assert len(letters) == 1
    assert "cannot be read here" in letters[0].reason
    assert letters[0].where == f"number {middle} of its batch"


def test_a_function_that_the_receiver_lacks_kills_only_its_tuple() -> None:
    data = pickle.dumps(["a", (gone, 1), Point(1, 2)], 5).replace(b"gone", b"lost")
    tuples, letters = decode_batch(data, 3)
    assert tuples == ["a", Point(1, 2)]
    assert "AttributeError" in letters[0].reason


def test_two_tuples_that_share_a_spoilt_value_both_die() -> None:
    spoilt = Spoilt()
    data = pickle.dumps([(1, spoilt), (2, spoilt), (3,)], 5)
    tuples, letters = decode_batch(data, 3)
    assert tuples == [(3,)]
    assert len(letters) == 2


@pytest.mark.parametrize("data", [b"", b"\x80\x05N.", b"\x91\x01", b"\x80\x05]", b"\xc1abc"])
def test_every_tuple_of_an_unreadable_batch_is_accounted_for(data: bytes) -> None:
    tuples, letters = decode_batch(data, 4)
    assert tuples == []
    assert len(letters) == 4


def test_an_error_that_cannot_print_itself_is_described() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert describe(Mute()) == "Mute: (its message cannot be printed)"
    assert describe(ValueError("x" * 900)) == "ValueError: " + "x" * 500 + "…"
    assert describe(ValueError()) == "ValueError"


def test_results_of_windows_travel_as_columns_and_come_out_as_they_were() -> None:
    results = [WindowResult(n, 0.0, 60.0, f"value {n}", n % 2) for n in range(100)]
    data = Encoder(Limits()).encode(results)
    after = decode(data)
    assert after == results
    assert {type(one) for one in after} == {WindowResult}
    assert len(data) < len(pickle.dumps(results, 5))


def test_results_of_windows_with_values_that_change_share_none() -> None:
    value = [1]
    first, second = decode(
        Encoder(Limits()).encode([WindowResult(k, 0.0, 1.0, value) for k in "ab"])
    )
    first.value.append(2)
    assert (first.value, second.value) == ([1, 2], [1])


def test_other_results_of_windows_come_out_as_what_they_were() -> None:
    result = WindowResult("k", 0.0, 1.0, 3, 1)
    mixed = [result, Retraction("k", 0.0, 1.0, 0, 2), Moved.of(result, 0.5)]
    for some in (mixed, mixed[1:2], mixed[2:]):
        after = decode(Encoder(Limits()).encode(some))
        assert [(type(one), one, one.earlier_end) for one in after] == [
            (type(one), one, one.earlier_end) for one in some
        ]
