"""Where an instance listens for its neighbours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.plan.ends import passing
from anabranch.runtime.ports.sockets import transport
from anabranch.runtime.ports.transport import Listening
from anabranch.runtime.values.texts import carried, original

SOCKET_LOOK_S = 1.0
"""How often it looks whether its socket is still there."""


class ListeningSocket:
    """`made`: makes the protocol of a connection that comes in."""

    def __init__(self, me: InstanceId, made: Callable[[], asyncio.Protocol]) -> None:
        self._me = me
        self._made = made
        self._place: Listening | None = None
        self._transport = transport()

    async def listen(self, address: str) -> str:
        """Listen at `unix:PATH` or `tcp:HOST:PORT` (port 0: any); returns the real address."""
        self._place = await self._transport.listen(original(address), self._made)
        return carried(self._place.address)

    async def keep_listening(self, address: str) -> None:
        """Whatever tidies up temporary files may remove a socket. Neighbours of a next incarnation,
        and newcomers, would dial it for ever. Raises `OSError` if another cannot be made."""
        while True:
            await asyncio.sleep(SOCKET_LOOK_S)
            if self._place is not None and not self._place.is_there():
                await self._listen_again(original(address))

    async def _listen_again(self, address: str) -> None:
        self.close()  # connections that it has accepted stay
        try:
            self._place = await self._transport.listen(address, self._made)
        except OSError as error:
            if not passing(error):
                raise OSError(
                    error.errno,
                    f"the socket of {self._me} was removed and cannot be made again "
                    f"({error.strerror}); leave the folder of a run alone, and begin a new "
                    "run, or resume this one if it has a state folder",
                    address.partition(":")[2],
                ) from error

    @property
    def filenos(self) -> list[int]:
        """Numbers of its open files."""
        return self._place.filenos() if self._place is not None else []

    def close(self) -> None:
        if self._place is not None:
            self._place.close()

    def forget(self) -> None:
        """Nothing will listen here again."""
        if self._place is not None:
            self._transport.forget(self._place.address)
