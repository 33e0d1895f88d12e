"""Spark's side of a connection to the gateway: blocking, standard library only.

Used in Spark's Python processes, which import nothing of the runtime but this and PyArrow, and
by `ab.spark.finish`.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from types import TracebackType

from anabranch.spark_bridge.messages import (
    PROTOCOL,
    Greeting,
    Hello,
    Refusal,
    Reply,
    Request,
    Wait,
    Welcome,
)
from anabranch.spark_bridge.places import Place, split_address
from anabranch.spark_bridge.wire import (
    PREFIX,
    Refused,
    WireError,
    pack,
    proof,
    proved,
    reply_of,
    sizes,
)

_AT_ONCE = struct.pack("ii", 1, 0)
CONNECT_TIMEOUT_S = 10.0
SILENCE_MAX_S = 120.0
"""A gateway that says nothing for so long, not even `Wait`, is taken for dead."""


class GatewayLost(ConnectionError):
    """No gateway answers, or the connection to it broke."""


class Link:
    """One connection, open and admitted. Raises `GatewayLost`, `Refused` or `WireError`."""

    def __init__(self, place: Place, connect_timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        self._socket = _connect(place, connect_timeout_s)
        try:
            self._socket.settimeout(SILENCE_MAX_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._prove(place.token)
        except BaseException:
            self.close()
            raise

    def ask(self, request: Request, body: bytes | memoryview = b"") -> tuple[Reply, bytes]:
        """Send a request and wait for its answer, as long as the gateway shows that it lives."""
        self.tell(request, body)
        return self.hear()

    def tell(self, request: Request, body: bytes | memoryview = b"") -> None:
        try:
            self._socket.sendall(pack(request, len(body)))
            if body:
                self._socket.sendall(body)
        except OSError as error:
            raise GatewayLost(f"the connection to the gateway broke: {error}") from error

    def hear(self) -> tuple[Reply, bytes]:
        while True:
            reply, body = self._receive()
            if isinstance(reply, Refusal):
                raise Refused(reply.code, reply.reason)
            if not isinstance(reply, Wait):
                return reply, body

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _prove(self, token: str) -> None:
        greeting, _ = self._receive()
        if not isinstance(greeting, Greeting):
            raise WireError("what answers at the gateway's address is no gateway")
        nonce = os.urandom(16)
        hello = Hello(protocol=PROTOCOL, proof=proof(token, "spark", greeting.nonce), nonce=nonce)
        welcome, _ = self.ask(hello)
        if not isinstance(welcome, Welcome) or not proved(token, "gateway", nonce, welcome.proof):
            raise WireError("what answers at the gateway's address does not know this run's token")

    def _receive(self) -> tuple[Reply, bytes]:
        header_bytes, body_bytes = sizes(self._read(PREFIX.size))
        reply = reply_of(self._read(header_bytes))
        return reply, self._read(body_bytes)

    def _read(self, count: int) -> bytes:
        buffer = bytearray(count)
        view, have = memoryview(buffer), 0
        while have < count:
            try:
                got = self._socket.recv_into(view[have:])
            except OSError as error:
                raise GatewayLost(f"the connection to the gateway broke: {error}") from error
            if not got:
                raise GatewayLost("the gateway closed the connection")
            have += got
        return bytes(buffer)


def reach(place: Place, patience_s: float) -> Link:
    """A connection to the gateway, which may be about to come back. Raises `GatewayLost` when none
    has answered for `patience_s`."""
    deadline = time.monotonic() + patience_s
    pause_s = 0.05
    while True:
        try:
            return Link(place.again())
        except GatewayLost:
            if time.monotonic() + pause_s > deadline:
                raise
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 1.0)


class Caller:
    """Asks over a connection that it keeps, and over a new one if that breaks.

    Only for requests that may be repeated. It gives up, with `GatewayLost`, when no gateway has
    answered for `patience_s`; one that comes back at another address is found through its file.
    Pickled without its connection.
    """

    def __init__(self, place: Place, patience_s: float) -> None:
        self.place = place
        self.patience_s = patience_s
        self._link: Link | None = None

    def ask(self, request: Request, *, unless_ended: bool = False) -> Reply:
        """`unless_ended`: give up at once, with `RunEnded`, if the run has ended."""
        deadline = time.monotonic() + self.patience_s
        pause_s = 0.05
        while True:
            try:
                if self._link is None:
                    self._link = Link(self.place.again())
                return self._link.ask(request)[0]
            except Refused:
                raise
            except GatewayLost:
                self.close()
                if unless_ended:
                    self.place.check_ended()
                if time.monotonic() + pause_s > deadline:
                    raise
            except BaseException:
                self.close()  # an answer may be under way that the next request must not get
                raise
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 1.0)

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def __getstate__(self) -> tuple[Place, float]:
        return self.place, self.patience_s

    def __setstate__(self, state: tuple[Place, float]) -> None:
        self.__init__(*state)  # type: ignore[misc]


def _connect(place: Place, timeout_s: float) -> socket.socket:
    problems = []
    for address in place.addresses:
        try:
            link = socket.create_connection(split_address(address), timeout=timeout_s)
        except OSError as error:
            problems.append(f"{address}: {error}")
            continue
        if link.getsockname() != link.getpeername():
            return link
        # While no gateway listens here, the system may join a socket to itself. Closed in the
        # usual way, it would keep the gateway from its port for a minute.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        link.close()
        problems.append(f"{address}: no process listens")
    raise GatewayLost(f"no gateway answers at {'; '.join(problems)}. Is the pipeline running?")
