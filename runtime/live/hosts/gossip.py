"""The gossip of a host: performs what its membership wants, over the ports.

Each exchange is a stream of its own, or, with TLS, a turn on a connection that is kept (`lines`).
Streams, and not datagrams, because they carry tables of any size, show at once that nothing listens
at an address, and are what TLS is made for.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress

from anabranch.runtime.hosts.effects import (
    Changed,
    Dial,
    DrainWanted,
    Effect,
    Event,
    FrameCame,
    HangUp,
    Joined,
    KeepIncarnation,
    LeaveWanted,
    NameTaken,
    Say,
    StreamLost,
    Tick,
)
from anabranch.runtime.hosts.frames import FRAME_BYTES_MAX
from anabranch.runtime.hosts.membership import ANSWER_S, HostMembership
from anabranch.runtime.hosts.roles import AGENT
from anabranch.runtime.live.hosts.allowance import Allowance
from anabranch.runtime.live.hosts.lines import COST, UNUSED_S, Lines, Turn
from anabranch.runtime.live.hosts.refusals import Refusals
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.ports import clock

GOSSIP = b"anabranch gossip 1"
"""The first frame of an exchange."""
LEAVE_S = 2.0
"""How long a host that leaves waits until others have received that."""
INCOMING_MAX = 64
"""Exchanges at a time that others have begun."""
IDLE_S = 5.0 * ANSWER_S
EXCHANGES_AT_ONCE, EXCHANGES_PER_S = 100, 20.0
"""Of one host, over connections that it keeps."""

Told = Changed | Joined | NameTaken


class Gossip:
    """`tell`: is called with what people may want to read. `keep`: writes an incarnation to the
    disk. `may_dial`: whether an address is one that this host may reach; others name addresses.
    `lines`: None if each exchange has a connection of its own."""

    def __init__(
        self,
        membership: HostMembership,
        tell: Callable[[Told], None],
        keep: Callable[[int], None],
        may_dial: Callable[[str], bool],
        lines: Lines | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self.membership = membership
        self.refusals = refusals or Refusals()
        self._may_dial = may_dial
        self.lines = lines
        self._exchanges = Allowance(EXCHANGES_AT_ONCE, EXCHANGES_PER_S)
        self._tell = tell
        self._keep = keep
        self._dialling: set[int] = set()
        self._streams: dict[int, FrameStream | Turn] = {}
        self._incoming = itertools.count(-1, -1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False

    def start(self) -> None:
        self._tick()

    async def answer(self, stream: FrameStream | Turn) -> None:
        """Take part in an exchange that another host has begun."""
        if stream.peer is not None and not stream.peer.may(AGENT):
            self.refusals.count("gossip without the role agent", stream.who)
            stream.close()
            return
        if sum(number < 0 for number in self._streams) >= INCOMING_MAX or self._ended:
            self.refusals.count("too many exchanges of gossip", stream.who)
            stream.close()
            return
        number = next(self._incoming)
        self._streams[number] = stream
        try:
            async with asyncio.timeout(IDLE_S):
                await self._listen(number, stream)
        except TimeoutError:
            stream.close()
        self._lost(number)

    async def answer_in_turns(self, stream: FrameStream) -> None:
        """Take part in exchanges that another host begins, one after the other."""
        while (first := await self._next_in_turn(stream)) is not None:
            if not self._exchanges.take(stream.who):
                self.refusals.count("too many exchanges a second", stream.who)
                return
            turn = Turn(stream, first)
            await self.answer(turn)
            turn.close()
            if not turn.is_settled:
                return

    async def _next_in_turn(self, stream: FrameStream) -> bytes | None:
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * UNUSED_S):
                return await stream.receive()
        return None

    def drain(self, *, drained: bool) -> None:
        self._handle(DrainWanted(drained))

    async def leave(self) -> None:
        """Announce it to others, and return when they have received it, or after `LEAVE_S`."""
        self._handle(LeaveWanted())
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LEAVE_S)
        self.close()

    def close(self) -> None:
        """Send nothing any more."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        for stream in self._streams.values():
            stream.close()
        if self.lines is not None:
            self.lines.close()

    # -- events ----------------------------------------------------------------------------

    def _tick(self) -> None:
        self._timer = None
        self._handle(Tick())

    def _lost(self, number: int) -> None:
        if self._streams.pop(number, None) is not None:
            self._handle(StreamLost(number))

    def _handle(self, event: Event) -> None:
        if self._ended:
            return
        for effect in self.membership.handle(event, clock.monotonic()):
            self._perform(effect)
        wait_s = max(0.0, self.membership.next_due() - clock.monotonic())
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._tick)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Dial(number, address, body):
                self._dialling.add(number)
                task = asyncio.create_task(
                    self._exchange(number, address, body), name=f"gossip with {address}"
                )
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case Say(number, body):
                if (stream := self._streams.get(number)) is not None:
                    stream.send(body)
            case HangUp(number):
                self._dialling.discard(number)
                if (stream := self._streams.pop(number, None)) is not None:
                    stream.close()
            case KeepIncarnation(incarnation):
                self._keep(incarnation)
            case Changed() | Joined() | NameTaken():
                self._tell(effect)

    async def _exchange(self, number: int, address: str, body: bytes) -> None:
        stream = await self._begun(address)
        if number not in self._dialling:  # it has hung up meanwhile
            await _drop(stream)
            return
        self._dialling.discard(number)
        if stream is None:
            self._handle(StreamLost(number))
            return
        await self._hear(number, stream, body)
        if stream.refusal is not None:
            self.refusals.count_own(stream.refusal.reason, address)
        is_lost = isinstance(stream, Turn) and stream.was_kept and not stream.has_heard
        if is_lost and number in self._streams:  # the other end may be there: dial it anew
            again = await self._begun(address, anew=True)
            if again is not None and number in self._streams:
                await self._hear(number, again, body)
            else:
                await _drop(again)
        self._lost(number)

    async def _hear(self, number: int, stream: FrameStream | Turn, body: bytes) -> None:
        self._streams[number] = stream
        if isinstance(stream, FrameStream):
            stream.send(GOSSIP)
        stream.send(body)
        await self._listen(number, stream)

    async def _begun(self, address: str, *, anew: bool = False) -> FrameStream | Turn | None:
        """None: nothing answers there, or what does is no agent of these hosts."""
        if not self._may_dial(address):
            return None
        # Other hosts name addresses: some cannot be, for which Python has a `UnicodeError`.
        with suppress(OSError, TimeoutError, UnicodeError):
            async with asyncio.timeout(IDLE_S):
                if self.lines is None:
                    return await FrameStream.dial(address, FRAME_BYTES_MAX)
                turn = await self.lines.turn(address, anew=anew)
                if turn is None or not turn.was_kept:
                    self.membership.budget.spend(COST)
                return turn
        return None

    def _proved_name(self, stream: FrameStream | Turn) -> str | None:
        return None if stream.peer is None else stream.peer.name

    async def _listen(self, number: int, stream: FrameStream | Turn) -> None:
        name = self._proved_name(stream)
        while (body := await stream.receive()) is not None:
            self._handle(FrameCame(number, body, name))


async def _drop(stream: FrameStream | Turn | None) -> None:
    if stream is not None:
        stream.close()
    if isinstance(stream, Turn):
        await stream.receive()
