"""How an instance reaches the neighbours that it dials, again and again as long as it is needed."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Protocol

from anabranch.protocol.ids import InstanceId
from anabranch.protocol.limits import Limits
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.channel.connection import Connection
from anabranch.runtime.live.channel.frames import Addresses
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.sockets import transport
from anabranch.runtime.values.texts import original

log = logging.getLogger("anabranch.neighbourhood")

LACKING = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
NOBODY_LISTENS = (ConnectionRefusedError, FileNotFoundError, TimeoutError)
UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH)
DIAL_S = 10.0
"""Bound on one attempt: a host that is switched off answers nothing, and the system would try for
minutes, more and more rarely."""
BARRED = (errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ELOOP)
"""Errors on the way to a socket after which another attempt does not help."""


class Neighbours(Protocol):
    """What a dialer needs of the instances that it dials."""

    def has_ended(self, peer: InstanceId) -> bool: ...
    def close_channel(self, channel: Channel) -> None: ...


class Dialer:
    """`book`: where instances listen. `made`: makes the connection of a channel."""

    def __init__(
        self,
        me: InstanceId,
        *,
        limits: Limits,
        book: Addresses,
        made: Callable[[Channel], Connection],
        neighbours: Neighbours,
    ) -> None:
        self._me = me
        self._limits = limits
        self._book = book
        self._made = made
        self._neighbours = neighbours
        self._told_lacking = False
        self._transport = transport()
        self._tries: dict[InstanceId, asyncio.Timeout] = {}

    async def keep_connected(self, channel: Channel) -> None:
        """Dial, and dial again whenever the connection is lost (P30). Raises `OSError` if that
        cannot help."""
        delay_s = self._limits.reconnect_first_s
        while not channel.ended:
            try:
                connection = await self._dial(channel)
            except OSError as error:
                if _is_not_there(error) and self._neighbours.has_ended(channel.peer):
                    self._neighbours.close_channel(channel)  # it needed nothing of me
                    return
                self._note_failure(channel, error)
            else:
                self._told_lacking = False
                await asyncio.wait([connection.lost])
                if connection.established:
                    delay_s = self._limits.reconnect_first_s
            if not channel.ended:
                await asyncio.sleep(delay_s * clock.chance().uniform(0.5, 1.0))
                delay_s = min(2 * delay_s, self._limits.reconnect_max_s)

    async def _dial(self, channel: Channel) -> Connection:
        address = self._book.get(channel.peer)
        if address is None:
            raise OSError(f"no address of {channel.peer} is known")
        try:
            async with asyncio.timeout(DIAL_S) as limit:
                self._tries[channel.peer] = limit
                return await self._transport.dial(original(address), lambda: self._made(channel))
        finally:
            del self._tries[channel.peer]

    def try_now(self, peer: InstanceId) -> None:
        """The peer listens elsewhere now: end the present attempt, which leads nowhere."""
        limit = self._tries.get(peer)
        if limit is not None and not limit.expired():
            limit.reschedule(asyncio.get_running_loop().time())

    def _note_failure(self, channel: Channel, error: OSError) -> None:
        """Raises `OSError` if it is not worth while to try again."""
        if error.errno in BARRED and self._book[channel.peer].startswith("unix:"):
            raise OSError(
                error.errno,
                f"cannot reach {channel.peer}: {error.strerror}; leave the folder of a run "
                "alone, and begin a new run, or resume this one if it has a state folder",
                original(self._book[channel.peer].partition(":")[2]),
            ) from error
        log.debug("%s: cannot reach %s: %s", self._me, channel.peer, error)
        if error.errno in LACKING and not self._told_lacking:
            # It is not the peer that cannot be reached: nothing can, from here.
            self._told_lacking = True
            log.warning(
                "%s: cannot connect to %s and tries again: %s; raise the limit of open files "
                "(ulimit -n), or free memory",
                self._me,
                channel.peer,
                error.strerror,
            )


def _is_not_there(error: OSError) -> bool:
    return isinstance(error, NOBODY_LISTENS) or error.errno in UNREACHABLE
