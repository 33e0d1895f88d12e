"""Streams between instances of different hosts: TLS 1.3, both ends with the certificate of their
host's agent.

    connection ◀─ plain bytes ─ SecuredProtocol ◀─ TLS ─ transport

A connection of the run gets a stream only once the other end has proved that it belongs to an
agent. Whatever else comes is refused, and counted by reason. The certificates are those that lie in
the folder when a stream begins. Streams within a host, over `unix:`, are as they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from anabranch.runtime.hosts.roles import AGENT
from anabranch.runtime.live.hosts.tls import TlsFolder
from anabranch.runtime.live.hosts.tls_layer import HANDSHAKE, TlsLayer, TlsRefused
from anabranch.runtime.ports.transport import Listening, P, Transport

HANDSHAKE_S = 5.0
HANDSHAKES_MAX = 128
"""At a time, of streams that others have dialled."""
BETWEEN_HOSTS = ("tcp:", "mqtt:")
NO_AGENT = "a certificate without the role agent"

log = logging.getLogger("anabranch.secured")


class SecuredTransport(Transport):
    """`plain`: over which it goes; `folder`: of the certificate. Raises `TlsError`."""

    def __init__(self, plain: Transport, folder: Path) -> None:
        self.refused: Counter[str] = Counter()
        """Streams that others have dialled, by reason."""
        self._plain = plain
        self._folder = TlsFolder(folder, self._note_changed)
        self._shaking: set[SecuredProtocol] = set()

    async def listen(self, address: str, made: Callable[[], asyncio.Protocol]) -> Listening:
        if not address.startswith(BETWEEN_HOSTS):
            return await self._plain.listen(address, made)
        return await self._plain.listen(address, lambda: self._accepting(made))

    async def dial(self, address: str, made: Callable[[], P]) -> P:
        """Return when both ends have proved their identity."""
        if not address.startswith(BETWEEN_HOSTS):
            return await self._plain.dial(address, made)
        try:
            layer = self._folder.layer(address.removeprefix("tcp:"))
            ours = await self._plain.dial(address, lambda: SecuredProtocol(layer, made))
            try:
                await ours.is_open
            except asyncio.CancelledError:
                ours.abort()
                raise
        except TlsRefused as refused:
            by = "it refuses this instance, which has shown" if refused.by_peer else "it has shown"
            raise ConnectionRefusedError(0, f"{by} {refused.reason}") from None
        return cast(P, ours.inner)

    def forget(self, address: str) -> None:
        self._plain.forget(address)

    async def settle(self, most_s: float) -> None:
        await self._plain.settle(most_s)

    def _accepting(self, made: Callable[[], asyncio.Protocol]) -> SecuredProtocol:
        new = SecuredProtocol(self._folder.layer(None), made)
        if len(self._shaking) >= HANDSHAKES_MAX:
            new.refuse(TlsRefused("too many handshakes at a time"))
        self._shaking.add(new)
        new.is_open.add_done_callback(lambda is_open: self._shaken(new, is_open))
        return new

    def _shaken(self, new: SecuredProtocol, is_open: asyncio.Future[None]) -> None:
        self._shaking.discard(new)
        error = None if is_open.cancelled() else is_open.exception()
        if error is None:
            return
        reason = error.reason if isinstance(error, TlsRefused) else "has gone in the handshake"
        self.refused[reason] += 1
        if self.refused[reason] == 1:
            log.warning("a connection was refused: %s; further ones are not told", reason)

    def _note_changed(self, wrong: str) -> None:
        if wrong:
            log.warning("%s has changed: %s; the one before counts on", self._folder.path, wrong)


class SecuredProtocol(asyncio.Protocol):
    """`made`: makes what receives the plain bytes, `inner`, when the handshake is over: then
    `is_open` is done. It has `TlsRefused` or `OSError` if that is not to be."""

    def __init__(self, layer: TlsLayer, made: Callable[[], asyncio.Protocol]) -> None:
        loop = asyncio.get_running_loop()
        self.inner: asyncio.Protocol | None = None
        self.is_open: asyncio.Future[None] = loop.create_future()
        self._layer = layer
        self._made = made
        self._plain: asyncio.Transport | None = None
        """None until there is a connection, which may take long to make."""
        self._deadline: asyncio.TimerHandle | None = None

    def refuse(self, error: TlsRefused | OSError) -> None:
        if not self.is_open.done():
            self.is_open.set_exception(error)
            self.is_open.exception()  # seen: of a stream that was dialled here, no task waits

    def abort(self) -> None:
        self.refuse(ConnectionAbortedError("it was given up"))
        if self._plain is not None:
            self._plain.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._plain = plain = cast(asyncio.Transport, transport)
        if self.is_open.done():
            plain.abort()
            return
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(HANDSHAKE_S, self._too_slow)
        if self._layer.dials:
            self._layer.begin(plain.write)

    def data_received(self, data: bytes) -> None:
        assert self._plain is not None
        try:
            plain = self._layer.feed(data, self._plain.write)
            if self.inner is None and self._layer.peer is not None:
                self._open()
        except TlsRefused as refused:
            self.refuse(refused)
            self._plain.close()  # with the alert that has the reason
            return
        if plain and self.inner is not None:
            self.inner.data_received(plain)

    def _open(self) -> None:
        """Raises `TlsRefused`."""
        assert self._layer.peer is not None
        if not self._layer.peer.may(AGENT):
            raise TlsRefused(NO_AGENT)
        assert self._plain is not None
        if self.is_open.done():  # refused already, or given up by what has dialled
            self._plain.abort()
            return
        self._cancel_deadline()
        self.inner = self._made()
        self.inner.connection_made(_Encrypting(self._plain, self._layer))
        self.is_open.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        if self.inner is not None:
            self.inner.connection_lost(exc)
        else:
            self.refuse(ConnectionResetError("it has ended the TLS handshake"))

    def pause_writing(self) -> None:
        if self.inner is not None:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        if self.inner is not None:
            self.inner.resume_writing()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def _too_slow(self) -> None:
        self.refuse(TlsRefused(HANDSHAKE))
        self.abort()


class _Encrypting(asyncio.Transport):
    """What a connection writes to."""

    def __init__(self, plain: asyncio.Transport, layer: TlsLayer) -> None:
        super().__init__()
        self._plain = plain
        self._layer = layer

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if data and not self._plain.is_closing():
            self._layer.send(bytes(data), self._plain.write)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._plain.is_closing():
            self._layer.end(self._plain.write)
            self._plain.close()

    def abort(self) -> None:
        self._plain.abort()

    def is_closing(self) -> bool:
        return self._plain.is_closing()

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self._plain.pause_reading()

    def resume_reading(self) -> None:
        self._plain.resume_reading()

    def is_reading(self) -> bool:
        return self._plain.is_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._plain.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._plain.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._plain.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._plain.set_write_buffer_limits(high, low)
