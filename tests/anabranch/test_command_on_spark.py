"""`--on spark` as people use it: commands over unchanged files."""

from __future__ import annotations

import importlib.util
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from anabranch.cli import main
from anabranch.commands import on_spark
from anabranch.spark_bridge.errors import SparkUnavailable
from anabranch.spark_bridge.local.java import find_java
from tests.anabranch.files import clean_imports, write
from tests.runtime.processes import PATIENCE_S

COMMAND = [sys.executable, "-m", "anabranch.cli"]
TIMEOUT_S = PATIENCE_S

WORDS = """
    from dataclasses import dataclass

    import anabranch as ab

    @dataclass
    class Word:
        text: str

    def words_in(line):
        return [Word(text) for text in line.split()]

    pipeline = ab.Pipeline("words", dead_letters="words.dead.jsonl")
    lines = pipeline.source("lines", ab.items([f"{n % 9} b c" for n in range(5000)]))
    words = lines.flat_map("split", words_in, scale=ab.Scale(max_instances=4))
    counts = words.key_by(lambda word: word.text).fold("count", 0, lambda n, _: n + 1)
    counts.sink("out", ab.jsonl("words.jsonl"))
"""
ENDLESS = """
    endless = ab.Pipeline("endless")
    endless.source("numbers", ab.generate(int, rate=5)).sink("out", ab.discard())
"""
TYPED = """
    import anabranch as ab

    pipeline = ab.Pipeline("typed")
    pipeline.source("lines", ab.stdin()).sink("out", ab.jsonl("out.jsonl"))
"""


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S
    )


def called(*arguments: str) -> Result:
    """In this process, which starts sooner than a command."""
    with clean_imports():
        return CliRunner().invoke(main, arguments)


@pytest.mark.spark
def test_an_unchanged_file_runs_on_spark(tmp_path: Path) -> None:
    try:
        find_java()
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
    write(tmp_path, WORDS)
    done = command(
        tmp_path, "run", "headlines.py", "--on", "spark=local[2]", "--report", "report.json"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "words: done on Spark as one batch" in done.stdout
    last = dict(map(json.loads, (tmp_path / "words.jsonl").read_text().splitlines()))
    assert last == {"b": 5000, "c": 5000} | {str(n): 556 - (n > 4) for n in range(9)}
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["operators"]["out"] == {"received": 15_000, "delivered": 15_000}


def test_validate_shows_the_sections_of_the_job(tmp_path: Path) -> None:
    file = write(tmp_path, WORDS)
    done = called("validate", str(file), "--on", "spark")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.endswith("but the first:\n  lines, split\n  count, out\n")


@pytest.mark.parametrize("verb", ["run", "validate"])
def test_what_spark_cannot_do_is_said_before_anything_starts(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, TYPED)
    (tmp_path / "out.jsonl").write_text("what was there\n")
    done = called(verb, "headlines.py", "--on", "spark")
    assert done.exit_code == 2
    assert "operator 'lines': standard input" in done.stderr
    assert "use ab.files" in done.stderr
    assert (tmp_path / "out.jsonl").read_text() == "what was there\n"


GONE = """
    import anabranch as ab

    pipeline = ab.Pipeline("gone")
    pipeline.source("words", ab.items(["to", "be"])).sink("out", SINK)
"""


@pytest.mark.parametrize(
    ("sink", "master", "said"),
    [
        ('ab.spark.table("t", "word string")', "spark", "the tables of a Spark that the command"),
        ('ab.spark.table("t", "word string")', "spark=spark://host:7077", ""),
        ('ab.spark.collect("t", "word string")', "spark=local[2]", "what it collects would be"),
        ('ab.spark.collect("t", "word string")', "spark=spark://host:7077", "what it collects"),
    ],
)
def test_results_that_would_be_gone_with_the_command_are_refused(
    sink: str, master: str, said: str, tmp_path: Path
) -> None:
    write(tmp_path, GONE.replace("SINK", sink))
    done = called("validate", str(tmp_path / "headlines.py"), "--on", master)
    assert done.exit_code == (2 if said else 0), done.output
    assert said in done.output


def test_a_stream_through_spark_connect_is_refused_and_a_batch_is_not(tmp_path: Path) -> None:
    write(tmp_path, WORDS + ENDLESS)
    there = ["--on", "spark=sc://127.0.0.1:1"]
    file = str(tmp_path / "headlines.py")
    done = called("validate", f"{file}:pipeline", *there)
    assert (done.exit_code, "on Spark as one batch" in done.output) == (0, True), done.output
    done = called("validate", f"{file}:endless", *there)
    assert done.exit_code == 2
    assert "a session of Spark Connect (sc://…) has each batch done on its server" in done.output
    assert "use --as batch, or" in done.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--on", "spork"], "expected spark, or spark=MASTER"),
        (["--on", "spark="], "expected spark, or spark=MASTER"),
        (["--on", "spark=yarrn"], "the address of a master"),
        (["--on", "spark=local[0]"], "expected one core or more"),
        (["--on", "spark", "--warm", "1"], "--warm is about instances"),
        (["--on", "spark", "--resume"], "--resume needs the folder"),
        (["--on", "spark", "--state", "there", "--resume"], "keeps no run that could go on"),
        (["--on", "spark", "--as", "batch", "--state", "there"], "are for streams"),
        (["--on", "spark", "--report", "no/report.json"], "does not exist"),
        (["--on", "spark", "--report", "headlines.py"], "which is no report"),
        (["--on", "spark", "--report", "words.jsonl"], "sink 'out' writes there"),
        (["--on", "spark=sc://127.0.0.1:1", "--as", "stream"], "done on its server"),
        (["--as", "batch"], "--as is for a pipeline on Spark"),
    ],
)
def test_mistakes_are_told(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, WORDS)
    done = called("run", "headlines.py", *arguments)
    assert done.exit_code == 2
    assert said in done.stderr


def test_calls_of_py4j_that_are_interrupted_are_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def log() -> int:
        caplog.clear()
        logging.exception("KeyboardInterrupt while sending command.")
        logging.getLogger("py4j.clientserver").error("There was an exception")
        return len(caplog.records)

    assert log() == 2
    with on_spark.quiet_py4j():
        assert log() == 0
    assert log() == 2


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
@pytest.mark.parametrize("verb", ["run", "validate"])
def test_a_package_that_is_missing_is_told(
    verb: str, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == missing else real(name, *a)
    )
    file = write(tmp_path, WORDS)
    told = called(verb, str(file), "--on", "spark")
    assert told.exit_code == 2
    assert f"Spark needs the package {missing}, which is not installed" in told.output
