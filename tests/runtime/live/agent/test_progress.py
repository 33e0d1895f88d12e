"""Progress grows while a split is read: it is not known only when the split is finished."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.live.agent import launch
from anabranch.runtime.pipeline.options import Options
from tests.runtime.agent_runs import finish, until, wait_for

LINES = 40_000


def text() -> bytes:
    """Hardly compressible, less than one split."""
    rng = random.Random(5)
    return "".join(f"{rng.getrandbits(300):x}\n" for _ in range(LINES)).encode()


def plain(folder: Path) -> Path:
    (folder / "lines.txt").write_bytes(text())
    return folder / "lines.txt"


def packed(folder: Path) -> Path:
    (folder / "lines.gz").write_bytes(gzip.compress(text(), 1))
    return folder / "lines.gz"


@pytest.mark.parametrize("file", [plain, packed])
def test_progress_grows_within_a_split(file: Callable[[Path], Path], tmp_path: Path) -> None:
    def wait(line: str) -> str:
        wait_for(tmp_path / "go")
        return line

    def progress() -> Any:
        return run.snapshot().operator("lines").progress

    pipeline = ab.Pipeline("slow")
    lines = pipeline.source("lines", ab.files(file(tmp_path)))
    lines.map("wait", wait).sink("out", ab.discard())
    run = launch.start(pipeline, Options(warm=0))
    try:
        until(lambda: 0 < (progress() or 0) < 1)
    finally:
        (tmp_path / "go").touch()
    assert finish(run).ledger.tuples_out == LINES
