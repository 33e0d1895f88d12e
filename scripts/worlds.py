#!/usr/bin/env python3
"""Many worlds, each drawn from a seed, in which the code of live runs is what runs: agent and
instances in one process, on virtual time. Instances join, leave and move state, processes die,
connections break, the disk is full; all must be valid.

    scripts/worlds.py --seeds 1000 --jobs 2     that many worlds
    scripts/worlds.py --first 17 --seeds 1      the world of seed 17
    scripts/worlds.py --scene counts            only worlds with this pipeline
    scripts/worlds.py --lapses                  broken variants of the classes must be found out

Exit code: 0 all are valid or prove nothing, 1 some are invalid or nothing is proved, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from anabranch.runtime.values.worker_pool import worker_pool
from anabranch.runtime.world.lapses import LAPSES, Lapse, neglected
from anabranch.runtime.world.scenes import SCENES
from anabranch.runtime.world.trial import Found, Word, drawn, judged

SEEDS = 200
LAPSE_SEEDS = 200
"""Within so many worlds a lapse must show."""
SHOWN_MAX = 10


def main(arguments: Sequence[str]) -> int:
    args = parsed(arguments)
    logging.disable(logging.ERROR)
    return lapses(args) if args.lapses else worlds(args)


def worlds(args: argparse.Namespace) -> int:
    began_s, words, happened, cpu_s, shown = (
        time.monotonic(),
        Counter[Word](),
        Counter[str](),
        0.0,
        0,
    )
    for found in all_found(args, range(args.first, args.first + args.seeds)):
        words[found.word] += 1
        happened.update(found.happened)
        cpu_s += found.cpu_s
        if found.word is not Word.VALID and shown < SHOWN_MAX:
            shown += 1
            print(found.text, flush=True)
    counted = ", ".join(f"{words[word]} {word.value}" for word in Word)
    print(
        f"{counted}; {time.monotonic() - began_s:.1f} s, "
        f"{cpu_s / args.seeds:.3f} s of processor time each"
    )
    print("; ".join(f"{n} {what}" for what, n in sorted(happened.items()) if n))
    return 1 if words[Word.INVALID] or not words[Word.VALID] else 0


def all_found(args: argparse.Namespace, seeds: Iterable[int]) -> Iterator[Found]:
    one = partial(found_in, scene=args.scene)
    if args.jobs == 1:
        yield from map(one, seeds)
        return
    with worker_pool(args.jobs, "fork") as pool:
        yield from pool.map(one, seeds, chunksize=4)


def found_in(seed: int, scene: str) -> Found:
    return judged(drawn(seed, scene))


def lapses(args: argparse.Namespace) -> int:
    missed = [lapse.name for lapse in LAPSES if not shows(lapse, args)]
    if missed:
        print(f"not found out: {', '.join(missed)}")
    return 1 if missed else 0


def shows(lapse: Lapse, args: argparse.Namespace) -> bool:
    with neglected(lapse):
        found = (
            found_in(seed, lapse.scene) for seed in range(args.first, args.first + LAPSE_SEEDS)
        )
        first = next((f for f in found if f.word is Word.INVALID), None)
    told = "not found out" if first is None else first.text
    print(f"{lapse.name} ({lapse.what}): {told}", flush=True)
    return first is not None


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many (default {SEEDS})")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default 0)")
    parser.add_argument("--scene", default="", choices=["", *SCENES], help="which pipeline")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes (default 1)")
    parser.add_argument("--lapses", action="store_true", help="broken variants")
    args = parser.parse_args(arguments)
    if args.seeds < 1 or args.jobs < 1:
        parser.error("--seeds and --jobs must be at least 1")
    return args


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
