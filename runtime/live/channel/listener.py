"""Where an instance listens for its neighbours."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.plan.ends import passing
from anabranch.runtime.values.texts import original

SOCKET_LOOK_S = 1.0
"""How often it looks whether its socket is still there."""


class ListeningSocket:
    """`made`: makes the protocol of a connection that comes in."""

    def __init__(self, me: InstanceId, made: Callable[[], asyncio.Protocol]) -> None:
        self._me = me
        self._made = made
        self._server: asyncio.Server | None = None
        self._socket_file: tuple[int, int] | None = None
        """Device and inode of the socket that it listens at."""

    async def listen(self, address: str) -> str:
        """Listen at `unix:PATH` or `tcp:HOST:PORT` (port 0: any); returns the real address."""
        kind, _, place = address.partition(":")
        if kind == "unix":
            await self._listen_at(original(place))
            return address
        host, _, port = place.rpartition(":")
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._made, host, int(port))
        return f"tcp:{host}:{self._server.sockets[0].getsockname()[1]}"

    async def _listen_at(self, place: str) -> None:
        self._server = await asyncio.get_running_loop().create_unix_server(self._made, place)
        self._socket_file = _file_at(place)

    async def keep_listening(self, address: str) -> None:
        """Whatever tidies up temporary files may remove a socket. Neighbours of a next incarnation,
        and newcomers, would dial it for ever. Raises `OSError` if another cannot be made."""
        kind, _, place = address.partition(":")
        while kind == "unix":
            await asyncio.sleep(SOCKET_LOOK_S)
            if _file_at(original(place)) != self._socket_file:
                await self._listen_again(original(place))

    async def _listen_again(self, place: str) -> None:
        self.close()  # connections that it has accepted stay
        try:
            await self._listen_at(place)
        except OSError as error:
            if not passing(error):
                raise OSError(
                    error.errno,
                    f"the socket of {self._me} was removed and cannot be made again "
                    f"({error.strerror}); leave the folder of a run alone, and begin a new "
                    "run, or resume this one if it has a state folder",
                    place,
                ) from error

    @property
    def filenos(self) -> list[int]:
        """Numbers of its open files."""
        return [s.fileno() for s in self._server.sockets] if self._server is not None else []

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


def _file_at(place: str) -> tuple[int, int] | None:
    """Which file is there; None if there is none."""
    try:
        found = os.stat(place)
    except OSError:
        return None
    return found.st_dev, found.st_ino
