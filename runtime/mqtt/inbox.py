"""From the broker to the spool: taken, written, and acknowledged then.

    broker ══ link ─▶ arrived ─▶ spool ─▶ acknowledged
                          ╎        └──▶ reader ─▶ journal ─▶ forgotten
                          └ as long as there is room

When the spool is full nothing is read from the link, and nothing acknowledged: the broker keeps
what it has. A message that comes again since its acknowledgement was lost is recognised by its
packet identifier and its content, and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

from anabranch.runtime.mqtt.link import Arrived, BrokerLink, LinkBroken
from anabranch.runtime.mqtt.spool import MessageSpool, Spooled
from anabranch.runtime.ports import clock
from anabranch.runtime.storage.patience import Patience
from anabranch.runtime.values.kinds import EventKind

log = logging.getLogger("anabranch.mqtt")

RECENT_MAX = 10_000
"""So many messages are remembered that may come again."""
HELD_BYTES_MAX = 512 * 2**10
"""So much may have arrived and not be written yet before no more is read."""
MESSAGE_BYTES = 200
"""What a message takes beside its topic and payload."""
DRAIN_S = 10.0
"""How long the end of the input waits for the broker."""
NO_TOPIC = "anabranch/nothing/is/subscribed/here"
"""A question about it has no effect; the answer comes behind all that was sent before."""
TOLD_AFTER_S = 1.0
Note = Callable[[str, str], None]


class Repeats:
    """Which messages have been here before.

    An identifier may be used for another message once the broker has its acknowledgement.
    All brokers that we know count them up to 65,535; one that uses an identifier again sooner is
    found out by that, and from then on nothing of it is taken for a repeat."""

    def __init__(self) -> None:
        self._recent: OrderedDict[int, bytes] = OrderedDict()
        self._trusted = True

    def note(self, message: Spooled | Arrived) -> None:
        if message.number:
            self._recent[message.number] = _digest(message)
            self._recent.move_to_end(message.number)
            if len(self._recent) > RECENT_MAX:
                self._recent.popitem(last=False)

    def has(self, message: Arrived) -> bool:
        known = self._recent.get(message.number)
        if known is None:
            return False
        if not message.again:
            self._trusted = False
            return False
        return self._trusted and known == _digest(message)

    def clear(self) -> None:
        self._recent.clear()


class Inbox:
    """A listener of a link. Large because what has arrived, and how far it is safe, is one state.

    `room_bytes`: how much may lie in the spool behind `safe`, the position from which it may be
    read again. `subscribed`: an earlier process has done that."""

    def __init__(
        self,
        link: BrokerLink,
        spool: MessageSpool,
        topic: str,
        qos: int,
        *,
        room_bytes: int,
        safe: int,
        subscribed: bool,
        name: str,
        note: Note,
        patience: Patience,
    ) -> None:
        self._link = link
        self._spool = spool
        self._topic = topic
        self._qos = qos
        self._room_bytes = room_bytes
        self._safe = safe
        self._name = name
        self._note = note
        self._patience = patience
        self.subscribed = subscribed
        self.repeats = 0
        self.came = asyncio.Event()
        """Something is in the spool that was not, or nothing will be any more."""
        self._repeats = Repeats()
        for message in spool.last():
            self._repeats.note(message)
        self._arrived: list[Arrived] = []
        self._held_bytes = 0
        self._again: list[int] = []
        """Repeats that are to be acknowledged."""
        self._telling = False
        self._stirred = asyncio.Event()
        """The writer has something to do, or may have room."""
        self._joined = asyncio.Event()
        self._idle = asyncio.Event()
        self._lacks_link = False
        self._lacks_room = False
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None
        self._ending = False
        self._takes = True
        """Whether messages that would come again are taken."""
        self._sessions = 0
        """Sessions so far that began with nothing: numbers of an earlier one mean nothing."""

    def start(self) -> None:
        self._idle.set()
        self._link.start(self)
        self._begin(self._write(), "mqtt spool")

    def check(self) -> None:
        """Raises what has kept messages from the spool for good."""
        if self._failure is not None:
            raise self._failure

    def forget(self, position: int) -> None:
        """Nothing before this is needed any more."""
        self._safe = position
        self._spool.forget(position)
        if self._lacks_room:
            self._stirred.set()

    def drain(self, *, empties: bool, waits_s: float | None) -> None:
        """Take no more, and let the spool be `over`. `empties`: first take all that the broker has
        in this session, and end it; at most for `waits_s` if that is given."""
        if not self._ending:
            self._ending = True
            self._begin(self._end(empties, waits_s), "mqtt end")

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._link.close()
        self._tell_repeats()

    # -- a listener ------------------------------------------------------------------------------

    def joined(self, present: bool) -> None:
        if present:  # what is not in the spool yet comes again
            self._drop_numbered()
        else:
            self._sessions += 1
            self._repeats.clear()
            self._again.clear()
            self._arrived = [m._replace(number=0) for m in self._arrived]
            if self.subscribed:
                told = f"{self._name} has lost the session, and what it had kept for it"
                log.warning("%s", told)
                self._note("mqtt_session", told)
        if self._lacks_link:
            self._lacks_link = False
            log.warning("%s can be reached again", self._name)
            self._note(EventKind.GOES_ON, f"{self._name} can be reached again")
        if present and self.subscribed:
            self._joined.set()
        else:
            self._begin(self._subscribe(), "mqtt subscribe")
        self._stirred.set()

    def arrived(self, message: Arrived) -> None:
        if message.number and not self._takes:
            return
        if self._repeats.has(message):
            self.repeats += 1
            if not self._telling:
                self._telling = True
                asyncio.get_running_loop().call_later(TOLD_AFTER_S, self._tell_repeats)
            self._again.append(message.number)
        else:
            self._arrived.append(message)
            self._held_bytes += _size(message)
            if self._held_bytes > HELD_BYTES_MAX:
                self._link.pause()
        self._stirred.set()

    def confirmed(self, number: int, refused: str) -> None:
        """Nothing is published here."""

    def broken(self, why: str) -> None:
        self._joined.clear()
        if not self._lacks_link:
            self._lacks_link = True
            told = f"{self._name} cannot be reached: {why}; nothing is read until it can"
            log.warning("%s", told)
            self._note(EventKind.WAITS, told)

    # -- tasks -------------------------------------------------------------------------------------

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.append(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.remove(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
            self.came.set()

    async def _subscribe(self) -> None:
        try:
            if not self._ending:
                await self._link.subscribe(self._topic, self._qos)
                self.subscribed = True
            self._joined.set()
        except LinkBroken:
            pass  # with the next connection

    async def _write(self) -> None:
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            while self._has_room() and self._arrived:
                self._idle.clear()
                await self._take()
                self._idle.set()
                self.came.set()
            if not self._lacks_room:  # what had filled it may have been dropped
                self._link.go_on()
            again, self._again = self._again, []
            for number in again:  # behind the sync of what they repeat
                self._link.acknowledge(number)

    def _has_room(self) -> bool:
        """If there is none, the link is paused until there is."""
        full = self._spool.end - self._safe >= self._room_bytes
        if full and not self._lacks_room:
            self._lacks_room = True
            self._link.pause()
            told = (
                f"{self._room_bytes:,} bytes of messages wait for the pipeline; until some are "
                f"processed, no more are read from {self._name}, which keeps them"
            )
            log.warning("%s", told)
            self._note(EventKind.WAITS, told)
        elif self._lacks_room and not full:
            self._lacks_room = False
            self._note(EventKind.GOES_ON, "messages are read again")
        return not full

    async def _take(self) -> None:
        """Write what has arrived, and acknowledge it."""
        now_s, session = clock.wall(), self._sessions
        taken, self._arrived, self._held_bytes = self._arrived, [], 0
        fresh = [Spooled(m.topic, m.payload, m.qos, m.retained, m.number, now_s) for m in taken]
        await self._write_down(lambda: self._spool.append(fresh))
        if session == self._sessions:
            for message in fresh:
                self._repeats.note(message)
        await self._spool.sync()
        self._link.go_on()
        if session != self._sessions:
            return
        for message in fresh:
            if message.number:
                self._link.acknowledge(message.number)

    async def _write_down(self, work: Callable[[], None]) -> None:
        """While the disk is full, nothing is read."""

        async def again() -> None:
            work()

        try:
            work()
        except OSError as error:
            self._link.pause()
            await self._patience.outlast(again, error)

    # -- the end -----------------------------------------------------------------------------------

    async def _end(self, empties: bool, waits_s: float | None) -> None:
        if empties:
            try:
                await asyncio.wait_for(self._empty(), waits_s)
            except TimeoutError:
                told = f"{self._name} may still have messages for this session: no answer"
                log.warning("%s", told)
                self._note("mqtt_session", told)
        self._takes = False
        self._drop_numbered()
        await self._idle.wait()
        if self._link.connected:
            self._link.go_on()
            with contextlib.suppress(TimeoutError, LinkBroken):
                await asyncio.wait_for(self._heard(), waits_s)
        self._link.close()
        if self._arrived:
            await self._take()
        await self._write_down(self._spool.close_input)
        await self._spool.sync()
        self.came.set()

    async def _heard(self) -> None:
        """Return when the broker has all acknowledgements, so that it repeats nothing to a later
        run. An end of the connection with something unread might take them with it."""
        await self._link.unsubscribe(NO_TOPIC)

    def _drop_numbered(self) -> None:
        """They come again, now or in a later run."""
        self._arrived = [m for m in self._arrived if not m.number]
        self._held_bytes = sum(map(_size, self._arrived))

    async def _empty(self) -> None:
        """The broker answers behind all that it has sent. What it could not send, since too much
        waited to be acknowledged, comes before the answer to the next question."""
        while True:
            await self._joined.wait()
            before = self._spool.end
            try:
                await self._link.unsubscribe(self._topic)
                await self._settled()
                if self._spool.end == before:
                    await self._link.end_session()
                    return
            except OSError:
                await asyncio.sleep(TOLD_AFTER_S)

    async def _settled(self) -> None:
        """Return when all that has arrived is acknowledged."""
        while self._arrived or not self._idle.is_set():
            self.came.clear()
            await self.came.wait()

    def _tell_repeats(self) -> None:
        if self._telling:
            self._telling = False
            told = f"{self.repeats:,} messages came again and were recognised"
            log.info("%s", told)
            self._note("mqtt_repeats", told)


def _size(message: Arrived) -> int:
    return MESSAGE_BYTES + len(message.topic) + len(message.payload)


def _digest(message: Spooled | Arrived) -> bytes:
    topic = message.topic.encode("utf-8", "replace")
    return hashlib.blake2b(topic + b"\0" + message.payload, digest_size=12).digest()
