"""The gateway's half that takes batches from Spark and gives them to the source instances.

A part is received beside the others, made durable and noted as staged. The commit is one record
in the journal; from then on its files are splits of the stream, and they are published until
publishing has succeeded, also by a gateway that was restarted in between. Splits are numbered in
the order of their commits, and published in that order: the board passes over a number that it has
seen.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anabranch.runtime.plan.ends import Split
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store
from anabranch.runtime.storage.record_log import CannotSync, RecordLog, read_log
from anabranch.spark_bridge.feed_register import (
    Committed,
    FeedRegister,
    InputEnded,
    PartKey,
    Record,
    SpoolFile,
    StagedPart,
    record_bytes,
    record_of,
)
from anabranch.spark_bridge.gateway_limits import GatewayLimits
from anabranch.spark_bridge.messages import Abort, Commit, Ok, Stage, Staged
from anabranch.spark_bridge.part_folders import PartFolders, key_of, path_of, staged
from anabranch.spark_bridge.receiving import Receiver
from anabranch.spark_bridge.wire import Refused

Publish = Callable[[str, list[Split]], Awaitable[None]]
Ended = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class FeedCounts:
    """Since the gateway started."""

    parts_begun: int
    rows_staged: int
    rows_committed: int
    batches_committed: int
    batches_repeated: int
    parts_skipped: int
    parts_dropped: int


class Feed:
    def __init__(
        self,
        folder: Path,
        publish: Publish,
        ended: Ended,
        streams: Collection[str] | None,
        pipeline_run: str,
        limits: GatewayLimits,
    ) -> None:
        self._folder = folder
        self._publish = publish
        self._ended = ended
        self._streams = streams
        self._run = pipeline_run
        self._limits = limits
        self._parts = PartFolders(folder)
        self._register = FeedRegister()
        self._journal: RecordLog | None = None
        self._lock = asyncio.Lock()
        """Held from looking into the register until what follows from it is journalled."""
        self._pending: dict[str, deque[list[Split]]] = defaultdict(deque)
        self._publishing: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._unread_bytes: dict[str, int] = defaultdict(int)
        self._counts: dict[str, int] = defaultdict(int)

    # --- start and end ---------------------------------------------------------------------

    async def start(self) -> None:
        """Read the journal, take up staged parts, and publish what was not read yet."""
        self._parts.begin()
        path = self._folder / "journal"
        for payload in read_log(path, name=str(path), power=True):
            self._register.apply(record_of(payload))
        self._journal = RecordLog(path, power=True)
        self._forget_read()
        streams = self._register.streams.values()
        committed = {os.path.dirname(f.path) for s in streams for f in s.unread.values()}
        self._register.staged.update({p.key: p for p in self._parts.staged(committed)})
        self._rewrite_journal()
        for stream, state in self._register.streams.items():
            if state.unread:
                self._pending[stream].append(
                    [self._split(stream, n, f) for n, f in sorted(state.unread.items())]
                )
            await self._flush(stream)
            if self._register.has_ended(stream, self._run):
                await self._ended(stream)

    def close(self) -> None:
        """After the connections are closed: what they have begun to write is written."""
        if self._journal is not None:
            self._journal.close()

    # --- requests --------------------------------------------------------------------------

    async def begin(self, request: Stage, schema: bytes) -> Receiver | None:
        """Somewhere to put a part, or None if its batch was committed before."""
        self._check_known(request.stream)
        async with self._lock:
            await self._enter_run(request.query, request.run)
            if self._register.is_committed(request.query, request.epoch):
                self._counts["parts_skipped"] += 1
                return None
            self._check_open(request.stream)
            room = self._limits.batch_bytes_max - self._register.staged_bytes(
                request.query, request.epoch
            )
            self._counts["parts_begun"] += 1
        folder = self._parts.new()
        return Receiver(request, schema, folder, self._limits.spool_file_bytes, room)

    async def stage(self, receiver: Receiver, end: Staged) -> Ok:
        """Note a received part as staged, once it is durable."""
        key = key_of(receiver.request)
        path = path_of(key)
        note = await store().in_thread(lambda: receiver.seal(end, path))
        async with self._lock:
            await self._enter_run(key.query, note.run)
            await store().in_thread(lambda: self._parts.take_in(receiver.folder, path))
            self._register.staged[key] = staged(note, path)
        self._counts["rows_staged"] += receiver.rows
        return Ok(rows=receiver.rows)

    async def commit(self, request: Commit) -> Ok:
        """All of these parts or nothing; asked again, nothing more than `repeated`."""
        self._check_known(request.stream)
        async with self._lock:
            self._register.check_living(request.query, request.run)
            repeated = self._register.is_committed(request.query, request.epoch)
            if repeated:
                self._counts["batches_repeated"] += 1
            else:
                self._check_open(request.stream)
                await self._commit(request)
            await self._drop_worthless()
        await self._flush(request.stream)
        if request.final:
            await self.finish(request.stream)
        return Ok(repeated=repeated)

    async def abort(self, request: Abort) -> Ok:
        """Drop these parts if they are only staged; a shut-out driver's word counts for nothing."""
        keys = [PartKey(request.query, request.epoch, *part) for part in request.parts]
        async with self._lock:
            parts = [self._register.staged.get(k) for k in keys]
            await self._drop([p for p in parts if p and p.run == request.run])
        return Ok()

    async def finish(self, stream: str) -> Ok:
        """The stream's input has ended; told to the pipeline after all that was committed."""
        self._check_known(stream)
        async with self._lock:
            repeated = self._register.has_ended(stream, self._run)
            if not repeated:
                await self._write(InputEnded(stream, self._run))
        await self._flush(stream)
        await self._ended(stream)
        return Ok(repeated=repeated)

    def is_behind(self, stream: str) -> bool:
        """Whether so much lies unread that Spark should wait with more."""
        state = self._register.streams.get(stream)
        if state is None or not self._too_much(stream, len(state.unread)):
            return False
        self._forget_read()
        return self._too_much(stream, len(state.unread))

    async def sweep(self) -> None:
        """From time to time: forget what was read, drop what no commit can name any more."""
        async with self._lock:
            self._forget_read()
            await self._drop_worthless()
            if self._journal is not None and self._journal.size > self._limits.journal_bytes_max:
                await store().in_thread(self._rewrite_journal)
            await store().in_thread(self._parts.remove_empty)
        for stream in list(self._pending):
            await self._flush(stream)

    def counts(self) -> FeedCounts:
        return FeedCounts(**{name: self._counts[name] for name in FeedCounts.__slots__})

    # --- below the lock --------------------------------------------------------------------

    async def _enter_run(self, query: str, run: str) -> None:
        record = self._register.run_record(query, run)
        if record is not None:
            await self._write(record)
            await self._drop_worthless()

    async def _commit(self, request: Commit) -> None:
        record = self._register.commit_record(
            request.stream, request.query, request.run, request.epoch, request.parts
        )
        await self._write(record)
        self._pending[request.stream].append(self._splits(record))
        self._unread_bytes[request.stream] += sum(f.bytes for f in record.files)
        self._counts["batches_committed"] += 1
        self._counts["rows_committed"] += sum(f.rows for f in record.files)
        for folder in {os.path.dirname(f.path) for f in record.files}:
            self._parts.forget_note(folder)

    async def _write(self, record: Record) -> None:
        await store().in_thread(lambda: self._append(record))
        self._register.apply(record)

    def _append(self, record: Record) -> None:
        assert self._journal is not None
        try:
            self._journal.append(record_bytes(record), sync=True)
        except CannotSync as error:
            raise OSError(f"{self._journal.path}: {error}") from error

    def _rewrite_journal(self) -> None:
        assert self._journal is not None
        self._journal.replace(map(record_bytes, self._register.records(self._run)))

    async def _drop_worthless(self) -> None:
        await self._drop(self._register.worthless(clock.monotonic() - self._limits.stage_ttl_s))

    async def _drop(self, parts: Iterable[StagedPart]) -> None:
        for part in parts:
            del self._register.staged[part.key]
            self._counts["parts_dropped"] += 1
            await store().in_thread(partial(self._parts.remove, part.folder))

    # --- splits ----------------------------------------------------------------------------

    def _splits(self, record: Committed) -> list[Split]:
        return [self._split(record.stream, n, f) for n, f in enumerate(record.files, record.first)]

    def _split(self, stream: str, number: int, file: SpoolFile) -> Split:
        path = str((self._folder / file.path).absolute())
        split = {"id": f"{stream}:{number}", "number": number, "path": path}
        return {**split, "at": 0, "skip": 0, "rows": file.rows}

    async def _flush(self, stream: str) -> None:
        """Publish what is pending, in order. If that fails it stays, and Spark's commit fails."""
        async with self._publishing[stream]:
            pending = self._pending[stream]
            while pending:
                if pending[0]:
                    await self._publish(stream, pending[0])
                pending.popleft()

    def _forget_read(self) -> None:
        """A source instance deletes a file when it has read it to the end."""
        for stream, state in self._register.streams.items():
            read = [n for n, f in state.unread.items() if not store().exists(self._folder / f.path)]
            self._register.forget_read(stream, read)
            self._unread_bytes[stream] = sum(f.bytes for f in state.unread.values())

    def _too_much(self, stream: str, files: int) -> bool:
        limits = self._limits
        return (
            self._unread_bytes[stream] > limits.unread_bytes_max or files > limits.unread_files_max
        )

    # --- checks ----------------------------------------------------------------

    def _check_known(self, stream: str) -> None:
        if self._streams is not None and stream not in self._streams:
            known = ", ".join(sorted(self._streams)) or "none"
            raise Refused(
                "unknown_stream", f"no source of the pipeline reads stream {stream!r}; fed: {known}"
            )

    def _check_open(self, stream: str) -> None:
        if self._register.has_ended(stream, self._run):
            raise Refused("ended", f"the input of stream {stream!r} was declared finished")
