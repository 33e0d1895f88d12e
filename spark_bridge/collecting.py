"""The gateway's half that serves results to Spark: the same rows at every call, until they are
acknowledged by every subscriber.

A subscriber is a name that a Spark query gives itself. It appears when it first asks where to
begin, or acknowledges, and from then on rows are kept for it. As long as a stream has no
subscriber, nothing is deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from anabranch.runtime.columns.schemas import arrow_schema
from anabranch.runtime.ports.disk import store
from anabranch.runtime.storage.replaced import replace_file
from anabranch.spark_bridge.durable import sealed, unsealed
from anabranch.spark_bridge.gateway_limits import GatewayLimits
from anabranch.spark_bridge.log import StreamInfo, claim_stream, read_stream, stream_dir
from anabranch.spark_bridge.log_reader import Slice, StreamLog
from anabranch.spark_bridge.messages import (
    Ack,
    Block,
    Description,
    Fetch,
    Latest,
    Offsets,
    Ok,
    Oldest,
)
from anabranch.spark_bridge.wire import Refused

_ACKS_FILE = "acks.json"


class _CollectedStream:
    def __init__(self, folder: Path, info: StreamInfo) -> None:
        self.info = info
        self.schema: pa.Schema = arrow_schema(info.schema, sparks=True)
        self.log = StreamLog(folder)
        self.served: dict[str, int] = {}
        """Up to which row each part was handed out, to whomever."""
        self._acks_path = folder / _ACKS_FILE
        self.acks: dict[str, dict[str, int]] = {}
        with contextlib.suppress(FileNotFoundError):
            self.acks = unsealed(self._acks_path)

    def acknowledge(self, subscriber: str, parts: Mapping[str, int]) -> None:
        known = self.acks.setdefault(subscriber, {})
        for part, row in parts.items():
            known[part] = max(row, known.get(part, 0))
        self.log.drop_below(self._low())
        self._save_acks()

    def uncollected(self) -> int:
        """Rows that no query has fetched or acknowledged."""
        self.log.refresh()
        taken = [self.served, *self.acks.values()]
        return sum(
            max(end - max(t.get(part, 0) for t in taken), 0)
            for part, end in self.log.ends().items()
        )

    def _low(self) -> dict[str, int]:
        if not self.acks:
            return {}
        return {part: min(a.get(part, 0) for a in self.acks.values()) for part in self.log.ends()}

    def _save_acks(self) -> None:
        there = self.log.ends()  # parts that were deleted need no acknowledgement any more
        self.acks = {
            subscriber: {part: row for part, row in known.items() if part in there}
            for subscriber, known in self.acks.items()
        }
        self.served = {part: row for part, row in self.served.items() if part in there}
        replace_file(self._acks_path, sealed(self.acks))


class Collect:
    """All result streams of a state folder.

    `declared`: stream -> DDL schema, for the streams that the pipeline will write; others are
    served if the folder holds results of them.
    """

    def __init__(self, state: Path, declared: Mapping[str, str], limits: GatewayLimits) -> None:
        self._state = state
        self._limits = limits
        self._streams: dict[str, _CollectedStream] = {}
        for name, schema in declared.items():
            folder = stream_dir(state, name)
            self._streams[name] = _CollectedStream(folder, claim_stream(folder, schema))

    def describe(self, stream: str) -> Description:
        info = self._stream(stream).info
        return Description(schema=info.schema, generation=info.generation)

    def oldest(self, request: Oldest) -> Offsets:
        stream = self._stream(request.stream)
        stream.log.refresh()
        begins = stream.log.begins()
        if request.subscriber is not None:
            stream.acknowledge(request.subscriber, begins)
        return Offsets(generation=stream.info.generation, parts=begins)

    async def latest(self, request: Latest) -> Offsets:
        stream = self._stream(request.stream)
        patience = request.wait_ms / 1000
        while True:
            stream.log.refresh()
            ends = stream.log.ends()
            if ends != request.known or patience <= 0:
                return Offsets(generation=stream.info.generation, parts=ends)
            await asyncio.sleep(self._limits.poll_s)
            patience -= self._limits.poll_s

    def acknowledge(self, request: Ack) -> Ok:
        stream = self._generation(request.stream, request.generation)
        stream.log.refresh()
        stream.acknowledge(request.subscriber, request.parts)
        return Ok()

    def fetch(self, request: Fetch) -> Iterator[tuple[Block, bytes]]:
        """The Arrow schema, record batches, and a last block without a body."""
        stream = self._generation(request.stream, request.generation)
        stream.log.refresh()
        slices = stream.log.slices(request.part, request.start, request.end)
        picked = self._picked(stream, request.columns)
        schema = pa.schema([stream.schema.field(i) for i in picked])
        yield Block(rows=0), schema.serialize().to_pybytes()
        for batch in self._joined(slices, stream.schema):
            body = batch.select(picked).serialize().to_pybytes()
            yield Block(rows=batch.num_rows), body
        served = stream.served
        served[request.part] = max(request.end, served.get(request.part, 0))
        yield Block(rows=request.end - request.start, last=True), b""

    def uncollected(self) -> int:
        return sum(s.uncollected() for s in self._streams.values())

    def _joined(self, slices: Iterator[Slice], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Slices put together to blocks of a good size for Spark."""
        found: list[pa.RecordBatch] = []
        rows = size = 0
        for one in slices:
            batch = pa.ipc.read_record_batch(pa.py_buffer(one.payload), schema)
            found.append(batch.slice(one.skip, one.rows))
            rows += one.rows
            size += len(one.payload)
            if rows >= self._limits.block_rows or size >= self._limits.block_bytes:
                yield pa.concat_batches(found)
                found, rows, size = [], 0, 0
        if found:
            yield pa.concat_batches(found)

    def _picked(self, stream: _CollectedStream, names: Sequence[str]) -> list[int]:
        if not names:
            return list(range(len(stream.schema)))
        known = {name.lower(): i for i, name in enumerate(stream.schema.names)}
        if missing := [n for n in names if n.lower() not in known]:
            raise Refused(
                "schema",
                f"the stream has no column {missing[0]!r}; its schema is {stream.info.schema!r}",
            )
        return [known[n.lower()] for n in names]

    def _generation(self, name: str, generation: str) -> _CollectedStream:
        stream = self._stream(name)
        if stream.info.generation != generation:
            raise Refused(
                "generation",
                f"the results of stream {name!r} are not those that the query's checkpoint is "
                "about: the state folder was emptied or replaced. Begin with a new "
                "checkpoint, or bring back the old folder",
            )
        return stream

    def _stream(self, name: str) -> _CollectedStream:
        if name not in self._streams:
            folder = stream_dir(self._state, name)
            if not store().is_folder(folder):
                known = ", ".join(sorted(self._streams)) or "none"
                raise Refused(
                    "unknown_stream",
                    f"no sink of the pipeline writes stream {name!r}; collected: {known}",
                )
            self._streams[name] = _CollectedStream(folder, read_stream(folder))
        return self._streams[name]
