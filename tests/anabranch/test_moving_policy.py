"""A policy that moves key groups, in a run and in virtual time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import anabranch as ab
import anabranch.forecasting  # here, or its modules would be forgotten after the first test
from anabranch.cli import main
from anabranch.loading import load_pipeline
from tests.anabranch.files import clean_imports, write

OWN = """
    from dataclasses import dataclass
    from pathlib import Path
    import anabranch as ab
    from anabranch.policies import Hold, Move, Policy
    from anabranch.runtime.sources.generate import Generate

    MOVED = Path(__file__).with_name("moved")

    @dataclass(frozen=True)
    class Mover(Policy):
        "Half of the load to the next sibling, twice in a second."

        def decide(self, reading, scale, memory, rng):
            last_s, moves = memory or (-1.0, 0)
            if reading.now_s <= last_s + 0.5 or reading.rank is None or reading.instances < 3:
                return Hold("not yet"), memory
            if moves == 2:  # so the first one is over
                MOVED.touch()
            return Move(0.5, (reading.rank + 1) % 3, "in a ring"), (reading.now_s, moves + 1)


    class Numbers(Generate):
        "Ends when state has moved, however late that is."

        def splits(self):
            for split in super().splits():
                yield split
                if MOVED.exists():
                    return


    pipeline = ab.Pipeline("ring", groups=32)
    numbers = pipeline.source("numbers", Numbers(lambda i: i, rate=500))
    scale = ab.Scale(min_instances=3, max_instances=3, policy=Mover())
    counts = numbers.key_by(lambda n: n % 50).fold("count", 0, lambda n, _: n + 1, scale=scale)
    counts.sink("out", ab.jsonl("out.jsonl"))
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path, OWN, "ring.py")


def test_key_groups_move_in_a_run_and_every_tuple_counts_once(file: Path, tmp_path: Path) -> None:
    with clean_imports():
        done = CliRunner().invoke(main, ["run", str(file), "--json"])
    assert done.exit_code == 0, done.output
    events = json.loads(done.stdout)["events"]
    decided = [e["detail"] for e in events if e["kind"] == "decided"]
    assert decided[0].startswith("move 50% of its load to the sibling of rank ")
    assert any(e["kind"] == "moved" for e in events)
    results = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    read = json.loads(done.stdout)["ledger"]["tuples_in"]
    assert sorted(map(tuple, results)) == sorted((i % 50, i // 50 + 1) for i in range(read))


def test_they_move_in_virtual_time(file: Path) -> None:
    with clean_imports():
        pipeline = load_pipeline(str(file)).pipeline
        moving = ab.testing.scaled(pipeline, 50, capacity={"count": 100}, seconds=10)
        pipeline.with_scale("count", "policy", "fixed")
        still = ab.testing.scaled(pipeline, 50, capacity={"count": 100}, seconds=10)
    messages = [found.courses["count"].messages[-1] for found in (moving, still)]
    assert messages[0] > messages[1] + 50
    assert moving.delivered["out"] == still.delivered["out"]
