"""States are copied only where something else holds them, too."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.runtime.keyed.windows import tumbling
from tests.runtime.keyed.bench import Bench, Build


@pytest.mark.parametrize(
    "build",
    [
        lambda k: k.fold("work", list, _appends),
        lambda k: k.process("work", lambda key, state, n: _appends(state, n), state=list),
        lambda k: k.window(tumbling(9), time=float).fold("work", list, _appends),
    ],
    ids=["fold", "process", "window"],
)
@pytest.mark.parametrize("size", [1, 2000], ids=["flat", "pickled"])
async def test_a_state_that_is_changed_in_place_is_not_copied(build: Build, size: int) -> None:
    bench, seen = Bench(build), set()
    bench.one.be_careful()
    for n in range(4):
        await bench.over(*[("a", float(n))] * (1 if n else size))
        state = bench.one.states()["a"]
        seen.add(id(state[0.0].accumulator if isinstance(state, dict) else state))
        del state  # else something holds it
    assert len(seen) == 1


def _appends(state: list[Any], n: Any) -> list[Any]:
    state.append(n)
    return state
