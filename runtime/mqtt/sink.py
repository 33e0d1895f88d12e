"""A sink that publishes: `ab.mqtt("mqtt://broker", to="plant/alarms")`.

A tuple counts as delivered when the broker has confirmed it, at QoS 0 when it is on its way. Until
then its senders keep it in their journals, so the stream waits while the broker is away, and what
was not confirmed is published again by the next incarnation after a death.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anabranch.runtime.mqtt.broker import Broker, check_target
from anabranch.runtime.mqtt.link import WINDOW_EXACT, Arrived, BrokerLink, PahoLink
from anabranch.runtime.mqtt.payloads import BadPayload, Format, encoder
from anabranch.runtime.plan.ends import DeadLetter, RunContext, Sink, Writer
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.foreign import describe
from anabranch.runtime.values.kinds import EventKind

log = logging.getLogger("anabranch.mqtt")

PAYLOAD_BYTES_MAX = 256 * 2**20 - 2**17
"""MQTT has 256 MB for a packet, with its topic."""
PACKET_BYTES = 20
"""What a packet has at most beside its topic and payload."""
OPEN_BYTES_MAX = 8 * 2**20
"""So much may be on its way to the broker; a message that is larger goes alone."""


@dataclass(frozen=True)
class MqttSink(Sink):
    """`to`: a topic, or a function that gives one for a tuple."""

    broker: Broker
    to: str | Callable[[Any], str]
    format: Format | Callable[[Any], bytes] = "json"
    qos: int = 1
    retain: bool = False
    link: Callable[[Broker, str], BrokerLink] | None = None
    """Makes the connection; for tests. None: paho."""

    def prepare(self) -> None:
        self.broker.check_files()

    def prepare_to_resume(self) -> None:
        self.prepare()

    def open(self, context: RunContext) -> Writer:
        return MqttWriter(self, context)

    def client_id(self, context: RunContext) -> str:
        named = self.broker.client_id or f"{socket.gethostname()}-{context.pipeline}"
        return f"{named}-{context.instance}"


class MqttWriter(Writer):
    """A listener of its link."""

    def __init__(self, sink: MqttSink, context: RunContext) -> None:
        self._sink = sink
        self._note = context.note
        self._encode = encoder(sink.format)
        self._tuple_bytes_max = min(context.limits.tuple_bytes_max, PAYLOAD_BYTES_MAX)
        self._link = (sink.link or self._paho)(sink.broker, sink.client_id(context))
        self._started = False
        self._lacks_link = False
        self._open: dict[int, int] = {}
        """Messages that are not confirmed: their bytes by their numbers."""
        self._open_bytes = 0
        self._refused = ""
        """Why the broker does not want a message."""
        self._stirred = asyncio.Event()

    async def write(self, tuples: list[Any]) -> list[DeadLetter]:
        if not self._started:
            self._started = True
            self._link.start(self)
        dead = []
        for one in tuples:
            try:
                topic, payload = self._topic(one), self._payload(one)
            except ValueError as error:
                dead.append(DeadLetter(str(error), one))
                continue
            await self._until(self._has_room)
            size = PACKET_BYTES + len(topic.encode()) + len(payload)
            most = self._link.packet_bytes_max
            if most is not None and size > most:
                told = f"a message of {size:,} bytes is above the broker's limit of {most:,}"
                dead.append(DeadLetter(told, one))
                continue
            number = self._link.publish(topic, payload, self._sink.qos, self._sink.retain)
            self._open[number] = size
            self._open_bytes += size
        return dead

    async def flush(self) -> None:
        await self._until(lambda: not self._open)

    async def close(self) -> None:
        await self.flush()
        self._link.close()

    # -- a listener ------------------------------------------------------------------------------

    def joined(self, present: bool) -> None:
        if self._lacks_link:
            self._lacks_link = False
            self._tell(EventKind.GOES_ON, f"{self._sink.broker.name} can be reached again")
        self._stirred.set()

    def arrived(self, message: Arrived) -> None:
        """Nothing is subscribed to here."""

    def confirmed(self, number: int, refused: str) -> None:
        self._open_bytes -= self._open.pop(number, 0)
        self._refused = self._refused or refused
        self._stirred.set()

    def broken(self, why: str) -> None:
        if not self._lacks_link:
            self._lacks_link = True
            name = self._sink.broker.name
            told = f"{name} cannot be reached: {why}; the stream waits until it can"
            self._tell(EventKind.WAITS, told)
        if not self._sink.qos:  # what was on its way may be lost, and nothing will show it
            self._open.clear()
            self._open_bytes = 0
            self._stirred.set()

    # -- tuples ------------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        link = self._link
        has_room = len(self._open) < link.window and self._open_bytes < OPEN_BYTES_MAX
        return link.connected and has_room

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._stirred.clear()
            await self._stirred.wait()
        if self._refused:
            name = self._sink.broker.name
            raise PermissionError(errno.EACCES, f"{name} refuses a message: {self._refused}")

    def _topic(self, one: Any) -> str:
        to = self._sink.to
        if isinstance(to, str):
            return to
        try:
            topic = to(one)
        except Exception as error:
            raise BadPayload(f"topic: {describe(error)}") from error
        if not isinstance(topic, str):
            raise BadPayload(f"topic: expected text, got {type(topic).__name__}")
        check_target(topic)
        return topic

    def _payload(self, one: Any) -> bytes:
        payload = self._encode(one)
        if len(payload) > self._tuple_bytes_max:
            raise BadPayload(
                f"a payload of {len(payload):,} bytes is above the limit of "
                f"{self._tuple_bytes_max:,}"
            )
        return payload

    def _tell(self, kind: EventKind, told: str) -> None:
        log.warning("%s", told)
        self._note(kind, told)

    def _paho(self, broker: Broker, client_id: str) -> BrokerLink:
        """At QoS 2 the broker keeps how far a message is. An earlier process's does not count: a
        new message with the same number would be taken for an old one."""
        if self._sink.qos < 2:
            return PahoLink(broker, client_id, keeps=False)
        return PahoLink(broker, client_id, keeps=True, anew=True, window=WINDOW_EXACT)


def check_sink(to: object, qos: object, retain: object) -> None:
    """Raise `PipelineError`."""
    if isinstance(to, str):
        check_target(to)
    elif not callable(to):
        raise PipelineError(f"mqtt: to must be a topic or a function of a tuple, got {to!r}")
    if qos not in (0, 1, 2) or isinstance(qos, bool):
        raise PipelineError(f"mqtt: qos must be 0, 1 or 2, got {qos!r}")
    if not isinstance(retain, bool):
        raise PipelineError(f"mqtt: retain must be True or False, got {retain!r}")
