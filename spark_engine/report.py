"""What came of a job on Spark."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.reporting.dead_limit import exceeded

LATE = "late_"
LEFT_OUT = "left out: "
"""Before the reason, in the name of a count."""


@dataclass
class SparkReport:
    """Counts by operator: `received` tuples, `results`, `dead` letters, tuples `delivered` by a
    sink, `late_bury` (`late_emit`, `late_drop`): late tuples by what became of them, `left out: `
    and why: tuples out of the span of the run."""

    pipeline: str
    mode: str
    operators: dict[str, Counter[str]] = field(default_factory=dict)
    batches: int = 0
    wall_s: float = 0.0
    failure: str = ""
    """Why the job failed though Spark had no trouble: too many dead letters."""

    @property
    def ok(self) -> bool:
        return not self.failure

    def add(self, counts: dict[str, dict[str, int]]) -> None:
        for operator, theirs in counts.items():
            self.operators.setdefault(operator, Counter()).update(theirs)

    def count(self, what: str) -> int:
        return sum(counts[what] for counts in self.operators.values())

    def late(self, operator: str) -> int:
        """Late tuples of an operator, whatever became of them."""
        counts = self.operators.get(operator, Counter())
        return sum(n for name, n in counts.items() if name.startswith(LATE))

    def judge(self, pipeline: Pipeline, *, ended: bool) -> None:
        """Fail if there are more dead letters than the pipeline allows."""
        sources = [o.name for o in pipeline.operators.values() if o.source is not None]
        read = sum(self.operators.get(name, Counter())["received"] for name in sources)
        self.failure = exceeded(
            pipeline.dead_max,
            dead=self.count("dead"),
            read=read,
            delivered=self.count("delivered"),
            ended=ended,
        )

    def lines(self, dead_letters: Path) -> list[str]:
        """For people."""
        batches = "1 batch" if self.batches == 1 else f"{self.batches} batches"
        how = "as one batch" if self.mode == "batch" else f"in {batches}"
        took = f"on Spark {how} after {self.wall_s:.1f} s"
        lines = [f"{self.pipeline}: done {took}"]
        if not self.ok:
            lines = [f"{self.pipeline}: failed {took}: {self.failure}"]
        for name, counts in self.operators.items():
            if counts["delivered"]:
                lines.append(f"  {name}: {counts['delivered']:,} delivered")
        late = sum(self.late(name) for name in self.operators)
        if late:
            lines.append(f"  late: {late:,}")
        for name, counts in self.operators.items():
            for what, n in counts.items():
                if n and what.startswith(LEFT_OUT):
                    lines.append(f"  left out at {name}: {n:,} {what.removeprefix(LEFT_OUT)}")
        if dead := self.count("dead"):
            lines.append(f"  dead letters: {dead:,}, in {dead_letters}")
        return lines

    def to_json(self) -> str:
        values: dict[str, Any] = {
            "pipeline": self.pipeline,
            "engine": "spark",
            "mode": self.mode,
            "ended": "completed" if self.ok else "failed",
            "failure": self.failure,
            "batches": self.batches,
            "wall_s": round(self.wall_s, 3),
            "operators": self.operators,
        }
        return json.dumps(values, indent=2) + "\n"
