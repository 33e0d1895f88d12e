"""Addresses on which processes of a world listen, and all its connections.

A connection is a pair of ends (`stream`), one in each process. Faults happen here: a
connection is cut, and both ends notice it at once, or one long before the other (half open); a
path delivers nothing; a process ends, and its connections with it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import zlib
from collections.abc import Callable

from anabranch.runtime.ports.transport import Listening, P, Transport
from anabranch.runtime.world.loop import VirtualLoop
from anabranch.runtime.world.stream import Conditions, StreamEnd

Made = Callable[[], asyncio.Protocol]
FIRST_PORT = 40_000


class Listener(Listening):
    """`accept` makes the protocol of a connection."""

    def __init__(self, network: Network, loop: VirtualLoop, address: str, accept: Made) -> None:
        self.loop = loop
        self.address = address
        self.accept = accept
        self._network = network

    def is_there(self) -> bool:
        return self._network.knows(self)

    def filenos(self) -> list[int]:
        return []

    def close(self) -> None:
        self._network.leave(self)


class TransportOf(Transport):
    """The network as one process reaches it."""

    def __init__(self, network: Network, loop: VirtualLoop) -> None:
        self._network = network
        self._loop = loop

    async def listen(self, address: str, made: Made) -> Listener:
        return self._network.listen(self._loop, address, made)

    async def dial(self, address: str, made: Callable[[], P]) -> P:
        return await self._network.dial(self._loop, address, made)

    def forget(self, address: str) -> None:
        """An address on which no process listens leaves nothing behind."""


class Network:
    def __init__(self, seed: str, conditions: Conditions) -> None:
        self._seed = seed
        self._conditions = conditions
        self._listeners: dict[str, Listener] = {}
        self._ends: dict[StreamEnd, None] = {}
        self._may_break: dict[StreamEnd, None] = {}
        self._last_port = FIRST_PORT
        self._dialled: dict[tuple[str, str], int] = {}
        self.trace = 0
        """A checksum of all that has come in anywhere, and when."""

    # -- listen and dial -------------------------------------------------------------------

    def listen(self, loop: VirtualLoop, address: str, accept: Made) -> Listener:
        if address.endswith(":0"):
            self._last_port += 1
            address = f"{address.removesuffix(':0')}:{self._last_port}"
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), address)
        listener = self._listeners[address] = Listener(self, loop, address, accept)
        return listener

    def knows(self, listener: Listener) -> bool:
        return self._listeners.get(listener.address) is listener

    def leave(self, listener: Listener) -> None:
        if self.knows(listener):
            del self._listeners[listener.address]

    async def dial(self, loop: VirtualLoop, address: str, made: Callable[[], P]) -> P:
        """Raises `ConnectionRefusedError` if nothing listens there."""
        await asyncio.sleep(self._conditions.latency_s)
        listener = self._listeners.get(address)
        if listener is None:
            code = errno.ECONNREFUSED
            raise ConnectionRefusedError(code, os.strerror(code), address)
        near, far = self.pair(loop, listener.loop)
        self._may_break.update({near: None, far: None})
        listener.loop.post(lambda: far.begin(listener.accept()))
        protocol = made()
        near.begin(protocol)
        return protocol

    def pair(self, one: VirtualLoop, other: VirtualLoop) -> tuple[StreamEnd, StreamEnd]:
        """Two ends of a new connection, none of which has a protocol yet."""
        known = (one.name, other.name)
        number = self._dialled[known] = self._dialled.get(known, 0) + 1
        near = self._end(one, f"{one.name}>{other.name} {number}")
        far = self._end(other, f"{other.name}<{one.name} {number}")
        near.peer, far.peer = far, near
        return near, far

    def _end(self, loop: VirtualLoop, name: str) -> StreamEnd:
        rng = random.Random(f"{self._seed} {name}")
        end = StreamEnd(loop, name, self._conditions, rng, self._note)
        self._ends[end] = None
        return end

    def _note(self, end: StreamEnd, piece: bytes) -> None:
        told = f"{end.loop.timeline.now!r} {end.name} {len(piece)} "
        self.trace = zlib.crc32(piece, zlib.crc32(told.encode(), self.trace))

    # -- faults ----------------------------------------------------------------------------

    @property
    def open_ends(self) -> list[StreamEnd]:
        """The ends of connections that were dialled, if both are open. A link to the agent is never
        dialled, and breaks only with its process."""
        self._may_break = {e: None for e in self._may_break if not (e.lost and e.peer.lost)}
        return [e for e in self._may_break if not e.lost and not e.peer.lost]

    def cut(self, end: StreamEnd, later_s: float = 0.0) -> None:
        """`end` notices it at once, the other one `later_s` later. What is under way is lost."""
        end.reset_soon()
        end.peer.reset_soon(later_s)

    def end_of(self, loop: VirtualLoop) -> None:
        """The process of this loop has ended."""
        for listener in [x for x in self._listeners.values() if x.loop is loop]:
            self.leave(listener)
        for end in [e for e in self._ends if e.loop is loop]:
            end.die()
        self._ends = {e: None for e in self._ends if not (e.lost and e.peer.lost)}
