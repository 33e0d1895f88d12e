"""`anabranch run --state`: what is said of a run that is kept, and how it is stopped."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from anabranch.commands.following import (
    ENDING_KEPT,
    KEEPING,
    Interrupts,
    Output,
    follow,
    interrupts,
)
from anabranch.commands.preparing import plan
from tests.anabranch.fakes import FakeRun, FakeView
from tests.anabranch.files import clean_imports, write
from tests.anabranch.test_command_process import TIMEOUT_S, WORDS, read_until, run, start

ENDLESS = """
    import anabranch as ab

    pipeline = ab.Pipeline("endless")
    numbers = pipeline.source("numbers", ab.generate(lambda n: n, rate=500))
    numbers.map("text", str).sink("out", ab.jsonl("numbers.jsonl"))
"""
SERVED = """
    import anabranch as ab

    pipeline = ab.Pipeline("served")
    pipeline.source("lines", ab.spark.feed("lines")).sink("out", ab.jsonl("lines.jsonl"))
"""
SLOW = """
    import os, time
    import anabranch as ab

    def wait(number):
        while number % 100 == 99 and os.path.exists("slow"):
            time.sleep(0.01)
        return number

    pipeline = ab.Pipeline("slow")
    numbers = pipeline.source("numbers", ab.generate(lambda n: 1_000_000_000 + n, count=400))
    timed = numbers.map("wait", wait).event_time(float)
    timed.sink("out", ab.jsonl("numbers.jsonl"))
"""
AGAIN = ("--state", "kept", "--resume-or-begin")


def stopped(path: Path, *arguments: str) -> str:
    """What a run says that is stopped, by SIGTERM, when it has delivered something."""
    with start(path, *arguments) as process:
        said = read_until(process, " read")
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 130
    return said + rest


def test_one_command_begins_a_run_and_goes_on_with_it_after_each_stop(tmp_path: Path) -> None:
    path = write(tmp_path, ENDLESS)
    first, second = stopped(path, *AGAIN), stopped(path, *AGAIN)
    assert first.startswith("endless: begins; kept in kept\n")
    assert "stopping at once; the run is kept" in first
    assert first.endswith("the run is kept in kept: the same command goes on with it\n")
    assert second.startswith("endless: goes on with the run of 20")
    last = run(path, "--state", "kept", "--resume", "--duration", "0.1")
    assert last.returncode == 0, last.stdout + last.stderr
    numbers = [int(line.strip('"')) for line in (tmp_path / "numbers.jsonl").read_text().split()]
    assert numbers == list(range(len(numbers)))
    assert list((tmp_path / "kept").iterdir()) == []


def test_ctrl_c_leaves_a_savepoint_from_which_another_run_goes_on(tmp_path: Path) -> None:
    path = write(tmp_path, ENDLESS)
    with start(path, "--state", "kept", "--until-committed") as process:
        read_until(process, " read")
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, said
    assert said.endswith("savepoint: kept/savepoint; a run goes on with --from that folder\n")
    last = run(path, "--from", "kept/savepoint", "--duration", "0.1")
    assert last.returncode == 0, last.stdout + last.stderr
    numbers = [int(line.strip('"')) for line in (tmp_path / "numbers.jsonl").read_text().split()]
    assert numbers == list(range(len(numbers)))
    refused = run(path, "--from", "nowhere")
    assert (refused.returncode, "there is none" in refused.stderr) == (2, True)
    refused = run(path, "--from", "kept")
    assert refused.returncode == 2
    assert f"did you mean '{tmp_path / 'kept/savepoint'}'?" in refused.stderr
    for wrong in (("--until-committed",), ("--state", "k", "--resume", "--from", "kept")):
        assert run(path, *wrong).returncode == 2


def test_no_name_of_a_folder_keeps_a_run_from_being_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    short = Path(tempfile.mkdtemp(dir="/tmp"), os.fsdecode(b"\xe9"))  # for paths of sockets
    short.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    path = write(folder, WORDS)
    done = run(path, "--state", os.fsdecode(b"st\xe9t"), "--report", os.fsdecode(b"r\xe9"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len((folder / "words.jsonl").read_text().splitlines()) == 15_000
    assert os.listdir(short) == []
    shutil.rmtree(short.parent)


def test_sigterm_stops_a_run_that_is_kept_at_once() -> None:
    noted, view = Interrupts(keeps=True), FakeView()
    run = FakeRun(100, lambda n: noted.note(signal.SIGTERM, None) if n == 2 else None)
    assert follow(run, view, noted, Output()).ended == "stopped"
    assert run.calls == ["stop"]
    assert view.said == [KEEPING]


def test_ctrl_c_ends_the_input_of_a_run_that_is_kept_too() -> None:
    noted, view = Interrupts(keeps=True), FakeView()
    run = FakeRun(100, lambda n: noted.note(signal.SIGINT, None) if n == 2 else None)
    assert follow(run, view, noted, Output()).ended == "completed"
    assert run.calls == ["cut short by Ctrl-C"]
    assert view.said == [ENDING_KEPT]
    assert ENDING_KEPT.endswith("press Ctrl-C again to stop at once and keep the run")


def test_ctrl_c_stops_a_backfill_which_goes_on_later(tmp_path: Path) -> None:
    """It left a savepoint that stood for input that was not read."""
    path, slow = write(tmp_path, SLOW), tmp_path / "slow"
    slow.touch()
    span = ("--from", "2001-09-09", "--to", "2001-09-10", "--state", "kept")
    with start(path, *span, verb="backfill") as process:
        read_until(process, " read")
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 130, said
    assert said.endswith("the run is kept in kept: --resume goes on with it\n")
    assert not (tmp_path / "kept/savepoint").exists()
    slow.unlink()
    done = run(path, *span, "--resume", verb="backfill")
    assert done.returncode == 0, done.stdout + done.stderr
    numbers = [int(line) for line in (tmp_path / "numbers.jsonl").read_text().split()]
    assert numbers == [*range(1_000_000_000, 1_000_000_400)]
    assert (tmp_path / "kept/savepoint").exists()


def test_ctrl_c_and_then_sigterm_are_two_signals_not_three() -> None:
    with interrupts(keeps=True) as noted:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert noted.received == 2


def test_a_run_that_a_service_feeds_is_ended_by_sigterm_with_and_without_state(
    tmp_path: Path,
) -> None:
    with start(write(tmp_path, SERVED), "--state", "kept") as process:
        read_until(process, "begins; kept in kept")
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=TIMEOUT_S)
    assert "finishing what was read" in said
    assert process.returncode == 0


@pytest.mark.parametrize(("where", "can"), [("", False), (', state="loud"', True)])
def test_a_run_can_be_resumed_only_if_results_for_spark_outlive_it(
    tmp_path: Path, where: str, can: bool
) -> None:
    collect = f'ab.spark.collect("loud", "number long"{where})'
    path = write(tmp_path, ENDLESS.replace('ab.jsonl("numbers.jsonl")', collect))
    with clean_imports():
        assert plan(str(path), [], None).can_be_resumed is can


@pytest.mark.parametrize("wish", ["--resume", "--resume-or-begin", "--fresh"])
def test_every_wish_needs_the_folder(tmp_path: Path, wish: str) -> None:
    done = run(write(tmp_path, WORDS), wish)
    assert done.returncode == 2
    assert done.stderr == (
        f"anabranch: {wish} needs the folder in which the run is kept: --state DIR\n"
    )


def test_wishes_exclude_each_other(tmp_path: Path) -> None:
    done = run(write(tmp_path, WORDS), "--state", "kept", "--resume-or-begin", "--fresh")
    assert done.returncode == 2
    assert done.stderr.startswith("anabranch: --resume-or-begin and --fresh exclude each other: ")


def test_what_the_system_refuses_is_told_without_its_number(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="the folder is one of Parquet files")
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "old.parquet").touch()
    parquet = 'ab.parquet("words", {"value": str})'
    done = run(write(tmp_path, WORDS.replace('ab.jsonl("words.jsonl")', parquet)))
    assert done.returncode == 2
    assert done.stderr.startswith("anabranch: cannot write results: the folder is not empty")
    assert done.stderr.endswith(": words\n")
