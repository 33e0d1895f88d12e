"""Waits until what the system refuses for now can be done: no room on a disk, no file to be had.

An instance that waits here takes nothing more in, so all instances before it wait as well, up to
the source. When the cause is gone, the stream goes on by itself. It is reported once, in the log
and as an event of the run (`waits`, `goes on`), with what to do."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from anabranch.runtime.plan.ends import passing
from anabranch.runtime.ports import clock
from anabranch.runtime.values.kinds import EventKind

log = logging.getLogger("anabranch.waits")

RETRY_FIRST_S = 0.05
RETRY_MAX_S = 2.0
QUIET_S = 10.0
"""A disk that is full again and again is not reported more often."""

Done = TypeVar("Done")
Note = Callable[[EventKind, str], None]
"""Takes the kind of an event and its detail."""

_REMEDIES = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "raise the quota or make room",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files of the host",
    errno.ENOMEM: "free memory",
    errno.ENOBUFS: "free memory",
    errno.EROFS: "let it be written again",
    errno.EIO: "look at the disk (dmesg)",
}


class Patience:
    """`who`: the name of the process, for the log. `note`: adds an event to the report. `delayed`:
    called at each refusal, at least every `RETRY_MAX_S` while the process waits."""

    def __init__(self, who: str, note: Note, delayed: Callable[[], None] = lambda: None) -> None:
        self._who = who
        self._note = note
        self._delayed = delayed
        self._told_at = -QUIET_S

    async def outlast(
        self, work: Callable[[], Awaitable[Done]], error: OSError | None = None
    ) -> Done:
        """What `work` gives when it could be done. Raises its `OSError` if to wait would not help.

        `error`: one that `work` has raised before.
        """
        began, pause_s, told = clock.monotonic(), RETRY_FIRST_S, False
        while True:
            try:
                if error is not None:
                    raise error
                done = await work()
                break
            except OSError as met:
                if not passing(met):
                    raise
                told = told or self._tell(met)
                self._delayed()
            error = None
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)
        if told:
            waited_s = clock.monotonic() - began
            log.warning("%s goes on after %.1f s", self._who, waited_s)
            self._note(EventKind.GOES_ON, f"after {waited_s:.1f} s")
        return done

    def _tell(self, error: OSError) -> bool:
        now = clock.monotonic()
        if now - self._told_at < QUIET_S:
            return False
        self._told_at = now
        detail = (
            f"{describe_refusal(error)}; the stream waits and goes on by itself: {remedy(error)}"
        )
        log.warning("%s: %s", self._who, detail)
        self._note(EventKind.WAITS, detail)
        return True


def describe_refusal(error: OSError) -> str:
    """`cannot write results: No space left on device: 'out.jsonl'`"""
    what = error.strerror or str(error)
    return what if error.filename is None else f"{what}: {error.filename!r}"


def remedy(error: OSError) -> str:
    """`make room there`"""
    return _REMEDIES.get(error.errno or 0, "mend that")
