"""Running a pipeline from a program."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.runtime.policies.script import load_script
from tests.anabranch.files import write
from tests.anabranch.slow_runs import WAIT, command, slowly, wait_until_lines
from tests.runtime.processes import PATIENCE_S

PROGRAM = """
    import anabranch as ab

    pipeline = ab.Pipeline("words")
    words = pipeline.source("lines", ab.items(["a b", "c"] * 100)).flat_map("split", str.split)
    words.sink("out", ab.discard())

    if __name__ == "__main__":
        report = ab.run(pipeline, warm=0, seed=7)
        print(report.ledger.tuples_out, report.ok, report.seed)
        with ab.start(pipeline, warm=0) as run:
            print(run.snapshot().pipeline)
        print(run.wait().ended)
"""


def pipeline() -> ab.Pipeline:
    made = ab.Pipeline("words")
    made.source("lines", ab.items(["a b"])).sink("out", ab.discard())
    return made


ORDERED = """
    import anabranch as ab

    pipeline = ab.Pipeline("ordered")
    numbers = pipeline.source("numbers", ab.items(range(9)))
    evens = numbers.filter("even", lambda n: n % 2 == 0, scale=ab.Scale(max_instances=2))
    last = evens.key_by(bool).fold("last", 0, lambda _, n: n)
    last.sink("out", ab.discard())

    if __name__ == "__main__":
        ab.run(pipeline, warm=0)
"""


def test_a_program_is_warned_as_the_command_is(tmp_path: Path) -> None:
    path = write(tmp_path, ORDERED, "ordered.py")
    in_program, by_command = (
        subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=True
        ).stderr
        for command in (
            [sys.executable, path.name],
            [sys.executable, "-m", "anabranch.cli", "validate", path.name],
        )
    )
    (told,) = by_command.splitlines()
    assert "operator 'last' (fold <lambda>): results may depend on the order" in told
    warning = told.removeprefix("warning: ")
    assert in_program == f"anabranch: pipeline 'ordered': {warning}\n"


@pytest.mark.parametrize("read", [load_script, str], ids=["a script", "as text"])
def test_a_program_is_warned_of_what_its_script_duplicates(
    read: Callable[[str], object], caplog: pytest.LogCaptureFixture
) -> None:
    made = ab.Pipeline("ordered")
    numbers = made.source("numbers", ab.items(range(9)))
    evens = numbers.filter("even", lambda n: n % 2 == 0)
    evens.key_by(bool).fold("last", 0, lambda _, n: n).sink("out", ab.discard())
    script = read("0.1 even duplicate")
    assert ab.run(made, warm=0, script=script).ok
    (told,) = caplog.messages
    assert "'even' may have" in told


def test_a_program_runs_its_pipeline_and_gets_the_report(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, write(tmp_path, PROGRAM, "program.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:3] == ["300 True 7", "words", "completed"]


INTERRUPTED = """
    import os, signal, threading
    import anabranch as ab

    pipeline = ab.Pipeline("endless")
    pipeline.source("numbers", ab.generate(lambda i: i)).sink("out", ab.discard())

    if __name__ == "__main__":
        run = ab.start(pipeline, warm=0)
        try:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            run.wait()
        except KeyboardInterrupt:
            run.end_input()
        print(run.wait().ended)
"""


def test_after_ctrl_c_a_program_may_wait_again(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, write(tmp_path, INTERRUPTED, "program.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.stdout, done.stderr) == ("completed\n", "")


def test_a_misspelt_option_gets_a_suggestion() -> None:
    with pytest.raises(ab.PipelineError, match=r"no option 'wram'; did you mean 'warm'\?"):
        ab.start(pipeline(), wram=3)
    with pytest.raises(ab.PipelineError, match=r"no option 'colour'; known: report, duration_s"):
        ab.run(pipeline(), colour="red")


def test_an_option_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ab.PipelineError, match="duration_s must be above 0"):
        ab.run(pipeline(), duration_s=0)
    with pytest.raises(ab.PipelineError, match="script, line 1: expected seconds"):
        ab.run(pipeline(), script="split duplicate")


SLOW = f"""{WAIT}
    import anabranch as ab

    pipeline = ab.Pipeline("slow")
    numbers = pipeline.source("numbers", ab.items(list(range(3000))))
    numbers.map("wait", wait, scale=ab.Scale(min_instances=2)).sink("out", ab.jsonl("out.jsonl"))
"""


def test_a_command_that_is_killed_can_be_resumed_and_nothing_is_lost_or_twice(
    tmp_path: Path,
) -> None:
    write(tmp_path, SLOW, "slow.py")
    with slowly(tmp_path):
        for part in range(2):
            with command(tmp_path, "--state", "kept", *["--resume"] * part) as killed:
                wait_until_lines(killed, tmp_path / "out.jsonl", 100 * (part + 1))
                killed.kill()
    with command(tmp_path, "--state", "kept", "--resume", "--report", "report.json") as resumed:
        told = resumed.communicate(timeout=PATIENCE_S)[0]
    assert resumed.returncode == 0, told
    results = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(results) == list(range(3000))
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["ledger"]["tuples_out"] == 3000
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_command_that_is_stopped_says_how_to_go_on(tmp_path: Path) -> None:
    write(tmp_path, SLOW, "slow.py")
    with slowly(tmp_path), command(tmp_path, "--state", "kept") as stopped:
        wait_until_lines(stopped, tmp_path / "out.jsonl", 100)
        stopped.send_signal(signal.SIGINT)
        assert stopped.stdout is not None
        while "finishing what was read" not in stopped.stdout.readline():
            assert stopped.poll() is None
        stopped.send_signal(signal.SIGINT)
        told = stopped.communicate(timeout=PATIENCE_S)[0]
    assert stopped.returncode == 130, told
    assert "the run is kept in kept: --resume goes on with it" in told
    with command(tmp_path, "--state", "kept") as refused:
        told = refused.communicate(timeout=PATIENCE_S)[0]
    assert (refused.returncode, "--resume" in told, "--fresh" in told) == (2, True, True)


@pytest.mark.parametrize("option", ["--resume", "--fresh"])
def test_the_folder_of_a_run_to_go_on_with_must_be_named(tmp_path: Path, option: str) -> None:
    write(tmp_path, SLOW, "slow.py")
    with command(tmp_path, option) as refused:
        told = refused.communicate(timeout=PATIENCE_S)[0]
    assert refused.returncode == 2
    assert f"{option} needs the folder in which the run is kept: --state DIR" in told
