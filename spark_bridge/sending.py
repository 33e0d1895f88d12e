"""Spark's side of the feed: one task's record batches to the gateway."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from anabranch.runtime.columns.tables import pieces
from anabranch.spark_bridge.client import reach
from anabranch.spark_bridge.messages import Ok, Rows, Skip, Stage, Staged
from anabranch.spark_bridge.options import Options
from anabranch.spark_bridge.wire import BODY_BYTES_MAX, WireError

_PIECE_BYTES_GOOD = 8 * 2**20


class Batch(NamedTuple):
    """What a Spark batch is known by: the same when Spark repeats it, but for the run."""

    query: str
    run: str
    epoch: int


@dataclass(frozen=True)
class Sent(WriterCommitMessage):
    """What a task tells the driver: enough to commit, for the driver keeps nothing itself."""

    batch: Batch
    partition: int
    token: str
    rows: int
    skipped: bool


def streaming_batch() -> Batch | None:
    """The micro-batch that this task belongs to; None outside of a streaming query.

    The data source interface does not tell it to `write`; Spark's scheduler does.
    """
    context = _task()
    query = context.getLocalProperty("sql.streaming.queryId")
    epoch = context.getLocalProperty("streaming.sql.batchId")
    run = context.getLocalProperty("spark.jobGroup.id")
    if not query or not epoch or not run:
        return None
    return Batch(query, run, int(epoch))


def send(options: Options, batch: Batch, batches: Iterator[pa.RecordBatch]) -> Sent:
    """Stage this task's part. If the batch was committed before, nothing is sent."""
    context = _task()
    token = f"{context.stageId()}.{context.attemptNumber()}.{uuid.uuid4().hex}"
    first = next(batches, None)
    schema = (first.schema if first is not None else pa.schema([])).serialize()
    stage = Stage(
        stream=options.stream,
        query=batch.query,
        run=batch.run,
        epoch=batch.epoch,
        partition=context.partitionId(),
        token=token,
        shape=options.rows,
    )
    with reach(options.place, options.patience_s) as link:
        answer, _ = link.ask(stage, memoryview(schema))
        if isinstance(answer, Skip):
            for _ in batches:
                pass  # Spark wants its rows to be taken
            return Sent(batch, stage.partition, token, 0, True)
        rows, crc = 0, zlib.crc32(schema)
        while first is not None:
            for piece in pieces(first, _PIECE_BYTES_GOOD):
                if piece.nbytes > BODY_BYTES_MAX - 2**16:
                    most = f"at most {BODY_BYTES_MAX} are taken"
                    raise ValueError(f"a row of {piece.nbytes} bytes; {most}")
                body = memoryview(piece.serialize())
                link.tell(Rows(), body)
                crc = zlib.crc32(body, crc)
                rows += piece.num_rows
            first = next(batches, None)
        done, _ = link.ask(Staged(rows=rows, crc=crc))
        if not isinstance(done, Ok) or done.rows != rows:
            raise WireError(f"the gateway did not confirm {rows} staged rows, but said {done}")
    return Sent(batch, stage.partition, token, rows, False)


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("this runs inside of Spark tasks only")
    return context
