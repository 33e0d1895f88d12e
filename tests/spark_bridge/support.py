"""Stands in for Spark and for the rest of a run, so that the gateway can be tested alone."""

from __future__ import annotations

import asyncio
import itertools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.columns.schemas import arrow_schema
from anabranch.runtime.plan.ends import DeadLetter, RunContext, Split
from anabranch.spark_bridge import messages as m
from anabranch.spark_bridge.client import Link
from anabranch.spark_bridge.gateway import Gateway
from anabranch.spark_bridge.gateway_limits import GatewayLimits
from anabranch.spark_bridge.log_reader import StreamLog
from anabranch.spark_bridge.places import Place
from anabranch.spark_bridge.source import SpoolReader
from tests.runtime.processes import PATIENCE_S

TOKEN = "of-this-run"
_tokens = itertools.count()


def context(run_dir: Path, instance: str = "out.0") -> RunContext:
    return RunContext("test", instance.split(".")[0], instance, run_dir, 0.0, DEFAULT_LIMITS)


def texts(*lines: str) -> pa.RecordBatch:
    return pa.record_batch([pa.array(list(lines), pa.string())], names=["value"])


async def until(condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    """Wait until it holds, within a bound."""
    async with asyncio.timeout(timeout_s):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)


@dataclass
class Board:
    """What a run does with published splits: keeps them, once each."""

    splits: dict[str, list[Split]] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    failing: bool = False

    async def publish(self, stream: str, splits: list[Split]) -> None:
        if self.failing:
            raise OSError("the board is not there")
        known = self.splits.setdefault(stream, [])
        ids = {s["id"] for s in known}
        known.extend(s for s in splits if s["id"] not in ids)

    async def end(self, stream: str) -> None:
        self.ended.append(stream)

    async def rows(self, stream: str) -> list[Any]:
        """All rows published so far, in order. Reading deletes the spool, as in a run."""
        return [row for split in self.splits.get(stream, []) for row in (await drain(split))[0]]


async def drain(split: Split) -> tuple[list[Any], list[DeadLetter]]:
    reader = SpoolReader(split)
    rows: list[Any] = []
    dead: list[DeadLetter] = []
    while (chunk := await reader.read(1000, 2**20)) is not None:
        rows.extend(chunk.tuples)
        dead.extend(chunk.dead)
    reader.done()
    return rows, dead


@dataclass
class Running:
    """A gateway, its board, and where it is."""

    gateway: Gateway
    board: Board
    place: Place
    state: Path

    async def close(self) -> None:
        await self.gateway.close()


async def start(
    state: Path,
    board: Board | None = None,
    limits: GatewayLimits | None = None,
    collects: dict[str, str] | None = None,
    feeds: list[str] | None = None,
    pipeline_run: str = "run-1",
) -> Running:
    board = board or Board()
    gateway = Gateway(
        ended=board.end,
        feeds=feeds,
        collects=collects,
        pipeline_run=pipeline_run,
        limits=limits,
    )
    address = await gateway.start("127.0.0.1", 0, state, board.publish, TOKEN)
    return Running(gateway, board, Place((address,), TOKEN), state)


@dataclass
class FakeQuery:
    """A Spark query feeding a stream: knows what a query's checkpoint knows."""

    place: Place
    stream: str = "lines"
    query: str = "query-a"
    run: str = "run-a"

    async def stage(
        self,
        epoch: int,
        partition: int,
        batches: Sequence[pa.RecordBatch],
        shape: m.RowShape = "auto",
    ) -> tuple[int, str]:
        """One Spark task; the attempt to commit."""
        part = await self.stage_unless_known(epoch, partition, batches, shape)
        assert part is not None, "the gateway took it for a repetition"
        return part

    async def is_skipped(self, epoch: int, partition: int, batch: pa.RecordBatch) -> bool:
        """One Spark task; whether the gateway knew its batch. Staged if not."""
        return await self.stage_unless_known(epoch, partition, [batch]) is None

    async def stage_unless_known(
        self,
        epoch: int,
        partition: int,
        batches: Sequence[pa.RecordBatch],
        shape: m.RowShape = "auto",
    ) -> tuple[int, str] | None:
        return await asyncio.to_thread(self._stage, epoch, partition, list(batches), shape)

    async def commit(
        self, epoch: int, parts: Sequence[tuple[int, str]], final: bool = False
    ) -> m.Ok:
        reply = await self.ask(
            m.Commit(
                stream=self.stream,
                query=self.query,
                run=self.run,
                epoch=epoch,
                parts=list(parts),
                final=final,
            )
        )
        assert isinstance(reply, m.Ok)
        return reply

    async def abort(self, epoch: int, parts: Sequence[tuple[int, str]]) -> None:
        await self.ask(m.Abort(query=self.query, run=self.run, epoch=epoch, parts=list(parts)))

    async def feed(self, epoch: int, *lines: str) -> m.Ok:
        """A whole batch of one partition."""
        return await self.commit(epoch, [await self.stage(epoch, 0, [texts(*lines)])])

    async def ask(self, request: m.Request) -> m.Reply:
        return await ask(self.place, request)

    def stage_request(self, epoch: int, partition: int, shape: m.RowShape = "auto") -> m.Stage:
        return m.Stage(
            stream=self.stream,
            query=self.query,
            run=self.run,
            epoch=epoch,
            partition=partition,
            token=f"attempt-{next(_tokens)}",
            shape=shape,
        )

    def _stage(
        self, epoch: int, partition: int, batches: list[pa.RecordBatch], shape: m.RowShape
    ) -> tuple[int, str] | None:
        request = self.stage_request(epoch, partition, shape)
        schema = (batches[0].schema if batches else pa.schema([])).serialize().to_pybytes()
        with Link(self.place) as link:
            answer, _ = link.ask(request, schema)
            if isinstance(answer, m.Skip):
                return None
            crc = zlib.crc32(schema)
            for batch in batches:
                body = batch.serialize().to_pybytes()
                crc = zlib.crc32(body, crc)
                link.tell(m.Rows(), body)
            link.ask(m.Staged(rows=sum(b.num_rows for b in batches), crc=crc))
        return partition, request.token


async def ask(place: Place, request: m.Request) -> m.Reply:
    def once() -> m.Reply:
        with Link(place) as link:
            return link.ask(request)[0]

    return await asyncio.to_thread(once)


def logged(log: StreamLog, part: str, end: int, schema: str) -> list[dict[str, Any]]:
    """The rows of a part of a log of results, as they lie there."""
    wanted = arrow_schema(schema)
    return [
        row
        for piece in log.slices(part, 0, end)
        for row in pa.ipc.read_record_batch(pa.py_buffer(piece.payload), wanted).to_pylist()
    ]


async def fetch(
    place: Place,
    stream: str,
    generation: str,
    part: str,
    start: int,
    end: int,
    columns: Sequence[str] = (),
) -> list[dict[str, Any]]:
    request = m.Fetch(
        stream=stream,
        generation=generation,
        part=part,
        start=start,
        end=end,
        columns=list(columns),
    )

    def once() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        with Link(place) as link:
            _, data = link.ask(request)
            schema = pa.ipc.read_schema(pa.py_buffer(data))
            while True:
                reply, data = link.hear()
                assert isinstance(reply, m.Block)
                if reply.last:
                    assert reply.rows == end - start
                    return rows
                rows.extend(pa.ipc.read_record_batch(pa.py_buffer(data), schema).to_pylist())

    return await asyncio.to_thread(once)


async def latest(place: Place, stream: str) -> m.Offsets:
    reply = await ask(place, m.Latest(stream=stream))
    assert isinstance(reply, m.Offsets)
    return reply
