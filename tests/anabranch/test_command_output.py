"""Standard output holds results or the report, and nothing else; it may be full, or closed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.anabranch.files import GOOD, write
from tests.runtime.processes import PATIENCE_S

ANABRANCH = [sys.executable, "-m", "anabranch.cli"]
SPAN = ["--from", "2026-01-01", "--to", "2026-02-01"]
FULL = Path("/dev/full")
NOISE = """
    import os
    import subprocess
    import anabranch as ab

    os.write(1, b"read")

    def noisy(n):
        os.write(1, b"noise")
        subprocess.run(["echo", "more noise"])
        return n

    pipeline = ab.Pipeline("noisy")
    numbers = pipeline.source("numbers", ab.items([1, 2])).map("noisy", noisy)
    numbers.sink("out", ab.discard())
    shown = ab.Pipeline("shown")
    shown.source("numbers", ab.items([1, 2])).map("noisy", noisy).sink("out", ab.stdout())
"""
SPOILT = """
    import anabranch as ab

    pipeline = ab.Pipeline("spoilt")
    lines = pipeline.source("lines", ab.items(["a", "b"]))
    lines.map("parse", float).sink("out", ab.discard())
"""


def run(path: Path, *arguments: str, target: str = "") -> subprocess.CompletedProcess[str]:
    command = [*ANABRANCH, arguments[0], path.name + target, *arguments[1:]]
    return subprocess.run(
        command, cwd=path.parent, capture_output=True, text=True, timeout=PATIENCE_S
    )


def test_the_report_is_alone_on_standard_output(tmp_path: Path) -> None:
    done = run(write(tmp_path, NOISE), "run", "--json", target=":pipeline")
    assert json.loads(done.stdout)["ledger"]["tuples_out"] == 2
    assert done.stderr.count("noise") >= 4


def test_results_are_alone_on_standard_output(tmp_path: Path) -> None:
    done = run(write(tmp_path, NOISE), "run", target=":shown")
    assert done.stdout.removeprefix("read") == "1\n2\n"


@pytest.mark.parametrize("command", ["validate", "simulate"])
def test_what_the_file_prints_is_not_part_of_json(tmp_path: Path, command: str) -> None:
    extra = ["--load", "5", "--duration", "1", "--capacity", "noisy=9"] * (command == "simulate")
    done = run(write(tmp_path, NOISE), command, "--json", *extra, target=":pipeline")
    assert json.loads(done.stdout)
    assert "read" in done.stderr


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["validate", "headlines.py"], 1),
        (["validate", "headlines.py", "--json"], 1),
        (["--help"], 1),
        (["run", "--help"], 1),
        (["run", "headlines.py", "--json"], 1),
        (["run", "headlines.py"], 0),  # the results are as good as before
        (["run", "shown.py:shown"], 1),
    ],
)
def test_a_full_output_is_told_in_one_line(tmp_path: Path, arguments: list[str], code: int) -> None:
    write(tmp_path, GOOD)
    write(tmp_path, NOISE.replace('os.write(1, b"read")', ""), "shown.py")
    with FULL.open("w") as full:
        done = subprocess.run(
            [*ANABRANCH, *arguments],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
        )
    assert done.returncode == code
    assert "standard output" in done.stderr
    assert done.stderr.count("No space left") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["validate", "headlines.py"], 1),
        (["policies", "--json"], 1),
        (["--version"], 1),
        (["run", "--help"], 1),
        (["run", "headlines.py", "--json"], 2),  # before anything is done
        (["backfill", "headlines.py", *SPAN, "--state", "history", "--json"], 2),
        (["run", "headlines.py"], 0),
    ],
)
def test_a_closed_output_is_told_where_it_is_needed(
    tmp_path: Path, arguments: list[str], code: int
) -> None:
    write(tmp_path, GOOD)
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *ANABRANCH, *arguments],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == code
    assert done.stderr.count("standard output is closed") == (1 if code else 0)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["validate", "headlines.py"], ["--help"], ["run", "--help"]])
def test_a_reader_that_is_gone_is_no_failure(tmp_path: Path, arguments: list[str]) -> None:
    write(tmp_path, GOOD)
    command = subprocess.Popen(
        [*ANABRANCH, *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert command.stdout is not None
    command.stdout.close()
    assert command.stderr is not None
    assert command.stderr.read() == b""
    command.stderr.close()
    assert command.wait(PATIENCE_S) == 0


def test_a_run_whose_tuples_all_die_fails(tmp_path: Path) -> None:
    path = write(tmp_path, SPOILT)
    done = run(path, "run")
    assert done.returncode == 1
    assert "all 2 tuples became dead letters" in done.stdout
    assert run(path, "run", "--dead-max", "2").returncode == 0
    assert run(path, "run", "--dead-max", "0.5").returncode == 1
    assert "--dead-max" in run(path, "run", "--dead-max", "150%").stderr
