"""`anabranch simulate`: what a pipeline would do under a load, without running it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.commands.failing import Refusal, WrongUsage
from anabranch.commands.preparing import plan
from anabranch.commands.shared_options import settings_option
from anabranch.commands.telling import say
from anabranch.workloads.curve_text import EXAMPLES as CURVE_EXAMPLES

if TYPE_CHECKING:
    from anabranch.forecasting import Scenario

EXAMPLES = """\b
Examples:
  anabranch simulate headlines.py --load 350 --capacity split=100
  anabranch simulate headlines.py --cost report.json --load step:before=500,after=2000,at_s=20
  anabranch simulate headlines.py --cost report.json --load load.csv --seeds 20 --picture out.svg
  anabranch simulate headlines.py --cost report.json --load daily:peak=5000,day_s=300 \\
      --compare split.scale.policy=predictive --compare "split.scale.target=0.6 split.scale.low=0.4"

\b
Costs are measured by a run (anabranch run headlines.py --report report.json) or given. What is
simulated is what runs: agent and instances of a run, in one process on virtual time; only the
functions of operators are replaced by what they cost, and no journals are written.

\b
A load is a number, the file of a recorded trace, or one of these with settings of its own:
""" + "\n".join(f"  {example}" for example in CURVE_EXAMPLES)


COSTS = {
    "capacities": "--capacity",
    "selectivities": "--selectivity",
    "keys": "--keys",
    "skews": "--skew",
}


@click.command(epilog=EXAMPLES)
@click.argument("target", metavar="FILE.py[:NAME]")
@click.option(
    "--load",
    "loads",
    multiple=True,
    metavar="[SOURCE=]CURVE|FILE",
    help="Tuples per second: a number, a curve, or a recorded trace. [default: the source's rate]",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The first one.")
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="How many; together they are a band.",
)
@settings_option
@click.option(
    "--compare",
    multiple=True,
    metavar="SETTINGS",
    help="Other settings, to be shown beside; may be repeated.",
)
@click.option(
    "--cost",
    "report",
    type=click.Path(path_type=Path),
    metavar="REPORT.json",
    help="Capacities and results per tuple as a run has measured them.",
)
@click.option(
    "--capacity",
    "capacities",
    multiple=True,
    metavar="OPERATOR=N",
    help="Tuples per second of one instance that is always busy.",
)
@click.option(
    "--selectivity",
    "selectivities",
    multiple=True,
    metavar="OPERATOR=N",
    help="Results per tuple.",
)
@click.option(
    "--keys",
    multiple=True,
    metavar="OPERATOR=N",
    help="Keys of which a keyed operator keeps state. [default: 10000]",
)
@click.option(
    "--skew",
    "skews",
    multiple=True,
    metavar="OPERATOR=N",
    help="The k-th most frequent key comes 1/k^N times as often as the first. [default: 0]",
)
@click.option("--duration", type=click.FloatRange(1), metavar="S", help="Seconds of virtual time.")
@click.option(
    "--cores", type=click.FloatRange(0.1), metavar="N", help="Processors. [default: enough]"
)
@click.option(
    "--start",
    "start_s",
    type=click.FloatRange(0),
    default=0.1,
    show_default=True,
    metavar="S",
    help="How long a new instance takes to be there.",
)
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True, help="Processes.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--picture", type=click.Path(path_type=Path, dir_okay=False), help="Draw it: png, svg, pdf."
)
def command(
    target: str,
    loads: tuple[str, ...],
    seed: int,
    seeds: int,
    settings: tuple[str, ...],
    compare: tuple[str, ...],
    report: Path | None,
    duration: float | None,
    cores: float | None,
    start_s: float,
    jobs: int,
    as_json: bool,
    picture: Path | None,
    **given: tuple[str, ...],
) -> None:
    """Forecast instances, load, queues, latency and messages of the pipeline in FILE.py.

    Nothing is started or opened.
    """
    from anabranch import forecasting as f
    from anabranch.runtime.policies.decider import PolicyError
    from anabranch.runtime.values.checks import PipelineError
    from anabranch.views import forecast as view

    pipeline = plan(target, settings, None, quiet=as_json).pipeline
    try:
        curves = f.curves_of(pipeline, loads)
        seconds = f.seconds_of(curves, duration)
        pairs = {name: f.pairs(option, given[name]) for name, option in COSTS.items()}
        costs = f.costs_of(pipeline, report=report, **pairs)
        variants = f.variants_of(pipeline, compare)
    except (f.ForecastError, PipelineError) as error:
        raise WrongUsage(str(error)) from None
    try:
        found = f.scenarios(
            variants,
            costs,
            f.arrivals_of(curves, seconds),
            first_seed=seed,
            seeds=seeds,
            jobs=jobs,
            seconds=seconds,
            cores=cores or math.inf,
            start_s=start_s,
        )
    except PolicyError as error:
        raise Refusal(str(error)) from None
    load = ", ".join(loads) or "its own load"
    if picture is not None:
        _draw(found, picture)
    if as_json:
        say(json.dumps(view.plain_values(found, costs, load, seconds), indent=1))
    else:
        say("\n".join(view.lines_of(found, costs, load, seconds)))


def _draw(found: list[Scenario], picture: Path) -> None:
    from anabranch.forecast_picture import draw
    from anabranch.panels import PictureUnavailable

    try:
        draw(found, picture)
    except (PictureUnavailable, OSError, ValueError) as error:
        raise WrongUsage(f"--picture {picture}: {error}") from None
