"""Running a pipeline from a program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import anabranch as ab
from tests.anabranch.files import write

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


def test_a_program_runs_its_pipeline_and_gets_the_report(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, write(tmp_path, PROGRAM, "program.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=40,
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
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
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
        timeout=40,
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
