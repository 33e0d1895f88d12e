"""The command line as people use it: real processes, pipes, signals and a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.anabranch.files import write
from tests.runtime.agent_runs import until
from tests.runtime.processes import PATIENCE_S

COMMAND = [sys.executable, "-m", "anabranch.cli"]
TIMEOUT_S = PATIENCE_S

WORDS = """
    import anabranch as ab

    pipeline = ab.Pipeline("words", dead_letters="words.dead.jsonl")
    lines = pipeline.source("lines", ab.items([f"{n} b c" for n in range(5000)]))
    words = lines.flat_map("split", str.split, scale=ab.Scale(max_instances=4))
    words.sink("out", ab.jsonl("words.jsonl"))
"""
SPOILT = """
    import anabranch as ab

    class Split:
        def __init__(self):
            raise OSError("no model is there")

        def __call__(self, line):
            return line.split()

    pipeline = ab.Pipeline("words")
    words = pipeline.source("lines", ab.items(["a b"])).flat_map("split", Split)
    words.sink("out", ab.jsonl("words.jsonl"))
"""
ECHO = """
    import anabranch as ab

    pipeline = ab.Pipeline("echo")
    pipeline.source("lines", ab.stdin()).map("upper", str.upper).sink("out", ab.stdout())
"""
ENDLESS = """
    import anabranch as ab

    def text(n):
        if n == 0:
            open("begun", "w").close()
        return str(n)

    pipeline = ab.Pipeline("endless")
    numbers = pipeline.source("numbers", ab.generate(lambda n: n, rate=500))
    numbers.map("text", text, scale=ab.Scale(max_instances=4)).sink("out", ab.discard())
"""
STUCK = """
    import time
    import anabranch as ab

    pipeline = ab.Pipeline("stuck")
    numbers = pipeline.source("numbers", ab.items(range(10)))
    numbers.map("sleep", lambda n: time.sleep(3600)).sink("out", ab.discard())
"""


def run(
    path: Path, *arguments: str, text_in: str = "", verb: str = "run"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, verb, path.name, *arguments],
        cwd=path.parent,
        input=text_in,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def start(path: Path, *arguments: str, verb: str = "run") -> subprocess.Popen[str]:
    """In a process group of its own, like a command typed into a shell."""
    return subprocess.Popen(
        [*COMMAND, verb, path.name, *arguments],
        cwd=path.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )


def read_until(process: subprocess.Popen[str], part: str) -> str:
    """Output up to and with the first line that contains `part`."""
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if part in line:
            return seen
    raise AssertionError(f"{part!r} never came; output: {seen}")


def group_is_empty(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def assert_nobody_left(group: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not group_is_empty(group):
        assert time.monotonic() < deadline, "processes of the run are left"
        time.sleep(0.001)


def test_a_run_ends_with_a_summary_a_report_and_all_results(tmp_path: Path) -> None:
    done = run(write(tmp_path, WORDS), "--report", "report.json", "--seed", "5")
    assert done.returncode == 0, done.stderr
    assert "balanced: every tuple is accounted for" in done.stdout
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["pipeline"] == "words"
    assert report["seed"] == 5
    assert report["ledger"]["tuples_in"] == 5000
    assert report["ledger"]["tuples_out"] == 15000
    assert report["ledger"]["balanced"]
    names = {"name", "tuples_in", "tuples_out", "instances_peak", "joins", "leaves", "messages"}
    assert all(names <= set(operator) for operator in report["operators"])
    results = Counter(json.loads(s) for s in (tmp_path / "words.jsonl").read_text().splitlines())
    assert results["b"] == results["c"] == 5000
    assert len(results) == 5002
    assert not (tmp_path / "words.dead.jsonl").exists()


def test_json_is_alone_on_standard_output(tmp_path: Path) -> None:
    text = WORDS.replace("pipeline = ab", 'print("noise")\n    pipeline = ab', 1)
    text = text.replace("str.split,", "lambda s: (print('more noise'), s.split())[1],")
    done = run(write(tmp_path, text), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ledger"]["tuples_out"] == 15000
    assert "noise" in done.stderr
    assert "ledger: 5,000 read" in done.stderr


def test_results_are_alone_on_standard_output(tmp_path: Path) -> None:
    lines = [f"line {n}" for n in range(20_000)]
    done = run(write(tmp_path, ECHO), text_in="\n".join(lines))
    assert done.returncode == 0, done.stderr
    assert Counter(done.stdout.splitlines()) == Counter(line.upper() for line in lines)
    assert "ledger: 20,000 read" in done.stderr


def test_a_reader_that_goes_away_ends_the_run_with_a_clear_word(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "run", write(tmp_path, ECHO).name],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdin as stdin:
        stdin.write(b"first\n")
        stdin.flush()
        assert process.stdout.readline() == b"FIRST\n"
        process.stdout.close()
        stdin.write(b"second\n")
        stdin.flush()
        text = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(TIMEOUT_S) == 1
    assert "the reader of standard output has gone" in text
    assert "Traceback" not in text
    assert_nobody_left(process.pid)


def test_settings_scripts_and_duration_reach_the_run(tmp_path: Path) -> None:
    script = "0.2 text duplicate 2; every 0.1 from 0.6 to 3.9: text leave"
    arguments = ("--scale-script", script, "--set", "text.scale.max_instances=3", "--json")
    done = run(write(tmp_path, ENDLESS), *arguments, "--duration", "4", "--transport", "tcp")
    assert done.returncode == 0, done.stderr
    assert " by --duration; all that was read is finished" in done.stderr
    report = json.loads(done.stdout)
    assert (report["ended"], report["ended_by"]) == ("ended early", "duration")
    assert report["ledger"]["balanced"]
    assert report["seconds"] >= 4
    text = report["operators"][1]
    assert (text["name"], text["instances_peak"], text["joins"]) == ("text", 3, 2)
    assert text["leaves"] == 2
    assert {"joined", "left"} <= {event["kind"] for event in report["events"]}


def test_dead_letters_are_counted_and_do_not_fail_the_run(tmp_path: Path) -> None:
    text = WORDS.replace("str.split,", "lambda s: s.split() if s[0] != '7' else 1 / 0,")
    done = run(write(tmp_path, text))
    assert done.returncode == 0, done.stderr
    dead = len((tmp_path / "words.dead.jsonl").read_text().splitlines())
    assert dead == sum(str(n).startswith("7") for n in range(5000))
    assert f"dead letters: {dead:,} in words.dead.jsonl" in done.stdout
    assert "ZeroDivisionError" in done.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            WORDS.replace('ab.items([f"{n} b c" for n in range(5000)])', "ab.files('no/*.txt')"),
            "no",
        ),
        (WORDS.replace("words.jsonl", "no/such/folder/words.jsonl"), "no/such/folder"),
    ],
)
def test_an_end_that_is_not_there_is_wrong_usage(tmp_path: Path, text: str, said: str) -> None:
    done = run(write(tmp_path, text))
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_operator_that_fails_for_good_is_code_1(tmp_path: Path) -> None:
    done = run(write(tmp_path, SPOILT), "--report", "r.json")
    assert done.returncode == 1
    assert "words: failed" in done.stdout
    assert "no model is there" in done.stdout
    assert "Traceback" not in done.stdout
    assert json.loads((tmp_path / "r.json").read_text())["ended"] == "failed"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("blocked", [False, True])
def test_one_interrupt_finishes_what_was_read(
    tmp_path: Path, number: signal.Signals, blocked: bool
) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [number] * blocked)
    try:
        process = start(write(tmp_path, ENDLESS), "--report", "report.json")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with process:
        read_until(process, "endless: running")
        until((tmp_path / "begun").exists)
        if number is signal.SIGINT:  # a terminal's Ctrl-C reaches the whole group
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        rest = read_until(process, "ledger:")
        assert process.stdout is not None
        rest += process.stdout.read()
    assert process.returncode == 0, rest
    assert "finishing what was read" in rest
    report = json.loads((tmp_path / "report.json").read_text())
    by = "Ctrl-C" if number is signal.SIGINT else "SIGTERM"
    assert (report["ended"], report["ended_by"]) == ("ended early", by)
    assert f" by {by}; all that was read is finished\n" in rest
    assert report["ledger"]["balanced"]
    assert report["ledger"]["tuples_in"] == report["ledger"]["tuples_out"] > 0
    assert_nobody_left(process.pid)


def test_a_second_interrupt_stops_at_once_whatever_an_operator_does(tmp_path: Path) -> None:
    process = start(write(tmp_path, STUCK))
    with process:
        read_until(process, "stuck: running")
        os.killpg(process.pid, signal.SIGINT)
        read_until(process, "finishing what was read")
        os.killpg(process.pid, signal.SIGINT)
        rest = read_until(process, "not settled")
    assert process.returncode == 130, rest
    assert "stuck: stopped" in rest
    assert_nobody_left(process.pid)


def test_a_terminal_shows_a_live_table_and_is_left_clean(tmp_path: Path) -> None:
    main, side = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(
        [*COMMAND, "run", write(tmp_path, ENDLESS).name],
        cwd=tmp_path,
        stdin=side,
        stdout=side,
        stderr=side,
        env=environment,
        start_new_session=True,
    )
    os.close(side)
    wanted = {"endless", "running", "instances", "load", "● 1", "numbers"}
    text = read_terminal(main, wanted, process)
    assert process.wait(TIMEOUT_S) == 0, text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is shown again"
    assert "balanced: every tuple is accounted for" in text
    assert_nobody_left(process.pid)


def read_terminal(descriptor: int, wanted: set[str], process: subprocess.Popen[bytes]) -> str:
    """All output until the other side is closed; interrupts the process when all that is wanted
    has been shown."""
    data = b""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data.decode("utf-8", "replace"))
        if wanted and all(part in plain for part in wanted):
            wanted = set()
            process.send_signal(signal.SIGINT)
        ready, _, _ = select.select([descriptor], [], [], 1.0)
        if not ready:
            continue
        try:
            piece = os.read(descriptor, 65536)
        except OSError:
            break
        if not piece:
            break
        data += piece
    os.close(descriptor)
    assert not wanted, data
    return data.decode("utf-8", "replace")


def under_shell(path: Path, command: str) -> subprocess.CompletedProcess[str]:
    """`$RUN` in `command` stands for `anabranch run FILE.py`."""
    return subprocess.run(
        ["bash", "-c", command],
        cwd=path.parent,
        env={**os.environ, "RUN": " ".join([*COMMAND, "run", path.name])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_run_needs_no_open_standard_streams(tmp_path: Path, closed: str) -> None:
    done = under_shell(write(tmp_path, WORDS), f"$RUN {closed}")
    assert done.returncode == 0
    assert "Traceback" not in done.stdout + done.stderr
    assert len((tmp_path / "words.jsonl").read_text().splitlines()) == 15_000


@pytest.mark.parametrize(("closed", "message"), [(">&-", "output"), ("<&-", "input")])
def test_a_closed_stream_that_is_needed_is_named(tmp_path: Path, closed: str, message: str) -> None:
    done = under_shell(write(tmp_path, ECHO), f"$RUN {closed}")
    assert done.returncode == 2
    assert done.stderr.endswith(f"standard {message} is closed\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(("option", "code"), [("", 0), ("--json", 1)])
def test_a_full_disk_under_the_summary_is_told_without_a_traceback(
    tmp_path: Path, option: str, code: int
) -> None:
    done = under_shell(write(tmp_path, WORDS), f"$RUN {option} >/dev/full")
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "No space left" in done.stderr
    assert len((tmp_path / "words.jsonl").read_text().splitlines()) == 15_000


def test_a_class_that_cannot_be_made_is_told_with_the_line_and_without_our_frames(
    tmp_path: Path,
) -> None:
    text = """
        import anabranch as ab

        class Lookup:
            def __init__(self):
                raise ValueError("no database")
            def __call__(self, one):
                return one

        pipeline = ab.Pipeline("lookup")
        pipeline.source("n", ab.items([1])).map("find", Lookup).sink("out", ab.discard())
    """
    done = run(write(tmp_path, text), "--report", "report.json")
    assert done.returncode == 1
    assert re.search(
        r"did not start: .*Lookup\(\) raised ValueError: no database \(.*headlines.py:5 in",
        done.stdout,
    )
    assert "Traceback" not in done.stdout + done.stderr
    assert "instance_process" not in done.stdout + done.stderr


def test_processes_that_a_function_forks_end_on_sigterm_as_usual(tmp_path: Path) -> None:
    text = """
        import os, signal, time
        import anabranch as ab

        def fork_and_stop(_):
            ready, say = os.pipe()
            child = os.fork()
            if not child:
                os.write(say, b".")
                time.sleep(10)
                os._exit(0)
            os.read(ready, 1)
            os.kill(child, signal.SIGTERM)
            return os.WTERMSIG(os.waitpid(child, 0)[1])

        pipeline = ab.Pipeline("forks")
        numbers = pipeline.source("n", ab.items([1]))
        numbers.map("fork", fork_and_stop).sink("out", ab.jsonl("out.jsonl"))
    """
    assert run(write(tmp_path, text)).returncode == 0
    assert (tmp_path / "out.jsonl").read_text() == f"{int(signal.SIGTERM)}\n"


@pytest.mark.parametrize("comes_back", ["return -1", "raise ValueError", "raise SystemExit(0)"])
@pytest.mark.parametrize(
    "operator",
    ['map("fork", fork)', 'key_by(lambda n: n % 7).fold("fork", 0, lambda _, n: fork(n))'],
)
def test_a_child_that_comes_back_from_its_function_changes_nothing(
    tmp_path: Path, comes_back: str, operator: str
) -> None:
    text = f"""
        import os
        import anabranch as ab

        def fork(n):
            if n == 10:
                if not (child := os.fork()):
                    {comes_back}
                os.waitpid(child, 0)
            return n

        pipeline = ab.Pipeline("forks")
        numbers = pipeline.source("n", ab.generate(int, count=100))
        numbers.{operator}.sink("out", ab.jsonl("out.jsonl"))
    """
    done = run(write(tmp_path, text))
    assert done.returncode == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(row if type(row) is int else row[1] for row in rows) == [*range(100)]
    assert (done.stdout + done.stderr).count("made with os.fork() has come back") == 1
