"""A source whose reading fails in the middle of a split goes on there later, and not before."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.runtime.plan.ends import Chunk, Reader, RunContext, Source, Split
from anabranch.runtime.reporting.failure import RunFailed
from tests.runtime.processes import PATIENCE_S

SPLITS, EACH = 2, 1_000
FAILS_AT = 500


class Torn(Source):
    """Numbers; reading fails in the middle of the first split as long as `wrong` is left in the
    folder, a line of which goes with each failure."""

    def __init__(self, folder: Path, error: Exception, times: int) -> None:
        self.marks, self.error = folder / "wrong", error
        self.marks.write_text("x" * times)

    def splits(self) -> Iterator[Split]:
        for i in range(SPLITS):
            yield {"at": i * EACH, "end": (i + 1) * EACH}

    def open(self, split: Split, context: RunContext) -> Reader:
        return TornReader(split, self)

    def maybe_fail(self) -> None:
        left = self.marks.read_text()
        if left:
            self.marks.write_text(left[1:])
            raise self.error


class TornReader(Reader):
    def __init__(self, split: Split, source: Torn) -> None:
        self.at, self.end, self.source = split["at"], split["end"], source

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        if self.at == FAILS_AT:
            self.source.maybe_fail()
        if self.at == self.end:
            return None
        start, self.at = self.at, self.at + 10
        return Chunk([*range(start, self.at)])

    def remainder(self) -> Split | None:
        return {"at": self.at, "end": self.end} if self.at < self.end else None


def pipeline_of(source: Source, out: Path) -> ab.Pipeline:
    pipeline = ab.Pipeline("torn", dead_letters=out.with_name("dead.jsonl"))
    pipeline.source("numbers", source).map("same", abs).sink("out", ab.jsonl(out))
    return pipeline


def found(out: Path) -> Counter[int]:
    return Counter(map(int, out.read_text().splitlines()))


def test_a_disk_that_fails_for_a_moment_doubles_nothing_of_what_was_read(tmp_path: Path) -> None:
    source = Torn(tmp_path, OSError(errno.EIO, "Input/output error"), times=2)
    report = ab.start(pipeline_of(source, tmp_path / "out.jsonl")).wait(PATIENCE_S)
    assert (report.ok, report.operator("numbers").deaths) == (True, 2)
    assert found(tmp_path / "out.jsonl") == Counter(range(SPLITS * EACH))


def test_a_run_that_failed_while_reading_goes_on_where_reading_failed(tmp_path: Path) -> None:
    source = Torn(tmp_path, ValueError("torn"), times=1)
    pipeline = pipeline_of(source, tmp_path / "out.jsonl")
    with pytest.raises(RunFailed, match="torn"):
        ab.start(pipeline, state=tmp_path / "kept").wait(PATIENCE_S)
    assert ab.start(pipeline, state=tmp_path / "kept", resume=True).wait(PATIENCE_S).ok
    assert found(tmp_path / "out.jsonl") == Counter(range(SPLITS * EACH))
