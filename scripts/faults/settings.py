"""What one run of chaos is: everything that it does follows from these values."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

LINES_PER_S = 400
MADE_PER_S = 800
TELL = signal.SIGQUIT
"""Lets a process say where it is."""
TAIL_S = 1.0
"""Of the input, which is read when all is healed: so tuples still flow then, and a run that is
slower than its faults does not end among them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`seconds`: for how long there are faults; the input lasts a little longer."""

    folder: Path
    base: Path
    """Where runs make their private folders, so its path is short; nothing may be left there."""
    seed: int
    seconds: float
    transport: str = "unix"
    lines_per_s: int = LINES_PER_S
    made_per_s: int = MADE_PER_S
    mark: str = field(default_factory=lambda: os.urandom(8).hex())
    """In the environment of every process of the run, so that it is known as one."""
    epoch_s: float = 0.0
    """When the input begins, in seconds of the wall clock, which goes on for all processes."""

    @property
    def input_s(self) -> float:
        return self.seconds + TAIL_S

    @property
    def lines(self) -> int:
        return int(self.lines_per_s * self.input_s)

    @property
    def made(self) -> int:
        return int(self.made_per_s * self.input_s)

    @property
    def input(self) -> Path:
        return self.folder / "lines.jsonl"

    @property
    def healed(self) -> Path:
        """Made when there are no faults any more."""
        return self.folder / "healed"

    @property
    def counted(self) -> Path:
        """What comes out of the branch that counts words."""
        return self.folder / "counted.jsonl"

    @property
    def traced(self) -> Path:
        """What comes out of the branch that keeps the order of numbers."""
        return self.folder / "traced.jsonl"

    @property
    def dead(self) -> Path:
        """Dead letters."""
        return self.folder / "dead.jsonl"

    @property
    def first_calls(self) -> Path:
        """A line for the first call of every function in every process."""
        return self.folder / "first_calls.txt"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def report(self) -> Path:
        return self.folder / "run.json"

    @property
    def words(self) -> Path:
        """What the run's processes have printed on standard error."""
        return self.folder / "words.txt"

    def write(self) -> Path:
        path = self.folder / "settings.json"
        places = {"folder": str(self.folder), "base": str(self.base)}
        path.write_text(json.dumps({**asdict(self), **places}), encoding="utf-8")
        return path

    def begun_at(self, epoch_s: float) -> Settings:
        return replace(self, epoch_s=epoch_s)


def read(path: Path) -> Settings:
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    folder, base = Path(values.pop("folder")), Path(values.pop("base"))
    return Settings(folder=folder, base=base, **values)
