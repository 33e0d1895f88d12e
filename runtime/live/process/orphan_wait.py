"""Processes whose parent was killed: their exit is not reported, and they must be gone before
others take their places.

On Linux the death of the parent kills them, whatever they are doing. The end of their link is the
first sign of it, since no other process has a copy, unless a user's function has forked.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

from anabranch.runtime.live.process.kernel_view import ENDED, look_at
from anabranch.runtime.live.process.process import Process
from anabranch.runtime.plan.ends import passing

PATIENCE_S = 1.0
"""After that it has survived the death of its parent in some way, and is killed."""
POLL_FIRST_S = 0.001
POLL_MAX_S = 0.05


async def until_gone(process: Process) -> None:
    """Return when it cannot act any more. No bound, as for any other incarnation (see
    `watch_process`)."""
    await asyncio.wait([process.link.closed], timeout=PATIENCE_S)
    pause_s = POLL_FIRST_S
    while _is_there(process):
        if not process.link.closed.done():  # so the number is still its own
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, POLL_MAX_S)


def _is_there(process: Process) -> bool:
    try:
        look = look_at(process.pid)
    except OSError as error:
        if not passing(error):
            raise
        return True  # for all that can be known now
    return look is not None and look.state not in ENDED
