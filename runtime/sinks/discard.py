"""Nowhere: what counts is that it arrived."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anabranch.runtime.plan.ends import DeadLetter, RunContext, Sink, Writer


@dataclass(frozen=True)
class DiscardSink(Sink):
    """Promises nothing. For benchmarks, and for operators whose side effects are the purpose."""

    exact = True

    def open(self, context: RunContext) -> Writer:
        return DiscardWriter()


def discard() -> DiscardSink:
    """Count tuples and drop them."""
    return DiscardSink()


class DiscardWriter(Writer):
    async def write(self, tuples: list[Any]) -> list[DeadLetter]:
        return []
