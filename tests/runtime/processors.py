"""Runs operators as the driver does, and balances what they count."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.plan.operator import Operator, Retry, Step
from anabranch.runtime.processing.operators import Part, Processor, make_processor


class Run:
    """A processor and everything that it has emitted."""

    def __init__(
        self,
        *steps: Step,
        retry: Retry | None = None,
        in_flight: int = 16,
        slice_s: float = 0.005,
        clock: Callable[[], float] | None = None,
        turn: Callable[[], Any] | None = None,
    ) -> None:
        self.parts: list[Part] = []
        operator = Operator(
            OperatorName("op"), (), steps=steps, retry=retry or Retry(), in_flight=in_flight
        )
        options: dict[str, Any] = {"clock": clock} if clock else {}
        if turn:
            options["turn"] = turn
        self.processor: Processor = make_processor(
            operator, slice_s=slice_s, emit=self.parts.append, **options
        )

    async def over(self, *batches: list[Any]) -> Run:
        for number, batch in enumerate(batches):
            await self.processor.run(batch, number)
        await self.processor.drain()
        self.balance(sum(map(len, batches)))
        return self

    def balance(self, received: int) -> None:
        assert self.processor.open == 0
        assert sum(p.taken for p in self.parts) == received
        steps = self.processor.steps
        assert steps[0].received == received
        for step, following in itertools.pairwise(steps):
            assert following.received == step.produced
        for step in steps:
            assert step.received == step.processed + step.dead
        assert steps[-1].produced == len(self.results)
        assert sum(s.dead for s in steps) == len(self.letters)

    @property
    def results(self) -> list[Any]:
        return [r for p in self.parts for r in p.results]

    @property
    def letters(self) -> list[Any]:
        return [letter for p in self.parts for letter in p.letters]

    @property
    def dead(self) -> list[Any]:
        return [letter.tuple for letter in self.letters]


def mapping(fn: Any, **kw: Any) -> Step:
    return Step("map", fn, kw.pop("name", "m"), **kw)


def flat(fn: Any, **kw: Any) -> Step:
    return Step("flat_map", fn, kw.pop("name", "f"), **kw)


def keeping(fn: Any, **kw: Any) -> Step:
    return Step("filter", fn, kw.pop("name", "k"), **kw)


def odd_fails(n: int) -> int:
    if n % 2:
        raise ValueError(f"{n} is odd")
    return 10 * n
