"""A script in the place of a Spark query that feeds a stream, and of its tasks, with their faults.

    for each batch:  tasks stage their parts ─▶ the driver commits ─▶ … ─▶ the input is finished
                     die, twice, damaged,        twice, lost answer,        twice
                     late, aborted               late, of a dead driver

The script repeats a batch, as Spark does, until the gateway has confirmed the commit.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from anabranch.spark_bridge.messages import Abort, Commit, Finish, Ok, Request, Rows, Skip, Stage
from anabranch.spark_bridge.messages import Staged as StagedRequest
from anabranch.spark_bridge.wire import PREFIX, Refused, pack
from anabranch.spark_bridge.world.gateway_link import PAUSE_S, GatewayLink, LinkLost, Reception

QUERY = "checkpoint"
MISHAP = 0.25
"""Probability of a fault at each place where one is possible."""
Pieces = list[list[int]]
"""The numbers of a partition, by record batch."""
Parts = list[Pieces]
Attempt = tuple[int, str]


class DueBatch(NamedTuple):
    at_s: float
    parts: Parts


class TaskDied(Exception):
    """A task has died in the middle of its part; Spark starts the task again."""


class ScriptedWriter:
    """`faults`: mistakes of the gateway, in words."""

    def __init__(self, stream: str, batches: Sequence[DueBatch], rng: random.Random) -> None:
        self.faults: list[str] = []
        self._stream = stream
        self._batches = batches
        self._rng = rng
        self._runs = itertools.count(1)
        self._tokens = itertools.count(1)
        self._reception: Reception
        self._begin_run()

    def _begin_run(self) -> None:
        self._run = f"driver-{next(self._runs)}"

    def _mishap(self) -> bool:
        return self._rng.random() < MISHAP

    async def feed(self, reception: Reception) -> None:
        self._reception = reception
        loop = asyncio.get_running_loop()
        for epoch, batch in enumerate(self._batches):
            await asyncio.sleep(max(0.0, batch.at_s - loop.time()))
            if self._mishap():
                await self._say_garbage()
            await self._write(epoch, batch.parts)
            if self._mishap():
                await self._come_late(epoch, batch.parts)
        for _ in range(1 + self._mishap()):
            await self._ask(Finish(stream=self._stream))

    # -- a batch ---------------------------------------------------------------------------

    async def _write(self, epoch: int, parts: Parts) -> None:
        """Return when it is committed."""
        dead: tuple[str, list[Attempt]] | None = None
        while True:
            tasks = (self._task(epoch, n, pieces) for n, pieces in enumerate(parts))
            staged = [part for part in await asyncio.gather(*tasks) if part is not None]
            if dead is not None:
                await self._commit_of_the_dead(epoch, *dead)
                dead = None
            elif self._mishap():  # the driver dies, and another one repeats the batch
                dead = self._run, staged
                self._begin_run()
                continue
            aborts = self._mishap()
            if aborts:
                await self._ask(self._abort(epoch, staged))
            try:
                await self._commit(epoch, staged)
            except Refused as refused:
                if refused.code != "missing":
                    raise
                if not aborts:
                    self.faults.append(f"parts of batch {epoch} were staged, and are gone")
                self._begin_run()  # the query fails, and is begun again
            else:
                return

    async def _commit(self, epoch: int, staged: list[Attempt]) -> None:
        request = self._commit_request(self._run, epoch, staged)
        if self._mishap():  # the answer is lost
            link = await self._reception.reach()
            link.tell(request)
            await asyncio.sleep(self._rng.choice((0.0, 0.001, 0.01)))
            link.abort()
        await self._ask(request)
        if self._mishap():
            reply = await self._ask(request)
            if not (isinstance(reply, Ok) and reply.repeated):
                self.faults.append(f"batch {epoch}, committed again, is answered by {reply}")

    async def _commit_of_the_dead(self, epoch: int, dead: str, staged: list[Attempt]) -> None:
        """A driver that was replaced commits late: the gateway has to refuse it."""
        try:
            reply = await self._ask(self._commit_request(dead, epoch, staged))
            self.faults.append(f"a driver that was replaced may commit batch {epoch}: {reply}")
        except Refused as refused:
            if refused.code != "fenced":
                self.faults.append(f"a driver that was replaced hears {refused.code}: {refused}")

    def _commit_request(self, run: str, epoch: int, staged: list[Attempt]) -> Commit:
        return Commit(stream=self._stream, query=QUERY, run=run, epoch=epoch, parts=staged)

    def _abort(self, epoch: int, staged: list[Attempt]) -> Abort:
        return Abort(query=QUERY, run=self._run, epoch=epoch, parts=staged)

    # -- tasks -----------------------------------------------------------------------------

    async def _task(self, epoch: int, partition: int, pieces: Pieces) -> Attempt | None:
        """The attempt that counts; None if the batch was committed before."""
        run = self._run
        while True:
            request = self._stage_request(run, epoch, partition)
            try:
                known = await self._stage(request, pieces, dies=self._mishap())
                if self._mishap():  # a second attempt of the same task that is as good
                    twin = self._stage_request(run, epoch, partition)
                    known = await self._stage(twin, pieces, dies=False)
                    request = self._rng.choice((request, twin))
                return None if known else (partition, request.token)
            except (TaskDied, LinkLost):
                await asyncio.sleep(PAUSE_S)
            except Refused as refused:
                if refused.code not in ("damaged", "failed"):
                    raise
                await asyncio.sleep(PAUSE_S)

    async def _stage(self, request: Stage, pieces: Pieces, *, dies: bool) -> bool:
        """Stage a part; returns whether the gateway has committed this batch already."""
        link = await self._reception.reach()
        try:
            return await self._send(link, request, pieces, dies=dies)
        finally:
            link.close()

    async def _send(self, link: GatewayLink, request: Stage, pieces: Pieces, *, dies: bool) -> bool:
        batches = [pa.record_batch([pa.array(some, pa.int64())], names=["n"]) for some in pieces]
        schema = batches[0].schema.serialize().to_pybytes()
        answer, _ = await link.ask(request, schema)
        if isinstance(answer, Skip):
            return True
        crc = zlib.crc32(schema)
        for batch in batches:
            body = batch.serialize().to_pybytes()
            crc = zlib.crc32(body, crc)
            link.tell(Rows(), body)
            if dies and self._mishap():
                link.abort()
                raise TaskDied
        damaged = self._mishap() and self._mishap()
        rows = sum(map(len, pieces))
        await link.ask(StagedRequest(rows=rows + damaged, crc=crc))
        if damaged:
            self.faults.append("a part of which a row is missing is taken")
        return False

    def _stage_request(self, run: str, epoch: int, partition: int) -> Stage:
        return Stage(
            stream=self._stream,
            query=QUERY,
            run=run,
            epoch=epoch,
            partition=partition,
            token=f"attempt-{next(self._tokens)}",
        )

    # -- faults outside of a batch ---------------------------------------------------------

    async def _come_late(self, epoch: int, parts: Parts) -> None:
        """A late task stages a part of a batch that is committed already."""
        request = self._stage_request(self._run, epoch, 0)
        while True:
            try:
                if not await self._stage(request, parts[0], dies=False):
                    self.faults.append(f"batch {epoch} is committed, and taken again")
                return
            except LinkLost:
                continue

    async def _say_garbage(self) -> None:
        rng = self._rng
        try:
            if rng.random() < 0.5:
                link = await self._reception.dial()
                link.say(rng.randbytes(rng.randint(1, 200)))
            else:
                link = await self._reception.reach()
                what = (
                    pack(Rows()),
                    PREFIX.pack(10, 2**31),
                    PREFIX.pack(2**31, 0),
                    PREFIX.pack(20, 0) + rng.randbytes(20),
                )
                link.say(rng.choice(what))
            await asyncio.sleep(PAUSE_S)
            link.abort()
        except LinkLost:
            return

    async def _ask(self, request: Request) -> Ok:
        """Send the request again and again until the gateway answers. Raises `Refused`."""
        while True:
            link = await self._reception.reach()
            try:
                reply, _ = await link.ask(request)
                assert isinstance(reply, Ok)
                return reply
            except LinkLost:
                continue
            except Refused as refused:
                if refused.code != "failed":
                    raise
                await asyncio.sleep(PAUSE_S)
            finally:
                link.close()
