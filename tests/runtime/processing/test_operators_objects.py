"""Classes given as functions: one object per instance, made and closed there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.runtime.processing.steps import StepError
from tests.runtime.processors import Run, mapping


class Numbering:
    made = 0
    closed = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.count = 0

    def __call__(self, one: Any) -> tuple[int, Any]:
        self.count += 1
        return self.count, one

    def close(self) -> None:
        type(self).closed += 1


async def test_a_class_becomes_one_object_per_instance_and_is_closed_at_the_end() -> None:
    Numbering.made = Numbering.closed = 0
    run = await Run(mapping(Numbering)).over(["a"], ["b"])
    assert run.results == [(1, "a"), (2, "b")]
    assert (Numbering.made, Numbering.closed) == (1, 0)
    await run.processor.close()
    await run.processor.close()
    assert Numbering.closed == 1


async def test_a_class_without_call_is_a_function() -> None:
    assert (await Run(mapping(int)).over(["1", "2"])).results == [1, 2]


async def test_an_object_made_elsewhere_is_not_closed() -> None:
    Numbering.closed = 0
    run = await Run(mapping(Numbering())).over(["a"])
    await run.processor.close()
    assert run.results == [(1, "a")]
    assert Numbering.closed == 0


async def test_an_async_class_is_awaited_and_closed() -> None:
    closed: list[int] = []

    class Slow:
        async def __call__(self, n: int) -> int:
            await asyncio.sleep(0)
            return n + 1

        async def close(self) -> None:
            closed.append(1)

    run = await Run(mapping(Slow)).over([1, 2])
    await run.processor.close()
    assert run.results == [2, 3]
    assert closed == [1]


@pytest.mark.parametrize("error", [OSError, SystemExit, GeneratorExit])
def test_a_class_that_cannot_be_made_names_operator_step_and_line(
    error: type[BaseException],
) -> None:
    class Bad:
        def __init__(self) -> None:
            raise error("no model file")

        def __call__(self, n: int) -> int:
            return n

    with pytest.raises(
        StepError, match=r"'op', step 'm'.*no model file.*test_operators_objects.py:\d+"
    ):
        Run(mapping(Bad))


@pytest.mark.parametrize("error", [OSError, SystemExit, GeneratorExit])
async def test_every_object_is_closed_even_if_one_close_raises(error: type[BaseException]) -> None:
    class Bad(Numbering):
        def close(self) -> None:
            raise error("still busy")

    Numbering.closed = 0
    run = await Run(mapping(Bad, name="x"), mapping(Numbering)).over([1])
    with pytest.raises(StepError, match=r"'x'.*still busy"):
        await run.processor.close()
    assert Numbering.closed == 1
