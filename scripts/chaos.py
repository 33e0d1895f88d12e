#!/usr/bin/env python3
"""Chaos on real processes: a pipeline at work while its operators are told to duplicate, to leave,
to hand over and to move state, and its processes are killed, stopped, slowed and cut off.

    scripts/chaos.py --minutes 5 --seed 7         what happens follows from the seed
    scripts/chaos.py --minutes 1 --only child,cut only these kinds of faults; `none`: no faults
    scripts/chaos.py --plan --seed 7              the plan of faults, and nothing else
    scripts/chaos.py --seed 7 --replay chaos.json the plan of a report, or some lines of it

Then it heals, the input ends, and everything is looked at: every result came once, in the order
of its key, from a state without a gap; the ledger balances; no process, no folder is left, nothing
grows. Kinds of faults: see --plan.

Exit code: 0 all is right, 1 something is not (then the folder is kept and the command printed),
2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faults.plan import Fault

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv" / "bin" / "python"
SEED_BITS = 32


def main(arguments: Sequence[str]) -> int:
    args = parsed(arguments)
    if args.plan:
        return show_plan(args)
    folder = Path(tempfile.mkdtemp(prefix="chaos-")) if args.keep is None else args.keep
    folder.mkdir(parents=True, exist_ok=True)
    base = Path(tempfile.mkdtemp(prefix="ab-", dir="/tmp"))
    right = False
    try:
        right = run(args, folder.resolve(), base)
    except KeyboardInterrupt:
        print("interrupted; nothing of it is left", file=sys.stderr)
        right = True
        return 130
    finally:
        shutil.rmtree(base, ignore_errors=True)
        if right and args.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if right else 1


def run(args: argparse.Namespace, folder: Path, base: Path) -> bool:
    from faults.result import as_json, conclude
    from faults.runner import Runner
    from faults.settings import Settings
    from faults.telling import show
    from rich.console import Console

    settings = Settings(
        folder,
        base,
        args.seed,
        60 * args.minutes,
        args.transport,
    )
    record = asyncio.run(Runner(settings, planned(args), say).carry_out())
    told = as_json(conclude(record))
    for path in filter(None, (args.report, None if told["right"] else folder / "chaos.json")):
        path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    if args.json:
        print(json.dumps(told, indent=1))
    else:
        show(told, command(args), str(folder), Console(soft_wrap=True))
    return bool(told["right"])


def planned(args: argparse.Namespace) -> list[Fault]:
    from faults.plan import Fault, plan
    from faults.runner import SCOPE

    if args.replay is None:
        return plan(args.seed, 60 * args.minutes, SCOPE, args.only)
    faults = json.loads(args.replay.read_text(encoding="utf-8"))["plan"]
    return [Fault(**fault) for fault in faults]


def show_plan(args: argparse.Namespace) -> int:
    from faults.plan import KINDS

    for fault in planned(args):
        print(fault.text)
    for kind, what in KINDS.items():
        print(f"{kind:10} {what}")
    return 0


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    from faults.plan import KINDS

    def kinds(text: str) -> tuple[str, ...]:
        names = () if text == "none" else tuple(text.split(","))
        if unknown := [name for name in names if name not in KINDS]:
            known = ", ".join(KINDS)
            raise argparse.ArgumentTypeError(f"no fault {', '.join(unknown)}; known: {known}")
        return names

    def minutes(text: str) -> float:
        if not 0 < (value := float(text)) <= 24 * 60:
            raise argparse.ArgumentTypeError(f"expected above 0, at most a day, got {text}")
        return value

    parser = argparse.ArgumentParser(
        prog="scripts/chaos.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=minutes, default=1.0, metavar="M", help="of faults (1)")
    parser.add_argument("--seed", type=int, metavar="S", help="drawn, and told, if not given")
    parser.add_argument("--transport", choices=["unix", "tcp"], default="unix")
    parser.add_argument("--only", type=kinds, metavar="KIND,...", help="only these faults")
    parser.add_argument("--plan", action="store_true", help="print what would be done")
    parser.add_argument(
        "--replay", type=Path, metavar="FILE", help="the plan of that report, which may be changed"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write it as JSON")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="work there, and keep it in any case"
    )
    args = parser.parse_args(arguments)
    if args.seed is None:
        args.seed = secrets.randbits(SEED_BITS)
    return args


def command(args: argparse.Namespace) -> str:
    only = "" if args.only is None else f" --only {','.join(args.only) or 'none'}"
    replay = "" if args.replay is None else f" --replay {args.replay}"
    return (
        f"scripts/chaos.py --minutes {args.minutes:g} --seed {args.seed} "
        f"--transport {args.transport}{only}{replay}"
    )


BEGAN_S = time.monotonic()


def say(text: str) -> None:
    print(f"[{time.monotonic() - BEGAN_S:6.1f} s] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    # Started by hand with another Python, it goes on with the one that has everything.
    if PYTHON.exists() and not Path(sys.prefix).samefile(PYTHON.parent.parent):
        os.execv(PYTHON, [str(PYTHON), *sys.argv])
    sys.exit(main(sys.argv[1:]))
