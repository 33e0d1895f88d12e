"""What the gateway knows of the feed: which batches were committed, staged, shut out. No IO.

Spark repeats itself: a failed task is run again, a restarted query sends its last batch again
under the same query id and epoch, a driver believed dead may still commit. The rules:

* A batch is (query, epoch). It is committed whole or not at all. Epochs of a query only grow, so
  everything up to the last committed epoch is known, and asked again it is skipped.
* Parts are staged beside each other, one per attempt of a Spark task; the commit names those that
  count, and drops the others.
* A query has one living run. A run never seen before shuts out the one before it, for good.
* Aborting forgets staged parts. What was committed stays.

The register changes only by `apply(record)`, live and when the journal is read again after a
restart, and by staged parts, which the disk itself remembers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct

from anabranch.spark_bridge.wire import Refused

FENCED_RUNS_MAX = 64
"""Older runs of a query than so many restarts are no longer told from new ones."""
QUERIES_MAX = 100_000
"""Beyond, the query that committed longest ago is forgotten."""


class SpoolFile(Struct, frozen=True, array_like=True):
    """A spool file: path relative to the feed's folder, rows, bytes."""

    path: str
    rows: int
    bytes: int


class RunBegan(Struct, frozen=True, tag="run", tag_field="kind"):
    query: str
    run: str


class Committed(Struct, frozen=True, tag="commit", tag_field="kind"):
    """The batch and its files: `files[i]` is the stream's split number `first + i`."""

    stream: str
    query: str
    run: str
    epoch: int
    first: int
    files: tuple[SpoolFile, ...]


class InputEnded(Struct, frozen=True, tag="end", tag_field="kind"):
    """The stream's input ended in this run of the pipeline."""

    stream: str
    pipeline_run: str


class QueryKept(Struct, frozen=True, tag="query", tag_field="kind"):
    """A query's state, in a journal written anew."""

    query: str
    run: str
    last_epoch: int
    fenced: tuple[str, ...]


class StreamKept(Struct, frozen=True, tag="stream", tag_field="kind"):
    """A stream's state, in a journal written anew."""

    stream: str
    next_number: int
    unread: dict[int, SpoolFile]


Record = RunBegan | Committed | InputEnded | QueryKept | StreamKept
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def record_bytes(record: Record) -> bytes:
    return _encode(record)


def record_of(payload: bytes) -> Record:
    return _decoder.decode(payload)


@dataclass(frozen=True, slots=True)
class PartKey:
    query: str
    epoch: int
    partition: int
    token: str


@dataclass(frozen=True, slots=True)
class StagedPart:
    """A complete part on disk that waits for its commit. `since_s`: monotonic time."""

    key: PartKey
    run: str
    stream: str
    folder: str
    files: tuple[SpoolFile, ...]
    since_s: float

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.files)

    @property
    def bytes(self) -> int:
        return sum(f.bytes for f in self.files)


@dataclass(slots=True)
class _Query:
    run: str
    last_epoch: int = -1
    fenced: tuple[str, ...] = ()


@dataclass(slots=True)
class _Stream:
    next_number: int = 0
    unread: dict[int, SpoolFile] = field(default_factory=dict)
    """Published splits whose file is not known to be read."""
    ended_in: str | None = None


class FeedRegister:
    def __init__(self) -> None:
        self.queries: dict[str, _Query] = {}
        self.streams: dict[str, _Stream] = {}
        self.staged: dict[PartKey, StagedPart] = {}

    # --- questions -------------------------------------------------------------------------

    def run_record(self, query: str, run: str) -> RunBegan | None:
        """The record to write before anything is done for this run; None if it lives already.

        Raises `Refused` ("fenced") for a run that a newer one has shut out.
        """
        known = self.queries.get(query)
        if known is None or (known.run != run and run not in known.fenced):
            return RunBegan(query, run)
        if known.run == run:
            return None
        raise Refused(
            "fenced",
            f"run {run} of query {query} was replaced by run {known.run}; "
            "two drivers write from one checkpoint, and only the newer one may",
        )

    def check_living(self, query: str, run: str) -> None:
        """Raise `Refused` unless this run has staged here and was not shut out.

        Only staging takes over a query: a run that commits without it is no newer one, but lost.
        """
        if self.run_record(query, run) is not None:
            raise Refused("missing", f"run {run} of query {query} has staged nothing here")

    def is_committed(self, query: str, epoch: int) -> bool:
        known = self.queries.get(query)
        return known is not None and epoch <= known.last_epoch

    def commit_record(
        self, stream: str, query: str, run: str, epoch: int, parts: Iterable[tuple[int, str]]
    ) -> Committed:
        """The record that commits these staged parts, in the order of their partitions.

        Raises `Refused` ("missing") unless every part is staged for this stream and run, and
        ("bad_request") if a partition is named twice.
        """
        files: list[SpoolFile] = []
        named = sorted(parts)
        if len({partition for partition, _ in named}) < len(named):
            raise Refused("bad_request", "a commit names two attempts of one partition")
        for partition, token in named:
            part = self.staged.get(PartKey(query, epoch, partition, token))
            if part is None or part.run != run or part.stream != stream:
                raise Refused(
                    "missing",
                    f"batch {epoch} of query {query}: partition {partition} is not staged here "
                    "any more; nothing was committed, and Spark sends the batch again at a restart",
                )
            files.extend(part.files)
        first = self._stream(stream).next_number
        return Committed(stream, query, run, epoch, first, tuple(files))

    def has_ended(self, stream: str, pipeline_run: str) -> bool:
        known = self.streams.get(stream)
        return known is not None and known.ended_in == pipeline_run

    def staged_bytes(self, query: str, epoch: int) -> int:
        return sum(p.bytes for k, p in self.staged.items() if (k.query, k.epoch) == (query, epoch))

    def worthless(self, staged_before_s: float) -> list[StagedPart]:
        """Staged parts that no commit can name any more, or that no commit named in time."""
        return [
            part
            for key, part in self.staged.items()
            if self.is_committed(key.query, key.epoch)
            or (known := self.queries.get(key.query)) is None
            or known.run != part.run
            or part.since_s < staged_before_s
        ]

    # --- changes ---------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        match record:
            case RunBegan(query, run):
                self._begin_run(query, run)
            case Committed():
                self._commit(record)
            case InputEnded(stream, pipeline_run):
                self._stream(stream).ended_in = pipeline_run
            case QueryKept(query, run, last_epoch, fenced):
                self.queries[query] = _Query(run, last_epoch, fenced)
            case StreamKept(stream, next_number, unread):
                self.streams[stream] = _Stream(next_number, dict(unread))

    def _begin_run(self, query: str, run: str) -> None:
        known = self.queries.get(query)
        if known is None:
            self.queries[query] = _Query(run)
            return
        known.fenced = (*known.fenced, known.run)[-FENCED_RUNS_MAX:]
        known.run = run

    def _commit(self, record: Committed) -> None:
        known = self.queries.pop(record.query, None) or _Query(record.run)
        assert record.epoch > known.last_epoch, "an epoch was committed twice"
        known.last_epoch = record.epoch
        self.queries[record.query] = known  # last in the order: it committed last
        if len(self.queries) > QUERIES_MAX:
            del self.queries[next(iter(self.queries))]
        stream = self._stream(record.stream)
        assert record.first == stream.next_number, "a commit was journalled out of order"
        stream.unread.update(enumerate(record.files, record.first))
        stream.next_number += len(record.files)
        named = {f.path for f in record.files}
        for key, part in list(self.staged.items()):
            if part.files and part.files[0].path in named:
                del self.staged[key]

    def forget_read(self, stream: str, numbers: Iterable[int]) -> None:
        unread = self._stream(stream).unread
        for number in numbers:
            unread.pop(number, None)

    def records(self, pipeline_run: str) -> list[Record]:
        """Few records that say all that counts: what a journal written anew contains."""
        kept: list[Record] = [
            QueryKept(name, q.run, q.last_epoch, q.fenced) for name, q in self.queries.items()
        ]
        for name, s in self.streams.items():
            kept.append(StreamKept(name, s.next_number, s.unread))
            if s.ended_in == pipeline_run:
                kept.append(InputEnded(name, pipeline_run))
        return kept

    def _stream(self, name: str) -> _Stream:
        return self.streams.setdefault(name, _Stream())
