"""Many keys that have changed are told in several pieces: one pickle of all takes much memory."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

from anabranch.runtime.keyed.aggregations import tally
from anabranch.runtime.keyed.journaling import KEYS_AT_ONCE
from anabranch.runtime.keyed.windows import tumbling
from anabranch.runtime.pipeline.graph import KeyedStream
from tests.runtime.keyed.journaled import Mortals
from tests.runtime.keyed.test_processor_moves import counting


async def test_no_piece_has_more_than_so_many_keys_and_all_are_told() -> None:
    bench = Mortals(counting, tells_at_once=False)
    many = 2 * KEYS_AT_ONCE + 10
    await bench.over(*((f"key {n}", n) for n in range(many)))
    bench.one.tell()
    words = [word for change in bench.journals[0].changes for word in pickle.loads(change)]
    keys = [word[1] for word in words if word[0] == "entries"]
    assert sorted(map(len, keys)) == [10, KEYS_AT_ONCE, KEYS_AT_ONCE]
    assert len(bench.restored(0).states()) == many


async def test_so_many_keys_exactly_are_told_without_an_empty_piece_behind() -> None:
    bench = Mortals(counting, tells_at_once=False)
    bench.one.tell()
    before = len(bench.journals[0].changes)
    await bench.over(*((f"key {n}", n) for n in range(KEYS_AT_ONCE)))
    bench.one.tell()
    assert len(bench.journals[0].changes) == before + 1


class Counted(dict[Any, Any]):
    """States that count how many of their keys somebody looks through."""

    read = 0

    def keys(self) -> Any:
        self.read += len(self)
        return super().keys()

    def __iter__(self) -> Iterator[Any]:
        self.read += len(self)
        return super().__iter__()


async def test_a_key_that_is_forgotten_is_told_without_a_look_at_all_that_are_held() -> None:
    def brief(keyed: KeyedStream) -> None:
        keyed.window(tumbling(10), time=float).aggregate("work", tally())

    bench = Mortals(brief, tells_at_once=False)
    await bench.over(*((n, 1.0) for n in range(20)), *((n, 21.0) for n in range(20, 520)))
    bench.one.tell()
    states = bench.one._held.store.states = Counted(bench.one._held.store.states)
    await bench.one.advance(10.0)
    bench.one.tell()
    assert len(states) == 500
    assert states.read == 0
    assert {*bench.restored(0).states()} == {*range(20, 520)}
