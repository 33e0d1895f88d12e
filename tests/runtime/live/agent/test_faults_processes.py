"""What befalls processes from outside, tried with real ones: no memory, no files, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.protocol.limits import Limits
from anabranch.runtime.live.agent import watchdog
from anabranch.runtime.live.agent.launch import Run
from anabranch.runtime.live.instance import pumps
from anabranch.runtime.live.process.template import FILES_WANTED
from anabranch.runtime.policies.script import parse_script
from anabranch.runtime.processing import payload, salvage
from anabranch.runtime.reporting.failure import RunFailed
from anabranch.runtime.reporting.report import Event, Report
from tests.runtime.agent_runs import until
from tests.runtime.faulty import files_left
from tests.runtime.network import Network
from tests.runtime.processes import LINUX, PATIENCE_S, ROOT

TIMEOUT_S = PATIENCE_S


def events(run: Run | Report, kind: str) -> list[Event]:
    looked = run if isinstance(run, Report) else run.snapshot()
    return [e for e in looked.events if e.kind == kind]


def numbers(
    out: Path, count: int | None = None, fn: Any = lambda n: n, **settings: Any
) -> ab.Pipeline:
    pipeline = ab.Pipeline("numbers", dead_letters=out.with_name("dead.jsonl"))
    source = ab.generate(lambda n: n, count=count, rate=None if count else 20_000)
    stream = pipeline.source("numbers", source)
    stream.map("same", fn, **settings).sink("out", ab.jsonl(out))
    return pipeline


def delivered(run: Run) -> int:
    return run.snapshot().operator("out").tuples_out


def found(path: Path) -> Counter[int]:
    return Counter(map(int, path.read_text().splitlines()))


# -- memory ----------------------------------------------------------------------------------------


async def text_of(n: int) -> str:
    await asyncio.sleep(0)
    return str(n)


def hungry(n: int) -> int:
    if n % 1_000 == 7:
        bytearray(2**62)
    return n


def test_a_function_that_runs_out_of_memory_loses_its_tuple_to_the_dead_letters(
    tmp_path: Path,
) -> None:
    report = ab.run(numbers(tmp_path / "out.jsonl", 10_000, hungry))
    assert report.ok
    assert report.operator("same").deaths == 0
    letters = [json.loads(x) for x in (tmp_path / "dead.jsonl").read_text().splitlines()]
    assert sorted(x["tuple"] for x in letters) == [*range(7, 10_000, 1_000)]
    assert {x["reason"] for x in letters} == {"MemoryError"}


@pytest.mark.parametrize("incarnations", [1, None], ids=["once", "always"])
def test_an_instance_that_runs_out_of_memory_is_resumed_with_that_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, incarnations: int | None
) -> None:
    """Its next incarnation has less to remember. If that does not help, the run fails with the
    reason."""
    real = salvage.decode_batch
    batches = 0

    def decode(data: bytes, count: int) -> Any:
        nonlocal batches
        batches += 1
        me = sys._getframe(1).f_locals["self"].profile
        forever = incarnations is None
        if me.me.operator == "same" and (
            forever or (me.context.incarnation <= incarnations and batches > 3)
        ):
            raise MemoryError
        return real(data, count)

    monkeypatch.setattr(pumps, "decode_batch", decode)
    run = ab.start(numbers(tmp_path / "out.jsonl", 100_000))
    if incarnations is None:
        with pytest.raises(RunFailed, match=r"got nothing done .* run out of memory \(6 times\)"):
            run.wait(TIMEOUT_S)
        return
    report = run.wait(TIMEOUT_S)
    assert report.ok
    assert [e.detail for e in events(report, "died")] == ["has run out of memory"]
    assert found(tmp_path / "out.jsonl") == Counter(range(100_000))
    assert not (tmp_path / "dead.jsonl").exists()


@pytest.mark.parametrize("kind", [int, str], ids=["by a timer", "at the end of a call"])
def test_what_could_not_be_sent_for_lack_of_memory_is_sent_by_the_next_incarnation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    """It was taken to be sent, by no task that could fail, and nobody has it any more."""
    real = payload.Encoder.encode_batches

    def encode(self: payload.Encoder, tuples: Any) -> Any:
        if asyncio.current_task() is None and isinstance(tuples[0], kind):
            with contextlib.suppress(FileExistsError):
                (tmp_path / "begun").touch(exist_ok=False)
                raise MemoryError
        return real(self, tuples)

    monkeypatch.setattr(payload.Encoder, "encode_batches", encode)
    pipeline = ab.Pipeline("numbers", dead_letters=tmp_path / "dead.jsonl")
    source = pipeline.source("numbers", ab.generate(lambda n: n, count=1_000, rate=2_000))
    source.map("same", text_of).sink("out", ab.jsonl(tmp_path / "out.jsonl"))
    report = ab.start(pipeline).wait(TIMEOUT_S)
    texts = (tmp_path / "out.jsonl").read_text().splitlines()
    assert Counter(int(json.loads(text)) for text in texts) == Counter(range(1_000))
    assert [e.detail for e in events(report, "died")] == ["has run out of memory"]
    assert report.ok


def test_a_batch_that_cannot_be_read_for_lack_of_memory_is_no_dead_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_memory(*_: Any, **__: Any) -> Any:
        raise MemoryError

    batch = payload.Encoder(Limits()).encode([{1}, {2}])
    monkeypatch.setattr(pickle, "loads", no_memory)
    with pytest.raises(MemoryError):
        salvage.decode_batch(batch, 2)
    monkeypatch.setattr(pickle, "dumps", no_memory)
    with pytest.raises(MemoryError):
        payload.Encoder(Limits()).encode_batches([{1}, {2}])


# -- files -----------------------------------------------------------------------------------------


def test_newcomers_for_whom_no_files_are_left_are_refused_and_the_stream_goes_on(
    tmp_path: Path,
) -> None:
    pipeline = numbers(tmp_path / "out.jsonl", scale=ab.Scale(max_instances=64))
    orders = "\n".join(f"{0.5 + n / 10} same duplicate 8" for n in range(8))
    with files_left(40):
        run = ab.start(pipeline, script=parse_script(orders), warm=1)
        until(lambda: events(run, "start_failed"))
        before = delivered(run)
        until(lambda: delivered(run) > before + 10_000)
    until(lambda: run.snapshot().operator("same").instances > 1)
    run.end_input()
    report = run.wait(TIMEOUT_S)
    assert report.ok
    assert "Too many open files" in events(report, "start_failed")[0].detail
    assert found(tmp_path / "out.jsonl") == Counter(range(report.ledger.tuples_in))


def files_allowed(n: int) -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_instances_may_open_more_files_than_the_program_that_starts_them(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with files_left(100):
        assert ab.run(numbers(out, 1, files_allowed)).ok
        allowed, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    (of_instances,) = found(out)
    assert allowed < of_instances == min(FILES_WANTED, hard)


async def test_who_cannot_connect_for_lack_of_files_says_so_once_and_goes_on_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = ab.Pipeline("numbers")
    source = pipeline.source("numbers", ab.items(range(1_000)))
    source.map("same", lambda n: n).sink("out", ab.jsonl(tmp_path / "out.jsonl"))
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    with files_left(0):
        until_s = time.monotonic() + 0.3
        await network.until(lambda: time.monotonic() > until_s and bool(refusals(caplog)))
        assert not any(i.path.counts.processed for i in network.of("out"))
    await network.finish()
    assert found(tmp_path / "out.jsonl") == Counter(range(1_000))
    told = refusals(caplog)
    assert {m.partition("tries again: ")[2] for m in told} == {
        "Too many open files; raise the limit of open files (ulimit -n), or free memory"
    }
    assert len({m.partition(":")[0] for m in told}) == len(told)


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [m for m in caplog.messages if "cannot connect to" in m]


# -- stopped ---------------------------------------------------------------------------------------

needs_proc = pytest.mark.skipif(not LINUX, reason="the states of processes are read from /proc")


@needs_proc
@pytest.mark.parametrize("operator", ["numbers", "same", "out"])
def test_an_instance_that_somebody_stops_goes_on_in_a_new_process_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    monkeypatch.setattr(watchdog, "LOOK_PERIOD_S", 0.05)
    monkeypatch.setattr(watchdog, "SUSPECT_S", 0.6)
    monkeypatch.setattr(watchdog, "WITNESS_S", 0.6)
    run = ab.start(numbers(tmp_path / "out.jsonl"))
    until(lambda: delivered(run) > 1_000)
    os.kill(run.snapshot().operator(operator).members[0].pid, signal.SIGSTOP)
    until(lambda: events(run, "resumed"))
    before = delivered(run)
    until(lambda: delivered(run) > before + 10_000)
    run.end_input()
    report = run.wait(TIMEOUT_S)
    assert report.ok
    assert [e.detail for e in events(report, "died")] == ["was stopped (SIGSTOP)"]
    assert found(tmp_path / "out.jsonl") == Counter(range(report.ledger.tuples_in))


AGENT = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import anabranch as ab
from anabranch.runtime.live.agent import watchdog
watchdog.LOOK_PERIOD_S, watchdog.SUSPECT_S = 0.05, 0.6

if __name__ == "__main__":
    pipeline = ab.Pipeline("numbers")
    stream = pipeline.source("numbers", ab.generate(lambda n: n, rate=20_000))
    stream.map("same", lambda n: n).sink("out", ab.jsonl("out.jsonl"))
    run = ab.start(pipeline)
    print("runs", flush=True)
    sys.stdin.readline()
    run.end_input()
    report = run.wait({PATIENCE_S})
    print(report.ok, report.ledger.tuples_in, {{e.kind for e in report.events}})
"""


@needs_proc
def test_a_run_whose_agent_somebody_stops_goes_on_afterwards_as_if_nothing_had_been(
    tmp_path: Path,
) -> None:
    (tmp_path / "agent.py").write_text(textwrap.dedent(AGENT))
    out = tmp_path / "out.jsonl"
    popen = subprocess.Popen(
        [sys.executable, "agent.py"],
        cwd=tmp_path,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with popen:
        try:
            assert popen.stdout is not None
            assert popen.stdout.readline() == "runs\n"
            until(lambda: out.stat().st_size > 10_000)
            os.kill(popen.pid, signal.SIGSTOP)
            size, until_s = out.stat().st_size, time.monotonic() + 2
            # instances do without it
            until(lambda: time.monotonic() > until_s and out.stat().st_size > size)
            os.kill(popen.pid, signal.SIGCONT)
            told, _ = popen.communicate("\n", TIMEOUT_S)
        finally:
            popen.kill()
    ok, read, kinds = told.split(maxsplit=2)
    assert ok == "True"
    assert found(out) == Counter(range(int(read)))
    assert "died" not in kinds
    assert "ended by force" not in kinds
