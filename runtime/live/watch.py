"""Waits for the end of a process and says how it ended. Every wait is bounded."""

from __future__ import annotations

import asyncio
from typing import Any

from anabranch.runtime.failure import Failure
from anabranch.runtime.live.forker import Forker
from anabranch.runtime.live.messages import Failed
from anabranch.runtime.live.process import Process, describe_exit

EXIT_TIMEOUT_S = 5.0
"""Between the last word of a process, or the end of its link, and its exit."""
KILL_TIMEOUT_S = 2.0


async def watch(process: Process, said_goodbye: asyncio.Future[None], forker: Forker) -> None:
    """Return when `process` has ended and everything it said has been heard.

    It must end by itself soon after it said goodbye or closed its link; otherwise it is killed,
    as is one that broke the rules of its link.
    """
    signs: list[asyncio.Future[Any]] = [process.exited, process.link.closed, said_goodbye]
    await asyncio.wait(signs, return_when=asyncio.FIRST_COMPLETED)
    if process.exit_code is None and process.link.error is None:
        await asyncio.wait([process.exited], timeout=EXIT_TIMEOUT_S)
    if process.exit_code is None:
        forker.kill(process)
        await asyncio.wait([process.exited], timeout=KILL_TIMEOUT_S)
    await process.last_words()
    process.close()


def describe_end(who: str, process: Process, failed: Failed | None) -> Failure:
    """How a process ended that should not have: its own explanation, or what is known of it."""
    if failed is not None:
        return Failure(f"{who} failed: {failed.reason}", failed.detail.rstrip())
    if process.link.error is not None:
        return Failure(f"{who} broke its link to the agent: {process.link.error}")
    code = process.exit_code
    words = "does not end" if code is None else describe_exit(code)
    return Failure(f"{who} (process {process.pid}) {words}", "\n".join(process.output.tail))
