"""Tuples that wait for a keyed sink are values of the user's, of which nothing may be assumed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.runtime.network import Network
from tests.runtime.virtual_time import in_virtual_time

# Whoever is killed in the middle leaves sockets behind that nobody closes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

N = 10_000


class Array:
    """It compares as an array of NumPy does."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise ValueError("The truth value of an array with more than one element is ambiguous")

    __hash__ = None  # type: ignore[assignment]


@in_virtual_time
async def test_tuples_that_wait_need_not_be_comparable(tmp_path: Path) -> None:
    got: list[int] = []

    async def put(one: Array) -> None:
        await asyncio.sleep(0.0005)
        got.append(one.n)

    pipeline = ab.Pipeline("arrays", dead_letters=tmp_path / "dead.jsonl")
    arrays = pipeline.source("arrays", ab.generate(Array, count=N))
    arrays.key_by(lambda one: one.n % 7).sink("out", ab.foreach(put, idempotent=True))
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    (out,) = network.of("out")
    await network.until(lambda: len(got) > N // 2)
    network.kill(out.me)
    await network.revive(out.me)
    await network.finish()
    assert set(got) == set(range(N))
    assert network.unbalanced() == []
