#!/usr/bin/env python3
"""Forecasts beside runs: ready pipelines run at several loads, and are forecast with the costs that
the run has measured.

    scripts/forecasts.py                            all of them; takes five minutes
    scripts/forecasts.py --only wordcount           one pipeline
    scripts/forecasts.py --seconds 60 --seeds 9     longer runs, more seeds of forecasts

A forecast fits if, at rest, each operator has as many instances as in the run, or one more or less;
the median latency is within a factor of two; and the instances have sent as many control messages
for their joins and leaves as with one of the seeds, within 20 %: chance decides how many there are.
"At rest" is the last third of the time. One operator of each pipeline sleeps for the time that its
work would take on a slow host, so other programs disturb a run little, as long as they leave it a
processor.

Exit code: 0 all forecasts fit, 1 some do not, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from anabranch import forecasting
from anabranch.runtime.live.agent.launch import run as run_pipeline
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.reporting.report import OperatorReport, Report, write_report
from anabranch.runtime.sinks.discard import discard
from anabranch.runtime.sources.generate import generate
from anabranch.views.figures import table
from anabranch.workloads import sentiment, wordcount
from anabranch.workloads.slow import Slowed

TEXT = "Now is the winter of our discontent made glorious summer by this sun of York"
LINES = [" ".join(TEXT.split()[i:] + TEXT.split()[:i]) for i in range(len(TEXT.split()))]
SCALE = Scale(max_instances=8)
REST = 2 / 3
"""From this share of the time on, instances are at rest."""
FACTOR = 2.0
MESSAGES = 0.2
SETTLING_S = 1.0
"""A run ends a little after its input; its last samples are of that."""


class Ready(NamedTuple):
    """`build`: the pipeline at so many lines per second. `slow`: its operator that works, and
    `capacity`: how many tuples of it each instance takes per second."""

    build: Callable[..., Pipeline]
    slow: str
    capacity: float
    loads: tuple[float, ...]


def headlines(source: Any, sink: Any, scale: Scale) -> Pipeline:
    made = Pipeline("headlines")
    lines = made.source("lines", source)
    words = lines.flat_map("split", str.split, scale=scale)
    words.filter("long", lambda word: len(word) > 3).sink("out", sink)
    return made


READY = {
    "headlines": Ready(headlines, "split", 50.0, (25.0, 100.0, 200.0)),
    "wordcount": Ready(wordcount.pipeline, "split", 50.0, (25.0, 100.0, 200.0)),
    "sentiment": Ready(sentiment.sentiment, "score", 50.0, (25.0, 100.0, 200.0)),
}


class Figures(NamedTuple):
    """At rest, but for `messages`, which are those of all joins and leaves: of a run, or with each
    seed of a forecast."""

    instances: dict[str, float]
    load: float
    p50_ms: float
    messages: list[float]


def main(arguments: Sequence[str]) -> int:
    args = parsed(arguments)
    rows = [["pipeline", "load", "", "instances", "load of it", "p50", "messages", "fits"]]
    fits = True
    for name in args.only or READY:
        for load in READY[name].loads:
            ran, foretold = compared(READY[name], load, args.seconds, args.seeds)
            misses = misfits(ran, foretold)
            fits = fits and not misses
            slow = READY[name].slow
            rows.append([name, f"{load:g}/s", "run", *told(ran, slow), ""])
            rows.append(["", "", "forecast", *told(foretold, slow), ", ".join(misses) or "yes"])
            print(f"{name} at {load:g}/s: {', '.join(misses) or 'fits'}", file=sys.stderr)
    print("\n".join(table(rows, left=3)))
    return 0 if fits else 1


def told(figures: Figures, slow: str) -> list[str]:
    messages = sorted(figures.messages)
    others = "".join(f" {n:g}" for name, n in figures.instances.items() if name != slow)
    return [
        f"{figures.instances[slow]:g}" + (f" ({others.strip()})" if others else ""),
        f"{figures.load:.2f}",
        f"{figures.p50_ms:.1f} ms",
        f"{median(messages):g}" + (f" ({messages[0]:g}-{messages[-1]:g})" if messages[1:] else ""),
    ]


def misfits(ran: Figures, foretold: Figures) -> list[str]:
    """What of a forecast is too far from the run."""
    found = [
        f"instances of {name}"
        for name, n in ran.instances.items()
        if abs(foretold.instances[name] - n) > 1
    ]
    if not 1 / FACTOR <= foretold.p50_ms / ran.p50_ms <= FACTOR:
        found.append("p50")
    least, most = min(foretold.messages), max(foretold.messages)
    if not (1 - MESSAGES) * least <= ran.messages[0] <= (1 + MESSAGES) * most:
        found.append("messages")
    return found


def compared(ready: Ready, load: float, seconds: float, seeds: int) -> tuple[Figures, Figures]:
    lines = itertools.cycle(LINES)
    source = generate(lambda _: next(lines), rate=load, duration_s=seconds)
    pipeline = ready.build(source, discard(), scale=SCALE)
    slow_down(pipeline, ready)
    with tempfile.TemporaryDirectory(prefix="anabranch-forecasts-") as folder:
        pipeline.dead_letters = Path(folder) / "dead.jsonl"
        report = run_pipeline(pipeline, Options(on_output=lambda *_: None))
        path = Path(folder) / "report.json"
        write_report(report, path)
        return figures_of(report, pipeline, ready, seconds), foretold(
            pipeline, ready, path, load, seconds, seeds
        )


def slow_down(pipeline: Pipeline, ready: Ready) -> None:
    operators = pipeline.operators
    for name, operator in operators.items():
        if name == ready.slow:
            (step,) = operator.steps
            slowed = replace(step, fn=Slowed(step.fn, ready.capacity))
            operators[name] = replace(operator, steps=(slowed,))


def foretold(
    pipeline: Pipeline, ready: Ready, report: Path, load: float, seconds: float, seeds: int
) -> Figures:
    costs = forecasting.costs_of(pipeline, report=report, capacities={}, selectivities={})
    curves = forecasting.curves_of(pipeline, [f"{load:g}"])
    variants, offered = (
        forecasting.variants_of(pipeline, []),
        forecasting.arrivals_of(curves, seconds),
    )
    (scenario,) = forecasting.scenarios(
        variants, costs, offered, first_seed=0, seeds=seeds, jobs=1, seconds=seconds
    )
    resting = [i for i, t in enumerate(scenario.t) if t > REST * seconds]

    def at_rest(operator: str, figure: str) -> float:
        courses = scenario.courses(operator)
        values = [getattr(c, figure)[i] for c in courses for i in resting]
        return float(median(v for v in values if v is not None))

    scaled = scaled_in(pipeline)
    return Figures(
        {name: at_rest(name, "instances") for name in scaled},
        at_rest(ready.slow, "load"),
        at_rest(sink_of(pipeline), "p50_ms"),
        [sum(c.messages[-1] for c in f.courses.values()) for f in scenario.forecasts],
    )


def figures_of(report: Report, pipeline: Pipeline, ready: Ready, seconds: float) -> Figures:
    if not report.ok:
        raise SystemExit(f"the run of {report.pipeline} {report.ended}: {report.failure}")
    at_rest = partial(median_at_rest, seconds=seconds)
    scaled = scaled_in(pipeline)
    instances = {name: at_rest(report.operator(name), "instances") for name in scaled}
    return Figures(
        instances,
        at_rest(report.operator(ready.slow), "load"),
        at_rest(report.operator(sink_of(pipeline)), "latency_p50_ms"),
        [sum(o.messages for o in report.operators) - messages_of_end(report, pipeline, seconds)],
    )


def median_at_rest(operator: OperatorReport, figure: str, seconds: float) -> float:
    samples = operator.samples
    rows = zip(samples.t, getattr(samples, figure), strict=True)
    return float(median(v for t, v in rows if in_rest(t, seconds) and v is not None))


def in_rest(t: float, seconds: float) -> bool:
    return REST * seconds < t < seconds - SETTLING_S


def messages_of_end(report: Report, pipeline: Pipeline, seconds: float) -> int:
    """Each instance says the end to each successor, which answers; a forecast does not end."""
    last = {
        o.name: [n for t, n in zip(o.samples.t, o.samples.instances, strict=True) if t < seconds][
            -1
        ]
        for o in report.operators
    }
    return sum(2 * last[u] * last[o.name] for o in pipeline.operators.values() for u in o.upstream)


def scaled_in(pipeline: Pipeline) -> list[str]:
    return [str(o.name) for o in pipeline.operators.values() if o.scale is not None]


def sink_of(pipeline: Pipeline) -> str:
    return next(str(o.name) for o in pipeline.operators.values() if o.sink is not None)


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", choices=[*READY], help="this pipeline")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each run")
    parser.add_argument("--seeds", type=int, default=5, help="of each forecast")
    args = parser.parse_args(arguments)
    if args.seconds < 10 or args.seeds < 1:
        parser.error("--seconds must be 10 or more, and --seeds 1 or more")
    return args


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
