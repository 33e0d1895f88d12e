"""What a query of Spark does that collects a stream, and its tasks, with all that goes wrong in
them.

    offsets of the end ─▶ tasks fetch what is new ─▶ the batch counts ─▶ acknowledged ─▶ …
    again                 twice, die, too far       begun again          twice, not at all

Rows count once the batch counts that has them, as in a checkpoint.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from anabranch.spark_bridge.admission import admit, plan
from anabranch.spark_bridge.messages import (
    Ack,
    Block,
    Describe,
    Description,
    Ending,
    Fetch,
    Latest,
    Offsets,
    Oldest,
    Release,
)
from anabranch.spark_bridge.places import RunEnded
from anabranch.spark_bridge.wire import Refused
from anabranch.spark_bridge.world.gateway_link import PAUSE_S, GatewayLink, LinkLost, Reception
from anabranch.spark_bridge.world.scripted_writer import MISHAP

SUBSCRIBER = "checkpoint"
WAIT_MS = 200
T = TypeVar("T")
Ends = dict[str, int]


class ScriptedReader:
    """Its driver keeps a connection; each attempt of a task has one of its own. `rows`: of the
    batches that count. `faults`: what the gateway has done that it must not."""

    def __init__(self, stream: str, rng: random.Random, rows: list[Any]) -> None:
        self.rows = rows
        self.faults: list[str] = []
        self._stream = stream
        self._rng = rng
        self._rows_max = rng.choice((3, 30, 10_000))
        self._generation = ""
        self._ended = False
        """Whether all results are there."""
        self._link: GatewayLink | None = None
        """Of the driver."""

    def _mishap(self) -> bool:
        return self._rng.random() < MISHAP

    async def collect(self, reception: Reception) -> None:
        """Return when everything is collected."""
        self._reception = reception
        waiting = asyncio.get_running_loop().create_task(self._wait_for_the_end())
        described = await self._asked(self._describe)
        self._generation = described.generation
        start = (await self._asked(self._oldest)).parts
        while True:
            was_ended = self._ended
            latest = (await self._asked(partial(self._latest, start))).parts
            end = admit(start, latest, self._rows_max)
            if was_ended and not plan(start, end, 1, 1):
                break
            rows = await self._batch(start, end)
            self.rows += rows
            if self._mishap() and rows != await self._batch(start, end):
                self.faults.append(f"the rows from {start} to {end} are others when asked again")
            for _ in range(self._rng.choice((0, 1, 1, 2))):
                await self._asked(partial(self._acknowledge, end))
            start = end
        await waiting
        await self._asked(self._release)
        if self._link is not None:
            self._link.close()

    async def _batch(self, start: Ends, end: Ends) -> list[Any]:
        shares = plan(start, end, self._rng.choice((1, 3)), 20)
        return [
            row
            for ranges in shares
            for part, first, last in ranges
            for row in await self._rows(part, first, last)
        ]

    async def _rows(self, part: str, first: int, last: int) -> list[Any]:
        """Of one range, by as many attempts of a task as it takes."""
        while True:
            link = await self._reception.reach()
            try:
                rows = await self._answer(link, partial(self._fetch, part, first, last))
                if rows is not None:
                    return rows
            finally:
                link.close()

    # -- requests --------------------------------------------------------------------------

    async def _asked(self, request: Callable[[GatewayLink], Awaitable[T]]) -> T:
        """By the driver, until it is answered."""
        while True:
            if self._link is None:
                self._link = await self._reception.reach()
            answer = await self._answer(self._link, request)
            if answer is not None:
                return answer
            self._link.close()
            self._link = None

    async def _answer(
        self, link: GatewayLink, request: Callable[[GatewayLink], Awaitable[T]]
    ) -> T | None:
        """None if there is none: it is to be asked again, over another connection."""
        try:
            return await request(link)
        except LinkLost:
            return None
        except Refused as refused:
            # After a loss of power the sink writes again what was not yet on the disk.
            if refused.code not in ("failed", "range"):
                raise
            await asyncio.sleep(PAUSE_S)
            return None

    async def _describe(self, link: GatewayLink) -> Description:
        reply, _ = await link.ask(Describe(stream=self._stream))
        assert isinstance(reply, Description)
        return reply

    async def _oldest(self, link: GatewayLink) -> Offsets:
        reply, _ = await link.ask(Oldest(stream=self._stream, subscriber=SUBSCRIBER))
        assert isinstance(reply, Offsets)
        return reply

    async def _latest(self, known: Ends, link: GatewayLink) -> Offsets:
        reply, _ = await link.ask(Latest(stream=self._stream, known=known, wait_ms=WAIT_MS))
        assert isinstance(reply, Offsets)
        return reply

    async def _acknowledge(self, end: Ends, link: GatewayLink) -> bool:
        request = Ack(
            stream=self._stream,
            subscriber=SUBSCRIBER,
            generation=self._generation,
            parts=end,
        )
        if self._mishap():  # the answer is lost
            link.tell(request)
            raise LinkLost
        await link.ask(request)
        return True

    async def _fetch(self, part: str, first: int, last: int, link: GatewayLink) -> list[Any] | None:
        """None if the task dies in the middle."""
        request = Fetch(
            stream=self._stream, generation=self._generation, part=part, start=first, end=last
        )
        _, data = await link.ask(request)
        schema = pa.ipc.read_schema(pa.py_buffer(data))
        rows: list[Any] = []
        while True:
            block, data = await link.hear()
            assert isinstance(block, Block)
            if self._mishap() and self._mishap():
                link.abort()
                return None
            if block.last:
                break
            found = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
            rows += [tuple(row.values()) for row in found.to_pylist()]
        if len(rows) != last - first:
            self.faults.append(f"{len(rows)} rows of {part} come instead of {last - first}")
        return rows

    async def _release(self, link: GatewayLink) -> bool:
        await link.ask(Release())
        return True

    async def _wait_for_the_end(self) -> None:
        while not self._ended:
            try:
                link = await self._reception.reach()
            except RunEnded:
                break
            with suppress(LinkLost):
                await link.ask(Ending())
                self._ended = True
            link.close()
        self._ended = True
