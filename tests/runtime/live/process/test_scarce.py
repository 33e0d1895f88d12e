"""Threads that cannot be made, and files that cannot be opened before an instance has begun."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest

import anabranch as ab
from anabranch.runtime.live.process.instance_process import wait_for_files
from anabranch.runtime.ports.disk import Disk
from anabranch.runtime.reporting.failure import RunFailed
from tests.runtime.agent_runs import TIMEOUT_S
from tests.runtime.faulty import files_left
from tests.runtime.processes import eventually

STARTER = "_start_joinable_thread" if sys.version_info >= (3, 13) else "_start_new_thread"
"""What the system refuses when there are too many threads."""


def rows(folder: Path) -> ab.Pipeline:
    pipeline = ab.Pipeline("rows")
    pipeline.source("rows", ab.items([{"n": n} for n in range(100)])).sink(
        "out", ab.parquet(folder)
    )
    return pipeline


@pytest.mark.usefixtures("deaths_add_up")
@pytest.mark.parametrize("incarnations", ["one", "all"])
def test_an_instance_that_can_make_no_thread_goes_on_in_its_next_incarnation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, incarnations: str
) -> None:
    real = Disk.in_thread

    async def in_thread(disk: Disk, work: Callable[[], object]) -> None:
        hit = tmp_path / "hit"
        if incarnations == "all" or not hit.exists():
            hit.touch()
            with pytest.MonkeyPatch.context() as scarce:
                scarce.setattr(threading, STARTER, refuse)
                threading.Thread(target=work).start()
        await real(disk, work)

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Disk, "in_thread", in_thread)
    run = ab.start(rows(tmp_path / "rows"))
    if incarnations == "all":
        with pytest.raises(RunFailed, match=r"got nothing done .*can't start new thread"):
            run.wait(TIMEOUT_S)
        return
    report = run.wait(TIMEOUT_S)
    assert report.ok
    assert report.operator("out").deaths == 1
    table = pyarrow.parquet.read_table(tmp_path / "rows")
    assert sorted(table.column("n").to_pylist()) == [*range(100)]


async def test_an_instance_begins_when_it_can_open_files(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with files_left(3):
        waiting = threading.Thread(target=wait_for_files, args=("work.0",))
        waiting.start()
        await eventually(lambda: "work.0 cannot begin and waits: Too many open" in caplog.text)
        assert waiting.is_alive()
    waiting.join(TIMEOUT_S)
    assert not waiting.is_alive()
    assert caplog.text.count("cannot begin") == 1
