"""All channels of one instance: listening, dialling, finding a neighbour's channel, parting.

The upstream instance dials, the downstream one listens; between siblings, the one that has
something to send first dials. (If two siblings do so at the same time there are two channels;
nothing that siblings send to each other depends on the order of what the other one sends.)
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from pathlib import Path
from typing import Any, Protocol

from anabranch.protocol.ids import InstanceId, Topology
from anabranch.runtime.live.channel.address_book import AddressBook
from anabranch.runtime.live.channel.channel import Channel, ChannelUser, LogKeeper
from anabranch.runtime.live.channel.connection import Connection, Identity
from anabranch.runtime.live.channel.dialer import Dialer
from anabranch.runtime.live.channel.ended import has_mark, leave_mark
from anabranch.runtime.live.channel.frames import Addresses
from anabranch.runtime.live.channel.listener import ListeningSocket
from anabranch.runtime.live.channel.totals import Closed, totals_of
from anabranch.runtime.ports import clock

log = logging.getLogger("anabranch.neighbourhood")

PARTING_S = 10.0
"""How long an instance that is done waits for acknowledgements of its last words."""

LOOK_S = 0.5
"""How often it looks whether peers that do not answer have ended."""
FAREWELL_S = 2.0
REFUSALS_TOLD_MAX = 3
"""A stranger that tries for ever must not fill the terminal."""


def _is_open(channel: Channel) -> bool:
    """Whether something is left to send before the end."""
    return not channel.session.settled or (channel.dialing and not channel.line.connected)


class ChannelRecorder(LogKeeper, Protocol):
    """What writes the journal, as the neighbourhood sees it: `note` takes an entry."""

    def note(self, *entry: Any) -> None: ...


class Neighbourhood:
    """Channels by peer. `related` returns whether the core still has business with a peer."""

    def __init__(
        self,
        identity: Identity,
        *,
        topology: Topology,
        user: ChannelUser,
        related: Callable[[InstanceId], bool],
        fail: Callable[[Exception], None],
        keeper: ChannelRecorder | None = None,
        ended_dir: Path | None = None,
    ) -> None:
        self.identity = identity
        self.fail = fail
        self.address = ""
        self.book = AddressBook()
        self.refused = 0
        self.closed = Closed(str(identity.me))
        self._me = identity.me
        self._topology = topology
        self._user = user
        self._keeper = keeper
        self._ended_dir = ended_dir
        self._related = related
        self._dialled: dict[InstanceId, Channel] = {}
        self._accepted: dict[InstanceId, Channel] = {}
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener = ListeningSocket(self._me, lambda: Connection(self))
        self._dialer = Dialer(
            self._me,
            limits=identity.limits,
            book=self.book,
            made=lambda channel: Connection(self, channel),
            neighbours=self,
        )
        self._changed = asyncio.Event()
        self._parting = False

    def learn(self, addresses: Addresses) -> None:
        """Where others listen."""
        if addresses and self._keeper is not None:
            self._keeper.note("book", addresses)
        self.book.learn(addresses)

    def move(self, peer: InstanceId, incarnation: int, address: str) -> None:
        """It listens there now. What connects me to an earlier incarnation leads nowhere."""
        if peer == self._me or not self.book.move(peer, incarnation, address):
            return
        for channel in self.channels:
            if channel.peer == peer and channel.handshake.peer_incarnation < incarnation:
                channel.line.cut()
        self._dialer.try_now(peer)

    # -- channels --------------------------------------------------------------------------

    @property
    def channels(self) -> list[Channel]:
        return [*self._dialled.values(), *self._accepted.values()]

    @property
    def from_predecessors(self) -> list[Channel]:
        """Channels on which batches may come."""
        return list(self._accepted.values())

    def channel_from(self, peer: InstanceId) -> Channel | None:
        """The channel from a predecessor; None if it is closed."""
        return self._accepted.get(peer)

    @property
    def awaits_repeats(self) -> bool:
        """Whether batches that an earlier incarnation had not processed are yet to come again."""
        return any(channel.incoming.repeats for channel in self.channels)

    @property
    def messages_sent(self) -> int:
        """Control messages sent on all channels, the closed ones included."""
        return self.closed.messages(self.channels)

    @property
    def sent(self) -> dict[str, int]:
        """Tuples sent, by the text of the receiver's id; `closed.summed` has the others."""
        return self.closed.sent(self.channels)

    @property
    def streams(self) -> tuple[dict[str, int], dict[str, int]]:
        """Tuples received and sent, by the operator at the other end."""
        return self.closed.streams(self.channels)

    @property
    def received(self) -> dict[str, int]:
        """Tuples received, by the text of the sender's id; `closed.summed` has the others."""
        return self.closed.received(self.channels)

    def channel_to(self, peer: InstanceId) -> Channel:
        """The channel on which I speak to this peer; made, and dialled if need be, on first use."""
        if self._topology.feeds(peer.operator, self._me.operator):
            return self._accepted.get(peer) or self._make(self._accepted, peer, dialing=False)
        channel = self._dialled.get(peer)
        if channel is None and peer.operator == self._me.operator:
            channel = self._accepted.get(peer)  # a sibling that has dialled gets its answer there
        if channel is None:
            channel = self._make(self._dialled, peer, dialing=True)
            self._spawn(self._dialer.keep_connected(channel), f"dial {peer}")
        return channel

    def channel_of_dialer(self, dialer: InstanceId) -> Channel:
        return self._accepted.get(dialer) or self._make(self._accepted, dialer, dialing=False)

    def _make(self, side: dict[InstanceId, Channel], peer: InstanceId, dialing: bool) -> Channel:
        channel = side[peer] = Channel(
            peer,
            dialing=dialing,
            user=self._user,
            limits=self.identity.limits,
            keeper=self._keeper,
            incarnation=self.identity.incarnation,
        )
        return channel

    def remake(self, peer: InstanceId, *, dialing: bool) -> Channel:
        """A channel of an earlier incarnation; not dialled before `dial_again`."""
        return self._make(self._dialled if dialing else self._accepted, peer, dialing)

    def dial_again(self) -> None:
        for channel in self._dialled.values():
            self._spawn(self._dialer.keep_connected(channel), f"dial {channel.peer}")

    def close_channel(self, channel: Channel) -> None:
        """The peer has gone; keep what was counted."""
        channel.line.ended = True
        side = self._dialled if channel.dialing else self._accepted
        if side.get(channel.peer) is channel:
            del side[channel.peer]
            if self._ended_dir is not None:
                self.book.forget(channel.peer)
            totals = totals_of(channel)
            self.closed.add(totals)
            self._user.channel_closed()
            if self._keeper is not None:
                self._keeper.note("past", totals)
                channel.forget()
        channel.line.detach()
        self._changed.set()

    # -- connections -----------------------------------------------------------------------

    async def listen(self, address: str) -> str:
        """Listen at `unix:PATH` or `tcp:HOST:PORT` (port 0: any); returns the real address."""
        self.address = await self._listener.listen(address)
        work = self._listener.keep_listening(self.address)
        self._spawn(work, "listen", context=clock.periodic())
        return self.address

    def close_copies(self) -> None:
        """In a forked process: a copy of the sockets would hide the end of the instance."""
        numbers = self._listener.filenos
        numbers += [c.fileno for c in self._connections if c.fileno is not None]
        for number in numbers:
            with suppress(OSError):
                os.close(number)

    def has_ended(self, peer: InstanceId) -> bool:
        """Whether the peer does not listen because it is done, and not because it has died and
        will be back: an instance with a journal leaves a mark in the folder of the ended."""
        if self._ended_dir is None:
            return not self._related(peer)
        return has_mark(self._ended_dir, peer)

    async def note_ended(self) -> None:
        """Leave the mark: no peer has to wait for this instance any more. Raises `OSError`."""
        if self._ended_dir is not None:
            leave_mark(self._ended_dir, self._me)
        self._listener.forget()

    def connection_opened(self, connection: Connection) -> None:
        self._connections.add(connection)

    def connection_lost(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._changed.set()

    def connection_refused(self, reason: str) -> None:
        self.refused += 1
        if self.refused <= REFUSALS_TOLD_MAX:
            log.warning("%s: a connection was closed: %s", self._me, reason)
        if self.refused == REFUSALS_TOLD_MAX:
            log.warning("%s: further ones are not told", self._me)

    def _spawn(
        self, work: Coroutine[Any, Any, None], name: str, context: Context | None = None
    ) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    # -- the end ---------------------------------------------------------------------------

    def note_progress(self) -> None:
        """Something was acknowledged; tasks that wait to part may look again."""
        if self._parting:
            self._changed.set()

    async def part(self, reason: str) -> None:
        """All is settled: send BYE, and close."""
        for channel in self.channels:
            channel.say_bye(reason)
        for task in list(self._tasks):
            task.cancel()
        self._listener.close()
        await self._all_closed()

    async def all_settled(self) -> None:
        """Wait until all that was sent is acknowledged (I11).

        A listener that is not connected just now is dialled once more: it cannot dial me, and
        would wait for the acknowledgement of what it has sent last. Bounded, unless journals are
        kept: then peers that have died come back, and those that have ended have left their mark.
        """
        self._parting = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PARTING_S
        while unsettled := [c for c in self.channels if _is_open(c)]:
            self._changed.clear()
            wait_s = deadline - loop.time() if self._ended_dir is None else LOOK_S
            try:
                await asyncio.wait_for(self._changed.wait(), max(0.0, wait_s))
            except TimeoutError:
                if self._ended_dir is None:
                    names = ", ".join(str(c.peer) for c in unsettled)
                    log.warning("%s: %s did not acknowledge my last words", self._me, names)
                    return
                for channel in unsettled:
                    if not channel.line.connected and self.has_ended(channel.peer):
                        self.close_channel(channel)

    async def _all_closed(self) -> None:
        """Let the peers read the last words and close; then close what is left."""
        if self._connections:
            losses = [c.lost for c in self._connections]
            await asyncio.wait(losses, timeout=FAREWELL_S)
        for connection in list(self._connections):
            connection.close("farewell")
