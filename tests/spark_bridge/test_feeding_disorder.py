"""Whatever order stages, commits, aborts, repetitions, restarts and failures come in: a committed
batch is published once and whole, and nothing else is ever published."""

from __future__ import annotations

import asyncio
import os
import tempfile
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.spark_bridge.feeding import Feed
from anabranch.spark_bridge.gateway_limits import GatewayLimits
from anabranch.spark_bridge.messages import Abort, Commit, Stage, Staged
from anabranch.spark_bridge.wire import Refused
from tests.spark_bridge.support import Board, texts

QUERIES = ("a", "b")
PARTITIONS = 2
LIMITS = GatewayLimits(spool_file_bytes=20)


@dataclass
class Driver:
    """A query's checkpoint, and its living run. Batch `epoch` always has the same rows."""

    query: str
    run: int = 0
    epoch: int = 0
    is_known: bool = False
    """Whether the gateway has met a run of this query."""
    zombie_runs: list[int] = field(default_factory=list)
    attempts: dict[int, list[str]] = field(default_factory=dict)
    """Partition -> tokens staged in this run for this epoch."""
    committed: dict[int, list[str]] = field(default_factory=dict)
    """Those of the epoch before."""

    def rows(self, epoch: int, partition: int) -> list[str]:
        return [f"{self.query}/{epoch}/{partition}/{n}" for n in range(partition * 3)]


class World:
    """One gateway's feed, the board behind it, and two queries that misbehave as Spark may."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.board = Board()
        self.drivers = {q: Driver(q) for q in QUERIES}
        self.confirmed: list[tuple[str, int]] = []
        self.tokens = 0

    async def open(self) -> None:
        self.feed = Feed(self.folder, self.board.publish, self.board.end, None, "run", LIMITS)
        await self.feed.start()

    async def stage(self, d: Driver, partition: int) -> None:
        self.tokens += 1
        bodies = [texts(row).serialize().to_pybytes() for row in d.rows(d.epoch, partition)]
        schema = texts().schema.serialize().to_pybytes()
        stage = Stage(
            stream="s",
            query=d.query,
            run=f"{d.query}-{d.run}",
            epoch=d.epoch,
            partition=partition,
            token=f"t{self.tokens}",
        )
        receiver = await self.feed.begin(stage, schema)
        d.is_known = True
        if receiver is None:
            assert (d.query, d.epoch) in self.journalled(), "skipped what was never committed"
            return
        crc = zlib.crc32(schema)
        for body in bodies:
            crc = zlib.crc32(body, crc)
            for _ in receiver.take(body):
                pass
        await self.feed.stage(receiver, Staged(rows=len(bodies), crc=crc))
        d.attempts.setdefault(partition, []).append(stage.token)

    async def commit(self, d: Driver) -> None:
        """As Spark does it: one attempt of every partition. A confirmed batch is the past."""
        if (d.query, d.epoch) not in self.journalled() and len(d.attempts) < PARTITIONS:
            return
        parts = [(p, tokens[-1]) for p, tokens in d.attempts.items()]
        await self.feed.commit(self.commit_request(d, d.run, d.epoch, parts))
        self.confirmed.append((d.query, d.epoch))
        d.epoch += 1
        d.committed = d.attempts
        d.attempts = {}

    async def repeat(self, d: Driver) -> None:
        if d.epoch:
            reply = await self.feed.commit(self.commit_request(d, d.run, d.epoch - 1, []))
            assert reply.repeated

    async def commit_half(self, d: Driver) -> None:
        """A commit that names a part which is not there must change nothing."""
        if (d.query, d.epoch) in self.journalled():
            return
        request = self.commit_request(d, d.run, d.epoch, [(0, "nobody"), (1, "nobody")])
        with pytest.raises(Refused):
            await self.feed.commit(request)

    async def abort(self, d: Driver, back: int) -> None:
        """Of the living batch, or late, of one that was committed."""
        epoch = max(d.epoch - back, 0)
        attempts = d.committed if back else d.attempts
        parts = [(p, t) for p, tokens in attempts.items() for t in tokens]
        await self.feed.abort(
            Abort(query=d.query, run=f"{d.query}-{d.run}", epoch=epoch, parts=parts)
        )
        if epoch == d.epoch:
            d.attempts.clear()

    async def restart_query(self, d: Driver) -> None:
        """From its checkpoint; perhaps Spark did not note the last commit any more."""
        if d.is_known:
            d.zombie_runs.append(d.run)
        d.run += 1
        d.attempts.clear()
        if d.epoch and self.tokens % 2:
            d.epoch -= 1
        await self.stage(d, 1)

    async def commit_as_zombie(self, d: Driver) -> None:
        if d.zombie_runs:
            parts = [(p, tokens[-1]) for p, tokens in d.attempts.items()]
            request = self.commit_request(d, d.zombie_runs[-1], d.epoch, parts)
            with pytest.raises(Refused, match="replaced by run"):
                await self.feed.commit(request)

    async def restart_gateway(self) -> None:
        self.feed.close()
        await self.open()

    async def fail_to_publish(self, d: Driver) -> None:
        self.board.failing = True
        try:
            await self.commit(d)
        except OSError:
            pass  # committed but not confirmed: Spark repeats it, or restarts and repeats it
        finally:
            self.board.failing = False

    async def sweep(self) -> None:
        await self.feed.sweep()

    def journalled(self) -> set[tuple[str, int]]:
        queries = self.feed._register.queries
        return {(q, e) for q, known in queries.items() for e in range(known.last_epoch + 1)}

    def commit_request(
        self, d: Driver, run: int, epoch: int, parts: list[tuple[int, str]]
    ) -> Commit:
        return Commit(stream="s", query=d.query, run=f"{d.query}-{run}", epoch=epoch, parts=parts)

    async def judge(self) -> None:
        await self.feed.sweep()
        published = await self.board.rows("s")
        for query, driver in self.drivers.items():
            ours = [row for row in published if row.startswith(f"{query}/")]
            committed = sorted(e for q, e in self.journalled() if q == query)
            wanted = [
                row for e in committed for p in range(PARTITIONS) for row in driver.rows(e, p)
            ]
            assert ours == wanted
        assert set(self.confirmed) <= self.journalled()


Action = Callable[[World, Driver], Awaitable[Any]]
ACTIONS: dict[str, Action] = {
    "stage 0": lambda w, d: w.stage(d, 0),
    "stage 1": lambda w, d: w.stage(d, 1),
    "commit": lambda w, d: w.commit(d),
    "repeat": lambda w, d: w.repeat(d),
    "commit half": lambda w, d: w.commit_half(d),
    "abort": lambda w, d: w.abort(d, 0),
    "abort late": lambda w, d: w.abort(d, 1),
    "restart query": lambda w, d: w.restart_query(d),
    "zombie": lambda w, d: w.commit_as_zombie(d),
    "restart gateway": lambda w, d: w.restart_gateway(),
    "fail to publish": lambda w, d: w.fail_to_publish(d),
    "sweep": lambda w, d: w.sweep(),
}
# Staging and committing are drawn more often, or hardly a batch would ever be whole.
NAMES = st.sampled_from([*ACTIONS, "stage 0", "stage 1", "commit", "stage 0", "stage 1", "commit"])


@settings(max_examples=60)
@given(steps=st.lists(st.tuples(NAMES, st.sampled_from(QUERIES)), min_size=5, max_size=40))
def test_disorder_neither_loses_nor_doubles_a_batch(steps: list[tuple[str, str]]) -> None:
    async def play(folder: Path) -> None:
        world = World(folder)
        await world.open()
        for name, query in steps:
            await ACTIONS[name](world, world.drivers[query])
        await world.judge()
        world.feed.close()

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(os, "fsync", lambda handle: None)  # no power cut here, and many examples
        asyncio.run(play(Path(folder)))


def test_the_worlds_drawn_do_commit_and_repeat() -> None:
    """Without this, a world in which nothing happens would prove nothing."""

    async def play(folder: Path) -> World:
        world = World(folder)
        await world.open()
        for name in ("stage 0", "stage 1", "commit", "repeat", "restart query", "zombie"):
            await ACTIONS[name](world, world.drivers["a"])
        for name in ("stage 0", "stage 1", "fail to publish", "restart gateway", "commit"):
            await ACTIONS[name](world, world.drivers["b"])
        await world.judge()
        world.feed.close()
        return world

    with tempfile.TemporaryDirectory() as folder:
        world = asyncio.run(play(Path(folder)))
    assert world.confirmed == [("a", 0), ("b", 0)]
    assert len(world.board.splits["s"]) > 2
