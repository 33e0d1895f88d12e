"""Threads of a world that waits for them in real time: those of functions of the user's."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

Outcome = tuple["asyncio.Future[Any]", Any, BaseException | None]


WAIT_S_MAX = 3600.0
"""The longest that a queue can be asked to wait is less than for ever."""


class Threads:
    """`working`: how many are at work."""

    def __init__(self) -> None:
        self.working = 0
        self._pool: ThreadPoolExecutor | None = None
        self._done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()

    def run(self, func: Callable[..., Any], args: tuple[Any, ...]) -> asyncio.Future[Any]:
        """In the loop that is running."""
        future = asyncio.get_running_loop().create_future()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(thread_name_prefix="anabranch test")
        self.working += 1
        self._pool.submit(self._work, future, func, args)
        return future

    def _work(
        self, future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        try:
            self._done.put((future, func(*args), None))
        except BaseException as error:
            self._done.put((future, None, error))

    def wait(self, seconds: float) -> bool:
        """Until one of them is done, for so many real seconds at most; whether one is."""
        try:
            future, result, error = self._done.get(timeout=min(seconds, WAIT_S_MAX))
        except queue.Empty:
            return False
        self.working -= 1
        future.get_loop().call_soon(_settle, future, result, error)
        return True

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
