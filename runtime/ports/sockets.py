"""The transport of this process: sockets of the operating system, unless the process is simulated
and has another one (`take`)."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from anabranch.runtime.ports import clock
from anabranch.runtime.ports.transport import Listening, P, Transport

PORT_MIN, PORT_TRIES = 20_000, 50
KEEPALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
"""Seconds without a word, seconds between two questions, questions without an answer."""
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


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
    """`add`: has others for further kinds of addresses."""

    def __init__(self) -> None:
        self._others: dict[str, Transport] = {}

    def add(self, kind: str, another: Transport) -> None:
        self._others[kind] = another

    def has(self, kind: str) -> bool:
        return kind in self._others

    async def listen(self, address: str, made: Callable[[], asyncio.Protocol]) -> Listening:
        loop = asyncio.get_running_loop()
        kind, _, place = address.partition(":")
        if (other := self._other(kind)) is not None:
            return await other.listen(address, made)
        if kind == "unix":
            return SocketListening(address, await loop.create_unix_server(made, place))
        host, _, port = place.rpartition(":")
        server = await _served(made, host.strip("[]"), [int(port)] if int(port) else _ports())
        for each in server.sockets:
            _keep_alive(each)  # and so do connections that are accepted there
        return SocketListening(f"tcp:{host}:{server.sockets[0].getsockname()[1]}", server)

    async def dial(self, address: str, made: Callable[[], P]) -> P:
        loop = asyncio.get_running_loop()
        kind, _, place = address.partition(":")
        if (other := self._other(kind)) is not None:
            return await other.dial(address, made)
        if kind == "unix":
            _, protocol = await loop.create_unix_connection(made, place)
        else:
            host, _, port = place.rpartition(":")
            stream, protocol = await loop.create_connection(made, host.strip("[]"), int(port))
            _keep_alive(stream.get_extra_info("socket"))
        return protocol

    def forget(self, address: str) -> None:
        kind, _, place = address.partition(":")
        if kind == "unix":
            with suppress(OSError):  # it goes with the folder
                os.unlink(place)

    async def settle(self, most_s: float) -> None:
        for other in self._others.values():
            await other.settle(most_s)

    def _other(self, kind: str) -> Transport | None:
        """Raises `OSError`."""
        if kind not in ("unix", "tcp") and kind not in self._others:
            raise ConnectionError(f"this host has no way to addresses that begin with {kind}:")
        return self._others.get(kind)


async def _served(
    made: Callable[[], asyncio.Protocol], host: str, ports: Iterable[int]
) -> asyncio.Server:
    """At the first of these ports that is free. Raises `OSError`."""
    taken: OSError | None = None
    for port in ports:
        try:
            return await asyncio.get_running_loop().create_server(made, host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            taken = error
    assert taken is not None
    raise taken


def _ports() -> Iterator[int]:
    """Where the next process of an instance listens again, and no connection of another program
    may have got the port meanwhile: rather below those that the system gives to connections. At
    last 0, any."""
    try:
        beyond = int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):  # not Linux
        beyond = 0
    if beyond > PORT_MIN:
        for _ in range(PORT_TRIES):
            yield clock.chance().randrange(PORT_MIN, beyond)
    yield 0


def _keep_alive(sock: socket.socket | None) -> None:
    """A host that loses its power does not close its connections, and an end that has nothing to
    send would never notice it."""
    if sock is None:
        return
    with suppress(OSError):  # it is gone already
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE:
            if hasattr(socket, name):  # others have other names for them
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


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
