"""One end of a connection in a world: a transport of asyncio over a wire that is a queue.

    write ─▶ unsent ─▶ wire, as much as it takes ─▶ arrival at the other end ─▶ data_received

What is on the wire outlives the process that has sent it, as what the system has taken does; what
is unsent does not. A wire keeps the order, takes a time that varies, and may be clogged: then it
fills up, and writers are held up. Pieces arrive cut and joined at any place.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

from anabranch.runtime.world.loop import VirtualLoop

HIGH_BYTES = 64 * 2**10
"""Above this what is unsent holds up its writer, unless the protocol wants another limit."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Of the wires. `latency_s`: at least; `jitter_s`: how much more, at most. `stalls`: the share
    of pieces that take `stall_s` more. `cuts`: the share that arrive in two."""

    latency_s: float = 50e-6
    jitter_s: float = 100e-6
    stalls: float = 0.0
    stall_s: float = 0.2
    cuts: float = 0.1
    wire_bytes: int = 128 * 2**10


class _End:
    """Behind the last byte: the other end sends no more."""


_EOF: Final = _End()


class StreamEnd(asyncio.Transport):
    """`peer` is set by the maker of both. `name`: of the way from here. `heard`: gets all
    that comes in here."""

    peer: StreamEnd

    def __init__(
        self,
        loop: VirtualLoop,
        name: str,
        conditions: Conditions,
        rng: random.Random,
        heard: Callable[[StreamEnd, bytes], None],
    ) -> None:
        super().__init__()
        self.loop: Final = loop
        self.name: Final = name
        self.sent_bytes = 0
        self.lost = False
        """Nothing comes in or goes out here any more."""
        self._conditions = conditions
        self._rng = rng
        self._heard = heard
        self._protocol: asyncio.Protocol | None = None
        self._high = HIGH_BYTES
        self._unsent: deque[bytes | _End] = deque()
        self._unsent_bytes = 0
        self._is_held_up = False
        self._closing = False
        self._wire: deque[bytes | _End] = deque()
        """On the way to here."""
        self._wire_bytes = 0
        self._arrived = 0
        """How many of those have come, and are not read yet."""
        self._clogged_s = 0.0
        self._reading = True

    # -- what protocols ask for ------------------------------------------------------------

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol
        self._reading = True
        protocol.connection_made(self)
        self._read()

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._protocol)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.peer.loop.name, 0) if name == "peername" else default

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if data and not self._closing and not self.loop.dead:
            self._unsent.append(bytes(data))
            self._unsent_bytes += len(data)
            self._send()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._closing and not self.loop.dead and _EOF not in self._unsent:
            self._unsent.append(_EOF)
            self._send()

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_BYTES if high is None else high

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.loop.post(self._read)

    def close(self) -> None:
        """What is unsent still goes out; nothing comes in any more."""
        if not self._closing and not self.loop.dead:
            self.write_eof()
            self._closing = True
            self._drop_incoming()
            self._send()

    def abort(self) -> None:
        if self.loop.dead:
            return
        self._closing = True
        self.cut(None)
        self.peer.reset_soon()

    # -- the way out -----------------------------------------------------------------------

    def _send(self) -> None:
        """Put on the wire what it takes."""
        peer = self.peer
        while self._unsent and not self.lost:
            if peer.lost or peer._closing:
                self._unsent.clear()
                self._unsent_bytes = 0
                if peer.lost and not self._closing:
                    self.reset_soon()
                break
            piece = self._unsent[0]
            if isinstance(piece, _End):
                self._unsent.popleft()
                peer._expect(piece, 0)
                continue
            room = self._conditions.wire_bytes - peer._wire_bytes
            if room <= 0:
                break
            self._unsent.popleft()
            if len(piece) > room:
                self._unsent.appendleft(piece[room:])
                piece = piece[:room]
            self._unsent_bytes -= len(piece)
            self.sent_bytes += len(piece)
            peer._expect(piece, len(piece))
        self._hold_up()
        if self._closing and not self._unsent and not self.lost:
            self.cut(None)

    def _hold_up(self) -> None:
        """Let the protocol write, or not."""
        is_full = self._unsent_bytes > self._high
        if is_full != self._is_held_up and self._protocol is not None:
            self._is_held_up = is_full
            if is_full:
                self._protocol.pause_writing()
            else:
                self._protocol.resume_writing()

    # -- the way in ------------------------------------------------------------------------

    def _expect(self, piece: bytes | _End, size: int) -> None:
        """Something has been sent to here."""
        self._wire_bytes += size
        conditions, rng = self._conditions, self._rng
        if isinstance(piece, bytes) and size > 1 and rng.random() < conditions.cuts:
            at = rng.randrange(1, size)
            self._underway(piece[:at])
            piece = piece[at:]
        self._underway(piece)

    def _underway(self, piece: bytes | _End) -> None:
        conditions, rng = self._conditions, self._rng
        takes_s = conditions.latency_s + conditions.jitter_s * rng.random()
        if rng.random() < conditions.stalls:
            takes_s += conditions.stall_s * rng.random()
        self._wire.append(piece)
        # If it is there before another one, that one is what is read then: the order stays.
        self.loop.post(self._arrive, at=max(self.loop.timeline.now + takes_s, self._clogged_s))

    def clog(self, seconds: float) -> None:
        """What is sent to here from now on comes that much later."""
        self._clogged_s = max(self._clogged_s, self.loop.timeline.now + seconds)

    def _arrive(self) -> None:
        self._arrived += 1
        self._read()

    def _read(self) -> None:
        if self._protocol is None:
            return
        while self._arrived and self._reading and not self.lost and not self._closing:
            self._arrived -= 1
            piece = self._wire.popleft()
            if isinstance(piece, _End):
                if not self._protocol.eof_received():
                    self.close()
                return
            self._wire_bytes -= len(piece)
            if self.peer._unsent and not self.peer.loop.dead:
                self.peer.loop.post(self.peer._send)
            self._heard(self, piece)
            self._protocol.data_received(piece)

    def _drop_incoming(self) -> None:
        self._wire.clear()
        self._arrived = self._wire_bytes = 0

    # -- the end ---------------------------------------------------------------------------

    def cut(self, error: Exception | None) -> None:
        """This end is lost; the other one has not noticed."""
        if self.lost:
            return
        self.lost = self._closing = True
        self._unsent.clear()
        self._unsent_bytes = 0
        self._drop_incoming()
        if self._protocol is not None:
            self.loop.post(self._protocol.connection_lost, error)

    def reset_soon(self, wait_s: float = 0.0) -> None:
        """This end notices that the other one is lost."""
        error = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        self.loop.post(self.cut, error, at=self.loop.timeline.now + wait_s)

    def die(self) -> None:
        """With its process: what is unsent is lost, and the system sends the end of the rest."""
        if not self.lost:
            self.lost = self._closing = True
            self._drop_incoming()
            if not self.peer.lost:
                self.peer._expect(_EOF, 0)
                if self.peer._closing:  # it reads no more, and has no place for what is unsent
                    self.peer.reset_soon()
