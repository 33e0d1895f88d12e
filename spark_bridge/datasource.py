"""The Spark data source "anabranch", found by PySpark through `pyspark_anabranch`.

    df.writeStream.format("anabranch").option("run", folder).option("stream", "lines")...
    spark.readStream.format("anabranch").option("run", folder).option("stream", "counts")...

and `df.write`, `spark.read` for what is not endless. PySpark calls these classes in several
processes: writers and readers are pickled, so they hold values only.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from anabranch.spark_bridge.admission import RowRange, admit, plan
from anabranch.spark_bridge.client import Caller, GatewayLost, Link, reach
from anabranch.spark_bridge.messages import (
    Abort,
    Ack,
    Block,
    Commit,
    Describe,
    Description,
    Fetch,
    Finish,
    Latest,
    Offsets,
    Oldest,
)
from anabranch.spark_bridge.options import OptionError, Options
from anabranch.spark_bridge.sending import Batch, Sent, send, streaming_batch
from anabranch.spark_bridge.wire import Refused, WireError

Offset = dict[str, Any]
Messages = Sequence[WriterCommitMessage | None]


class AnabranchDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "anabranch"

    def schema(self) -> str:
        if given := self.options.get("schema"):
            return given
        options = Options.of(self.options)
        reply = Caller(options.place, options.patience_s).ask(Describe(stream=options.stream))
        assert isinstance(reply, Description)
        return reply.schema

    def reader(self, schema: StructType) -> TableReader:
        return TableReader(Options.of(self.options), schema)

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: N802
        return LogStreamReader(Options.of(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> TableWriter:
        if overwrite:
            raise OptionError("a pipeline cannot take rows back: use mode('append')")
        return TableWriter(Options.of(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> LogStreamWriter:  # noqa: N802
        if overwrite:
            raise OptionError("a pipeline cannot take rows back: use outputMode('append')")
        options = Options.of(self.options)
        if options.final:
            raise OptionError(
                "option final is for batch writes; after a streaming query has ended, "
                "call ab.spark.finish(run, stream)"
            )
        return LogStreamWriter(options)


# --- feed --------------------------------------------------------------------------------------


def _commit(options: Options, messages: Messages) -> None:
    sent = [m for m in messages if isinstance(m, Sent)]
    if not sent:
        # No task ran, so nothing was staged; Spark may repeat this as it likes.
        if options.final:
            Caller(options.place, options.patience_s).ask(Finish(stream=options.stream))
        return
    batch = sent[0].batch
    request = Commit(
        stream=options.stream,
        query=batch.query,
        run=batch.run,
        epoch=batch.epoch,
        parts=[(m.partition, m.token) for m in sent if not m.skipped],
        final=options.final,
    )
    with contextlib.closing(Caller(options.place, options.patience_s)) as caller:
        caller.ask(request)


def _abort(options: Options, messages: Messages) -> None:
    """Best effort: what stays behind is dropped by the next commit, run, or after a while."""
    sent = [m for m in messages if isinstance(m, Sent)]
    if not sent:
        return
    batch = sent[0].batch
    parts = [(m.partition, m.token) for m in sent if not m.skipped]
    with (
        contextlib.suppress(GatewayLost, Refused, WireError),
        contextlib.closing(Caller(options.place, 0.0)) as caller,
    ):
        caller.ask(Abort(query=batch.query, run=batch.run, epoch=batch.epoch, parts=parts))


class LogStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Options) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batch = streaming_batch()
        if batch is None:
            raise RuntimeError("Spark does not say which micro-batch this is: version too old?")
        return send(self.options, batch, iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        _commit(self.options, messages)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        _abort(self.options, messages)


class TableWriter(DataSourceArrowWriter):
    """A batch write is a query of one batch. With a `writeId` it can be repeated, for instance
    in `foreachBatch`, where it stands for that batch of the query."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.unique = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return send(self.options, self._batch(), iterator)

    def commit(self, messages: Messages) -> None:
        _commit(self.options, messages)

    def abort(self, messages: Messages) -> None:
        _abort(self.options, messages)

    def _batch(self) -> Batch:
        name = self.options.write_id
        if name is None:
            return Batch(f"write:{self.unique}", self.unique, 0)
        around = streaming_batch()
        if around is None:
            return Batch(f"write:{name}", self.unique, 0)
        return Batch(f"{around.query}:{name}", around.run, around.epoch)


# --- collect -----------------------------------------------------------------------------------


@dataclass
class Share(InputPartition):
    """The rows that one task reads."""

    generation: str
    ranges: list[RowRange]


class TableReader(DataSourceReader):
    """All rows that there are when the query is planned."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        stream = self.options.stream
        with contextlib.closing(Caller(self.options.place, self.options.patience_s)) as caller:
            begin, end = caller.ask(Oldest(stream=stream)), caller.ask(Latest(stream=stream))
        assert isinstance(begin, Offsets)
        assert isinstance(end, Offsets)
        shares = plan(begin.parts, end.parts, self.options.tasks, self.options.rows_per_task)
        return [Share(end.generation, ranges) for ranges in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _fetch(self.options, self.schema, partition)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self._caller = Caller(options.place, options.patience_s)
        self._target: dict[str, int] | None = None
        """Where an `availableNow` query ends."""

    def initialOffset(self) -> Offset:  # noqa: N802
        stream, subscriber = self.options.stream, self.options.subscriber
        reply = self._caller.ask(Oldest(stream=stream, subscriber=subscriber))
        if self.options.from_latest:
            reply = self._caller.ask(Latest(stream=stream))
        assert isinstance(reply, Offsets)
        return {"generation": reply.generation, "parts": reply.parts}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows = self.options.rows_per_trigger
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._latest({}, 0).parts

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        end = self._target
        if end is None:
            latest = self._latest(start["parts"], self.options.poll_wait_ms)
            if latest.generation != start["generation"]:
                raise Refused("generation", _OTHER_LOG.format(self.options.stream))
            end = latest.parts
        if isinstance(limit, ReadMaxRows):
            end = admit(start["parts"], end, limit.max_rows)
        return {"generation": start["generation"], "parts": end}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        shares = plan(start["parts"], end["parts"], self.options.tasks, self.options.rows_per_task)
        return [Share(end["generation"], ranges) for ranges in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _fetch(self.options, self.schema, partition)

    def commit(self, end: Offset) -> None:
        options = self.options
        self._caller.ask(
            Ack(
                stream=options.stream,
                subscriber=options.subscriber,
                generation=end["generation"],
                parts=end["parts"],
            )
        )

    def stop(self) -> None:
        self._caller.close()

    def _latest(self, known: dict[str, int], wait_ms: int) -> Offsets:
        reply = self._caller.ask(Latest(stream=self.options.stream, known=known, wait_ms=wait_ms))
        assert isinstance(reply, Offsets)
        return reply


_OTHER_LOG = (
    "the results of stream {!r} are not those that this query's checkpoint is about; begin with a "
    "new checkpoint, or bring back the old state folder"
)


def _fetch(options: Options, schema: StructType, share: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(share, Share):
        return  # Spark's stand-in for a table without rows
    wanted = to_arrow_schema(schema, timezone="UTC")
    with reach(options.place, options.patience_s) as link:
        for part, start, end in share.ranges:
            request = Fetch(
                stream=options.stream,
                generation=share.generation,
                part=part,
                start=start,
                end=end,
                columns=wanted.names,
            )
            rows = 0
            for batch in _blocks(link, request):
                rows += batch.num_rows
                yield _as(batch, wanted)
            if rows != end - start:
                raise WireError(f"{rows} rows came instead of {end - start}")


def _blocks(link: Link, request: Fetch) -> Iterator[pa.RecordBatch]:
    _, data = link.ask(request)
    schema = pa.ipc.read_schema(pa.py_buffer(data))
    while True:
        reply, data = link.hear()
        if not isinstance(reply, Block):
            raise WireError(f"expected a block of rows, got {type(reply).__name__}")
        if reply.last:
            return
        yield pa.ipc.read_record_batch(pa.py_buffer(data), schema)


def _as(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Spark insists on the very schema, to the nullability of nested fields."""
    if batch.schema.equals(wanted):
        return batch
    columns = [c.cast(f.type) for c, f in zip(batch.columns, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)
