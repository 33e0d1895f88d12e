"""The folder of a stream: what it has done, so that another driver can go on with it.

    spark.json        which pipeline it is, and how its work is divided
    spark.json.new    so until it has begun
    splits.pickle     what sources with an end had to read when it began
    begun.pickle      how far sources had read in the savepoint that it has begun from
    commits/N.json    batch N is done: positions of files, splits taken, counts
    kept/N/           what stations keep behind batch N, as Parquet; -1: of a savepoint
    checkpoint/       Spark's own
    lock              held while a driver works
    backfill.json     alone: what a backfill writes while it does, so that nothing counts twice if
                      its driver dies

A batch is done when its commit has its name. What a driver that dies has written of a later batch
is taken back by the next one, which does that batch again. What is damaged or gone is refused: a
driver that took it for a beginning would cut the files of sinks.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from anabranch.runtime.plan.ends import Split
from anabranch.runtime.plan.spec import Span
from anabranch.runtime.savepoint.folder import SAVEPOINT
from anabranch.runtime.savepoint.inputs import Position
from anabranch.runtime.storage.state_folder import (
    JOB,
    LOCK,
    RUN,
    StateError,
    check_inputs,
    locked,
)
from anabranch.runtime.values.checks import PipelineError

BEGINNING, SPLITS, BEGUN = f"{JOB}.new", "splits.pickle", "begun.pickle"
BACKFILL = "backfill.json"
COMMITS, KEPT, CHECKPOINT = "commits", "kept", "checkpoint"
_REST = (SPLITS, BEGUN, COMMITS, KEPT, CHECKPOINT)


@dataclass(frozen=True)
class JobRecord:
    """`format`: of the state of keys, as for processes. `stations`: their names in order, which
    rows name by number; `tag`: in the names of files."""

    format: int
    pipeline: str
    stations: list[str]
    groups: int
    partitions: int
    started_s: float
    tag: str
    counted_to: float | None = None
    """Event time up to which a backfill has counted, from whose savepoint it has begun."""
    inputs: dict[str, list[str]] = field(default_factory=dict)
    """What sources read in the place of their own: the patterns of `--input`; none for frames."""
    until_committed: bool = False
    """Whether it ends with a savepoint."""
    crcs: dict[str, int] = field(default_factory=dict)
    """Of the pickles."""

    @property
    def span(self) -> Span | None:
        return None if self.counted_to is None else Span(self.counted_to)


@dataclass(frozen=True)
class Commit:
    """`batch`: -1 before the first. `taken`: splits of each source. `ended`: the stream has, or, if
    it `saves`, it goes on from the savepoint that is to be written. `kept`: the files of what
    stations keep, with their lengths."""

    batch: int = -1
    positions: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    ended: bool = False
    saves: bool = False
    kept: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class BackfillRecord:
    """`tag`: in the names of the files that it makes; `positions`: how long others were before."""

    tag: str
    positions: dict[str, int]


class StateFolder:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._commits = self.path / COMMITS

    @contextmanager
    def held(self) -> Iterator[StateFolder]:
        """Locked, and made if it is not there. Raises `StateError` if another run is there, or
        what is no run."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = locked(self.path, ours=self.begun)
        except OSError as error:
            raise StateError(
                f"state folder {str(self.path)!r} cannot be used: {error.strerror}; name another "
                "folder"
            ) from None
        try:
            self._refuse_foreign()
            yield self
        finally:
            if not self.begun:
                (self.path / LOCK).unlink(missing_ok=True)
            lock.close()

    def _refuse_foreign(self) -> None:
        if (self.path / RUN).exists():
            raise StateError(
                f"state folder {str(self.path)!r} holds a run on processes; go on with it without "
                "--on spark, or name another folder"
            )
        records = [name for name in (JOB, BEGINNING) if (self.path / name).exists()]
        for name in records:
            self._json(name)
        foreign = next((name for name in _REST if (self.path / name).exists()), None)
        if foreign is not None and not records:
            raise StateError(
                f"state folder {str(self.path)!r} holds {foreign!r}, which is not part of a run; "
                "name another folder"
            )

    @property
    def checkpoint(self) -> str:
        return str(self.path / CHECKPOINT)

    def kept(self, batch: int) -> str:
        return str(self.path / KEPT / str(batch))

    @property
    def begun(self) -> bool:
        return (self.path / JOB).is_file()

    @property
    def ended(self) -> bool:
        return self.begun and self.last().ended and not self.is_to_save

    @property
    def savepoint(self) -> Path:
        return self.path / SAVEPOINT

    @property
    def is_to_save(self) -> bool:
        """Whether the last batch is done, and its savepoint may not be written."""
        return self.last().saves

    def empty(self, job: JobRecord) -> None:
        """Make room for a stream. What a driver has left that died while it began is gone."""
        self.clear()
        _write_json(self.path / BEGINNING, job)

    def begin(
        self,
        job: JobRecord,
        splits: Mapping[str, list[Split]],
        positions: Mapping[str, int],
        begun: Mapping[str, Position],
    ) -> None:
        """`positions`: how long files are before the first batch; `begun`: how far sources had
        read. `spark.json` comes last: without it nothing has begun."""
        self._commits.mkdir(parents=True, exist_ok=True)
        pickles = {SPLITS: pickle.dumps(dict(splits), 5), BEGUN: pickle.dumps(dict(begun), 5)}
        for name, data in pickles.items():
            _write(self.path / name, data)
        self._write_commit(Commit(positions=dict(positions)))
        crcs = {name: zlib.crc32(data) for name, data in pickles.items()}
        _write_json(self.path / JOB, replace(job, crcs=crcs))
        (self.path / BEGINNING).unlink(missing_ok=True)

    def job(self) -> JobRecord:
        found: JobRecord = self._converted(JOB, JobRecord)
        return found

    def splits(self) -> dict[str, list[Split]]:
        found: dict[str, list[Split]] = self._pickled(SPLITS)
        return found

    def begun_at(self) -> dict[str, Position]:
        found: dict[str, Position] = self._pickled(BEGUN)
        return found

    def last(self) -> Commit:
        """The last batch that is done."""
        try:
            done = [int(p.stem) for p in self._commits.glob("*.json")]
        except ValueError as error:
            raise self._damaged(COMMITS, str(error)) from None
        if not done:
            raise self._damaged(COMMITS, "there is none")
        last: Commit = self._converted(f"{COMMITS}/{max(done)}.json", Commit)
        return last

    def check_whole(self) -> None:
        """Raise unless all is there with which a stream goes on behind its last batch."""
        last = self.last()
        for name in (SPLITS, BEGUN):
            self._pickled(name)
        if self._files_kept(last.batch) != last.kept:
            raise self._damaged(f"{KEPT}/{last.batch}", "files are gone, or are of another length")
        offsets = f"{CHECKPOINT}/offsets/{last.batch}"
        if last.batch >= 0 and not (self.path / offsets).is_file():
            raise self._damaged(offsets, "it is gone")

    def commit(self, commit: Commit) -> None:
        """From now on the batch is done. What is there of those before is not needed any more."""
        self._write_commit(commit)
        shutil.rmtree(self.kept(commit.batch - 1), ignore_errors=True)
        for old in self._commits.glob("*.json"):
            if int(old.stem) < commit.batch - 1:
                old.unlink(missing_ok=True)

    def _write_commit(self, commit: Commit) -> None:
        commit = replace(commit, kept=self._files_kept(commit.batch))
        _write_json(self._commits / f"{commit.batch}.json", commit)

    def _files_kept(self, batch: int) -> dict[str, int]:
        return {p.name: p.stat().st_size for p in Path(self.kept(batch)).glob("*.parquet")}

    def clear(self) -> None:
        """Give up what is there; nothing else of the folder's is touched. What says that it was
        ours goes last."""
        if self.begun:
            os.replace(self.path / JOB, self.path / BEGINNING)
        for name in _REST:
            path = self.path / name
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        (self.path / BEGINNING).unlink(missing_ok=True)

    def backfill(self) -> BackfillRecord | None:
        """Of a backfill whose driver has died."""
        if not (self.path / BACKFILL).exists():
            return None
        found: BackfillRecord = self._converted(BACKFILL, BackfillRecord)
        return found

    def begin_backfill(self, record: BackfillRecord) -> None:
        _write_json(self.path / BACKFILL, record)

    def end_backfill(self) -> None:
        (self.path / BACKFILL).unlink(missing_ok=True)

    def _json(self, name: str) -> Any:
        try:
            said = json.loads((self.path / name).read_bytes())
            what = said["what"]
            if said["crc"] != _crc(what):
                raise ValueError("its checksum differs")
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise self._damaged(name, str(error)) from None
        return what

    def _converted(self, name: str, kind: type) -> Any:
        try:
            return msgspec.convert(self._json(name), kind)
        except msgspec.ValidationError as error:  # written by another version
            raise self._damaged(name, str(error)) from None

    def _pickled(self, name: str) -> Any:
        try:
            data = (self.path / name).read_bytes()
        except OSError as error:
            raise self._damaged(name, error.strerror or "") from None
        if zlib.crc32(data) != self.job().crcs.get(name):
            raise self._damaged(name, "its checksum differs")
        return pickle.loads(data)

    def _damaged(self, name: str, why: str) -> StateError:
        return StateError(
            f"state folder {str(self.path)!r}: {name} is damaged, or not that of a run: {why}; put "
            "it back as it was, or name another folder"
        )


def check_same(there: JobRecord, now: JobRecord, folder: Path) -> None:
    """Raise `PipelineError` if a stream was begun by another pipeline, with other input, or by
    another Anabranch whose state cannot be read."""
    if there.format != now.format:
        raise PipelineError(
            f"{str(folder)!r} keeps a run of another version of Anabranch, whose state cannot be "
            "read; let that finish it, or begin anew with --fresh"
        )
    if (there.pipeline, there.stations, there.groups) != (now.pipeline, now.stations, now.groups):
        raise PipelineError(
            f"{str(folder)!r} keeps a run of pipeline {there.pipeline!r} with the operators "
            f"{', '.join(there.stations)} and groups={there.groups}, and this one is another; run "
            "that, or begin anew with --fresh"
        )
    check_inputs(there.inputs, now.inputs, folder)


def _crc(what: Any) -> int:
    return zlib.crc32(json.dumps(what, sort_keys=True).encode())


def _write_json(path: Path, record: JobRecord | Commit | BackfillRecord) -> None:
    what = asdict(record)
    _write(path, json.dumps({"crc": _crc(what), "what": what}).encode())


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all, also if the power goes. Raises `OSError` with the path."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None
    os.replace(draft, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
