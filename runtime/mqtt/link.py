"""A connection to a broker that is made again for ever: the port, and paho behind it.

The port is small, so that a simulated broker can stand behind it in a test. All of it happens in
one event loop: a listener is called there, and never twice at a time.

- **Order.** Messages come in the order in which the broker sends them.
- **Again.** A message that was not acknowledged when the connection broke comes again on the next
  one, if the broker has kept the session (`joined(present=True)`).
- **Backpressure.** While the link is paused nothing is read: the broker fills the socket and waits.
  It may break the connection off meanwhile, since it gets nothing, which is found when it goes on.
- **The end.** `close` breaks off; nothing is called after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from anabranch.runtime.mqtt.broker import Broker
from anabranch.runtime.ports import clock

log = logging.getLogger("anabranch.mqtt")

RETRY_FIRST_S = 0.2
RETRY_MAX_S = 30.0
STEADY_S = 1.0
"""A connection that has lasted so long was a good one: the next attempt comes soon."""
ANSWER_S = 10.0
"""How long a broker may take for the first word."""
LOOK_S = 0.5
READS_MAX = 256
WINDOW = 1000
"""Messages that may be under way without an acknowledgement, where we can say so."""
WINDOW_EXACT = 20
"""The same of QoS 2: in MQTT 3.1.1 a broker cannot state how many it takes, and mosquitto breaks
off the connection at more."""
FOR_EVER_S = 0xFFFFFFFF


class Arrived(NamedTuple):
    """`number`: packet identifier, 0 at QoS 0. `again`: the broker says that it may have come
    before."""

    topic: str
    payload: bytes
    qos: int
    retained: bool
    number: int
    again: bool


class BrokerListener(Protocol):
    def joined(self, present: bool) -> None:
        """There is a connection. `present`: the broker has kept the session."""

    def arrived(self, message: Arrived) -> None: ...

    def confirmed(self, number: int, refused: str) -> None:
        """A published message is with the broker, as its quality of service has it; or, in MQTT 5,
        the broker says why it does not want it."""

    def broken(self, why: str) -> None:
        """There is none any more, or an attempt has failed; it goes on by itself."""


class LinkBroken(ConnectionError):
    """The connection ended before the answer came."""


class BrokerLink(ABC):
    @abstractmethod
    def start(self, listener: BrokerListener) -> None: ...

    @property
    @abstractmethod
    def connected(self) -> bool: ...

    @property
    @abstractmethod
    def window(self) -> int:
        """How many published messages may wait for being confirmed."""

    @property
    @abstractmethod
    def packet_bytes_max(self) -> int | None:
        """What the broker takes at most, if it has stated it."""

    @abstractmethod
    async def subscribe(self, topic: str, qos: int) -> None:
        """Return when the broker has taken it. Raises `LinkBroken`, also if it refuses: then the
        link is broken off."""

    @abstractmethod
    async def unsubscribe(self, topic: str) -> None:
        """Return when the broker has answered, which it does behind all that it has sent before.
        Harmless where there is no subscription. Raises `LinkBroken`."""

    @abstractmethod
    def acknowledge(self, number: int) -> None:
        """Of a message of this connection; of an earlier one it comes to nothing."""

    @abstractmethod
    def publish(self, topic: str, payload: bytes, qos: int, retained: bool) -> int:
        """The number under which it is `confirmed`. Sent again over the next connection if need
        be."""

    @abstractmethod
    def pause(self) -> None: ...

    @abstractmethod
    def go_on(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    async def end_session(self) -> None:
        """Close, and have the broker forget the session. Raises `OSError`."""


class PahoLink(BrokerLink):
    """Large because one object stands between the callbacks of paho and the loop."""

    def __init__(
        self,
        broker: Broker,
        client_id: str,
        *,
        keeps: bool,
        anew: bool = False,
        window: int = WINDOW,
        retry_max_s: float = RETRY_MAX_S,
        message_bytes_max: int | None = None,
    ) -> None:
        """`keeps`: the broker keeps the session while there is no connection. `anew`: it forgets
        what it has kept for an earlier process first. `message_bytes_max`: of a message that is
        still coming; beyond it the connection is broken off."""
        self._message_bytes_max = message_bytes_max
        self._retry_max_s = retry_max_s
        self._broker = broker
        self._client_id = client_id
        self._keeps = keeps
        self._anew = anew
        self._secured: Any = None
        """The client that its certificates belong to."""
        self._closed = False
        self._window_max = self._window = window
        self._packet_bytes_max: int | None = None
        self._client = self._made(keeps)
        self._take_callbacks(self._client)
        self._listener: BrokerListener
        self._run: asyncio.Task[None] | None = None
        self._over: asyncio.Future[str] | None = None
        """Why the connection ended."""
        self._answers: dict[int, asyncio.Future[bool]] = {}
        self._sock: Any = None
        self._connected = False
        self._paused = False
        self._count = 0
        """Packets of this connection, so that it is seen whether there was one."""

    @property
    def connected(self) -> bool:
        return self._connected

    @property
    def window(self) -> int:
        return self._window

    @property
    def packet_bytes_max(self) -> int | None:
        return self._packet_bytes_max

    @property
    def fileno(self) -> int | None:
        """Of its socket, if there is a connection."""
        return None if self._sock is None or self._sock.fileno() < 0 else int(self._sock.fileno())

    def start(self, listener: BrokerListener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._run = self._loop.create_task(self._keep_connected(), name="mqtt link")

    async def subscribe(self, topic: str, qos: int) -> None:
        options: Any = qos
        if self._broker.version == "5":
            from paho.mqtt.subscribeoptions import SubscribeOptions

            # Retained messages only with a new subscription.
            options = SubscribeOptions(qos=qos, retainAsPublished=True, retainHandling=1)
        taken = self._client.subscribe([(topic, qos)] if options is qos else [(topic, options)])
        if not await self._answer(taken):
            self._end(f"the broker refuses the subscription to {topic!r}")
            raise LinkBroken(f"the broker refuses the subscription to {topic!r}")

    async def unsubscribe(self, topic: str) -> None:
        await self._answer(self._client.unsubscribe(topic))

    def acknowledge(self, number: int) -> None:
        if self._connected:
            self._client.ack(number, 1)

    def publish(self, topic: str, payload: bytes, qos: int, retained: bool) -> int:
        return int(self._client.publish(topic, payload, qos, retained).mid)

    def pause(self) -> None:
        if not self._paused:
            self._paused = True
            if self._sock is not None:
                self._loop.remove_reader(self._sock)

    def go_on(self) -> None:
        if self._paused:
            self._paused = False
            if self._sock is not None:
                self._loop.add_reader(self._sock, self._readable)
                self._loop.call_soon(self._readable)  # what TLS has read already

    def close(self) -> None:
        self._closed = True
        if self._run is not None:
            self._run.cancel()
        self._say_goodbye(self._client)
        self._fail_answers()

    async def end_session(self) -> None:
        self.close()
        await asyncio.to_thread(self._connect_and_leave)

    # -- connections ---------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        failures = 0
        while True:
            began = clock.monotonic()
            why = await self._one_connection()
            lasted = self._count > 0 and clock.monotonic() - began >= STEADY_S
            failures = 0 if lasted else failures + 1
            self._listener.broken(why)
            most_s = min(self._retry_max_s, RETRY_FIRST_S * 2.0 ** min(failures, 20))
            await asyncio.sleep(most_s * clock.chance().uniform(0.5, 1.0))

    async def _one_connection(self) -> str:
        self._over, self._count = self._loop.create_future(), 0
        try:
            await asyncio.to_thread(self._dial)
        except (OSError, ValueError) as error:
            return str(error) or type(error).__name__
        self._sock = self._client.socket()
        try:
            self._loop.add_reader(self._sock, self._readable)
            self._writable_later()
            answer_by = clock.monotonic() + ANSWER_S
            while not self._over.done():
                await asyncio.wait([self._over], timeout=LOOK_S)
                if not self._connected and not self._count and clock.monotonic() > answer_by:
                    self._end("the broker does not answer")
                elif not self._over.done() and not self._paused:  # else no answer would be read
                    self._client.loop_misc()
            return self._over.result()
        finally:
            self._connected = False
            self._unwatch()
            self._fail_answers()
            self._say_goodbye(self._client)

    def _end(self, why: str) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(why)

    def _dial(self) -> None:
        """In a thread. Raises `OSError`; what cannot be read of the login is one."""
        if self._anew:
            self._connect_and_leave()
            self._anew = False
        self._connect(self._client, self._keeps)
        if self._closed:  # meanwhile, and found no connection then
            self._say_goodbye(self._client)

    def _connect(self, client: Any, keeps: bool) -> None:
        broker = self._broker
        login = broker.read_login()
        if login is not None:
            client.username_pw_set(*login)
        if broker.tls and self._secured is not client:  # paho takes it once
            client.tls_set_context(self._tls())
            self._secured = client
        settings: dict[str, Any] = {}
        if broker.version == "5":
            settings = {"clean_start": not keeps, "properties": self._properties(keeps)}
        client.connect(broker.host, broker.port, broker.keepalive_s, **settings)

    def _connect_and_leave(self) -> None:
        """In a thread: in MQTT 3.1.1 a session ends when its client connects without one."""
        client = self._made(keeps=False)
        self._connect(client, keeps=False)
        began = clock.monotonic()
        while not client.is_connected():
            if client.loop(0.1) or clock.monotonic() - began > ANSWER_S:
                raise ConnectionError("the broker does not end the session")
        client.disconnect()

    def _properties(self, keeps: bool) -> Any:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        found: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        found.SessionExpiryInterval = FOR_EVER_S if keeps else 0
        found.ReceiveMaximum = WINDOW
        return found

    def _tls(self) -> ssl.SSLContext:
        broker = self._broker
        context = ssl.create_default_context(cafile=broker.ca_file or None)
        if broker.cert_file:
            context.load_cert_chain(broker.cert_file, broker.key_file or None)
        return context

    def _made(self, keeps: bool) -> Any:
        from paho.mqtt import client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        modern = self._broker.version == "5"
        client: Any = paho.Client(
            CallbackAPIVersion.VERSION2,
            self._client_id,
            clean_session=None if modern else not keeps,
            protocol=paho.MQTTv5 if modern else paho.MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = 5.0
        client.max_inflight_messages_set(self._window_max)
        client.max_queued_messages_set(0)
        return client

    def _take_callbacks(self, client: Any) -> None:
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_subscribe = client.on_unsubscribe = self._on_answer
        client.on_socket_close = self._on_socket_close
        client.on_socket_register_write = self._on_register_write

    def _say_goodbye(self, client: Any) -> None:
        """The end of a connection that the broker need not find out about by itself."""
        self._unwatch()
        if client.socket() is not None:
            with contextlib.suppress(OSError, ValueError):
                client.disconnect()
                client.loop_write()
        if (sock := client.socket()) is not None:
            sock.close()

    # -- what paho calls, in the loop ------------------------------------------------------------

    def _on_connect(self, _c: Any, _u: Any, flags: Any, reason: Any, told: Any) -> None:
        if reason.is_failure:
            self._end(f"the broker refuses the connection: {reason}")
            return
        self._connected = True
        self._count += 1
        if self._paused and self._sock is not None:
            self._loop.remove_reader(self._sock)
        self._window = min(self._window_max, getattr(told, "ReceiveMaximum", WINDOW))
        self._packet_bytes_max = getattr(told, "MaximumPacketSize", None)
        self._listener.joined(bool(flags.session_present))

    def _on_disconnect(self, _c: Any, _u: Any, _f: Any, reason: Any, _p: Any) -> None:
        said = reason.getName()  # in MQTT 3.1.1 brokers say nothing
        self._end("the connection is broken" if said == "Unspecified error" else said)

    def _on_message(self, _c: Any, _u: Any, message: Any) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = "\ufffd"
        self._count += 1
        payload, qos = bytes(message.payload), int(message.qos)
        number = int(message.mid) if qos else 0
        arrived = Arrived(topic, payload, qos, bool(message.retain), number, bool(message.dup))
        self._listener.arrived(arrived)

    def _on_publish(self, _c: Any, _u: Any, number: int, reason: Any, _p: Any) -> None:
        self._count += 1
        self._listener.confirmed(number, str(reason) if reason.is_failure else "")

    def _on_answer(self, _c: Any, _u: Any, number: int, reasons: Any, _p: Any) -> None:
        answer = self._answers.pop(number, None)
        if answer is not None and not answer.done():
            answer.set_result(not any(reason.is_failure for reason in reasons))

    def _on_socket_close(self, _c: Any, _u: Any, _sock: Any) -> None:
        self._unwatch()

    def _on_register_write(self, _c: Any, _u: Any, _sock: Any) -> None:
        """Of the thread that dials, too; what is to be written then is written behind that."""
        if self._sock is not None:
            self._writable_later()

    # -- the socket --------------------------------------------------------------------------------

    def _readable(self) -> None:
        for _ in range(READS_MAX):
            before, sock = self._count, self._sock
            if sock is None or (self._paused and self._connected):
                return  # its answer to the connection is read in any case
            if self._client.loop_read():
                return self._end("the connection is broken")
            if self._message_bytes_max is not None and self._awaits() > self._message_bytes_max:
                return self._end("a message that comes is too large")
            pending: Callable[[], int] | None = getattr(sock, "pending", None)
            if self._count == before and not (pending is not None and pending()):
                return
        self._loop.call_soon(self._readable)  # others have their turn

    def _awaits(self) -> int:
        """Bytes of a message of which a part has come. paho has no limit of its own."""
        return int(self._client._in_packet["to_process"])

    def _writable_later(self) -> None:
        self._loop.add_writer(self._sock, self._writable)

    def _writable(self) -> None:
        if self._sock is None:
            return
        failed = self._client.loop_write()
        if self._sock is not None and not self._client.want_write():
            self._loop.remove_writer(self._sock)
        if failed:
            self._end("the connection is broken")

    def _unwatch(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None and sock.fileno() >= 0:
            self._loop.remove_reader(sock)
            self._loop.remove_writer(sock)

    # -- answers -----------------------------------------------------------------------------------

    async def _answer(self, asked: tuple[Any, int | None]) -> bool:
        failed, number = asked
        if failed or number is None or not self._connected:
            raise LinkBroken("there is no connection")
        answer: asyncio.Future[bool] = self._loop.create_future()
        self._answers[number] = answer
        return await answer

    def _fail_answers(self) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(LinkBroken("the connection ended before the answer"))
        self._answers.clear()
