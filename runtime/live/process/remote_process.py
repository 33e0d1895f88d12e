"""One process on another host, and its link, as the agent of a run has them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

from anabranch.runtime.live.link.link import (
    FRAME_BYTES_MAX,
    UNSENT_BYTES_MAX,
    LinkError,
    body_of,
)
from anabranch.runtime.live.process.kernel_view import KernelLook
from anabranch.runtime.live.process.process import OnOutput, Output, Process
from anabranch.runtime.live.process.tunnel import (
    CloseLink,
    ProcessExited,
    ProcessMade,
    ToProcess,
    TunnelMessage,
)


class UnderWay(NamedTuple):
    """So many bytes to a link."""

    link: RemoteLink
    size: int


SendThere = Callable[[TunnelMessage, object], None]
"""To the worker, with what a note has of it."""


class RemoteLink:
    """`hand_over` gets each frame; what it raises closes the link, as on this host."""

    def __init__(self, key: int, send: SendThere, hand_over: Callable[[bytes], None]) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.error: Exception | None = None
        self._key = key
        self._send = send
        self._hand_over = hand_over
        self._under_way = 0

    def send(self, message: Any) -> None:
        if self.closed.done():
            return
        body = body_of(message)
        if len(body) > FRAME_BYTES_MAX:
            raise LinkError(f"a message of {len(body):,} bytes is above the limit of a link")
        self._under_way += len(body)
        if self._under_way > UNSENT_BYTES_MAX:
            self._fail(LinkError("does not read its link"))
        else:
            self._send(ToProcess(self._key, body), UnderWay(self, len(body)))

    def note_taken(self, count: int) -> None:
        """So many bytes have come there."""
        self._under_way -= count

    def take(self, body: bytes) -> None:
        if self.closed.done():
            return
        try:
            self._hand_over(body)
        except Exception as error:
            # Not swallowed: the owner of the link looks at `error` when it is closed.
            self._fail(error)

    def close(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
            self._send(CloseLink(self._key), None)

    def end(self, error: str = "") -> None:
        """It is closed there."""
        if not self.closed.done():
            self.error = self.error or (LinkError(error) if error else None)
            self.closed.set_result(None)

    def _fail(self, error: Exception) -> None:
        self.error = self.error or error
        self.close()


class RemoteProcess(Process):
    link: RemoteLink

    def __init__(self, key: int, on_output: OnOutput, send: SendThere) -> None:
        super().__init__(key, on_output)
        self.link = RemoteLink(key, send, self._hand_over)
        self.output = Output(self._print)
        self.link_ended = self.output_ended = False
        """As the worker reports."""
        self.is_killed = False
        self.seen: KernelLook | None = None
        """What the system there has reported of it last."""

    @property
    def is_over(self) -> bool:
        """Whether the worker has nothing more to report of it."""
        return self.link_ended and self.output_ended and self.exit_code is not None

    def made(self, told: ProcessMade) -> None:
        self.note_forked(told.pid)

    def ended(self, told: ProcessExited) -> None:
        self.orphan_wait = told.orphaned
        self.note_exited(told.code)

    def note_link_closed(self, error: str) -> None:
        self.link_ended = True
        self.link.end(error)

    def note_output_closed(self) -> None:
        self.output_ended = True
        self.output.end()

    def note_lost(self) -> None:
        """It has ended with its worker."""
        if self.exit_code is None:
            self.orphan_wait = True
            self.note_exited(-signal.SIGKILL)
        self.note_link_closed("")
        self.note_output_closed()

    def close(self) -> None:
        super().close()
        self.output.end()
