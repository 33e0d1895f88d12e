"""The folder of a stream: what it has done, so that another driver can go on with it.

    job.json          which pipeline it is, and how its work is divided
    splits.pickle     what sources with an end had to read when it began
    begun.pickle      how far sources had read in the savepoint that it has begun from
    commits/N.json    batch N is done: positions of files, splits taken, counts
    kept/N/           what stations keep behind batch N, as Parquet; -1: of a savepoint
    checkpoint/       Spark's own

A batch is done when its commit has its name. What a driver that dies has written of a later batch
is taken back by the next one, which does that batch again.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from anabranch.runtime.plan.ends import Split
from anabranch.runtime.plan.spec import Span
from anabranch.runtime.savepoint.folder import SAVEPOINT
from anabranch.runtime.savepoint.inputs import Position
from anabranch.runtime.values.checks import PipelineError

JOB, SPLITS, BEGUN = "job.json", "splits.pickle", "begun.pickle"


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

    @property
    def span(self) -> Span | None:
        return None if self.counted_to is None else Span(self.counted_to)


@dataclass(frozen=True)
class Commit:
    """`batch`: -1 before the first. `taken`: splits of each source. `ended`: the stream has, or, if
    it `saves`, it goes on from the savepoint that is to be written."""

    batch: int = -1
    positions: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    ended: bool = False
    saves: bool = False


class StateFolder:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._commits = self.path / "commits"

    @property
    def checkpoint(self) -> str:
        return str(self.path / "checkpoint")

    def kept(self, batch: int) -> str:
        return str(self.path / "kept" / str(batch))

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

    def begin(
        self,
        job: JobRecord,
        splits: Mapping[str, list[Split]],
        positions: Mapping[str, int],
        begun: Mapping[str, Position],
    ) -> None:
        """`positions`: how long files are before the first batch; `begun`: how far sources had
        read. `job.json` comes last: without it nothing has begun."""
        self._commits.mkdir(parents=True, exist_ok=True)
        _write(self.path / SPLITS, pickle.dumps(dict(splits), 5))
        _write(self.path / BEGUN, pickle.dumps(dict(begun), 5))
        self._write_commit(Commit(positions=dict(positions)))
        _write(self.path / JOB, json.dumps(asdict(job)).encode())

    def job(self) -> JobRecord:
        return JobRecord(**self._json(self.path / JOB))

    def splits(self) -> dict[str, list[Split]]:
        found: dict[str, list[Split]] = pickle.loads((self.path / SPLITS).read_bytes())
        return found

    def begun_at(self) -> dict[str, Position]:
        found: dict[str, Position] = pickle.loads((self.path / BEGUN).read_bytes())
        return found

    def has_kept(self, batch: int) -> bool:
        return Path(self.kept(batch)).exists()

    def last(self) -> Commit:
        """The last batch that is done."""
        done = [int(p.stem) for p in self._commits.glob("*.json")]
        return Commit(**self._json(self._commits / f"{max(done)}.json")) if done else Commit()

    def commit(self, commit: Commit) -> None:
        """From now on the batch is done. What is there of those before is not needed any more."""
        self._write_commit(commit)
        shutil.rmtree(self.kept(commit.batch - 1), ignore_errors=True)
        for old in self._commits.glob("*.json"):
            if int(old.stem) < commit.batch - 1:
                old.unlink(missing_ok=True)

    def _write_commit(self, commit: Commit) -> None:
        _write(self._commits / f"{commit.batch}.json", json.dumps(asdict(commit)).encode())

    def clear(self) -> None:
        """Give up what is there; nothing else of the folder's is touched."""
        (self.path / JOB).unlink(missing_ok=True)
        for name in ("commits", "kept", "checkpoint"):
            shutil.rmtree(self.path / name, ignore_errors=True)

    def _json(self, path: Path) -> Any:
        try:
            return json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise PipelineError(
                f"the state in {str(self.path)!r} cannot be read: {path.name}: {error}; "
                "begin anew with --fresh"
            ) from error


def check_same(there: JobRecord, now: JobRecord, folder: Path) -> None:
    """Raise `PipelineError` if a stream was begun by another pipeline, or another Anabranch whose
    state cannot be read."""
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


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all, also if the power goes."""
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
