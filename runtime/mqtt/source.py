"""A source of what devices publish: `ab.mqtt("mqtt://broker/plant/+/temp")`.

A split is a session with the broker, `{"session": 0}`; what a reader of it has taken lies in a
spool (`anabranch.runtime.mqtt.spool`), and its remainder is a position there. Without `$share/` in
front of the topic there is one session, since each would get every message. Sessions of a shared
subscription divide the messages: each instance opens one of its own.

An instance that leaves has to take all that the broker holds for its session, because no other
instance could; so the source `drains`.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from anabranch.runtime.mqtt.broker import SHARE, Broker
from anabranch.runtime.mqtt.inbox import DRAIN_S, Inbox
from anabranch.runtime.mqtt.link import BrokerLink, PahoLink
from anabranch.runtime.mqtt.payloads import BadPayload, DecodePayload, Format, decoder
from anabranch.runtime.mqtt.spool import PIECE_BYTES, MessageSpool, Spooled, remove_spool
from anabranch.runtime.plan.ends import Chunk, DeadLetter, Reader, RunContext, Source, Split
from anabranch.runtime.ports import clock
from anabranch.runtime.storage.patience import Patience

READ_BYTES = 64 * 2**10


@dataclass(frozen=True, slots=True)
class MqttMessage:
    """What was published. `received`: when it came here, in seconds since 1970. `retained`: the
    broker had kept it, as the last one of its topic."""

    topic: str
    value: Any
    received: float
    retained: bool = False
    qos: int = 0


@dataclass(frozen=True)
class MqttSource(Source):
    broker: Broker
    topic: str
    format: Format | Callable[[bytes], Any] = "json"
    header: tuple[str, ...] | None = None
    with_topic: bool = False
    qos: int = 1
    spool_bytes: int = 64 * 2**20
    link: Callable[[Broker, str], BrokerLink] | None = None
    """Makes the connection; for tests. None: paho."""
    bounded = False
    drains = True
    positions = False

    @property
    def scalable(self) -> bool:  # type: ignore[override]
        return self.topic.startswith(SHARE)

    def prepare(self) -> None:
        self.broker.check_files()

    def splits(self) -> Iterator[Split]:
        sessions = count() if self.scalable else range(1)
        return ({"session": number} for number in sessions)

    def open(self, split: Split, context: RunContext) -> Reader:
        return MqttReader(split, self, context)

    def client_id(self, context: RunContext, session: int) -> str:
        """The same in each run of this pipeline on this host, so that the broker knows the session
        again; another one for another subscription, whose messages are not those of this one."""
        if self.broker.client_id:
            return f"{self.broker.client_id}-{session}"
        told = hashlib.blake2b(f"{self.qos} {self.topic}".encode(), digest_size=4).hexdigest()
        return f"{socket.gethostname()}-{context.pipeline}-{context.operator}-{told}-{session}"


class MqttReader(Reader):
    """Opens at the first read."""

    def __init__(self, split: Split, source: MqttSource, context: RunContext) -> None:
        self._split = split
        self._source = source
        self._context = context
        self._at: int = split.get("at", 0)
        self._decode: DecodePayload = decoder(source.format, source.header)
        self._spool: MessageSpool | None = None
        self._inbox: Inbox | None = None
        self._ended = False
        self._drains = False
        self._leaves = False

    @property
    def _folder(self) -> Path:
        name = f"mqtt-{self._context.operator}-{self._split['session']}"
        return self._context.lasting_dir / name

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        if self._ended:
            return None
        spool = self._spool or await self._open()
        began = clock.monotonic()
        while not (found := spool.read(self._at, min(bytes_max, READ_BYTES)))[0]:
            if spool.over:
                self._ended = True
                return None
            assert self._inbox is not None
            self._inbox.check()
            self._inbox.came.clear()
            await self._inbox.came.wait()
        waited_s = clock.monotonic() - began
        messages, self._at = found
        chunk = Chunk([], [], float(len(messages)), waited_s)
        for message in messages:
            self._tuples_of(message, chunk)
        return chunk

    def remainder(self) -> Split | None:
        if self._ended:
            return None
        known = self._inbox is not None and self._inbox.subscribed
        rest = {"session": self._split["session"], "at": self._at}
        return {**rest, "subscribed": known or self._split.get("subscribed", False)}

    def recorded(self, remainder: Split) -> None:
        at = remainder.get("at", 0)  # as in `splits`, if nothing is safe yet
        if self._inbox is not None:
            self._inbox.forget(at)
        elif self._spool is not None:
            self._spool.forget(at)

    def drain(self, *, leaves: bool) -> None:
        self._leaves = self._leaves or leaves
        self._drains = True
        if self._inbox is not None:
            self._drain(self._inbox)

    def done(self) -> None:
        remove_spool(self._folder)

    def close(self) -> None:
        if self._inbox is not None:
            self._inbox.close()
        if self._spool is not None:
            self._spool.close()

    async def _open(self) -> MessageSpool:
        """While the disk is full it waits."""
        context = self._context
        power, piece_bytes = context.durable == "power", self._source.spool_bytes // 8
        patience = Patience(context.instance, context.note)

        async def open_spool() -> MessageSpool:
            return MessageSpool(
                self._folder, power=power, piece_bytes=min(PIECE_BYTES, piece_bytes)
            )

        spool = self._spool = await patience.outlast(open_spool)
        if spool.cut:
            context.note(
                "mqtt_spool",
                f"{spool.cut:,} bytes were not written whole, or are damaged, and are cut off",
            )
        if not spool.over:
            self._inbox = inbox = self._inbox_of(spool, patience)
            inbox.start()
            if self._drains:
                self._drain(inbox)
        return spool

    def _inbox_of(self, spool: MessageSpool, patience: Patience) -> Inbox:
        context, source, split = self._context, self._source, self._split
        make = source.link or _paho
        return Inbox(
            make(source.broker, source.client_id(context, split["session"])),
            spool,
            source.topic,
            source.qos,
            room_bytes=source.spool_bytes,
            safe=self._at,
            subscribed=split.get("subscribed", False),
            name=source.broker.name,
            note=context.note,
            patience=patience,
        )

    def _drain(self, inbox: Inbox) -> None:
        empties = self._leaves or self._split["session"] > 0
        inbox.drain(empties=empties, waits_s=None if self._leaves else DRAIN_S)

    def _tuples_of(self, message: Spooled, chunk: Chunk) -> None:
        topic, payload, received = message.topic, message.payload, message.received
        limit = self._context.limits.tuple_bytes_max
        try:
            if len(payload) > limit:
                raise BadPayload(
                    f"a payload of {len(payload):,} bytes is above the limit of {limit:,}"
                )
            values = self._decode(payload, received)
        except ValueError as error:
            chunk.dead.append(DeadLetter(str(error), payload[:4096], topic))
            return
        if self._source.with_topic:
            values = [
                MqttMessage(topic, v, received, message.retained, message.qos) for v in values
            ]
        chunk.tuples += values


def _paho(broker: Broker, client_id: str) -> BrokerLink:
    return PahoLink(broker, client_id, keeps=True)
