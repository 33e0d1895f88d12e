"""A pipeline as a stream: a query of Spark's Structured Streaming, batch after batch.

Each batch is a job as in `running`, which begins with what the stations have kept and ends with
what they keep. Spark numbers the batches, and a batch that is done is not done twice: it is
committed in the folder of the stream (`state`) behind its results, and Spark repeats at most one.
"""

from __future__ import annotations

import secrets
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Sink, Split
from anabranch.runtime.plan.spec import Span
from anabranch.runtime.savepoint.folder import Savepoint, SavepointError
from anabranch.runtime.savepoint.inputs import Position, positions_of
from anabranch.runtime.savepoint.versions import STATE_FORMAT
from anabranch.runtime.sources.generate import Generate
from anabranch.runtime.storage.patience import describe_refusal, remedy
from anabranch.runtime.storage.state_folder import inputs_in_words
from anabranch.spark_engine import frames, savepoints
from anabranch.spark_engine.delivering import deliver
from anabranch.spark_engine.ends import SparkRows
from anabranch.spark_engine.failing import JobFailed, told
from anabranch.spark_engine.job import Job, job_of
from anabranch.spark_engine.report import SparkReport
from anabranch.spark_engine.rows import COLUMNS, Kind
from anabranch.spark_engine.shipping import shipped
from anabranch.spark_engine.state import Commit, JobRecord, StateFolder, check_same
from anabranch.spark_engine.targets import Targets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SPLITS_PER_PARTITION = 4
SLICES_PER_BATCH = 10
"""Of a source with a rate: a second's worth."""
_LOOK_S = 0.2
_FED_EVERY = "1 second"
"""Where rows come when they come, batches without any would follow each other without a pause."""


def stream(
    pipeline: Pipeline,
    session: SparkSession,
    inputs: Mapping[str, DataFrame],
    *,
    partitions: int,
    state: Path | None,
    duration_s: float | None = None,
    begin_from: Path | None = None,
    until_committed: bool = False,
) -> SparkReport:
    """Run until the input has ended; see `running.run`."""
    temporary = Path(tempfile.mkdtemp(prefix="anabranch-stream-")) if state is None else None
    wish = Wish(duration_s, until_committed)
    try:
        savepoint = savepoints.opened(pipeline, begin_from, inputs)
        if until_committed:
            savepoints.check_stop(pipeline, state, inputs)
        with StateFolder(state or temporary or Path()).held() as folder:
            return _prepared(pipeline, session, inputs, folder, partitions, savepoint, wish).run()
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _prepared(
    pipeline: Pipeline,
    session: SparkSession,
    inputs: Mapping[str, DataFrame],
    folder: StateFolder,
    partitions: int,
    savepoint: Savepoint | None,
    wish: Wish,
) -> Batches:
    if folder.ended:
        folder.clear()
    if folder.begun:
        partitions = folder.job().partitions  # by these the state is divided
    passed_s = 0.0 if savepoint is None else savepoint.head.passed_s
    started_s = folder.job().started_s if folder.begun else time.time() - passed_s
    counted_to = None if savepoint is None else savepoint.head.counted_to
    counted_to = folder.job().counted_to if folder.begun else counted_to
    span = None if counted_to is None else Span(counted_to)
    job = job_of(pipeline, partitions=partitions, started_s=started_s, paced=True, span=span)
    tag = folder.job().tag if folder.begun else secrets.token_hex(4)
    stations = [*job.plan.stations]
    record = JobRecord(
        STATE_FORMAT,
        pipeline.name,
        stations,
        pipeline.groups,
        partitions,
        started_s,
        tag,
        counted_to,
        {**inputs_in_words(pipeline.inputs), **{name: [] for name in inputs}},
        wish.until_committed,
    )
    data, targets = shipped(job), Targets(pipeline, tag)
    if folder.begun:
        check_same(folder.job(), record, folder.path)
        folder.check_whole()
        wish = replace(wish, until_committed=wish.until_committed or folder.job().until_committed)
        for sink in _sinks(pipeline):
            sink.prepare_to_resume()
    else:
        _begin(pipeline, session, inputs, job, folder, targets, record, savepoint, wish)
    return Batches(pipeline, session, inputs, job, data, folder, targets, wish)


def _begin(
    pipeline: Pipeline,
    session: SparkSession,
    inputs: Mapping[str, DataFrame],
    job: Job,
    folder: StateFolder,
    targets: Targets,
    record: JobRecord,
    savepoint: Savepoint | None,
    wish: Wish,
) -> None:
    """A stream that is not there yet."""
    if wish.until_committed and folder.savepoint.exists():
        raise SavepointError(
            f"state folder {str(folder.path)!r} holds a savepoint already: begin from it with "
            "--from and another --state, or move it away"
        )
    begun = positions_of(pipeline, savepoint)
    splits = {
        name: [*begun.get(name, Position()).rest(name, source)]
        for name, source in _sources(pipeline, inputs).items()
        if source.bounded
    }
    targets.prepare(adds=savepoint is not None)
    folder.empty(record)
    if savepoint is not None:
        rows = frames.frame_of_rows(session, savepoints.state_rows(job, savepoint))
        rows.write.mode("overwrite").parquet(folder.kept(-1))
    folder.begin(record, splits, targets.positions(), begun)


def _sinks(pipeline: Pipeline) -> Iterator[Sink]:
    return (o.sink for o in pipeline.operators.values() if o.sink is not None)


def _sources(pipeline: Pipeline, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are read by splits, by name."""
    found: dict[str, Any] = {}
    for operator in pipeline.operators.values():
        source = operator.source
        ours = source is not None and not isinstance(source, SparkRows)
        if ours and operator.name not in inputs:
            assert source is not None
            source.prepare()
            found[operator.name] = source
    return found


@dataclass(frozen=True, slots=True)
class Wish:
    """When a stream ends, and whether it is to go on elsewhere then."""

    duration_s: float | None
    until_committed: bool


class Batches:
    """What is called by Spark for each batch."""

    def __init__(
        self,
        pipeline: Pipeline,
        session: SparkSession,
        inputs: Mapping[str, DataFrame],
        job: Job,
        data: bytes,
        folder: StateFolder,
        targets: Targets,
        wish: Wish,
    ) -> None:
        self._pipeline = pipeline
        self._session = session
        self._job = job
        self._data = data
        self._folder = folder
        self._targets = targets
        self._duration_s = wish.duration_s
        self._saves = wish.until_committed
        self._order: list[str] = [
            o.name for o in pipeline.operators.values() if o.source is not None
        ]
        self._frames = _frames(pipeline, session, inputs)
        self._splits = _Splits(_sources(pipeline, inputs), folder, job.partitions)
        self._began = time.monotonic()
        self._first_s: float | None = None
        """When the first batch began, from which on the duration counts."""
        self._ending = threading.Event()
        self._ended = threading.Event()

    def run(self) -> SparkReport:
        query = self._query()
        try:
            with self._interrupts():
                while query.isActive and not self._ended.is_set():
                    self._ended.wait(_LOOK_S)
            error = query.exception()
        finally:
            query.stop()
            self._targets.close()
        report = self._report(self._folder.last())
        if error is not None:
            raise JobFailed(told(error), report)
        if self._folder.is_to_save:
            try:
                self._save()
            except OSError as refused:
                what = f"the savepoint could not be written: {describe_refusal(refused)}"
                kept = f"{what}; the run is kept: {remedy(refused)}, and resume it (--resume)"
                raise JobFailed(kept, report) from refused
        report.judge(self._pipeline, ended=True)
        if not report.ok:
            raise JobFailed(report.failure, report)
        return report

    @contextmanager
    def _interrupts(self) -> Iterator[None]:
        """The first Ctrl-C ends the input, and what was read is finished; a second one raises.
        PySpark's handler would end the jobs of the batch that is at work."""
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(before):
            yield
            return

        def note(*_: object) -> None:
            if self._ending.is_set():
                raise KeyboardInterrupt
            self._ending.set()

        signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _query(self) -> StreamingQuery:
        """Rows of streaming frames, and ticks: batches that come whether there are rows or not, so
        that the input can end between two of them."""
        ticks = self._session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1)
        rows = frames.frame_of_ticks(ticks.load())
        for name, frame in self._frames.items():
            if frame.isStreaming:
                rows = rows.unionAll(self._of_frame(name, frame))
        writer = rows.writeStream.foreachBatch(self._batch)
        writer = writer.option("checkpointLocation", self._folder.checkpoint)
        if self._is_fed:
            writer = writer.trigger(processingTime=_FED_EVERY)
        return writer.start()

    def _of_frame(self, name: str, frame: DataFrame) -> DataFrame:
        return frames.frame_of_table(frame, self._job.plan, name, self._order.index(name))

    def _batch(self, frame: DataFrame, number: int) -> None:
        last = self._folder.last()
        if last.ended:
            self._ended.set()
        if number <= last.batch or last.ended:
            return
        self._targets.rewind(last.positions, number)
        self._targets.begin(number)
        ending = self._ending.is_set() or self._is_over()
        taken, splits = (dict(last.taken), {}) if ending else self._splits.following(last.taken)
        ends = ending or (self._splits.exhausted(taken) and not self._is_fed)
        rows, saves = self._rows(frame, number, last, splits), ends and self._saves
        done = frames.carried_out(self._job, self._data, rows, ends=ends and not saves)
        report = self._report(last)
        deliver(self._pipeline, self._job, done, self._targets, report)
        frames.of_kinds(done, Kind.KEPT).write.mode("overwrite").parquet(self._folder.kept(number))
        counts = {name: dict(c) for name, c in report.operators.items()}
        positions = self._targets.positions()
        self._folder.commit(Commit(number, positions, taken, counts, ends, saves))
        report.judge(self._pipeline, ended=False)
        if report.failure or ends:
            self._ended.set()

    def _save(self) -> None:
        """What the last batch has kept, and how far sources are read."""
        last = self._folder.last()
        kept = self._session.read.schema(COLUMNS).parquet(self._folder.kept(last.batch))
        positions = {name: self._splits.position(name, taken) for name, taken in last.taken.items()}
        savepoints.write(
            self._folder.savepoint,
            self._pipeline,
            self._job,
            frames.rows_in(kept.orderBy("to", "bucket", "lane", "number")),
            positions,
            last.counts,
            self._folder.job().span,
        )
        self._folder.clear()

    def _is_over(self) -> bool:
        now = time.monotonic()
        self._first_s = now if self._first_s is None else self._first_s
        return self._duration_s is not None and now - self._first_s > self._duration_s

    @property
    def _is_fed(self) -> bool:
        return any(frame.isStreaming for frame in self._frames.values())

    def _rows(
        self,
        frame: DataFrame,
        number: int,
        last: Commit,
        splits: Mapping[str, Mapping[int, Split]],
    ) -> DataFrame:
        """All that goes into a batch."""
        from pyspark.sql.functions import lit

        job, rows = self._job, frames.begins(self._job)
        for name, theirs in splits.items():
            order = self._order.index(name)
            rows += frames.split_rows(job.plan, name, order, theirs, job.partitions)
        together = frames.frame_of_rows(self._session, rows)
        if last.kept:
            kept = self._session.read.schema(COLUMNS).parquet(self._folder.kept(last.batch))
            state = kept.withColumn("kind", lit(int(Kind.STATE)))
            together = together.unionByName(state)
        for name, fixed in self._frames.items():
            if not fixed.isStreaming and number == 0:
                together = together.unionAll(self._of_frame(name, fixed))
        return together.unionAll(frame) if self._is_fed else together

    def _report(self, last: Commit) -> SparkReport:
        report = SparkReport(self._pipeline.name, "stream", batches=last.batch + 1)
        report.add(last.counts)
        report.wall_s = time.monotonic() - self._began
        return report


class _Splits:
    """The splits of the sources in their order, a batch's worth at a time."""

    def __init__(self, sources: Mapping[str, Any], folder: StateFolder, partitions: int) -> None:
        self._fixed = folder.splits()
        self._begun = folder.begun_at()
        self._endless = {name: s for name, s in sources.items() if name not in self._fixed}
        self._paced = {n for n, s in sources.items() if isinstance(s, Generate) and s.rate}
        self._partitions = partitions
        self._iterators: dict[str, tuple[int, Iterator[Split]]] = {}

    def following(
        self, taken: Mapping[str, int]
    ) -> tuple[dict[str, int], dict[str, dict[int, Split]]]:
        """How many of each are taken afterwards, and the next ones by their numbers."""
        after, found = dict(taken), dict[str, dict[int, Split]]()
        for name in [*self._fixed, *self._endless]:
            start = taken.get(name, 0)
            most = SPLITS_PER_PARTITION * self._partitions
            count = SLICES_PER_BATCH if name in self._paced else most
            some = self._some(name, start, count)
            found[name] = {start + n: split for n, split in enumerate(some)}
            after[name] = start + len(some)
        return after, found

    def _some(self, name: str, start: int, count: int) -> list[Split]:
        if name in self._fixed:
            return self._fixed[name][start : start + count]
        at, iterator = self._iterators.get(name, (-1, iter(())))
        if at != start:  # another driver has taken those before
            iterator = islice(self._rest(name), start, None)
        some = [*islice(iterator, count)]
        self._iterators[name] = start + len(some), iterator
        return some

    def _rest(self, name: str) -> Iterator[Split]:
        return self._begun.get(name, Position()).rest(name, self._endless[name])

    def position(self, name: str, taken: int) -> Position:
        """When so many splits were taken."""
        begun = self._begun.get(name, Position())
        if name in self._fixed:
            return begun.behind(self._fixed[name][:taken])
        return begun.behind([*islice(self._rest(name), taken)])

    def exhausted(self, taken: Mapping[str, int]) -> bool:
        return not self._endless and all(
            taken.get(name, 0) >= len(splits) for name, splits in self._fixed.items()
        )


def _frames(
    pipeline: Pipeline, session: SparkSession, inputs: Mapping[str, DataFrame]
) -> dict[str, DataFrame]:
    found = dict(inputs)
    for operator in pipeline.operators.values():
        if isinstance(operator.source, SparkRows) and operator.name not in found:
            found[operator.name] = operator.source.rows(session)
    return found
