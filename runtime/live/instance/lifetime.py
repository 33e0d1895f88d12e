"""When an instance has begun, what runs in it meanwhile, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.ports import clock


class Lifetime:
    """`ended`: why, once the protocol lets it go; raises what made it fail. `broken`: fails if
    something does that after the end."""

    def __init__(self, me: InstanceId) -> None:
        loop = asyncio.get_running_loop()
        self.began = asyncio.Event()
        self.ended: asyncio.Future[str] = loop.create_future()
        self.broken: asyncio.Future[str] = loop.create_future()
        self.before_failing: Callable[[], None] | None = None
        """Called at once by what makes it fail: what is half done must not be recorded."""
        self._me = me
        self._tasks: set[asyncio.Task[None]] = set()

    def end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)

    def fail(self, error: Exception) -> None:
        """The instance cannot go on: an error of the core, of its work, or of its sink."""
        if self.ended.done():
            if not self.broken.done():
                self.broken.set_exception(error)
        else:
            if self.before_failing is not None:
                self.before_failing()
            self.ended.set_exception(error)

    def spawn(self, work: Coroutine[Any, Any, None], name: str, *, periodic: bool = False) -> None:
        context = clock.periodic() if periodic else None
        loop = asyncio.get_running_loop()
        task = loop.create_task(work, name=f"{self._me} {name}", context=context)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
