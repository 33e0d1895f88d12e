"""The keyed workloads as real processes on recorded data, while owners of keys come and go: the
results are those of the oracles."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from anabranch.workloads import quotes, sensors, topk, wordcount
from tests.workloads.shared_data import lines_of

FILE = """
import anabranch as ab
from anabranch.workloads import quotes, sensors, topk, wordcount

lines = open("lines.txt", newline="\\n").read().split("\\n")
scale = ab.Scale(max_instances=3)
pipeline = {pipeline}
"""


def storm(folder: Path, lines: list[str], pipeline: str, *operators: str) -> dict[str, Any]:
    """Run `pipeline`, an expression, over `lines`, while each of these operators duplicates, leaves
    and moves key groups; in a program of its own, which can fork. Returns its report."""
    words = [
        f"every 0.1 from 0.2 to 60: {operator} {action}"
        for operator in operators
        for action in ("duplicate", "leave", "move")
    ]
    (folder / "lines.txt").write_text("\n".join(lines), newline="\n")
    (folder / "pipe.py").write_text(FILE.format(pipeline=pipeline))
    (folder / "script.txt").write_text("\n".join(words))
    command = [sys.executable, "-m", "anabranch.cli", "run", "pipe.py", "--json"]
    done = subprocess.run(
        [*command, "--scale-script", "script.txt"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    report: dict[str, Any] = json.loads(done.stdout)
    kinds = Counter(e["kind"] for e in report["events"] if e["operator"] in operators)
    assert kinds["joined"], "nothing has joined, so this says nothing"
    return report


def results(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_word_is_counted_from_one_on(tmp_path: Path) -> None:
    lines = lines_of("text/moby_dick.txt.gz") * 4
    pipeline = 'wordcount.pipeline(ab.items(lines), ab.jsonl("out.jsonl"), scale=scale)'
    storm(tmp_path, lines, pipeline, "split", "count")
    counted: dict[str, list[int]] = {}
    for word, n in results(tmp_path / "out.jsonl"):
        counted.setdefault(word, []).append(n)
    expected = wordcount.expected(lines)
    assert {w: len(n) for w, n in counted.items()} == {w: len(n) for w, n in expected.items()}
    assert all(numbers == sorted(numbers) for numbers in counted.values())


def test_fits_of_trades_are_those_of_the_sequential_run(tmp_path: Path) -> None:
    """Real trades with repeats and backward stamps; per stock in order."""
    lines = lines_of("trades/multi_3symbols_20140917_trades.csv.gz")[:12_000]
    pipeline = 'quotes.pipeline(ab.items(lines), ab.jsonl("out.jsonl"), slide=50, scale=scale)'
    storm(tmp_path, lines, pipeline, "fit")
    found: dict[str, list[list[Any]]] = {}
    for row in results(tmp_path / "out.jsonl"):
        found.setdefault(row[0], []).append(row)
    expected = quotes.expected(lines, slide=50)
    assert found == {s: json.loads(json.dumps(fits)) for s, fits in expected.items()}


def test_means_of_meters_are_those_of_the_sequential_run(tmp_path: Path) -> None:
    lines = lines_of("iot/smart_meter_30min.csv.gz")
    read = sensors.FORMATS["meters"]
    day_s = 24 * 3600.0
    disorder_s = sensors.disorder_of(lines, read)
    pipeline = (
        'sensors.pipeline(ab.items(lines), ab.jsonl("out.jsonl"), sensors.FORMATS["meters"], '
        f"window_s={day_s}, disorder_s={disorder_s!r}, scale=scale)"
    )
    report = storm(tmp_path, lines, pipeline, "means")
    expected = sensors.expected(lines, read, window_s=day_s, disorder_s=disorder_s)
    found: dict[str, list[Any]] = {}
    for device, start, end, value, revision in results(tmp_path / "out.jsonl"):
        assert revision == 0
        found.setdefault(device, []).append((device, start, end, pytest.approx(value)))
    assert found == {device: [tuple(m) for m in means] for device, means in expected.means.items()}
    assert report["ledger"]["dead_letters"] == len(expected.late)


def test_rankings_of_chat_are_those_of_counting_at_once(tmp_path: Path) -> None:
    posts = lines_of("text/irc_ubuntu_chat.jsonl.gz")[:12_000]
    pipeline = (
        'topk.pipeline(ab.items(lines), ab.jsonl("out.jsonl"), '
        "disorder_s=90 * 86400.0, scale=scale)"
    )
    storm(tmp_path, posts, pipeline, "meaning", "count", "rank")
    expected = topk.expected(posts)
    assert results(tmp_path / "out.jsonl") == json.loads(json.dumps(expected))
