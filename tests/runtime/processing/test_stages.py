"""What the steps of operators take for granted about results, without a look at each."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.processing.stages import _as_bools

CONSTANTS = (True, False, None, ..., StopIteration)
OTHERS: list[Any] = [
    0,
    1,
    256,
    0.0,
    "",
    "a",
    b"",
    (),
    [],
    {},
    set(),
    frozenset(),
    1j,
    object(),
    int,
]


async def _later() -> bool:
    return False


def test_bools_alone_are_known_as_bools() -> None:
    assert _as_bools([True])
    assert _as_bools([False, True] * 600)
    assert not _as_bools([])


@given(st.lists(st.sampled_from([*CONSTANTS, *OTHERS]), max_size=5), st.integers(0, 5))
def test_nothing_passes_for_a_bool_but_constants_that_have_a_truth(
    results: list[Any], at: int
) -> None:
    results.insert(at, True)
    if any(all(one is not constant for constant in CONSTANTS) for one in results):
        assert not _as_bools(results)


def test_a_coroutine_never_passes_for_a_bool() -> None:
    coroutine = _later()
    assert not _as_bools([True, coroutine])
    coroutine.close()
