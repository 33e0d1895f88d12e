"""The transport of this process: sockets of the operating system, unless the process is simulated
and has another one (`take`)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Final

from anabranch.runtime.ports.transport import Listening, P, Transport


class SocketListening(Listening):
    def __init__(self, address: str, server: asyncio.Server) -> None:
        self.address = address
        self._server = server
        self._file = _file_at(address)

    def is_there(self) -> bool:
        return _file_at(self.address) == self._file

    def filenos(self) -> list[int]:
        return [s.fileno() for s in self._server.sockets]

    def close(self) -> None:
        self._server.close()


class Sockets(Transport):
    async def listen(self, address: str, made: Callable[[], asyncio.Protocol]) -> SocketListening:
        loop = asyncio.get_running_loop()
        kind, _, place = address.partition(":")
        if kind == "unix":
            return SocketListening(address, await loop.create_unix_server(made, place))
        host, _, port = place.rpartition(":")
        server = await loop.create_server(made, host.strip("[]"), int(port))
        return SocketListening(f"tcp:{host}:{server.sockets[0].getsockname()[1]}", server)

    async def dial(self, address: str, made: Callable[[], P]) -> P:
        loop = asyncio.get_running_loop()
        kind, _, place = address.partition(":")
        if kind == "unix":
            _, protocol = await loop.create_unix_connection(made, place)
        else:
            host, _, port = place.rpartition(":")
            _, protocol = await loop.create_connection(made, host.strip("[]"), int(port))
        return protocol

    def forget(self, address: str) -> None:
        kind, _, place = address.partition(":")
        if kind == "unix":
            with suppress(OSError):  # it goes with the folder
                os.unlink(place)


def _file_at(address: str) -> tuple[int, int] | None:
    """Device and inode of the socket at this address; None if there is none."""
    kind, _, place = address.partition(":")
    try:
        found = os.stat(place) if kind == "unix" else None
    except OSError:
        return None
    return found and (found.st_dev, found.st_ino)


SOCKETS: Final = Sockets()
_here: ContextVar[Transport] = ContextVar("transport", default=SOCKETS)


def transport() -> Transport:
    """Of the process, real or simulated, that asks."""
    return _here.get()


def take(another: Transport) -> None:
    """Of this context from now on: of a simulated process."""
    _here.set(another)
