"""`anabranch experiment lombardi2018`: operators and hosts scaled apart, from profiles."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from anabranch.commands.experimenting import (
    Found,
    options,
    progress,
    publish,
    recording,
    spreading,
)
from anabranch.commands.failing import WrongUsage
from anabranch.workloads.experiments.spreading import Spread

SEEDS, QUICK_SEEDS = 30, 2


@click.command()
@click.option(
    "--seeds",
    type=click.IntRange(1),
    help=f"Runs of each contestant at each load. [default: {SEEDS}, with --quick {QUICK_SEEDS}]",
)
@options(quick="Two seeds, and thresholds with and without background only.")
@click.option(
    "--traces",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of recorded loads, which stand for the months of Twitter "
    "(nab_tweets_AMZN_5min.csv.gz, worldcup98_0430_0614_per_minute.csv.gz, and "
    "nyc_taxi_30min.csv.gz for forecasts); without it these are left out.",
)
def lombardi2018(
    seeds: int | None,
    out: Path | None,
    as_json: bool,
    traces: Path | None,
    quick: bool,
    spread: Spread,
) -> None:
    """Operators and hosts scaled apart, from profiles and forecasts: Table 1, Figures 6 to 13.

    A fluid model, without protocol: tweets in steps of a tenth of a second on hosts of four cores.
    Beside the published controller and its baseline, the same rules without a controller. The
    whole run takes six minutes of processor time, --quick two.
    """
    from anabranch.lombardi_pictures import draw_figures
    from anabranch.workloads.lombardi2018 import loads, telling
    from anabranch.workloads.lombardi2018.evaluation import BACKGROUNDS, Plan, evaluate

    recorded = {}
    if traces is not None:
        try:
            for name, file in (*loads.TRACES.items(), ("taxi", loads.TAXI)):
                recorded[name] = loads.recorded(name, recording(traces, "load", file))
        except (OSError, ValueError) as error:
            raise WrongUsage(f"--traces: {error}") from None
    plan = Plan(
        seeds or (QUICK_SEEDS if quick else SEEDS),
        backgrounds=(BACKGROUNDS[0], BACKGROUNDS[-1]) if quick else BACKGROUNDS,
        recorded=recorded,
    )
    with spreading():
        found = evaluate(plan, progress, spread)
    publish(
        "lombardi2018",
        Found(
            telling.whole(found),
            telling.numbers(found),
            telling.rows(found),
            partial(draw_figures, found),
        ),
        out=out,
        as_json=as_json,
        spread=spread,
    )
