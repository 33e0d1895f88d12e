"""Runs a construct between files, and reads what came of it.

python -m tests.spark_engine.bench FOLDER     all constructs on processes, a folder for each
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.runtime.sinks.encoding import json_lines
from anabranch.runtime.storage.dead_letters import tuple_json
from tests.spark_engine.constructs import CONSTRUCTS

SPLIT_BYTES = 1024
"""So that several tasks read the input."""


@dataclass(frozen=True)
class Found:
    sinks: dict[str, Counter[str]]
    dead: Counter[tuple[str, ...]]
    late: Counter[tuple[str, ...]]
    """Those that were buried, with operators."""


class Bench:
    """A construct between files of a folder."""

    def __init__(self, name: str, folder: Path) -> None:
        self.construct, self.sinks = CONSTRUCTS[name]
        self.folder = folder
        for source, lines in self.construct.inputs.items():
            (folder / f"{source}.txt").write_text("".join(f"{line}\n" for line in lines))

    @staticmethod
    def folder_of(name: str) -> str:
        return re.sub(r"\W+", "-", name)

    def pipeline(self, where: str) -> ab.Pipeline:
        folder = self.folder / where
        folder.mkdir()
        pipeline = ab.Pipeline("construct", dead_letters=folder / "dead.jsonl", dead_max=1.0)
        streams = {}
        for name in self.construct.inputs:
            source = ab.files(self.folder / f"{name}.txt", split_bytes=SPLIT_BYTES)
            streams[name] = pipeline.source(name, source)
        targets = {name: ab.jsonl(folder / f"{name}.jsonl") for name in self.sinks}
        self.construct.build(streams, targets)
        return pipeline

    def in_testing(self) -> Found:
        outcome = ab.testing.run(self.pipeline("testing"), self.construct.inputs)
        sinks = {name: self._counted(_through_json(outcome[name])) for name in self.sinks}
        dead: Counter[tuple[str, ...]] = Counter(
            (operator, letter.step, letter.reason, tuple_json(letter.tuple))
            for operator, letters in outcome.dead.items()
            for letter in letters
        )
        late: Counter[tuple[str, ...]] = Counter(
            (operator, tuple_json(one)) for operator, ones in outcome.late.items() for one in ones
        )
        return Found(sinks, dead, late)

    def found(self, where: str) -> Found:
        """What a run of `pipeline(where)` has left."""
        folder = self.folder / where
        sinks = {name: self._counted(_read(folder / f"{name}.jsonl")) for name in self.sinks}
        letters = _read(folder / "dead.jsonl")
        late = [one for one in letters if one["reason"].startswith("late: ")]
        dead = [one for one in letters if not one["reason"].startswith("late: ")]
        return Found(
            sinks,
            Counter((d["operator"], d["step"], d["reason"], json.dumps(d["tuple"])) for d in dead),
            Counter((d["operator"], json.dumps(d["tuple"])) for d in late),
        )

    def _counted(self, values: Iterable[Any]) -> Counter[str]:
        if not self.construct.windows:
            return Counter(map(json.dumps, values))
        last: dict[str, list[Any]] = {}
        for one in values:  # a window result is key, start, end, value, revision, ...
            place = json.dumps(one[:2])
            if place not in last or last[place][4] < one[4]:
                last[place] = one
        return Counter(json.dumps(one[:4] + one[5:]) for one in last.values())


def _through_json(values: list[Any]) -> list[Any]:
    data, dead = json_lines(values)
    assert not dead
    return [json.loads(line) for line in data.splitlines()]


def _read(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main(folder: Path) -> None:
    for name, (construct, _) in CONSTRUCTS.items():
        if construct.on_processes:
            place = folder / Bench.folder_of(name)
            place.mkdir()
            ab.run(Bench(name, place).pipeline("processes"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
