"""A process that was forked on this host: its link is a socket pair, its output a pipe."""

from __future__ import annotations

import asyncio
import codecs
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack

from anabranch.runtime.live.link.inherited_fds import own
from anabranch.runtime.live.link.link import Link
from anabranch.runtime.live.process.process import LINE_CHARS_MAX, OnOutput, Output, Process


class PipedOutput(Output, asyncio.Protocol):
    def __init__(self, on_line: Callable[[str], None]) -> None:
        super().__init__(on_line)
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._partial = ""

    def data_received(self, data: bytes) -> None:
        lines = (self._partial + self._decoder.decode(data)).split("\n")
        self._partial = lines.pop()
        for line in lines:
            self.take(line)
        while len(self._partial) > LINE_CHARS_MAX:
            self.take(self._partial[:LINE_CHARS_MAX])
            self._partial = self._partial[LINE_CHARS_MAX:]

    def connection_lost(self, exc: Exception | None) -> None:
        if self._partial:
            self.take(self._partial)
            self._partial = ""
        self.end()


class LocalProcess(Process):
    link: Link

    def __init__(self, key: int, on_output: OnOutput) -> None:
        super().__init__(key, on_output)
        self._pipe: asyncio.ReadTransport | None = None
        self._held_up = False

    async def open(self, link: socket.socket, output: int | None) -> None:
        """Take the agent's ends of its link and of its output pipe, if it has one. Closed if that
        is given up."""
        with ExitStack() as undo:
            if output is not None:
                pipe = own(os.fdopen(output, "rb", buffering=0))
                undo.callback(pipe.close)
            self.link = await Link.attach(link, self._hand_over)
            undo.callback(self.link.close)
            if output is None:
                self.output = PipedOutput(self._print)
                self.output.end()
            else:
                self._pipe, self.output = await asyncio.get_running_loop().connect_read_pipe(
                    lambda: PipedOutput(self._print), pipe
                )
            undo.pop_all()

    def hold_up(self) -> None:
        """What it sends and prints waits in the system until `go_on`; and so may the process."""
        if not self._held_up:
            self._held_up = True
            self.link.hold_up()
            if self._pipe is not None and not self._pipe.is_closing():
                self._pipe.pause_reading()

    def go_on(self) -> None:
        if self._held_up:
            self._held_up = False
            self.link.go_on()
            if self._pipe is not None and not self._pipe.is_closing():
                self._pipe.resume_reading()

    def close(self) -> None:
        super().close()
        if self._pipe is not None:
            self._pipe.close()
