"""Processor time of a world of the swarm, by its size; and no world may be invalid."""

from __future__ import annotations

from anabranch.runtime.world.swarm import CHUNK, Tally, over_processes, swarm
from anabranch.runtime.world.trial import WorldVerdict
from anabranch.spark_bridge.world.seeds import SeedsWithSpark
from benches.result import Result, Settings

ABOUT = "processor time of a world of the swarm"
RUNS = 3
SEEDS = {"small": 100, "large": 10}
"""Of each run, which goes on where the last one has ended."""
SMALL_MS_MAX = 500.0
"""So that 100,000 small worlds end overnight on two cores."""


def measure(settings: Settings) -> Result:
    """`--lines`: the most seeds of a run."""
    result = Result("swarm", ABOUT)
    small: list[float] = []
    for size, most in SEEDS.items():
        seeds = min(most, settings.lines)
        spent = []
        for number in range(settings.runs_or(RUNS)):
            tally = tried(number * seeds, seeds, size)
            spent.append(1000 * tally.cpu_s / tally.seeds)
            unknown = tally.verdicts[WorldVerdict.UNKNOWN]
            settings.say(f"swarm: {size}, run {number + 1}, {unknown} of {seeds} unknown")
            result.faults += [f"seed {o.seed}, {size}: {o.reason}" for o in tally.failing]
        result.add(f"{size} world", "ms", spent)
        small = small or spent
    result.at_most(f"small world, of {SMALL_MS_MAX:.0f} ms", [ms / SMALL_MS_MAX for ms in small], 1)
    return result


def tried(first: int, seeds: int, size: str) -> Tally:
    worlds = SeedsWithSpark(first, min(seeds, CHUNK[size]), size=size)
    return swarm(worlds, seeds=seeds, deadline_s=None, over=over_processes(1))
