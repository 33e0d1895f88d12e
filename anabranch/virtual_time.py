"""An event loop on a clock that jumps: what waits for time goes on at once, in the right order.

Time jumps only while nothing real is waited for, neither a socket nor a thread of the loop's
executor; then it passes as elsewhere, so that a time limit on something real means what it says.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

PATIENCE_S = 1.0
"""How long to wait, in real time, for something unannounced, before it is called a deadlock."""


class Deadlock(RuntimeError):
    """Everything waits, and nothing is left that could end it."""


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.now = 0.0
        self.in_threads = 0
        self._jumping = _Selector(self)
        super().__init__(self._jumping)
        self._jumping.own = len(self._jumping.get_map())

    def time(self) -> float:
        return self.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = super().run_in_executor(executor, func, *args)
        self.in_threads += 1
        future.add_done_callback(self._back)
        return future

    def _back(self, _future: asyncio.Future[Any]) -> None:
        self.in_threads -= 1

    def close(self) -> None:
        if not self.is_closed():
            self.run_until_complete(self.shutdown_asyncgens())
            self.run_until_complete(self.shutdown_default_executor())
        super().close()


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self.own = 0
        """Files of the loop itself."""
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if timeout is not None and not self._something_real():
            self._loop.now += timeout
            return []
        return self._wait(timeout)

    def _something_real(self) -> bool:
        return self._loop.in_threads > 0 or len(self.get_map()) > self.own

    def _wait(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        promised = timeout is not None or self._something_real()
        began = time.monotonic()
        events = super().select(timeout if promised else PATIENCE_S)
        self._loop.now += time.monotonic() - began
        if not events and not promised:
            raise Deadlock("an asynchronous function waits for something that will never happen")
        return events
