"""A broker that a test drives, behind the port `BrokerLink`: no sockets, no threads."""

from __future__ import annotations

from anabranch.runtime.mqtt.broker import Broker
from anabranch.runtime.mqtt.link import Arrived, BrokerLink, BrokerListener, LinkBroken


class FakeBroker(BrokerLink):
    """Its own link. Keeps one session."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, bytes]] = []
        """Not sent yet."""
        self.sent: dict[int, Arrived] = {}
        """Sent and not acknowledged, by number."""
        self.unsent: list[int] = []
        """Numbers of those that are to be sent again."""
        self.heard: list[int] = []
        self.deaf = False
        """Whether acknowledgements get lost on their way."""
        self.topics: set[str] = set()
        self.asked: list[str] = []
        """Topics of which it was asked to send no more."""
        self.subscriptions = 0
        self.present = False
        self.paused = False
        self.sessions_ended = 0
        self.most: int | None = None
        """Bytes of a packet that it takes."""
        self.published: list[tuple[str, bytes, int, bool]] = []
        self._last = 0
        self._listener: BrokerListener | None = None
        self._connected = False

    def __call__(self, _broker: Broker, _client_id: str) -> BrokerLink:
        """A process opens the link."""
        self._listener, self._connected = None, False
        return self

    # -- what a test does ------------------------------------------------------------------------

    def join(self) -> None:
        assert self._listener is not None
        self._connected = True
        self._listener.joined(self.present)
        self.present = True
        self.unsent = sorted(self.sent)
        self.send()

    def break_off(self) -> None:
        self._connected = False
        if self._listener is not None:
            self._listener.broken("the cable is out")

    def publish_to(self, topic: str, *payloads: bytes) -> None:
        self.waiting += [(topic, payload) for payload in payloads]
        self.send()

    def send(self) -> None:
        while self.unsent and self._connected and not self.paused:
            number = self.unsent.pop(0)
            self.sent[number] = again = self.sent[number]._replace(again=True)
            assert self._listener is not None
            self._listener.arrived(again)
        while self.waiting and self._connected and not self.paused and self.topics:
            topic, payload = self.waiting.pop(0)
            self._last += 1
            message = Arrived(topic, payload, 1, False, self._last, False)
            self.sent[self._last] = message
            assert self._listener is not None
            self._listener.arrived(message)

    def confirm(self, *numbers: int, refused: str = "") -> None:
        assert self._listener is not None
        for number in numbers:
            self._listener.confirmed(number, refused)

    # -- a link ------------------------------------------------------------------------------------

    def start(self, listener: BrokerListener) -> None:
        self._listener = listener

    @property
    def connected(self) -> bool:
        return self._connected

    @property
    def window(self) -> int:
        return 3

    @property
    def packet_bytes_max(self) -> int | None:
        return self.most

    async def subscribe(self, topic: str, qos: int) -> None:
        if not self._connected:
            raise LinkBroken("no connection")
        self.subscriptions += 1
        self.topics.add(topic)
        self.send()

    async def unsubscribe(self, topic: str) -> None:
        self.asked.append(topic)
        if not self._connected:
            raise LinkBroken("no connection")
        self.send()
        self.topics.discard(topic)

    def acknowledge(self, number: int) -> None:
        self.heard.append(number)
        if not self.deaf:
            self.sent.pop(number, None)

    def publish(self, topic: str, payload: bytes, qos: int, retained: bool) -> int:
        self.published.append((topic, payload, qos, retained))
        return len(self.published)

    def pause(self) -> None:
        self.paused = True

    def go_on(self) -> None:
        self.paused = False
        self.send()

    def close(self) -> None:
        self._connected, self._listener = False, None

    async def end_session(self) -> None:
        self.close()
        self.sessions_ended += 1
        self.present = False
