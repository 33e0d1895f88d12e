"""When the next commit is made: soon, together with what else happens, or at once.

A commit costs the same for much as for little, so what nothing waits for waits for company. And
commits are the longer the more there was to write at the end of the last one (`not_before`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LATER_S = 0.01
"""How long what nothing waits for may wait for company."""


class CommitTimer:
    """`commit`: makes one. `is_open`: whether one may be made; what is wanted meanwhile waits for
    that. `wanted`: whether anything was done that is in no commit. `not_before`: by the clock of
    the loop."""

    def __init__(self, commit: Callable[[], None]) -> None:
        self.is_open = False
        self.wanted = False
        self.not_before = 0.0
        self._commit = commit
        self._hurry = False
        self._soon: asyncio.Handle | None = None
        self._is_later = False
        self._waits = False
        """Whether the commit that is wanted is not the next thing to be done."""

    def want(self, *, now: bool = False) -> None:
        """Have a commit: in a moment, together with others, or `now`, because something waits."""
        self.wanted = True
        self._hurry = self._hurry or now
        if not self.is_open:
            return
        if self._hurry and self._is_later:
            assert self._soon is not None
            self._soon.cancel()
            self._soon = None
        if self._soon is None:
            loop = asyncio.get_running_loop()
            self._is_later = not self._hurry
            wait_s = max(LATER_S if self._is_later else 0.0, self.not_before - loop.time())
            self._waits = wait_s > 0
            if self._waits:
                self._soon = loop.call_later(wait_s, self._due)
            else:
                self._soon = loop.call_soon(self._due)

    def end(self) -> None:
        """Do not make this commit longer for what the last one had to write: that would cost more
        than it saves."""
        self.not_before = 0.0
        if self._soon is not None and self._waits:
            self._soon.cancel()
            self._soon, self._is_later = None, False
        self.want(now=True)

    def end_if_awaited(self) -> None:
        """No more can be done in this commit: end it if something waits for that."""
        if self._hurry:
            self.end()

    def _due(self) -> None:
        if self.is_open:
            self._commit()
        else:
            self._soon, self._is_later = None, False

    def begun(self) -> None:
        """All that was wanted is in this commit; what is wanted from now on is for the next."""
        self._soon, self._is_later = None, False
        self.wanted = self._hurry = False

    def stop(self) -> None:
        self.is_open = False
        if self._soon is not None:
            self._soon.cancel()
