#!/usr/bin/env python3
"""Measures Anabranch, and says what the figures are worth.

    scripts/bench.py chain                 throughput against bare code and Bytewax
    scripts/bench.py keyed                 counting words by key against Bytewax
    scripts/bench.py move                  moving state to a newcomer: pauses, latency, a picture
    scripts/bench.py newcomer              from a decision to the newcomer's first batch
    scripts/bench.py idle                  memory of processes that wait
    scripts/bench.py pause                 what neighbours notice of a join or a leave
    scripts/bench.py startup               the command line, from nothing to the first tuple
    scripts/bench.py backpressure          memory behind a slow sink
    scripts/bench.py storm                 everybody joins and leaves ten times a second
    scripts/bench.py recovery              from a death to the first results again, a picture
    scripts/bench.py delivery              what effectively-once costs against at-most-once
    scripts/bench.py durable               what it costs to outlive a loss of power, by operator
    scripts/bench.py measuring             what exact measures of each batch and slice cost
    scripts/bench.py engines               the same pipelines on processes and on Spark
    scripts/bench.py growth                time against what is held, open, claimed or listed
    scripts/bench.py hosts                 the agent of a host at rest; certificates, a broker
    scripts/bench.py swarm                 processor time of a world of the swarm
    scripts/bench.py chain pause --json    several, as JSON

Every figure comes with its least, middle and greatest value over the runs. Exit code 1 if
something that must hold does not, such as a balanced ledger; being slow is no failure.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv" / "bin" / "python"
BENCHES = (
    "chain",
    "keyed",
    "move",
    "newcomer",
    "idle",
    "pause",
    "startup",
    "backpressure",
    "storm",
    "recovery",
    "delivery",
    "durable",
    "engines",
    "growth",
    "hosts",
    "measuring",
    "swarm",
)


def main(arguments: list[str]) -> int:
    args = parse(arguments)
    # What is measured has its modules compiled, as software that is installed has.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    from benches.contestants import ContestantFailed
    from benches.result import Result, Settings
    from benches.telling import machine, say, table

    results: list[Result] = []
    for name in args.names:
        with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
            settings = Settings(Path(folder), say, args.runs, args.seconds, args.lines)
            try:
                result: Result = importlib.import_module(f"benches.{name}").measure(settings)
            except ContestantFailed as error:
                result = Result(name, "failed", faults=[str(error)])
        results.append(result)
        if not args.json:
            print(f"{table(result)}\n", flush=True)
    if args.json:
        whole = {"machine": machine(), "benches": [result.as_json() for result in results]}
        print(json.dumps(whole, indent=2))
    else:
        print(machine())
    return 1 if any(result.faults for result in results) else 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", choices=BENCHES, metavar="NAME", help="see above")
    parser.add_argument("--runs", type=positive_int, help="of each bench (default: the bench's)")
    parser.add_argument("--seconds", type=positive, help="of load, where a bench takes its time")
    parser.add_argument(
        "--lines", type=positive_int, default=2_000_000, help="of `chain` (default 2,000,000)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, and nothing else")
    return parser.parse_args(arguments)


def positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return value


def positive_int(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {text}")
    return value


if __name__ == "__main__":
    # Started by hand with another Python, it goes on with the one that has everything.
    if PYTHON.exists() and not Path(sys.prefix).samefile(PYTHON.parent.parent):
        os.execv(PYTHON, [str(PYTHON), *sys.argv])
    sys.exit(main(sys.argv[1:]))
