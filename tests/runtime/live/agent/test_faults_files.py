"""Files and folders of a run that somebody takes away while it runs, in real processes: the run
says which, and what to do; on a real disk without room it waits."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.live.agent.launch import Run
from anabranch.runtime.policies.script import parse_script
from anabranch.runtime.reporting.failure import RunFailed
from anabranch.runtime.reporting.report import Event
from anabranch.runtime.storage import patience
from tests.runtime.agent_runs import until
from tests.runtime.faulty import as_nobody, files_left, folder_of_all, may_mount, small_disk
from tests.runtime.live.instance.test_instances import Numbers
from tests.runtime.network import Network
from tests.runtime.processes import PATIENCE_S
from tests.runtime.reading import Reading
from tests.runtime.virtual_time import in_virtual_time

TIMEOUT_S = PATIENCE_S
GOES_ON = "the stream waits and goes on by itself: make room there"


def events(run: Run, kind: str) -> list[Event]:
    return [e for e in run.snapshot().events if e.kind == kind]


def numbers(out: Path, count: int | None = None, **settings: Any) -> ab.Pipeline:
    pipeline = ab.Pipeline("numbers", dead_letters=out.with_name("dead.jsonl"), **settings)
    source = ab.generate(lambda n: n, count=count, rate=None if count else 20_000)
    pipeline.source("numbers", source).map("same", lambda n: n).sink("out", ab.jsonl(out))
    return pipeline


def delivered(run: Run) -> int:
    return run.snapshot().operator("out").tuples_out


def found(path: Path) -> Counter[int]:
    return Counter(map(int, path.read_text().splitlines()))


@pytest.mark.skipif(not may_mount(), reason="only root may mount a small disk")
@pytest.mark.parametrize("what", ["results", "state", "both"])
def test_a_real_disk_without_room_is_waited_out(tmp_path: Path, what: str) -> None:
    small, large, count = tmp_path / "small", tmp_path / "large", 200_000
    small.mkdir()
    large.mkdir()
    with small_disk(small, "512k"):
        out = (large if what == "state" else small) / "out.jsonl"
        state = (large if what == "results" else small) / "state"
        # Journals are as short as what they describe, so most of the disk is somebody else's.
        taken = small / "taken"
        run = ab.start(numbers(out, count), state=state)
        fill(taken)
        until(lambda: events(run, "waits"))
        waits = events(run, "waits")[0].detail
        assert re.fullmatch(
            rf"cannot write .*: No space left on device: '{small}/.*; {GOES_ON}", waits
        )
        taken.unlink()
        subprocess.run(["mount", "-o", "remount,size=64m", small], check=True)
        report = run.wait(TIMEOUT_S)
        assert report.ok
        assert found(out) == Counter(range(count))
        assert {e.kind for e in report.events} >= {"waits", "goes on"}


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


@pytest.mark.parametrize(
    ("take", "told"),
    [
        (lambda out: out.unlink(), "it was removed or renamed"),
        (lambda out: out.rename(out.with_name("elsewhere")), "it was removed or renamed"),
        (lambda out: shutil.rmtree(out.parent), "it was removed or renamed"),
        (lambda out: os.truncate(out, 10), "it has "),
    ],
    ids=["removed", "renamed", "folder", "cut"],
)
def test_results_that_somebody_takes_away_fail_the_run_which_says_what_to_do(
    tmp_path: Path, take: Callable[[Path], None], told: str
) -> None:
    out = tmp_path / "results" / "out.jsonl"
    out.parent.mkdir()
    run = ab.start(numbers(out))
    until(lambda: delivered(run) > 1_000)
    take(out)
    with pytest.raises(RunFailed) as failed:
        run.wait(TIMEOUT_S)
    words = str(failed.value)
    assert words.startswith("operator 'out': instance out.0 failed: cannot write results: ")
    assert "the file is not as it was left, " in words
    assert told in words
    assert "put it back and resume the run, or begin a new run" in words
    assert str(out) in words


def test_a_file_that_may_not_be_written_any_more_is_written_by_those_who_have_it(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out.jsonl"
    run = ab.start(numbers(out))
    until(lambda: delivered(run) > 1_000)
    out.chmod(0)
    before = delivered(run)
    until(lambda: delivered(run) > before + 10_000)
    run.end_input()
    report = run.wait(TIMEOUT_S)
    out.chmod(0o600)
    assert report.ok
    assert found(out) == Counter(range(report.ledger.tuples_in))


@pytest.mark.parametrize(
    ("kept", "part"),
    [(False, ""), (True, ""), (True, "ends")],
    ids=["of_the_run", "of_the_user", "only_what_ends_keep"],
)
def test_folders_that_are_removed_under_a_run_fail_it_with_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool, part: str
) -> None:
    with folder_of_all() as base:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
        state = tmp_path / "state" if kept else None
        run = ab.start(numbers(tmp_path / "out.jsonl"), state=state)
        until(lambda: delivered(run) > 1_000)
        (folder,) = [state] if state else base.glob("anabranch-*")
        shutil.rmtree(folder / part)
        with pytest.raises(RunFailed, match=rf"{folder}.* was removed.*begin a new"):
            run.wait(TIMEOUT_S)


def test_a_journal_that_is_gone_when_its_instance_dies_fails_the_run(tmp_path: Path) -> None:
    run = ab.start(numbers(tmp_path / "out.jsonl"), state=tmp_path / "state")
    until(lambda: delivered(run) > 1_000)
    pid = run.snapshot().operator("same").members[0].pid
    os.kill(pid, signal.SIGSTOP)  # or it would find out itself
    for segment in (tmp_path / "state" / "journals").glob("1.0.journal.*"):
        segment.unlink()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RunFailed, match=r"1\.0\.journal' is gone, and with it what same\.0 was"):
        run.wait(TIMEOUT_S)


@pytest.mark.parametrize("packed", [False, True])
@in_virtual_time
async def test_a_file_for_which_no_descriptor_is_left_is_waited_for_and_not_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setattr(patience, "RETRY_MAX_S", 0.01)
    path = tmp_path / "in.txt"
    text = b"".join(b"%d\n" % n for n in range(1_000))
    path.write_bytes(gzip.compress(text) if packed else text)
    reading = Reading(ab.files(path))
    notes: list[str] = []
    reading.context = replace(reading.context, note=lambda kind, _: notes.append(kind))
    with files_left(0):
        splits = list(reading.source.splits())
        done = asyncio.create_task(reading.split(splits[0]))
        while "waits" not in notes:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    await done
    assert len(splits) == 1
    assert reading.tuples == [str(n) for n in range(1_000)]
    assert reading.dead == []
    assert notes == ["waits", "goes on"]


def test_a_disk_that_cannot_sync_costs_an_incarnation_and_no_tuple(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fdatasync

    def fails_in_its_first_incarnation(fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if path.endswith("/1.0.journal.1") and os.fstat(fd).st_size > 20_000:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fails_in_its_first_incarnation)
    out = tmp_path / "out.jsonl"
    report = ab.run(numbers(out, 50_000, durable={"same": "power"}))
    assert report.ok
    (died,) = [e for e in report.events if e.kind == "died"]
    assert died.detail.startswith("cannot sync the journal: Input/output error: ")
    assert found(out) == Counter(range(50_000))


def test_dead_letters_may_be_taken_away_while_the_run_goes_on(tmp_path: Path) -> None:
    pipeline = ab.Pipeline("numbers", dead_letters=tmp_path / "dead.jsonl", dead_max=1.0)
    source = pipeline.source("numbers", ab.generate(lambda n: n, rate=5_000))
    source.map("refuse", refuse, scale=ab.Scale(max_instances=3)).sink("out", ab.discard())
    script = parse_script("0.2 refuse duplicate 2")
    run = ab.start(pipeline, script=script)
    dead = tmp_path / "dead.jsonl"
    taken = []
    for n in range(4):
        until(lambda: dead.exists() and dead.stat().st_size > 100_000)
        taken.append(dead.rename(tmp_path / f"taken.{n}"))
        with contextlib.suppress(ProcessLookupError):  # it has just died, or left
            os.kill(run.snapshot().operator("refuse").members[0].pid, signal.SIGKILL)
    run.end_input()
    report = run.wait(TIMEOUT_S)
    assert report.ok
    taken += [dead] if dead.exists() else []
    lines = [x for path in taken for x in path.read_text().splitlines()]
    letters = Counter(json.loads(x)["tuple"] for x in lines)
    assert letters == Counter(range(report.ledger.tuples_in))


def refuse(n: int) -> int:
    raise ValueError("no")


@in_virtual_time
async def test_results_that_may_not_be_opened_any_more_are_named_by_a_next_incarnation() -> None:
    """Who has the file open goes on with it."""
    with folder_of_all() as folder, as_nobody():
        out = folder / "out.jsonl"
        pipeline = ab.Pipeline("numbers")
        pipeline.source("numbers", Numbers(1_000_000)).sink("out", ab.jsonl(out))
        network = Network(pipeline, folder, journals=True)
        await network.start()
        (sink,) = network.of("out")
        await network.until(lambda: sink.path.counts.tuples_out > 0)
        out.chmod(0)
        before = sink.path.counts.tuples_out
        await network.until(lambda: sink.path.counts.tuples_out > before)
        network.kill(sink.me)
        with pytest.raises(PermissionError, match="cannot write results: Permission denied") as met:
            await network.revive(sink.me)
        assert met.value.filename == str(out)
        await network.abandon()
