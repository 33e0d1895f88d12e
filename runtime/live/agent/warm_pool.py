"""Idle processes kept ready, so that a newcomer starts in milliseconds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from anabranch.runtime.live.agent.tasks import Tasks
from anabranch.runtime.live.process.process import Process
from anabranch.runtime.live.process.processes import ForkError

RETRY_FIRST_S = 0.05
RETRY_MAX_S = 5.0


class WarmPool:
    """Keeps `size` processes idle and refills in the background. `fork` makes one.

    Idle processes that die, and forks that fail, are made up for after a pause that doubles with
    each one in a row: a host without memory is not made worse.
    """

    def __init__(self, fork: Callable[[], Awaitable[Process]], size: int, tasks: Tasks) -> None:
        self._fork = fork
        self._size = size
        self._tasks = tasks
        self._idle: deque[Process] = deque()
        self._waiting: deque[asyncio.Future[Process]] = deque()
        self._forking = 0
        self._troubles = 0
        self._closed = False

    @property
    def idle(self) -> list[Process]:
        return list(self._idle)

    async def take(self) -> Process:
        """An idle process, made now if none is ready. Raises `ForkError`.

        There is no deadline here: the caller's covers more than this.
        """
        if self._idle:
            process = self._idle.popleft()
        else:
            waiting: asyncio.Future[Process] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            self.refill()
            try:
                process = await waiting
            except asyncio.CancelledError:
                self._put_back(waiting)
                raise
        self._troubles = 0
        self.refill()
        return process

    def refill(self) -> None:
        wanted = self._size + sum(not w.done() for w in self._waiting)
        while not self._closed and len(self._idle) + self._forking < wanted:
            self._forking += 1
            self._tasks.start("fork", self._fork_one())

    def renew(self) -> None:
        """All that is idle has died, through no fault of its own: make others now."""
        for process in self._idle:
            process.close()
        self._idle.clear()
        self._troubles = 0
        self.refill()

    def close(self) -> None:
        """Fork no more; what is idle is ended with the template process."""
        self._closed = True
        for waiting in self._waiting:
            waiting.cancel()

    async def _fork_one(self) -> None:
        try:
            process = await self._fork()
        except ForkError as error:
            self._forking -= 1
            self._fail_next(error)
            self._retry_later()
            return
        self._forking -= 1
        process.exited.add_done_callback(lambda _: self._forget(process))
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(process)
                return
        self._idle.append(process)

    def _put_back(self, waiting: asyncio.Future[Process]) -> None:
        """Keep what was handed over in the same moment as its taker gave up."""
        if waiting.done() and not waiting.cancelled() and not waiting.exception():
            self._idle.append(waiting.result())

    def _fail_next(self, error: ForkError) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(error)
                return

    def _forget(self, process: Process) -> None:
        if process in self._idle:
            self._idle.remove(process)
            process.close()
            self._retry_later()

    def _retry_later(self) -> None:
        if self._closed:
            return
        pause_s = min(RETRY_MAX_S, RETRY_FIRST_S * 2**self._troubles)
        self._troubles = min(self._troubles + 1, 10)
        asyncio.get_running_loop().call_later(pause_s, self.refill)
