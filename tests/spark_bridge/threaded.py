"""A gateway in a thread with its own loop, beside the blocking calls of Spark."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from anabranch.runtime.plan.ends import Split
from anabranch.spark_bridge.gateway import GatewayStatus
from anabranch.spark_bridge.sink import SparkCollect
from tests.runtime.processes import PATIENCE_S
from tests.spark_bridge.support import Board, Running, context, drain, start

T = TypeVar("T")


class GatewayThread:
    """Survives its own restarts: the board, and with it what a run would have seen, stays."""

    def __init__(self, state: Path, collects: dict[str, str]) -> None:
        self.run_dir = state.parent
        self.board = Board()
        self._state = state
        self._collects = collects
        self._read: dict[str, list[Any]] = {}

    @property
    def run(self) -> str:
        """For `option("run", ...)`."""
        return str(self.run_dir)

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._running: Running = self.do(start(self._state, self.board, collects=self._collects))

    def stop(self) -> None:
        self.do(self._running.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def status(self) -> GatewayStatus:
        return self._running.gateway.status()

    def rows(self, stream: str) -> list[Any]:
        """All rows that Spark fed so far, in order."""
        read = self._read.setdefault(stream, [])
        pending: list[Split] = self.board.splits.get(stream, [])[len(read) :]
        read.extend(self.do(drain(split))[0] for split in pending)
        return [row for split in read for row in split]

    def write(self, stream: str, rows: list[Any], instance: str = "sink.0") -> None:
        """As an instance of the sink that lives for these rows only."""

        async def once() -> None:
            writer = SparkCollect(stream, self._collects[stream]).open(
                context(self.run_dir, instance)
            )
            assert await writer.write(rows) == []
            await writer.close()

        self.do(once())
