"""The keyed workloads as real processes on recorded data, while owners of keys come and go: the
results are those of the oracles."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.graph import Pipeline
from anabranch.runtime.policies.script import parse_script
from anabranch.runtime.report import Report
from anabranch.workloads import quotes, sensors, topk, wordcount
from tests.workloads.shared_data import lines_of

pytestmark = pytest.mark.timeout(180)

SCALE = ab.Scale(max_instances=3)


def storm(pipeline: Pipeline, *operators: str) -> Report:
    """Run it while each of these operators duplicates, leaves and moves key groups."""
    words = [
        f"every 0.1 from 0.2 to 60: {operator} {action}"
        for operator in operators
        for action in ("duplicate", "leave", "move")
    ]
    report = ab.start(pipeline, script=parse_script("\n".join(words)), scaling=False).wait()
    assert report.ok, report.ledger.faults or report.failure
    kinds = Counter(e.kind for e in report.events if e.operator in operators)
    assert kinds["joined"], "nothing has joined, so this says nothing"
    return report


def results(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def again(line: str) -> str:
    """A step before the keyed operator, so that its predecessors can change too."""
    return line


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_word_is_counted_from_one_on(folder: Path) -> None:
    lines = lines_of("text/moby_dick.txt.gz") * 4
    pipeline = wordcount.pipeline(ab.items(lines), ab.jsonl("out.jsonl"), scale=SCALE)
    storm(pipeline, "split", "count")
    counted: dict[str, list[int]] = {}
    for word, n in results(folder / "out.jsonl"):
        counted.setdefault(word, []).append(n)
    expected = wordcount.expected(lines)
    assert {w: len(n) for w, n in counted.items()} == {w: len(n) for w, n in expected.items()}
    assert all(numbers == sorted(numbers) for numbers in counted.values())


def test_fits_of_trades_are_those_of_the_sequential_run(folder: Path) -> None:
    """Real trades with repeats and backward stamps; per stock in order."""
    lines = lines_of("trades/multi_3symbols_20140917_trades.csv.gz")[:12_000]
    pipeline = quotes.pipeline(ab.items(lines), ab.jsonl("out.jsonl"), slide=50, scale=SCALE)
    storm(pipeline, "fit")
    found: dict[str, list[list[Any]]] = {}
    for row in results(folder / "out.jsonl"):
        found.setdefault(row[0], []).append(row)
    expected = quotes.expected(lines, slide=50)
    assert found == {s: json.loads(json.dumps(fits)) for s, fits in expected.items()}


def test_means_of_meters_are_those_of_the_sequential_run(folder: Path) -> None:
    lines = lines_of("iot/smart_meter_30min.csv.gz")
    read = sensors.FORMATS["meters"]
    day_s = 24 * 3600.0
    disorder_s = sensors.disorder_of(lines, read)
    pipeline = sensors.pipeline(
        ab.items(lines),
        ab.jsonl("out.jsonl"),
        read,
        window_s=day_s,
        disorder_s=disorder_s,
        scale=SCALE,
    )
    report = storm(pipeline, "means")
    expected = sensors.expected(lines, read, window_s=day_s, disorder_s=disorder_s)
    found: dict[str, list[Any]] = {}
    for device, start, end, value, revision in results(folder / "out.jsonl"):
        assert revision == 0
        found.setdefault(device, []).append((device, start, end, pytest.approx(value)))
    assert found == {device: [tuple(m) for m in means] for device, means in expected.means.items()}
    assert report.ledger.dead_letters == len(expected.late)


def test_rankings_of_chat_are_those_of_counting_at_once(folder: Path) -> None:
    posts = lines_of("text/irc_ubuntu_chat.jsonl.gz")[:30_000]
    pipeline = topk.pipeline(
        ab.items(posts), ab.jsonl("out.jsonl"), disorder_s=90 * 86400.0, scale=SCALE
    )
    storm(pipeline, "meaning", "count", "rank")
    expected = topk.expected(posts)
    assert results(folder / "out.jsonl") == json.loads(json.dumps(expected))
