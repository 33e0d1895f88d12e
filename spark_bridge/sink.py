"""The sink that Spark collects: `ab.spark.collect("counts", "word string, n long")`."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.runtime.columns.schemas import SchemaError, arrow_schema, check_schema
from anabranch.runtime.pipeline.names import check_name
from anabranch.runtime.plan.ends import DeadLetter, ExactWriter, RunContext, Sink
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store
from anabranch.runtime.values.checks import PipelineError
from anabranch.spark_bridge.durable import make_folder
from anabranch.spark_bridge.frames import framed
from anabranch.spark_bridge.gateway_ends import CollectEnd
from anabranch.spark_bridge.log import claim_stream, log_bytes, stream_dir
from anabranch.spark_bridge.part_writer import PartWriter
from anabranch.spark_bridge.places import forget_ended, state_dir
from anabranch.spark_bridge.service import GATEWAY, check_packages

_FRAME_BYTES_GOOD = 2**20
_LOOK_EVERY_BYTES = 2**22
_LOOK_EVERY_S = 1.0
_FULL_POLL_S = 0.05


@dataclass(frozen=True)
class SparkCollect(CollectEnd, Sink):
    """Results that Spark reads as a table or a stream with `schema`, a DDL text.

    A tuple is a dict by column name, a tuple or list by position, or for one column the bare
    value; one that does not fit becomes a dead letter. `log_bytes_max`: if so much lies there
    that no Spark query has acknowledged, the pipeline waits. `segment_bytes_max`: results are
    deleted in pieces of this size. `sync`: results count as delivered only when they would
    survive a power cut. `state`: folder to keep the results beyond one run (default: in the run's).
    `listen`: `host:port` of the gateway (default: 127.0.0.1, any port); all ends of a pipeline
    share one.
    """

    stream: str
    schema: str
    log_bytes_max: int = 4 * 2**30
    segment_bytes_max: int = 32 * 2**20
    sync: bool = False
    state: str | Path | None = None
    listen: str | None = None

    service = GATEWAY
    exact = True

    def __post_init__(self) -> None:
        check_name("stream", self.stream)
        try:
            check_schema(self.schema, sparks=True)
        except SchemaError as error:
            raise PipelineError(f"collect {self.stream!r}: {error}") from None
        if self.log_bytes_max < 1 or self.segment_bytes_max < 1:
            raise PipelineError(f"collect {self.stream!r}: sizes must be 1 byte or more")

    @property
    def resumable(self) -> bool:
        return self.state is not None

    def prepare(self) -> None:
        check_packages()
        if self.state is not None:
            forget_ended(Path(self.state))
            folder = stream_dir(Path(self.state), self.stream)
            make_folder(folder)

    def prepare_to_resume(self) -> None:
        """Results that Spark had not collected would be missing, and no message would say so."""
        if self.state is None:  # not `resumable`
            raise PipelineError(
                f"collect {self.stream!r}: results that Spark had not collected are gone with the "
                "folder of the run, so it cannot go on; begin anew with --fresh, and name a folder "
                "that outlives the run with state=..."
            )
        folder = stream_dir(Path(self.state), self.stream)
        if not store().is_folder(folder):
            raise FileNotFoundError(
                errno.ENOENT,
                "cannot go on writing results: the folder is gone; put it back, or begin a new run",
                str(folder),
            )
        self.prepare()

    def open(self, context: RunContext) -> LogWriter:
        folder = stream_dir(state_dir(context.run_dir, self.state), self.stream)
        return LogWriter(self, folder, context)


class LogWriter(ExactWriter):
    """Appends to this instance's own part of the log. Raises `OSError` if the disk refuses."""

    def __init__(self, sink: SparkCollect, folder: Path, context: RunContext) -> None:
        self._sink = sink
        self._folder = folder
        claim_stream(folder, sink.schema)
        self._sync = sink.sync or context.durable == "power"
        self._part = PartWriter(
            folder,
            context.instance,
            context.lasting_dir / "parts" / f"{sink.stream}.{context.instance}",
            sink.segment_bytes_max,
            sync=self._sync,
        )
        self._schema = arrow_schema(sink.schema, sparks=True)
        self._unseen_bytes = 0
        self._looked_s = -_LOOK_EVERY_S

    def stage(self, tuples: list[Any]) -> tuple[bytes, list[DeadLetter]]:
        """In pieces of about a mebibyte, so that a reader need not hold much at once."""
        from anabranch.runtime.columns.tables import pieces, table_of

        table, dead = table_of(tuples, self._schema, as_spark=True)
        frames = [
            framed(piece.serialize().to_pybytes(), piece.num_rows)
            for batch in (table.to_batches() if table is not None else ())
            for piece in pieces(batch, _FRAME_BYTES_GOOD)
        ]
        return b"".join(frames), dead

    async def put(self, number: int, data: bytes) -> None:
        await self._wait_for_room()
        if self._sync:
            await store().in_thread(lambda: self._part.put(number, data))
        else:
            self._part.put(number, data)
        self._unseen_bytes += len(data)

    def last_put(self) -> int:
        return self._part.number

    async def close(self) -> None:
        self._part.close()

    async def _wait_for_room(self) -> None:
        now = clock.monotonic()
        if self._unseen_bytes < _LOOK_EVERY_BYTES and now - self._looked_s < _LOOK_EVERY_S:
            return
        while log_bytes(self._folder) >= self._sink.log_bytes_max:
            # What was acknowledged can only be deleted when no instance appends to it.
            self._part.roll()
            await asyncio.sleep(_FULL_POLL_S)
        self._unseen_bytes = 0
        self._looked_s = clock.monotonic()
