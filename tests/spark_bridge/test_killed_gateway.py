"""A gateway that is killed again and again, at any moment, loses and doubles nothing."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from anabranch.runtime.plan.ends import Split
from anabranch.spark_bridge import messages as m
from anabranch.spark_bridge.client import GatewayLost
from anabranch.spark_bridge.places import GATEWAY_FILE, Place, PlaceUnknown
from anabranch.spark_bridge.sink import SparkCollect
from anabranch.spark_bridge.wire import Refused
from tests.runtime.processes import PATIENCE_S
from tests.spark_bridge.support import FakeQuery, ask, context, drain, fetch, latest, texts, until

EPOCHS = 60
KILLS = 4
T = TypeVar("T")


class Killable:
    def __init__(self, run_dir: Path) -> None:
        self.state = run_dir / "spark"
        self.board = run_dir / "board.jsonl"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        (self.state / GATEWAY_FILE).unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.spark_bridge.gateway_process",
                str(self.state),
                str(self.board),
            ],
            cwd=Path(__file__).parents[2],
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def place(self) -> Place:
        await until((self.state / GATEWAY_FILE).exists)
        return Place.of_run(self.state)

    def splits(self) -> list[Split]:
        lines = self.board.read_text().splitlines()
        return list({s["id"]: s for s in map(json.loads, lines)}.values())


async def insist(killable: Killable, work: Callable[[Place], Awaitable[T]]) -> T:
    """Repeat as Spark's side does, until there is a gateway that answers."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await work(await killable.place())
            except (GatewayLost, PlaceUnknown):
                await asyncio.sleep(0.02)


class Feeder:
    """Commits all epochs; after a refusal the whole batch is sent again, as by a new driver."""

    def __init__(self, killable: Killable) -> None:
        self.epoch = 0
        self.run = 0
        self._killable = killable

    def has_come_to(self, epoch: int) -> bool:
        return self.epoch >= epoch

    async def feed(self) -> None:
        while self.epoch < EPOCHS:
            try:
                await insist(self._killable, self._send)
            except Refused as refused:
                if refused.code != "missing":
                    raise
                self.run += 1  # not staged any more: the query fails and is started again
            else:
                self.epoch += 1

    async def _send(self, place: Place) -> None:
        query = FakeQuery(place, run=f"run-{self.run}")
        rows = [f"{self.epoch}/{n}" for n in range(20)]
        parts = []
        for partition, half in enumerate((rows[:10], rows[10:])):
            part = await query.stage_unless_known(self.epoch, partition, [texts(*half)])
            if part is not None:
                parts.append(part)
        await query.commit(self.epoch, parts)


@pytest.mark.slow
async def test_a_feed_goes_on_over_kills_of_the_gateway(tmp_path: Path) -> None:
    killable = Killable(tmp_path)
    killable.start()
    dice = random.Random(1)
    feeder = Feeder(killable)
    feeding = asyncio.create_task(feeder.feed())
    try:
        for epoch in range(10, EPOCHS, EPOCHS // KILLS):
            await until(partial(feeder.has_come_to, epoch))
            await asyncio.sleep(dice.uniform(0, 0.02))  # anywhere within a batch
            killable.kill()
            killable.start()
        await asyncio.wait_for(feeding, PATIENCE_S)
        rows: list[Any] = []
        for split in killable.splits():
            rows.extend((await drain(split))[0])
        assert rows == [f"{epoch}/{n}" for epoch in range(EPOCHS) for n in range(20)]
    finally:
        feeding.cancel()
        killable.kill()


@pytest.mark.slow
async def test_a_collection_goes_on_over_kills_of_the_gateway(tmp_path: Path) -> None:
    killable = Killable(tmp_path)
    writer = SparkCollect("out", "n long", segment_bytes_max=500).open(context(tmp_path))
    found: list[int] = []
    try:
        for first in range(0, 900, 300):
            killable.start()
            await writer.write(list(range(first, first + 300)))
            rows = await insist(killable, partial(take, first=first))
            assert rows == await insist(killable, partial(take, first=first))
            found.extend(row["n"] for row in rows)
            killable.kill()
        assert found == list(range(900))
    finally:
        killable.kill()
        await writer.close()


async def take(place: Place, first: int) -> list[dict[str, Any]]:
    """The newest 300 rows; all before are acknowledged."""
    end = await latest(place, "out")
    assert end.parts == {"out.0": first + 300}
    rows = await fetch(place, "out", end.generation, "out.0", first, first + 300)
    before = m.Ack(stream="out", subscriber="s", generation=end.generation, parts={"out.0": first})
    await ask(place, before)
    return rows
