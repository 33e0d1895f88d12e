"""The agent's end of the control socket of one template process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import msgspec

from anabranch.runtime.live.link import control as msg
from anabranch.runtime.live.link.link import FrameBuffer, encode
from anabranch.runtime.live.process.template_process import TemplateProcess

_READ_BYTES = 65536
_decode = msgspec.msgpack.Decoder(msg.FromParent).decode


class TemplateLink:
    """`on_end` is called, perhaps several times, when the parent is gone or does not listen."""

    def __init__(
        self,
        parent: TemplateProcess,
        on_message: Callable[[msg.FromParent], None],
        on_end: Callable[[], None],
    ) -> None:
        self.parent = parent
        self.loaded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it has read the pipeline and can fork; fails if it never will."""
        self.has_forked = False
        self._on_message = on_message
        self._on_end = on_end
        self._frames = FrameBuffer()

    def listen(self) -> None:
        control = self.parent.control
        control.setblocking(False)
        asyncio.get_running_loop().add_reader(control.fileno(), self._read)

    def leave(self) -> None:
        """Listen no more."""
        asyncio.get_running_loop().remove_reader(self.parent.control.fileno())

    def send(self, message: msg.ToParent) -> None:
        try:
            self.parent.control.send(encode(message))
        except BlockingIOError:
            # Thousands of commands wait in the socket: it has been stopped, or hangs.
            self._on_end()
        except (BrokenPipeError, ConnectionResetError):
            # Its end is noticed by the reader, which handles it.
            return

    def send_with(self, message: msg.ToParent, fds: list[int]) -> None:
        """Raises `OSError`."""
        socket.send_fds(self.parent.control, [encode(message)], fds)

    def _read(self) -> None:
        try:
            data = self.parent.control.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self._on_end()
            return
        for body in self._frames.feed(data):
            self._on_message(_decode(body))
