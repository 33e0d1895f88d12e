"""A construct whose input comes in parts: each run finds one more of them, and goes on from the
savepoint of the one before, as if on another host, with copies of the files that were there.

python -m tests.spark_engine.phases FOLDER NAME PARTS PART OPTIONS     a part on processes
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import anabranch as ab
from anabranch.runtime.pipeline.options import Options
from anabranch.setting import apply_settings
from tests.runtime.processes import PATIENCE_S
from tests.spark_engine.bench import SPLIT_BYTES, Bench


class Phases(Bench):
    """`part`: the next one."""

    def __init__(self, name: str, folder: Path, parts: int, part: int = 0) -> None:
        super().__init__(name, folder)
        self._parts = parts
        self._part = part
        (folder / "run").mkdir(exist_ok=True)

    @property
    def inputs(self) -> Path:
        """Where the files are now."""
        return next(self.folder.glob("host-*"), self.folder / "host-0")

    def _move(self) -> None:
        """Each file gets another path, number and time."""
        before = self.inputs
        after = self.folder / f"host-{int(before.name.partition('-')[2]) + 1}"
        if before.exists():
            shutil.copytree(before, after, copy_function=shutil.copyfile)
            shutil.rmtree(before)

    def next_run(self, *, groups: int = 64, instances: int = 0) -> ab.Pipeline:
        """`instances`: of operators that keep something; 0: as the construct has it."""
        self._move()
        for source, lines in self.construct.inputs.items():
            here = self.inputs / source
            here.mkdir(parents=True, exist_ok=True)
            size = -(-len(lines) // self._parts)
            some = lines[self._part * size : (self._part + 1) * size]
            (here / f"{self._part}.txt").write_text("".join(f"{line}\n" for line in some))
        self._part += 1
        out = self.folder / "run"
        pipeline = ab.Pipeline("construct", dead_letters=out / "dead.jsonl", groups=groups)
        pipeline.dead_max = 1.0
        streams = {
            name: pipeline.source(name, ab.files(self.inputs / name, split_bytes=SPLIT_BYTES))
            for name in self.construct.inputs
        }
        self.construct.build(streams, {n: ab.jsonl(out / f"{n}.jsonl") for n in self.sinks})
        if instances:
            let_have(pipeline, instances)
        return pipeline

    def check(self) -> None:
        """All runs together have given what one gives."""
        found, wanted = self.found("run"), self.in_testing()
        assert found.sinks == wanted.sinks
        assert found.dead == wanted.dead
        assert found.late == wanted.late or not self.construct.buries


def let_have(pipeline: ab.Pipeline, instances: int) -> None:
    for operator in [*pipeline.operators.values()]:
        if operator.keyed is not None and operator.sink is None:
            scale = f"{operator.name}.scale"
            bounds = [f"{scale}.{end}_instances={instances}" for end in ("max", "min")]
            apply_settings(pipeline, bounds)


def main(folder: str, name: str, parts: str, part: str, options: str) -> None:
    pipeline = Phases(name, Path(folder), int(parts), int(part)).next_run(groups=100)
    from anabranch.runtime.live.agent import launch

    report = launch.start(pipeline, Options(**json.loads(options))).wait(PATIENCE_S)
    assert report.ok, report.failure


if __name__ == "__main__":
    main(*sys.argv[1:])
