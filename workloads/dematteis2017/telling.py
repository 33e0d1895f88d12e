"""The evaluation as Markdown: the paper beside ours, and the criteria in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import starmap
from typing import Any

import numpy as np

from anabranch.workloads.dematteis2017.contestants import PUBLISHED
from anabranch.workloads.dematteis2017.keys import PUBLISHED as MOVES
from anabranch.workloads.dematteis2017.model import INSTANCES_MAX, Size
from anabranch.workloads.dematteis2017.moving import AFTER, BEFORE, Moved, mean_of
from anabranch.workloads.dematteis2017.results import FIGURES, FIRST_SEED, Evaluation, Results
from anabranch.workloads.experiments.judging import judged, plain, table

PAPER_STEPS = 156
PAPER: dict[str, dict[str, float]] = {
    name: dict(zip(FIGURES, figures, strict=False))
    for name, figures in {
        "NoSw": (139.33, 52, 53.25, 11.88, 38.8, 341.9),
        "Sw 1": (102.09, 21, 62.37, 2, 14.7, 56.3),
        "Sw 2": (140.93, 22, 60.98, 1.93, 15.5, 63.6),
        "Sw 3": (143.27, 29, 60, 2.64, 18.1, 78.8),
        "rules": (147.2, 43, 46.36, 3.09, 29.6, 153.9),
        "peak": (0, 19, 99, 0, 13.8, 45.1),
    }.items()
}
"""Tables I and II, of load b."""
TITLES = {
    "a": "Load a, a random walk (the paper has no numbers for it)",
    "b": "Load b, a trading day",
    "jump": "From 0.3 to 0.6 of what all can do, at once",
}
LEVELS = {
    "model": "Tuple by tuple",
    "simulated": "The runtime in virtual time",
    "live": "Processes of this machine",
}
MOVED = f"### Figure 5: from {BEFORE} to {AFTER} instances, a second after the load has jumped"
MOVED_HEAD = ("", "highest mean latency", "backlog gone after", "mean latency later")
NO_B = (
    "Load b is left out: it needs the recording taq_xxx_20180102_quotes.csv.gz (--traces FOLDER)."
)


def whole(found: Evaluation) -> str:
    lines = [*_head(found), ""]
    for name, results in found.results.items():
        lines += [f"### {TITLES[name]}", "", *_table(results), ""]
        lines += [*judged(found.criteria.get(name, [])), *_better(results), ""]
    if "b" not in found.results:
        lines += [NO_B, ""]
    if "b" in found.results:
        lines += ["### The paper beside ours, load b", "", *_beside(found.results["b"]), ""]
    if found.moves:
        lines += ["### Figure 5: keys that move from 30 to 60 instances", "", *_moves(found), ""]
        lines += judged(found.criteria["5"])
    if found.moved:
        lines += [MOVED, "", *table(MOVED_HEAD, starmap(_moved, found.moved.items())), ""]
        lines += judged(found.criteria["5"])
    return "\n".join(lines).rstrip() + "\n"


def _head(found: Evaluation) -> Iterator[str]:
    size = next(iter(found.results.values())).size
    yield (
        f"{LEVELS[found.level]}, {found.seeds} runs of each, mean ± standard deviation; at most "
        f"{size.instances_max} instances, {size.work_s * 1000:g} ms a tuple, steps of "
        f"{size.step_s:g} s."
    )


def _table(found: Results) -> Iterator[str]:
    settles = found.name == "jump"
    yield (
        f"Bound {found.size.latency_ms:g} ms, {found.steps} steps."
        + (" Settled: steps from the jump until the bound holds for good." if settles else "")
    )
    yield ""
    head = "| | reconfigurations | violations | instances | amplitude | jitter ms | p95 ms | left |"
    yield head + (" settled |" if settles else "")
    yield "| --- " + "| ---: " * (head.count("|") - 2 + settles) + "|"
    for name in found.runs:
        cells = [
            f"{found.mean(name, f):,.{_digits(f)}f} ± {found.spread(name, f):,.{_digits(f)}f}"
            for f in FIGURES
        ]
        if settles:
            cells.append(_settled([run.settled for run in found.runs[name]]))
        yield f"| {name} | " + " | ".join(cells) + " |"


def _digits(figure: str) -> int:
    return 0 if figure in ("p95_ms", "left") else 1


def _settled(steps: list[int | None]) -> str:
    some = [n for n in steps if n is not None]
    never = len(steps) - len(some)
    told = f"{sum(some) / len(some):.1f}" if some else ""
    return f"{told} ({never} never)".strip() if never else told


def _beside(ours: Results) -> Iterator[str]:
    """Absolute and as a share: of steps, of all instances, of peak."""
    yield "Paper / ours; in brackets the share of steps, of all instances saved, or times peak."
    yield ""
    head = ("", "reconfigurations", "violations", "instances", "amplitude", "jitter ms", "p95 ms")
    names = [name for name in PUBLISHED if name in ours.runs]
    yield from table(head, ([name, *_pairs(name, ours)] for name in names))


def _pairs(name: str, ours: Results) -> Iterator[str]:
    for figure in FIGURES[:6]:
        theirs, here = PAPER[name][figure], ours.mean(name, figure)
        yield (
            f"{_value(theirs)}{_share(theirs, PAPER['peak'][figure], figure, PAPER_STEPS)} / "
            f"{_value(here)}{_share(here, _peak(ours, figure), figure, ours.steps, ours.size)}"
        )


def _value(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _share(value: float, of_peak: float, figure: str, steps: int, size: Size | None = None) -> str:
    match figure:
        case "reconfigurations" | "violations":
            return f" ({value / steps:.0%})"
        case "instances":
            return f" ({1 - value / (size.instances_max if size else INSTANCES_MAX):.0%})"
        case "jitter_ms" | "p95_ms" if of_peak > 0:
            return f" ({value / of_peak:.1f}x)"
        case _:
            return ""


def _peak(ours: Results, figure: str) -> float:
    return ours.mean("peak", figure) if "peak" in ours.runs else 0.0


def _moved(way: str, runs: list[Moved]) -> list[str]:
    figures = (mean_of(runs, figure) for figure in ("peak_s", "drain_s", "later_s"))
    return [way, *(f"{mean:.2f} s" for mean in figures)]


def _moves(found: Evaluation) -> Iterator[str]:
    yield "| | keys, paper | to another host | keys, ours | to another host | most / least |"
    yield "| --- " + "| ---: " * 5 + "|"
    for name, moves in found.moves.items():
        keys, remote = MOVES[name]
        yield (
            f"| {name} | {keys:,} | {remote:,} | {moves.keys:,} | {moves.remote:,} "
            f"| {moves.unevenness:.3f} |"
        )


def _better(found: Results) -> Iterator[str]:
    for name in found.runs:
        if better := found.better(name):
            yield f"- fewer violations at no more instances than {name}: {', '.join(better)}"


def numbers(found: Evaluation) -> dict[str, object]:
    return {
        "level": found.level,
        "seeds": found.seeds,
        "loads": {
            name: {
                "latency_ms": results.size.latency_ms,
                "steps": results.steps,
                "contestants": {c: _numbers(results, c) for c in results.runs},
            }
            for name, results in found.results.items()
        },
        "paper": PAPER,
        "moves": {name: asdict(moves) for name, moves in found.moves.items()},
        "moved": {way: [_plain(run) for run in runs] for way, runs in found.moved.items()},
        "criteria": {name: plain(criteria) for name, criteria in found.criteria.items()},
        "skipped": [] if "b" in found.results else [NO_B],
    }


def _plain(run: Moved) -> dict[str, object]:
    means = [None if np.isnan(mean) else float(mean) for mean in run.latencies_s]
    return asdict(run) | {"latencies_s": means}


def _numbers(found: Results, contestant: str) -> dict[str, object]:
    return {
        "mean": {figure: found.mean(contestant, figure) for figure in FIGURES},
        "deviation": {figure: found.spread(contestant, figure) for figure in FIGURES},
        "settled": [run.settled for run in found.runs[contestant]],
    }


def rows(found: Evaluation) -> list[dict[str, Any]]:
    """A table with one row per run."""
    return [
        {"load": name, "contestant": c, "seed": seed, **asdict(run.scores), "settled": run.settled}
        for name, results in found.results.items()
        for c, runs in results.runs.items()
        for seed, run in enumerate(runs, FIRST_SEED)
    ]
