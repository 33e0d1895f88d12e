"""The working directory may be removed by another program, before a command starts or later."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.anabranch.files import GOOD, write
from tests.anabranch.slow_runs import wait_until_lines
from tests.anabranch.test_command_process import TIMEOUT_S

GONE = "the working directory of this process cannot be found"
RELATIVE = """
    import anabranch as ab

    pipeline = ab.Pipeline("relative")
    pipeline.source("lines", ab.files("texts/*.txt")).sink("out", ab.jsonl("out.jsonl"))

    if __name__ == "__main__":
        ab.run(pipeline)
"""
REMOVES_IT = """
    import os
    import anabranch as ab

    pipeline = ab.Pipeline("removes")
    pipeline.source("numbers", ab.items([1])).sink("out", ab.discard())
    os.rmdir(os.getcwd())
"""
GOES_ON = """
    import asyncio, os
    import anabranch as ab

    async def text(n):
        while n == 900 and os.path.exists(WORK):
            await asyncio.sleep(0.01)
        return str(n)

    pipeline = ab.Pipeline("goes_on")
    numbers = pipeline.source("numbers", ab.generate(lambda n: n, rate=500, count=1500))
    numbers.map("text", text).sink("out", ab.jsonl(HERE))
"""
DEAD_OUT = """
    import asyncio, os, signal
    import anabranch as ab

    class Dies:
        def __init__(self):
            self.came = 0

        async def __call__(self, n):
            while n == 900 and os.path.exists(WORK):
                await asyncio.sleep(0.01)
            if n == 900 and not os.path.exists(FLAG):
                open(FLAG, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            return str(n)

    pipeline = ab.Pipeline("goes_on")
    numbers = pipeline.source("numbers", ab.generate(lambda n: n, rate=500, count=1500))
    numbers.map("text", Dies).sink("out", ab.jsonl(HERE))
"""


def in_a_removed_folder(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """`command` of Python, in a directory that is there no more when it begins."""
    gone = folder / "gone"
    gone.mkdir()
    return subprocess.run(
        ["sh", "-c", 'rmdir "$0" && exec "$@"', str(gone), sys.executable, *command],
        cwd=gone,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


ANABRANCH = ("-c", "from anabranch.cli import main; main()")
"""As the installed program; `-m` would look for a module in the working directory first."""


@pytest.mark.parametrize("text", [GOOD, RELATIVE], ids=["absolute", "relative"])
@pytest.mark.parametrize(
    "options",
    [
        ["run"],
        ["run", "--state", "kept"],
        ["run", "--report", "report.json"],
        ["validate"],
        ["simulate", "--load", "10", "--capacity", "split=100"],
    ],
    ids=" ".join,
)
def test_a_command_says_that_it_has_no_working_directory(
    tmp_path: Path, options: list[str], text: str
) -> None:
    path = write(tmp_path, text)
    done = in_a_removed_folder(tmp_path, *ANABRANCH, *options, str(path))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"anabranch: {GONE}")
    assert "change to one that is there" in line


def test_a_relative_file_is_not_said_to_be_missing(tmp_path: Path) -> None:
    done = in_a_removed_folder(tmp_path, *ANABRANCH, "run", "headlines.py")
    assert GONE in done.stderr
    assert "no such file" not in done.stderr


def test_a_program_is_told_too(tmp_path: Path) -> None:
    done = in_a_removed_folder(tmp_path, str(write(tmp_path, RELATIVE)))
    assert done.returncode == 1
    assert f"PipelineError: {GONE}" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", ["validate", "run"])
def test_a_file_may_remove_it_while_it_is_read(tmp_path: Path, command: str) -> None:
    path = write(tmp_path, REMOVES_IT)
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, *ANABRANCH, command, str(path)],
        cwd=work,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 2
    assert GONE in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "command", [["experiment", "policies", "--quick", "--out"], ["verify", "--svg"]], ids=" ".join
)
def test_results_that_could_not_be_written_are_refused_before_the_work(
    tmp_path: Path, command: list[str]
) -> None:
    done = in_a_removed_folder(tmp_path, *ANABRANCH, *command, "results")
    assert done.returncode == 2
    assert GONE in done.stderr


@pytest.mark.parametrize("command", [["--version"], ["run", "--help"], ["policies"]], ids=" ".join)
def test_what_needs_no_file_works(tmp_path: Path, command: list[str]) -> None:
    done = in_a_removed_folder(tmp_path, *ANABRANCH, *command)
    assert done.returncode == 0, done.stderr


def removed_meanwhile(
    folder: Path, text: str, *options: str
) -> tuple[subprocess.CompletedProcess[str], Path]:
    """A run whose working directory is removed when its first results are there."""
    results, work = folder / "results.jsonl", folder / "work"
    for name, where in (("HERE", results), ("FLAG", folder / "died"), ("WORK", work)):
        text = text.replace(name, repr(str(where)))
    path = write(folder, text)
    work.mkdir()
    with subprocess.Popen(
        [sys.executable, *ANABRANCH, "run", *options, str(path)],
        cwd=work,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until_lines(process, results, 10)
        shutil.rmtree(work)
        out, told = process.communicate(timeout=TIMEOUT_S)
    return subprocess.CompletedProcess([], process.returncode, out, told), results


def test_a_run_that_writes_elsewhere_goes_on_without_it(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done, results = removed_meanwhile(tmp_path, GOES_ON, "--report", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(results.read_text().splitlines()) == 1500
    assert json.loads(report.read_text())["ended"] == "completed"


def test_a_new_incarnation_says_which_of_its_files_was_there(tmp_path: Path) -> None:
    done, _results = removed_meanwhile(tmp_path, DEAD_OUT)
    told = done.stdout + done.stderr
    assert done.returncode == 1, told
    assert "the working directory has been removed, and with it the place of this file" in told
    assert "'goes_on.dead.jsonl'" in told
    assert "Traceback" not in told


def test_a_report_goes_where_it_was_meant_when_the_run_began(tmp_path: Path) -> None:
    """The program may be in another directory when the run ends."""
    text = """
        import os, sys
        import anabranch as ab

        pipeline = ab.Pipeline("moves")
        pipeline.source("numbers", ab.items([1])).sink("out", ab.discard())

        if __name__ == "__main__":
            run = ab.start(pipeline, report="report.json")
            os.chdir("elsewhere")
            run.wait()
    """
    program = write(tmp_path, text)
    (tmp_path / "elsewhere").mkdir()
    subprocess.run([sys.executable, str(program)], cwd=tmp_path, check=True, timeout=TIMEOUT_S)
    assert json.loads((tmp_path / "report.json").read_text())["ended"] == "completed"


def test_input_is_found_though_a_function_has_changed_the_directory(tmp_path: Path) -> None:
    """The functions of keys and event times run in the processes that read."""
    text = """
        import os
        import anabranch as ab

        def key(line):
            os.chdir("/")
            return line

        pipeline = ab.Pipeline("moves")
        lines = pipeline.source("lines", ab.files("texts/*.txt", split_bytes=8))
        lines.key_by(key).sink("out", ab.jsonl("out.jsonl"))
    """
    path = write(tmp_path, text)
    (tmp_path / "texts").mkdir()
    for n in range(3):
        (tmp_path / "texts" / f"{n}.txt").write_text("one\ntwo\nthree\n")
    done = subprocess.run(
        [sys.executable, *ANABRANCH, "run", str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 9, done.stdout
