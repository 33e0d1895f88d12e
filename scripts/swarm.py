#!/usr/bin/env python3
"""Many worlds, each drawn from a seed, in which the code of live runs is what runs: agent and
instances in one process, on virtual time. Instances join, leave and move state, by a script or by
their policies; processes die, connections break, disks are full, power is lost. All must be valid.

    scripts/swarm.py --seeds 100000 --jobs 2          the small swarm
    scripts/swarm.py --minutes 10 --size large        as many large worlds as fit
    scripts/swarm.py --scene counts --seeds 100       only worlds with this pipeline
    scripts/swarm.py --seeds 3000 --break F11         a broken rule must be found out
    scripts/swarm.py --seeds 2000 --crashes all       processes die in each of them
    scripts/swarm.py --seeds 100000 --on spark=spark://host:7077      on a Spark cluster
    scripts/swarm.py --lapses                         each broken class must be found out
    scripts/swarm.py --machines                       Hypothesis's state machines, profile `deep`

Seeds that fail are kept with their worlds in a JSON file; `anabranch replay SEED` repeats one.
Exit code: 0 all are valid or prove nothing, 1 some are invalid or nothing is proved, 2 wrong usage,
130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from anabranch.runtime.broken_protocols.naming import variant_named
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.world.drawing import NAMES, SIZES
from anabranch.runtime.world.drawn_trial import plain
from anabranch.runtime.world.lapse_list import lapse_named
from anabranch.runtime.world.swarm import (
    CHUNK,
    Over,
    Tally,
    first_found,
    over_processes,
    swarm,
)
from anabranch.runtime.world.trial import WorldOutcome, WorldVerdict
from anabranch.spark_bridge.errors import SparkUnavailable
from anabranch.spark_bridge.world.drawing import drawn
from anabranch.spark_bridge.world.gateway_link import SPARK
from anabranch.spark_bridge.world.seeds import SeedsWithSpark, all_lapses

ROOT = Path(__file__).resolve().parent.parent
MACHINES = "tests/protocol/test_machines.py"
EVERY_S = 5.0
"""Between two lines of progress."""
KEPT_MAX = 100
SHOWN_MAX = 10
LAPSE_SEEDS = 2_000
"""Within so many worlds a lapse must show."""


def main(arguments: Sequence[str]) -> int:
    args = parsed(arguments)
    if args.machines:
        return machines()
    if args.lapses:
        return lapses(args.seeds or LAPSE_SEEDS)
    lapse = lapse_named(args.rule, all_lapses()) if args.rule else None
    try:
        variant = variant_named(args.rule) if args.rule and lapse is None else None
    except ValueError as error:
        print(f"swarm: --break {error}", file=sys.stderr)
        return 2
    like = SeedsWithSpark(
        args.first,
        CHUNK[args.size],
        size=args.size,
        crashes=args.crashes,
        scene=args.scene,
        patch={} if variant is None else variant.patch,
        lapse="" if lapse is None else lapse.name,
    )
    telling = Telling(args)
    try:
        with place_of(args) as over:
            swarm(
                like,
                seeds=args.seeds,
                deadline_s=None if args.minutes is None else time.monotonic() + 60 * args.minutes,
                over=over,
                progress=telling.progress,
            )
    except KeyboardInterrupt:
        telling.conclude()
        return 130
    except (SparkUnavailable, PipelineError) as error:
        print(f"swarm: {error}", file=sys.stderr)
        return 2
    return telling.conclude()


@contextmanager
def place_of(args: argparse.Namespace) -> Iterator[Over]:
    """Where the worlds are tried: in processes of this machine, or on a cluster."""
    if args.on is None:
        yield over_processes(args.jobs)
        return
    from anabranch.spark_bridge.sessions import master_of, session_for
    from anabranch.spark_bridge.spreading import in_waves

    with session_for(master_of(args.on), "anabranch swarm") as spark:
        yield partial(in_waves, spark)


def lapses(seeds: int) -> int:
    """Broken variants of the classes of live runs, each until it is found out."""
    missed, all_ = 0, all_lapses()
    for lapse in all_:
        outcome = first_found(lapse, seeds, SeedsWithSpark)
        missed += outcome is None
        found = f"seed {outcome.seed}: {outcome.reason}" if outcome else f"not in {seeds:,} seeds"
        print(f"{lapse.name}: {lapse.what}\n    {found}", flush=True)
    print(f"{len(all_) - missed} of {len(all_)} lapses are found out")
    return 1 if missed else 0


def machines() -> int:
    """The state machines of the suite for minutes instead of seconds; a line tells of every hundred
    runs, and a failure prints the command that repeats it."""
    environment = {**os.environ, "ANABRANCH_HYPOTHESIS": "deep"}
    command = [sys.executable, "-m", "pytest", "-q", "-s", MACHINES, "--timeout", "0"]
    try:
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    except KeyboardInterrupt:
        return 130


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, metavar="N")
    parser.add_argument("--machines", action="store_true", help="state machines instead of seeds")
    parser.add_argument("--lapses", action="store_true", help="broken classes of live runs")
    parser.add_argument(
        "--crashes",
        choices=["some", "all", "none"],
        default="some",
        help="whether processes die: in some of the worlds, all, or none",
    )
    parser.add_argument("--minutes", type=float, metavar="M", help="stop after so long")
    parser.add_argument("--first", type=int, default=0, metavar="S", help="the first seed")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument(
        "--on", metavar="spark[=MASTER]", help="on a Spark cluster instead of --jobs processes"
    )
    parser.add_argument(
        "--scene", default="", choices=["", *NAMES, SPARK], help="only this pipeline"
    )
    parser.add_argument("--size", choices=sorted(SIZES), default="small")
    parser.add_argument(
        "--break", dest="rule", metavar="RULE", help="with a broken rule, or a lapse"
    )
    parser.add_argument("--keep", type=Path, default=Path("swarm-failing.json"), metavar="FILE")
    args = parser.parse_args(arguments)
    bounded = args.seeds is not None or args.minutes is not None
    if not (bounded or args.machines or args.lapses):
        parser.error("say how many: --seeds N, --minutes M, or both")
    if args.jobs < 1 or (args.seeds is not None and args.seeds < 1):
        parser.error("--jobs and --seeds are 1 or more")
    return args


class Telling:
    """Lines of progress, the last word, and the file of what failed."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.tally = Tally()
        self._began_s = self._told_s = time.monotonic()

    def progress(self, tally: Tally) -> None:
        self.tally = tally
        if time.monotonic() - self._told_s >= EVERY_S:
            self._told_s = time.monotonic()
            print(self._line(), flush=True)

    def conclude(self) -> int:
        tally, sums = self.tally, self.tally.sums
        print(self._line())
        if not tally.seeds:
            return 1
        counts = ", ".join(f"{n / tally.seeds:.1f} {name}" for name, n in sorted(sums.items()))
        print(f"per seed: {1000 * tally.cpu_s / tally.seeds:.1f} ms of CPU, {counts}")
        for outcome in tally.failing[:SHOWN_MAX]:
            print(f"  seed {outcome.seed}: {outcome.reason}\n    {self._command(outcome)}")
        if tally.failing:
            self._keep()
        return 0 if not tally.failing and tally.verdicts[WorldVerdict.VALID] else 1

    def _line(self) -> str:
        tally = self.tally
        passed_s = time.monotonic() - self._began_s
        of = "" if self.args.seeds is None else f" of {self.args.seeds:,}"
        verdicts = ", ".join(f"{tally.verdicts[v]:,} {v.value}" for v in WorldVerdict)
        rate = tally.seeds / passed_s if passed_s else 0.0
        return f"{tally.seeds:,}{of} seeds in {passed_s:.0f} s ({rate:.0f}/s): {verdicts}"

    def _command(self, outcome: WorldOutcome) -> str:
        size = "" if self.args.size == "small" else f" --size {self.args.size}"
        rule = f" --break {self.args.rule!r}" if self.args.rule else ""
        crashes = "" if self.args.crashes == "some" else f" --crashes {self.args.crashes}"
        scene = f" --scene {self.args.scene}" if self.args.scene else ""
        return f"anabranch replay {outcome.seed}{size}{crashes}{scene}{rule}"

    def _keep(self) -> None:
        args = self.args
        failing: list[dict[str, Any]] = [
            {
                **outcome.plain,
                "command": self._command(outcome),
                "world": plain(
                    drawn(outcome.seed, args.scene, size=args.size, crashes=args.crashes)
                ),
            }
            for outcome in self.tally.failing[:KEPT_MAX]
        ]
        about = {"size": self.args.size, "broken": self.args.rule, "failing": failing}
        self.args.keep.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        print(f"{len(failing)} of them are kept in {self.args.keep}")


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # on which the order of sets depends
        again = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, *sys.argv], again)
    sys.exit(main(sys.argv[1:]))
