"""The demonstration: its day, its operators' speeds, its verdict."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from demo import DAY_S, RATE_MAX, day_for, judged, main, pieces_per_line
from demo_telling import Watch, first_tuple_s, is_there, neighbours_at_once

from anabranch.runtime.reporting.report import Event, Report, Samples
from anabranch.runtime.values.kinds import EventKind
from anabranch.workloads.corpus import Corpus, stage
from anabranch.workloads.curves import Daily
from anabranch.workloads.sentiment import oracle
from tests.anabranch.test_picture import a_report, operator
from tests.runtime.processes import PATIENCE_S
from tests.scripts import SCRIPTS

needs_afinn = pytest.mark.skipif(find_spec("pyspark") is None, reason="pyspark brings AFINN-111")


class NobodyLeft(Watch):
    def __init__(self) -> None:
        self.pids = {1, 2}

    def left_over(self) -> list[int]:
        return []


class OneLeft(NobodyLeft):
    def left_over(self) -> list[int]:
        return [2]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    lines = [b"Good. Bad!", b"", b"42 is no word", b"\xff"]
    return stage(lambda: lines, tmp_path / "texts", lines_min=40)


def report_of(came: int, dead: int, events: list[Event] | None = None) -> Report:
    names = {"lines": "source", "split": "operator", "clean": "operator", "score": "operator"}
    operators = [operator(name, kind, rate_in=[0, 0, 9]) for name, kind in names.items()]
    report = a_report([*operators, operator("moods", "sink", latency_p50_ms=[1, 1, 1])])
    balances = [
        {"name": o.name, "received": 9, "processed": 9, "dead": 0, "queued": 0, "balanced": True}
        for o in report.operators
    ]
    ledger = msgspec.to_builtins(report.ledger)
    ledger |= {"tuples_in": came, "dead_letters": dead, "operators": balances}
    whole = msgspec.to_builtins(report) | {"ledger": ledger, "events": events or []}
    return msgspec.convert(whole, type=Report)


def results(corpus: Corpus) -> Counter[tuple[object, ...]]:
    return Counter((m["sentence"], m["words"], m["score"]) for m in oracle(corpus.read()))


def test_the_day_offers_each_line_once(corpus: Corpus) -> None:
    day = day_for(corpus)
    assert day.day_s == DAY_S
    assert day.due(DAY_S) == pytest.approx(corpus.lines)


def test_more_text_makes_a_longer_day_not_a_busier_one(corpus: Corpus) -> None:
    much = Corpus(corpus.folder, 10**7, 0, corpus.parts, 1)
    day = day_for(much)
    busiest = day.peak * max(1.0, *pieces_per_line(much))
    assert busiest == pytest.approx(RATE_MAX)
    assert day.due(day.day_s) == pytest.approx(10**7)


def test_operators_are_sized_by_what_a_line_holds(corpus: Corpus) -> None:
    # Of three lines that can be read: two sentences, none, one.
    assert pieces_per_line(corpus) == (1.0, 1.0)


@needs_afinn
def test_equal_results_and_a_balanced_ledger_are_right(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_of(came=30, dead=10)
    code = judged(report, NobodyLeft(), corpus, Daily(10), results(corpus), tmp_path)
    told = capsys.readouterr()
    assert code == 0
    assert "Equal" in told.out
    assert "10 broken lines" in told.out
    assert not told.err


@needs_afinn
@pytest.mark.parametrize("change", ["lacks", "extra", "lines", "process", "ledger"])
def test_whatever_is_not_right_is_told_and_is_no_success(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    report, found, watch = report_of(came=30, dead=10), results(corpus), NobodyLeft()
    says = {
        "lacks": "1 lack and 0 are extra",
        "extra": "0 lack and 1 are extra",
        "lines": "29 lines came in",
        "process": "still there: [2]",
        "ledger": "split took 5 and did 4",
    }[change]
    match change:
        case "lacks":
            found -= Counter([("good", 1, 3)])
        case "extra":
            found += Counter([("good", 1, 3)])
        case "lines":
            report = report_of(came=29, dead=10)
        case "process":
            watch = OneLeft()
        case "ledger":
            broken = msgspec.structs.replace(report.ledger, balanced=False, faults=[says])
            report = msgspec.structs.replace(report, ledger=broken)
    assert judged(report, watch, corpus, Daily(10), found, tmp_path) == 1
    assert f"NOT RIGHT: {says}" in capsys.readouterr().err.replace("of 30 results ", "").replace(
        "processes that are ", ""
    )


def test_changes_of_neighbours_at_the_same_time_are_counted() -> None:
    def event(t: float, name: str, kind: str) -> Event:
        return Event(t=t, operator=name, kind=EventKind(kind), instances=2)

    events = [
        event(1.0, "split", "joined"),
        event(1.2, "clean", "left"),
        event(1.3, "score", "joined"),
        event(1.4, "clean", "keeper"),
        event(5.0, "split", "joined"),
        event(5.1, "score", "joined"),
    ]
    assert neighbours_at_once(report_of(1, 0, events)) == 2


def test_the_picture_begins_with_the_first_tuple() -> None:
    report = report_of(1, 0)
    assert first_tuple_s(report) == 1.0
    nothing = msgspec.structs.replace(report.operator("lines"), samples=Samples())
    assert first_tuple_s(msgspec.structs.replace(report, operators=[nothing])) == 0.0


def test_a_process_that_has_ended_is_not_there() -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert is_there(sleeper.pid)
    sleeper.send_signal(signal.SIGKILL)
    sleeper.communicate()
    assert not is_there(sleeper.pid)


@needs_afinn
def test_without_text_it_does_not_begin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty.txt"
    empty.touch()
    for file, says in ((empty, "no line of text"), (tmp_path / "none.txt", "none.txt")):
        assert main([str(file), "--out", str(tmp_path / "out")]) == 2
        assert says in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.nightly
def test_the_whole_demonstration_comes_out_right(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPTS / "demo.py"), "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 lost, 0 doubled" in done.stdout
    assert (tmp_path / "day.png").stat().st_size > 10_000
