"""A function of the user's as the end of a stream: a database, a service, a list in a test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.plan.ends import DeadLetter, RunContext, Sink, Writer
from anabranch.runtime.plan.operator import Operator, Retry, Step, as_retry, step
from anabranch.runtime.processing.operators import make_processor
from anabranch.runtime.processing.steps import Part


@dataclass(frozen=True)
class Foreach(Sink):
    step: Step
    retry: Retry
    in_flight: int
    idempotent: bool = False

    @property
    def exact(self) -> bool:
        return self.idempotent

    def open(self, context: RunContext) -> Writer:
        return ForeachWriter(self, context)


def foreach(
    fn: Callable[..., Any],
    *,
    batch: bool = False,
    retry: Retry | int = 0,
    in_flight: int = 16,
    idempotent: bool = False,
) -> Foreach:
    """Call `fn(tuple)` for every tuple, or `fn(list)` with `batch=True`; results are dropped.

    `fn` may be async (then up to `in_flight` calls are open) or a class with `__call__`, of which
    each instance makes an object; its `close()`, if any, is called at the end. An exception is
    retried as configured, then the tuple is a dead letter. A tuple counts as delivered when `fn`
    has returned for it; if a process dies before that is known, `fn` is called again.
    `idempotent` declares that this does no harm, as with an upsert. Raises `ValueError` (a
    `PipelineError`) if `fn` is no function.
    """
    one = step("map", fn, None, batch)
    return Foreach(one, as_retry(retry), in_flight, idempotent)


class ForeachWriter(Writer):
    """An operator of one step whose results go nowhere."""

    def __init__(self, sink: Foreach, context: RunContext) -> None:
        operator = Operator(
            OperatorName(context.operator),
            (),
            steps=(sink.step,),
            retry=sink.retry,
            in_flight=sink.in_flight,
        )
        self._letters: list[DeadLetter] = []
        self._processor = make_processor(
            operator, slice_s=context.limits.slice_s, emit=self._note, drops=True
        )

    async def write(self, tuples: list[Any]) -> list[DeadLetter]:
        await self._processor.run(tuples)
        await self._processor.drain()
        letters, self._letters = self._letters, []
        return letters

    async def close(self) -> None:
        await self._processor.close()

    def _note(self, part: Part) -> None:
        self._letters += part.letters
