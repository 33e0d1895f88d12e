"""Streams between processes of hosts that can only dial out, through a broker of MQTT.

    dialer ── PREFIX/HOST/PLACE/STREAM/u ─▶ listener at mqtt:HOST/PLACE
           ◀─ PREFIX/HOST/PLACE/STREAM/d ──

A process has one connection to the broker, for all its streams; `BrokeredEnd` has the rules of a
stream. The broker keeps nothing for a process that is away: lost segments are sent again. A program
that may use the broker can read streams that are not encrypted, and can break them. So hosts of
several machines run TLS over them (`SecuredTransport`, `FrameStream`), as over TCP.

Processes of one host find each other in a folder of sockets, and need no broker for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

from anabranch.runtime.mqtt.broker import Broker
from anabranch.runtime.mqtt.brokered_end import BrokeredEnd
from anabranch.runtime.mqtt.brokered_stream import BrokeredStream
from anabranch.runtime.mqtt.link import Arrived, LinkBroken, PahoLink
from anabranch.runtime.mqtt.segments import Kind, StreamSegment, segment_in
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.sockets import SOCKETS
from anabranch.runtime.ports.transport import Listening, P, Transport

KIND = "mqtt"
QOS = 0
"""A broker that confirms a message reports nothing of the other end, which confirms it, too."""
RETRY_MAX_S = 3.0
"""Between attempts to reach the broker."""
KEEPALIVE_S = 10
MESSAGE_BYTES_MAX = 2**20
"""What others publish may be larger than a segment. It is left out, and this much is no harm."""
DIAL_S = 8.0
UNANSWERED_MAX = 128
"""Streams that others have begun, and of which nothing has come since."""
STREAMS_MAX = 1024
RESETS_AT_ONCE, RESETS_PER_S = 64, 16.0
NAME_BYTES = 8
SOCKET_PATH_BYTES_MAX = 100
_PLACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}/[a-z0-9-]{1,64}")
_STREAM = re.compile(r"[0-9a-f]{16}")

log = logging.getLogger("anabranch.brokered")


class Near(NamedTuple):
    """`folder`: of the sockets at which processes of `host` listen as well."""

    host: str
    folder: Path

    def address(self, address: str) -> str:
        """Of the socket; "" for another host, and where a path would be too long."""
        host, _, place = address.removeprefix(f"{KIND}:").partition("/")
        path = str(self.folder / place)
        if host != self.host or len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
            return ""
        return f"unix:{path}"


class BrokeredTransport(Transport):
    """`prefix`: of all topics. An address is `mqtt:HOST/PLACE`. `told`: is called with why the
    broker cannot be used, and with "" when it can again; None: the log has it."""

    def __init__(
        self,
        broker: Broker,
        prefix: str,
        told: Callable[[str], None] | None = None,
        near: Near | None = None,
    ) -> None:
        self._near = near
        self._told = told or _log
        self._broker = broker
        self._prefix = prefix
        self._hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = WeakKeyDictionary()

    async def listen(self, address: str, made: Callable[[], asyncio.Protocol]) -> BrokeredListening:
        """Return at once, also if the broker is away: then nothing comes until it is back."""
        hub = self.hub()
        base = self._topic(address)
        near = self._socket(address)
        by = None if not near else await SOCKETS.listen(near, made)
        hub.listen(base, made)
        return BrokeredListening(address, hub, base, by)

    async def dial(self, address: str, made: Callable[[], P]) -> P:
        base, name = self._topic(address), clock.secret(NAME_BYTES).hex()
        if near := self._socket(address):
            return await SOCKETS.dial(near, made)
        try:
            async with asyncio.timeout(DIAL_S):
                hub = self.hub()
                return cast(P, await hub.dial(f"{base}/{name}", made))
        except TimeoutError:
            why = f"nothing answers there; {hub.trouble or 'the broker is there'}"
            raise TimeoutError(0, why) from None

    def forget(self, address: str) -> None:
        if near := self._socket(address):
            SOCKETS.forget(near)

    def _socket(self, address: str) -> str:
        """Of a process of this host; "" of another one's."""
        return "" if self._near is None else self._near.address(address)

    async def settle(self, most_s: float) -> None:
        """Return when all has come that was written to streams that are closed, or after
        `most_s`."""
        if (hub := self._hubs.get(asyncio.get_running_loop())) is not None:
            await hub.settle(most_s)

    def close(self) -> None:
        """All streams of this loop, and the connection to the broker."""
        if (hub := self._hubs.pop(asyncio.get_running_loop(), None)) is not None:
            hub.close()

    def hub(self) -> Hub:
        loop = asyncio.get_running_loop()
        if (hub := self._hubs.get(loop)) is None:
            hub = self._hubs[loop] = Hub(self._broker, self._told)
        return hub

    def _topic(self, address: str) -> str:
        """Raises `OSError`: others may have named the address."""
        kind, _, place = address.partition(":")
        if kind != KIND or not _PLACE.fullmatch(place):
            raise ConnectionError(f"{address[:100]!r} is no address at a broker")
        return f"{self._prefix}/{place}"


class BrokeredListening(Listening):
    def __init__(self, address: str, hub: Hub, base: str, near: Listening | None) -> None:
        self.address = address
        self._near = near
        self._hub = hub
        self._base = base

    def is_there(self) -> bool:
        return self._near is None or self._near.is_there()

    def filenos(self) -> list[int]:
        number = self._hub.fileno
        near = [] if self._near is None else self._near.filenos()
        return near if number is None else [*near, number]

    def close(self) -> None:
        self._hub.stop_listening(self._base)
        if self._near is not None:
            self._near.close()


class Hub:
    """All streams of a process over its connection to the broker. `refused`: messages that are none
    of ours, or come out of place, by reason. `trouble`: why there is no connection."""

    def __init__(self, broker: Broker, told: Callable[[str], None]) -> None:
        self._told = told
        self._is_away = False
        self.refused: Counter[str] = Counter()
        self.trouble = "the broker has not answered yet"
        client_id = f"ab{clock.secret(NAME_BYTES).hex()}"
        self._link = PahoLink(
            broker,
            client_id,
            keeps=False,
            retry_max_s=RETRY_MAX_S,
            message_bytes_max=MESSAGE_BYTES_MAX,
        )
        self._made: dict[str, Callable[[], asyncio.Protocol]] = {}
        """By the topic of a place at which it listens."""
        self._streams: dict[str, BrokeredStream] = {}
        """By the topic at which they receive."""
        self._filters: dict[str, asyncio.Future[None]] = {}
        """Subscriptions, done when the broker has taken them."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._resets_s = clock.monotonic()
        """The rest of what may be reset at once, as a time in the past."""
        self._link.start(self)

    @property
    def fileno(self) -> int | None:
        return self._link.fileno

    def listen(self, base: str, made: Callable[[], asyncio.Protocol]) -> None:
        self._made[base] = made
        self._watch(f"{base}/+/u")

    def stop_listening(self, base: str) -> None:
        self._made.pop(base, None)
        if not any(topic.startswith(f"{base}/") for topic in self._streams):
            self._unwatch(f"{base}/+/u")

    async def dial(self, topic: str, made: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        back = f"{topic}/d"
        stream: BrokeredStream | None = None
        try:
            await asyncio.shield(self._watch(back))
            end = BrokeredEnd(_number(), clock.monotonic())
            stream = self._add(back, end, f"{topic}/u", made)
            await stream.opened
        except BaseException:
            if stream is None:
                self._unwatch(back)
            else:
                stream.abort()
            raise
        assert stream.protocol is not None
        return stream.protocol

    async def settle(self, most_s: float) -> None:
        closing = [s.ended for s in self._streams.values() if s.is_closing()]
        if closing:
            await asyncio.wait(closing, timeout=most_s)

    def close(self) -> None:
        for stream in [*self._streams.values()]:
            stream.abort()
        for task in self._tasks:
            task.cancel()
        self._link.close()

    # -- of streams ----------------------------------------------------------------------------

    def publish(self, topic: str, payload: bytes) -> None:
        """It comes to nothing while there is no connection: then it is sent again."""
        if self._link.connected:
            self._link.publish(topic, payload, QOS, False)

    def forget(self, topic: str) -> None:
        """Of a stream that is over."""
        self._streams.pop(topic, None)
        if topic.endswith("/d"):
            self._unwatch(topic)

    # -- of the link ---------------------------------------------------------------------------

    def joined(self, present: bool) -> None:
        self.trouble = ""
        if self._is_away:
            self._is_away = False
            self._told("")
        self._spawn(self._subscribe_all())

    def confirmed(self, number: int, refused: str) -> None:
        pass

    def broken(self, why: str) -> None:
        self.trouble = f"the broker is away: {why}"
        if not self._is_away:
            self._is_away = True
            self._told(self.trouble)
        for topic, is_taken in self._filters.items():
            if is_taken.done():
                self._filters[topic] = asyncio.get_running_loop().create_future()

    def arrived(self, message: Arrived) -> None:
        if message.number:
            self._link.acknowledge(message.number)
        segment = None if message.retained else segment_in(message.payload)
        if segment is None:
            self._refuse("no segment of a stream")
        elif (stream := self._streams.get(message.topic)) is not None:
            stream.hear(segment)
        elif segment.kind is Kind.OPEN:
            self._begin(message.topic, segment)
        elif segment.kind is not Kind.RESET:
            self._refuse("of a stream that is not there")
            self._reset(message.topic, segment)

    # -- ---------------------------------------------------------------------------------------

    def _begin(self, topic: str, segment: StreamSegment) -> None:
        base, _, rest = topic.removesuffix("/u").rpartition("/")
        made = self._made.get(base)
        if made is None or not topic.endswith("/u") or not _STREAM.fullmatch(rest):
            self._refuse("to a place at which nothing listens")
            return
        theirs = [one for one in self._streams.values() if not one.dials]
        unanswered = sum(not one.opened.done() for one in theirs)
        if not segment.by or unanswered >= UNANSWERED_MAX or len(theirs) >= STREAMS_MAX:
            self._refuse("too many streams")
            return
        end = BrokeredEnd(_number(), clock.monotonic(), segment.by)
        self._add(topic, end, f"{base}/{rest}/d", made)

    def _add(
        self, topic: str, end: BrokeredEnd, to: str, made: Callable[[], asyncio.Protocol]
    ) -> BrokeredStream:
        stream = BrokeredStream(
            end, made, lambda payload: self.publish(to, payload), lambda: self.forget(topic)
        )
        self._streams[topic] = stream
        stream.begin()
        return stream

    def _reset(self, topic: str, segment: StreamSegment) -> None:
        """A process that goes on with a stream of an earlier one learns at once that it is gone."""
        now = clock.monotonic()
        self._resets_s = max(self._resets_s, now - RESETS_AT_ONCE / RESETS_PER_S)
        if self._resets_s > now:
            return
        self._resets_s += 1 / RESETS_PER_S
        back = topic[:-1] + ("d" if topic.endswith("u") else "u")
        self.publish(back, StreamSegment(Kind.RESET, segment.by, segment.to).encode())

    def _refuse(self, reason: str) -> None:
        self.refused[reason] += 1
        if self.refused[reason] == 1:
            log.info("a message of the broker is left out: %s; further ones are not told", reason)

    def _watch(self, topic: str) -> asyncio.Future[None]:
        is_taken = asyncio.get_running_loop().create_future()
        self._filters[topic] = is_taken
        if self._link.connected:
            self._spawn(self._subscribe(topic))
        return is_taken

    def _unwatch(self, topic: str) -> None:
        if (is_taken := self._filters.pop(topic, None)) is not None:
            is_taken.cancel()
            if self._link.connected:
                self._spawn(self._unsubscribe(topic))

    async def _subscribe_all(self) -> None:
        for topic in [*self._filters]:
            await self._subscribe(topic)
        for stream in [*self._streams.values()]:
            stream.reconnected()

    async def _subscribe(self, topic: str) -> None:
        try:
            await self._link.subscribe(topic, QOS)
        except LinkBroken:
            return  # with the next connection
        is_taken = self._filters.get(topic)
        if is_taken is not None and not is_taken.done():
            is_taken.set_result(None)

    async def _unsubscribe(self, topic: str) -> None:
        with contextlib.suppress(LinkBroken):
            await self._link.unsubscribe(topic)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work, name="subscriptions")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _log(trouble: str) -> None:
    log.warning("%s", trouble or "the broker answers again")


def _number() -> int:
    return int.from_bytes(clock.secret(8), "big") or 1
