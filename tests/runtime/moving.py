"""A stream by key whose groups move, what holds their state up on its way, and a sink that can."""

from __future__ import annotations

import asyncio
from typing import Any

import anabranch as ab
from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.instance.instance import Instance
from anabranch.runtime.live.instance.keyed_pump import KeyedPump
from anabranch.runtime.pipeline.definition import Delivery
from anabranch.runtime.plan.ends import DeadLetter, RunContext, Sink, Writer

RATE_PER_S = 5_000


def latest_by_key(sink: Sink, delivery: Delivery, count: int) -> ab.Pipeline:
    """numbers -> last -> out: each number below `count` once, with its key."""
    pipeline = ab.Pipeline("moves", delivery=delivery, groups=16)
    source = ab.generate(lambda i: i, rate=RATE_PER_S, count=count)
    by_key = pipeline.source("numbers", source).key_by(lambda n: n % 100)
    by_key.fold("last", 0, lambda _, n: n, scale=ab.Scale()).sink("out", sink)
    return pipeline


def pump_of(instance: Instance) -> KeyedPump:
    assert isinstance(instance.pump, KeyedPump)
    return instance.pump


def delayed_transfer(pump: KeyedPump) -> asyncio.Event:
    """State that takes long to send: until this is set."""
    may_go, real = asyncio.Event(), pump.groups._transfer

    async def transfer(to: InstanceId, groups: frozenset[int]) -> None:
        await may_go.wait()
        await real(to, groups)

    pump.groups._transfer = transfer  # type: ignore[method-assign]
    return may_go


class Barred(Sink):
    """It takes what comes while `is_open` is set."""

    def __init__(self) -> None:
        self.tuples: list[Any] = []
        self.is_open = asyncio.Event()
        self.is_open.set()

    def open(self, context: RunContext) -> Writer:
        return BarredWriter(self)


class BarredWriter(Writer):
    def __init__(self, sink: Barred) -> None:
        self.sink = sink

    async def write(self, tuples: list[Any]) -> list[DeadLetter]:
        await self.sink.is_open.wait()
        self.sink.tuples += tuples
        return []
