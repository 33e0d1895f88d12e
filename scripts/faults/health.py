"""Memory, open files and disk of a run over time, and whether they grow without an end."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from benches.figures import growth

from faults import processes
from faults.incarnation import Incarnation

PERIOD_S = 1.0
JUDGED_SAMPLES = 60
"""Fewer tell no growth from the filling of what is meant to be filled."""
GROWTH_MIB_MAX = 48.0
FILES_GROWTH_MAX = 40
FILES_MAX = 400


@dataclass(slots=True)
class Health:
    """MiB, numbers of open files; one value per second."""

    agent_mib: list[float] = field(default_factory=list)
    agent_files: list[int] = field(default_factory=list)
    largest_mib: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """The largest instance of each operator."""
    files_max: int = 0
    """Of any instance."""
    processes_max: int = 0
    state_mib: list[float] = field(default_factory=list)
    tuples: list[tuple[float, int]] = field(default_factory=list)
    """Time, and results at the sinks until then; from zero again with each agent that counts so."""

    def look(self, incarnation: Incarnation, state: Path, sinks: tuple[str, ...]) -> None:
        agent_mib, files = (
            processes.resident_mib(incarnation.pid),
            processes.open_files(incarnation.pid),
        )
        if agent_mib is not None and files is not None:
            self.agent_mib.append(agent_mib)
            self.agent_files.append(files)
        largest: dict[str, float] = {}
        there = processes.instances(incarnation.parent)
        for one in there:
            mib, files = processes.resident_mib(one.pid), processes.open_files(one.pid)
            largest[one.operator] = max(largest.get(one.operator, 0.0), mib or 0.0)
            self.files_max = max(self.files_max, files or 0)
        for operator, mib in largest.items():
            self.largest_mib[operator].append(mib)
        self.processes_max = max(self.processes_max, len(there))
        self.state_mib.append(size_mib(state))
        known = [
            incarnation.operators[name]["in"] for name in sinks if name in incarnation.operators
        ]
        self.tuples.append((time.monotonic(), sum(known)))

    def faults(self) -> list[str]:
        found = []
        series = {"the agent": self.agent_mib}
        series |= {f"instances of {name}": many for name, many in self.largest_mib.items()}
        for who, many in series.items():
            if len(many) >= JUDGED_SAMPLES and (grown := growth(many)) > GROWTH_MIB_MAX:
                found.append(f"memory of {who} grew by {grown:.0f} MiB after the first quarter")
        files = list(map(float, self.agent_files))
        if len(files) >= JUDGED_SAMPLES and (grown := growth(files)) > FILES_GROWTH_MAX:
            found.append(f"the agent's open files grew by {grown:.0f} after the first quarter")
        if self.files_max > FILES_MAX:
            found.append(f"an instance had {self.files_max} open files")
        return found


async def watch(
    health: Health, incarnation_now: LifeNow, state: Path, sinks: tuple[str, ...]
) -> None:
    while True:
        if (incarnation := incarnation_now.incarnation) is not None and not incarnation.over:
            health.look(incarnation, state, sinks)
        await asyncio.sleep(PERIOD_S)


@dataclass(slots=True)
class LifeNow:
    """The agent that is there now, if one is."""

    incarnation: Incarnation | None = None


def size_mib(folder: Path) -> float:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue  # gone meanwhile
    return total / 2**20
