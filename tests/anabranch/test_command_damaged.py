"""`anabranch run --resume` where what was kept of the run is not as it was left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.anabranch.files import write
from tests.anabranch.slow_runs import wait_until_lines
from tests.anabranch.test_command_process import TIMEOUT_S, run, start

KEPT = """
    import anabranch as ab

    pipeline = ab.Pipeline("kept")
    numbers = pipeline.source("numbers", ab.generate(lambda n: n, rate=2000))
    numbers.map("text", str).sink("out", ab.jsonl("numbers.jsonl"))
"""
SOURCE, SINK = "journals/0.0.journal", "journals/2.0.journal"
Damage = Callable[[Path], object]


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def killed_in(folder: Path) -> Path:
    """The pipeline of a run that was killed when it had delivered something."""
    path = write(folder, KEPT)
    with start(path, "--state", "kept") as process:
        wait_until_lines(process, folder / "numbers.jsonl", 500)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=TIMEOUT_S)
    return path


@pytest.fixture(scope="module")
def once_killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder of such a run, and a copy of it."""
    folder, copy = (tmp_path_factory.mktemp("kept") / name for name in ("run", "copy"))
    folder.mkdir()
    killed_in(folder)
    shutil.copytree(folder, copy)
    return folder, copy


@pytest.fixture
def killed(once_killed: tuple[Path, Path]) -> Path:
    """The pipeline of a run that was killed, for each test as it was left."""
    folder, copy = once_killed
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    return folder / "headlines.py"


def file_of(journal: Path) -> Path:
    """That of the agent; or the oldest part of one of an instance. (There are two if the instance
    had died, on a host that stood still for seconds.)"""
    parts = [path for path in journal.parent.iterdir() if path.suffix[1:].isdecimal()]
    own = [path for path in parts if path.stem == journal.name]
    return min(own, default=journal, key=lambda path: int(path.suffix[1:]))


def resumed(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run(path, "--state", "kept", "--resume", "--duration", "0.1", *options)


@pytest.mark.parametrize("damage", [cut, emptied, flipped, os.unlink])
@pytest.mark.parametrize("name", ["agent.journal", SOURCE, SINK])
def test_a_damaged_journal_is_refused_in_one_line(killed: Path, damage: Damage, name: str) -> None:
    damage(file_of(killed.parent / "kept" / name))
    done = resumed(killed, "--json", "--report", "report.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("anabranch: ")
    assert name in done.stderr
    assert "put it back" in done.stderr
    assert not (killed.parent / "report.json").exists()


def test_a_run_that_was_copied_elsewhere_is_told_where_it_can_go_on(
    tmp_path: Path, killed: Path
) -> None:
    shutil.copytree(killed.parent, tmp_path / "copy")
    # It is met with the next results, which may take a while to come.
    done = resumed(tmp_path / "copy" / killed.name, "--duration", "600")
    assert done.returncode in (1, 2)
    assert "resume the run in the folder where it was begun" in done.stdout + done.stderr


@pytest.mark.parametrize("damage", [cut, emptied])
def test_what_is_noted_beside_the_results_is_named_when_it_is_damaged(
    killed: Path, damage: Damage
) -> None:
    (side,) = (killed.parent / "kept" / "ends" / "files").iterdir()
    damage(side)
    # It is met with the next results, which may take a while to come.
    done = resumed(killed, "--duration", "600")
    told = f"cannot write results: what the run notes beside it, in {str(side)!r}, is "
    assert done.returncode in (1, 2)  # it may be met before all have begun, or afterwards
    assert told in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "Errno" not in done.stdout + done.stderr


def test_what_is_as_it_was_left_goes_on(killed: Path) -> None:
    done = resumed(killed)
    assert done.returncode == 0, done.stdout + done.stderr
    results = killed.parent / "numbers.jsonl"
    texts = [json.loads(line) for line in results.read_text().splitlines()]
    assert texts == list(map(str, range(len(texts))))
