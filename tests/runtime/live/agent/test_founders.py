"""Instances with which a run begins may die before they are ready, as any other later."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.live.instance.instance import Instance
from anabranch.runtime.live.process import instance_process
from tests.runtime.processes import PATIENCE_S

TUPLES = 2_000


def dies_once(folder: Path, name: str) -> None:
    mark = folder / name
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("moment", ["assigned", "journal begun", "ready"])
def test_founders_that_die_once_begin_again_and_nothing_is_missing(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, found, resume = instance_process.live, instance_process._found, Instance.resume

    async def assigned(link: Any, task: Any, *others: Any) -> int:
        dies_once(tmp_path, str(task.id[0]))
        return await live(link, task, *others)

    def begun(instance: Instance) -> None:
        dies_once(tmp_path, str(instance.me.operator))
        resume(instance)

    def ready(instance: Instance, task: Any) -> None:
        dies_once(tmp_path, str(instance.me.operator))
        found(instance, task)

    if moment == "assigned":
        monkeypatch.setattr(instance_process, "live", assigned)
    elif moment == "journal begun":
        monkeypatch.setattr(Instance, "resume", begun)
    else:
        monkeypatch.setattr(instance_process, "_found", ready)
    pipeline = ab.Pipeline("early")
    numbers = pipeline.source("numbers", ab.items(range(TUPLES)))
    numbers.map("text", str).sink("out", ab.jsonl(tmp_path / "out.jsonl"))
    report = ab.start(pipeline).wait(PATIENCE_S)
    assert report.ok
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == TUPLES
    assert [o.deaths for o in report.operators] == [1, 1, 1]
    assert sum(e.kind == "resumed" for e in report.events) == 3
