"""Waits for the end of a process and reports how it ended."""

from __future__ import annotations

import asyncio
from typing import Any

from anabranch.runtime.live.link.messages import Failed
from anabranch.runtime.live.process.process import Process, describe_exit
from anabranch.runtime.live.process.processes import Processes
from anabranch.runtime.reporting.failure import Failure
from anabranch.runtime.values.kinds import Cause, Ending

EXIT_TIMEOUT_S = 5.0
"""Between the last word of a process, or the end of its link, and its exit."""
CRASH_TIMEOUT_S = 1.0
"""The same for one that closed its link without a goodbye."""
LINK_TIMEOUT_S = 0.1
"""Between the exit of a process and the end of its link, which is there already unless another
process holds a copy of it."""


async def watch_process(
    process: Process, said_goodbye: asyncio.Future[None], forker: Processes
) -> None:
    """Return when `process` has ended, so that its next incarnation may begin; what it printed may
    still come.

    It must end by itself soon after it said goodbye or closed its link; otherwise it is killed,
    as is one that broke the rules of its link. There is no bound on the wait for its exit: while it
    is there, even as one that the system cannot end because of a disk that does not answer, no
    other process may take its place.
    """
    await _signs_of_end(process, said_goodbye)
    if process.exit_code is None and process.link.error is None:
        timeout_s = EXIT_TIMEOUT_S if said_goodbye.done() else CRASH_TIMEOUT_S
        await asyncio.wait([process.exited], timeout=timeout_s)
    if process.exit_code is None:
        forker.kill(process)
        await asyncio.wait([process.exited])
    await asyncio.wait([process.link.closed], timeout=LINK_TIMEOUT_S)


async def _signs_of_end(process: Process, said_goodbye: asyncio.Future[None]) -> None:
    signs: list[asyncio.Future[Any]] = [process.exited, process.link.closed, said_goodbye]
    await asyncio.wait(signs, return_when=asyncio.FIRST_COMPLETED)


def describe_end(who: str, process: Process, failed: Failed | None) -> Failure:
    """How a process ended that should not have: its own explanation, or what is known of it."""
    if failed is not None:
        return Failure(f"{who} failed: {failed.reason}", failed.detail.rstrip())
    if process.link.error is not None:
        return Failure(f"{who} {how_ended(process).how}")
    words = f"{who} (process {process.pid}) {how_ended(process).how}"
    return Failure(words, "\n".join(process.output.tail))


def how_ended(process: Process) -> Ending:
    if process.link.error is not None:
        return Ending(Cause.LINK, f"broke its link to the agent: {process.link.error}")
    if process.orphan_wait:
        return Ending(Cause.PARENT, "ended with the process that it was forked from")
    if process.exit_code is None:
        return Ending(Cause.UNKNOWN, "does not end")
    cause = Cause.EXIT_CODE if process.exit_code >= 0 else Cause.SIGNAL
    return Ending(cause, describe_exit(process.exit_code))
