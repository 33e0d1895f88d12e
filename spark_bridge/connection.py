"""One connection of Spark's side to the gateway, once it has proved that it belongs to the run."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import StreamReader, StreamWriter

from anabranch.runtime.ports import clock
from anabranch.spark_bridge.messages import (
    PROTOCOL,
    Greeting,
    Hello,
    Reply,
    Request,
    Welcome,
)
from anabranch.spark_bridge.wire import (
    BODY_BYTES_MAX,
    HEADER_BYTES_MAX,
    HELLO_BYTES_MAX,
    PREFIX,
    Refused,
    WireError,
    pack,
    proof,
    proved,
    request_of,
    sizes,
)


class Connection:
    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def admit(self, token: str, timeout_s: float) -> None:
        """Exchange proofs. Raises `Refused`, `WireError` or `TimeoutError`."""
        nonce = clock.secret(16)
        await self.send(Greeting(protocol=PROTOCOL, nonce=nonce))
        async with asyncio.timeout(timeout_s):
            hello, _ = await self._receive(HELLO_BYTES_MAX, 0)
        if not isinstance(hello, Hello):
            raise WireError(f"expected a hello, got {type(hello).__name__}")
        if hello.protocol != PROTOCOL:
            raise Refused(
                "protocol",
                f"Spark's side speaks version {hello.protocol} of the bridge's protocol, this "
                f"gateway {PROTOCOL}; install the same version of anabranch on both",
            )
        if not proved(token, "spark", nonce, hello.proof):
            raise Refused(
                "unauthorised",
                "the token is not this run's; use option('run', RUN_FOLDER), or take the token "
                "from the gateway.json in it",
            )
        await self.send(Welcome(proof=proof(token, "gateway", hello.nonce)))

    async def receive(self) -> tuple[Request, bytes]:
        """Raises `WireError` for what is no request, `IncompleteReadError` at the end."""
        return await self._receive(HEADER_BYTES_MAX, BODY_BYTES_MAX)

    async def send(self, reply: Reply, body: bytes = b"") -> None:
        self._writer.write(pack(reply, len(body)))
        if body:
            self._writer.write(body)
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):  # it was broken already
            await self._writer.wait_closed()

    def abort(self) -> None:
        self._writer.transport.abort()

    async def _receive(self, header_max: int, body_max: int) -> tuple[Request, bytes]:
        prefix = await self._reader.readexactly(PREFIX.size)
        header_bytes, body_bytes = sizes(prefix, header_max, body_max)
        request = request_of(await self._reader.readexactly(header_bytes))
        body = await self._reader.readexactly(body_bytes) if body_bytes else b""
        return request, body
