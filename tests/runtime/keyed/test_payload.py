"""Keys and tuples arrive side by side, of the same values and types, in every format."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.limits import Limits
from anabranch.runtime.keyed.payload import KeyedEncoder, Pairs, decode_keyed
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.processing.payload import Batch
from tests.runtime.processing.test_payload import TwoArguments, Unwilling, same, values

PICKLED = b"\x80"

keys = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=2).map(tuple),
    max_leaves=3,
)


def arrived(batches: list[Batch]) -> tuple[list[Any], list[Any]]:
    keys: list[Any] = []
    tuples: list[Any] = []
    for batch in batches:
        some_keys, some, letters = decode_keyed(memoryview(batch.data), batch.tuples)
        assert len(some_keys) == len(some) == batch.tuples
        assert letters == []
        keys += some_keys
        tuples += some
    return keys, tuples


def one_batch(keys: list[Any], tuples: list[Any]) -> Batch:
    (batch,) = KeyedEncoder(Limits()).encode_batches(Pairs(keys, tuples)).batches
    return batch


@given(st.lists(st.lists(st.tuples(keys, values), max_size=8), max_size=6), st.booleans())
def test_keys_and_tuples_arrive_whatever_came_before_them(
    stream: list[list[tuple[Any, Any]]], as_columns: bool
) -> None:
    encoder = KeyedEncoder(Limits())
    for pairs in stream:
        sent = [k for k, _ in pairs], [t for _, t in pairs]
        encoded = encoder.encode_batches(Pairs(*sent) if as_columns else pairs)
        assert same(arrived(encoded.batches), sent)
        assert encoded.dead == []


@given(st.lists(st.text(max_size=40), max_size=60), st.integers(1, 20), st.integers(1, 200))
def test_batches_of_keyed_tuples_keep_the_order_and_the_limits(
    tuples: list[str], tuples_max: int, bytes_max: int
) -> None:
    encoder = KeyedEncoder(Limits(batch_tuples_max=tuples_max, batch_bytes_max=bytes_max))
    keys = [t[:1] for t in tuples]
    for _ in range(2):  # the second time it knows how long the tuples are
        batches = encoder.encode_batches(Pairs(keys, tuples)).batches
        assert arrived(batches) == (keys, tuples)
        for batch in batches:
            assert batch.tuples <= tuples_max
            assert len(batch.data) <= bytes_max or batch.tuples == 1


def test_tuples_that_are_their_own_keys_travel_once() -> None:
    words = [f"word {n}" for n in range(100)]
    once, twice = one_batch(words, words), one_batch([w.upper() for w in words], words)
    assert len(once.data) < 0.6 * len(twice.data)
    assert arrived([once]) == (words, words)


@pytest.mark.parametrize("key", [1.0, True])
def test_a_key_that_only_equals_its_tuple_keeps_its_type(key: Any) -> None:
    assert same(arrived([one_batch([1, key], [1, 1])]), ([1, key], [1, 1]))


def test_plain_keys_and_tuples_are_messagepack_and_others_are_pickled() -> None:
    assert one_batch(["a", "b"], [[1], {"x": 2}]).data[:1] != PICKLED
    assert one_batch([("a", 1)], ["x"]).data[:1] == PICKLED
    assert one_batch(["a"], [("x", 1)]).data[:1] == PICKLED


@pytest.mark.parametrize("plain", [True, False])
def test_only_the_pair_that_cannot_be_encoded_dies(plain: bool) -> None:
    bad = Unwilling()
    others = ["x", "y"] if plain else [("x",), ("y",)]
    encoded = KeyedEncoder(Limits()).encode_batches(
        Pairs(["a", "bad", "b"], [others[0], bad, others[1]])
    )
    assert arrived(encoded.batches) == (["a", "b"], others)
    (letter,) = encoded.dead
    assert letter.tuple == ("bad", bad)
    assert "not me" in letter.reason


def test_only_the_pair_that_cannot_be_read_dies() -> None:
    tuples = [(1,), TwoArguments(1, "x"), (3,)]
    batch = one_batch(["a", "b", "c"], tuples)
    keys, read, letters = decode_keyed(batch.data, 3)
    assert (keys, read) == (["a", "c"], [(1,), (3,)])
    (letter,) = letters
    assert "cannot be read here" in letter.reason


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1abc",
        b"\x93\x01\x02\x03",
        b"\x95\x01\x02\x03\x04\x05",
        b"\x80\x05N.",
        b"\x80\x05]",
    ],
)
def test_every_pair_of_an_unreadable_batch_is_accounted_for(data: bytes) -> None:
    keys, tuples, letters = decode_keyed(data, 2)
    assert (keys, tuples) == ([], [])
    assert [type(letter) for letter in letters] == [DeadLetter] * 2
