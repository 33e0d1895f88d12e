"""Tuples worked on one at a time, while one of them is suspected of ending its process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

Before = Callable[[Any], Awaitable[str]]


class Care:
    """`before` is awaited ahead of each tuple, with the tag of its batch or, if it was kept, with
    its group, and may return why not to work on it. Without it, no care is taken."""

    def __init__(self) -> None:
        self.before: Before | None = None

    async def refusal(self, which: Any) -> str:
        """Why not to work on the next tuple of this batch or group; empty: do it."""
        return "" if self.before is None else await self.before(which)
