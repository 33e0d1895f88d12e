"""The process between Spark and the instances of a pipeline.

It serves both directions: Spark's tasks stage batches that become splits of sources
(`anabranch.spark_bridge.feeding`), and Spark's readers fetch what sinks have logged
(`anabranch.spark_bridge.collecting`). All state is in files, so a gateway may die and come back at
any time; the streams of Spark and the instances go on where they were.

What the gateway needs from the rest of a run are two callbacks:

- `publish(stream, splits)`: put these on the board, in this order. It may be called again with
  splits that were published before, after an error or a restart: the board passes over a
  split whose `number` it has seen.
- `ended(stream)`: no more splits will come for the stream. May be called more than once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from asyncio import StreamReader, StreamReaderProtocol, StreamWriter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.sockets import transport
from anabranch.runtime.ports.store import File
from anabranch.runtime.reporting.failure import PlainError
from anabranch.spark_bridge import messages as m
from anabranch.spark_bridge.collecting import Collect
from anabranch.spark_bridge.connection import Connection
from anabranch.spark_bridge.durable import make_folder
from anabranch.spark_bridge.feeding import Ended, Feed, FeedCounts, Publish
from anabranch.spark_bridge.gateway_limits import GatewayLimits
from anabranch.spark_bridge.places import GATEWAY_FILE, keep_place, write_ended, write_place
from anabranch.spark_bridge.receiving import Receiver
from anabranch.spark_bridge.wire import Refused, WireError

_log = logging.getLogger(__name__)
_BUFFER_BYTES = 2 * 2**20
_BEHIND_POLL_S = 0.02
_COLLECTED_POLL_S = 0.1


class GatewayError(PlainError):
    """The gateway cannot start. The message says why."""


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    connections: int
    waiting: int
    """Spark tasks held back because the pipeline is behind."""
    refused: int
    """Connections that were cut off: not of this run, or not of this protocol."""
    feed: FeedCounts
    rows_uncollected: int


async def _nobody(stream: str) -> None:
    """The agent needs no notice of the end of a stream."""


class Gateway:
    """`feeds`: the streams that sources read, None for any. `collects`: stream -> DDL schema of
    what sinks write. `pipeline_run`: names this run of the pipeline, so that an input declared
    finished in an earlier run over the same state folder is open again.
    """

    def __init__(
        self,
        *,
        ended: Ended = _nobody,
        feeds: Collection[str] | None = None,
        collects: Mapping[str, str] | None = None,
        pipeline_run: str = "",
        limits: GatewayLimits | None = None,
    ) -> None:
        self._ended = ended
        self._feeds = feeds
        self._collects = collects or {}
        self._pipeline_run = pipeline_run
        self._limits = limits or GatewayLimits()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: set[Connection] = set()
        self._told_in: list[Path] = []
        self._released = asyncio.Event()
        self._complete = asyncio.Event()
        self._refused = 0
        self._waiting = 0

    async def start(
        self, host: str, port: int, state_dir: str | Path, publish: Publish, token: str | bytes
    ) -> str:
        """Listen, take up what the state folder holds, and return the address `host:port`.

        The address and the token are also written to `gateway.json` in the state folder. Raises
        `GatewayError` if another gateway serves the folder, and `OSError` if the port is taken.
        """
        self._token = token.hex() if isinstance(token, bytes) else token
        if not self._token:
            raise GatewayError("a gateway needs a token: a client with it may feed the pipeline")
        state = Path(state_dir)
        make_folder(state)
        async with contextlib.AsyncExitStack() as undo:
            undo.callback(_lock(state).close)
            self._collect = Collect(state, self._collects, self._limits)
            self._feed = Feed(
                state / "feed", publish, self._ended, self._feeds, self._pipeline_run, self._limits
            )
            undo.callback(self._feed.close)
            await self._feed.start()
            listening = await transport().listen(f"tcp:{host}:{port}", self._stream)
            undo.push_async_callback(self._hang_up)
            undo.callback(listening.close)
            bound = listening.address.rpartition(":")[2]
            address = self._address = f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"
            self.tell_in(state)
            undo.callback(self._note_ended, state)
            self._keep(asyncio.create_task(self._sweep(), name="gateway sweep"))
            self._undo = undo.pop_all()
        return address

    def tell_in(self, folder: Path) -> None:
        """Tell the address and the token there, too, and again if that is removed."""
        write_place(folder, self._address, self._token)
        self._told_in.append(folder)

    async def close(self) -> None:
        """Stop listening, cut the connections, finish what is being written to the journal."""
        await self._undo.aclose()

    async def _hang_up(self) -> None:
        for connection in list(self._connections):
            connection.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def collected(self, timeout_s: float) -> bool:
        """Wait until all results were fetched and no client is connected any more, so that no query
        can want them once again, or until Spark's side said that it wants no more
        (`ab.spark.release`). False if that did not happen in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._connections or self._collect.uncollected():
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._released.wait(), _COLLECTED_POLL_S)
                        return True
            return True
        except TimeoutError:
            return False

    def _note_ended(self, state: Path) -> None:
        with contextlib.suppress(OSError):  # the folder may have gone with the run
            write_ended(state, complete=self._complete.is_set())

    def complete(self) -> None:
        """The pipeline has ended: no more results come."""
        self._complete.set()

    def status(self) -> GatewayStatus:
        return GatewayStatus(
            len(self._connections),
            self._waiting,
            self._refused,
            self._feed.counts(),
            self._collect.uncollected(),
        )

    # --- connections -----------------------------------------------------------------------

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stream(self) -> StreamReaderProtocol:
        return StreamReaderProtocol(StreamReader(limit=_BUFFER_BYTES), self._accept)

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        connection = Connection(reader, writer)
        if len(self._connections) >= self._limits.connections_max:
            self._refused += 1
            connection.abort()
            return
        self._connections.add(connection)
        self._keep(asyncio.create_task(self._serve(connection), name="gateway connection"))

    async def _serve(self, connection: Connection) -> None:
        try:
            await connection.admit(self._token, self._limits.hello_timeout_s)
            while True:
                await self._answer(connection, *await connection.receive())
        except asyncio.IncompleteReadError:
            pass  # the other side is done
        except (WireError, Refused) as error:
            self._refused += 1
            _log.warning("a connection to the gateway was closed: %s", error)
            code = error.code if isinstance(error, Refused) else "bad_request"
            with contextlib.suppress(OSError):
                await connection.send(m.Refusal(code=code, reason=str(error)))
        except TimeoutError:
            self._refused += 1
        except OSError:
            pass  # the connection broke; Spark's side repeats what counts
        finally:
            self._connections.discard(connection)
            await connection.close()

    async def _answer(self, connection: Connection, request: m.Request, body: bytes) -> None:
        try:
            match request:
                case m.Stage():
                    await self._stage(connection, request, body)
                case m.Ending():
                    await self._wait_for_the_end(connection)
                case m.Fetch():
                    for block, data in self._collect.fetch(request):
                        await connection.send(block, data)
                        await asyncio.sleep(0)
                case _:
                    await connection.send(await self._reply(request))
        except Refused as error:
            await connection.send(m.Refusal(code=error.code, reason=error.reason))
        except (ConnectionError, asyncio.IncompleteReadError, WireError):
            raise
        except Exception as error:  # of the disk or of `publish`: told to Spark, which repeats
            _log.exception("the gateway could not do what it was asked")
            await connection.send(m.Refusal(code="failed", reason=f"in the gateway: {error}"))

    async def _reply(self, request: m.Request) -> m.Reply:
        match request:
            case m.Commit():
                return await self._feed.commit(request)
            case m.Abort():
                return await self._feed.abort(request)
            case m.Finish():
                return await self._feed.finish(request.stream)
            case m.Describe():
                return self._collect.describe(request.stream)
            case m.Oldest():
                return self._collect.oldest(request)
            case m.Latest():
                return await self._collect.latest(request)
            case m.Ack():
                return self._collect.acknowledge(request)
            case m.Release():
                self._released.set()
                return m.Ok()
            case _:
                raise WireError(f"a {type(request).__name__} out of place")

    async def _wait_for_the_end(self, connection: Connection) -> None:
        while not self._complete.is_set():
            await connection.send(m.Wait())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._complete.wait(), self._limits.wait_period_s)
        await connection.send(m.Ok())

    async def _stage(self, connection: Connection, request: m.Stage, schema: bytes) -> None:
        """Take one part. What is wrong with it is said at its end, when it is listened to."""
        receiver = await self._begin(connection, request, schema)
        if receiver is None:
            await connection.send(m.Skip())
            return
        try:
            await connection.send(m.Ok())
            while True:
                message, body = await connection.receive()
                if isinstance(message, m.Staged):
                    break
                if not isinstance(message, m.Rows):
                    raise WireError(f"a {type(message).__name__} in the middle of a part")
                for _ in receiver.take(body):
                    await asyncio.sleep(0)
            await connection.send(await self._feed.stage(receiver, message))
        finally:
            receiver.discard()

    async def _begin(
        self, connection: Connection, request: m.Stage, schema: bytes
    ) -> Receiver | None:
        told_s = 0.0
        self._waiting += 1
        try:
            while self._feed.is_behind(request.stream):
                if clock.monotonic() - told_s >= self._limits.wait_period_s:
                    told_s = clock.monotonic()
                    await connection.send(m.Wait())
                await asyncio.sleep(_BEHIND_POLL_S)
        finally:
            self._waiting -= 1
        return await self._feed.begin(request, schema)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._limits.sweep_period_s)
            try:
                for folder in self._told_in:
                    if keep_place(folder, self._address, self._token):
                        _log.warning("%s was removed, and is written again", folder / GATEWAY_FILE)
                await self._feed.sweep()
            except Exception:  # publishing may fail; it is tried again next time
                _log.exception("the gateway's sweep failed")


def _lock(state: Path) -> File:
    lock = store().open(state / "lock", os.O_RDWR | os.O_CREAT)
    if not lock.lock(wait=False):
        lock.close()
        raise GatewayError(f"another gateway serves {state}; stop it first")
    return lock
