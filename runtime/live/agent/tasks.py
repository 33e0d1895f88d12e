"""The one place of the agent that creates tasks: named, kept, and never failing unseen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from anabranch.runtime.ports import clock


class Tasks:
    """`on_crash` gets the name of a task that raised and what it raised."""

    def __init__(self, on_crash: Callable[[str, BaseException], None]) -> None:
        self._on_crash = on_crash
        self._tasks: set[asyncio.Task[None]] = set()

    def start(
        self, name: str, work: Coroutine[Any, Any, None], *, periodic: bool = False
    ) -> asyncio.Task[None]:
        context = clock.periodic() if periodic else None
        task = asyncio.get_running_loop().create_task(work, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def cancel_all(self) -> None:
        """Cancel what still runs, and return when it has ended."""
        current = asyncio.current_task()
        tasks = [t for t in self._tasks if t is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._on_crash(task.get_name(), error)
