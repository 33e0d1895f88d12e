"""Experiments that are run at several levels: in a model, in virtual time, and live."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from anabranch.commands.experimenting import (
    Found,
    options,
    progress,
    publish,
    recorded,
    recording,
    spreading,
)
from anabranch.commands.failing import WrongUsage
from anabranch.workloads.experiments.spreading import Spread, over_cores

QUICK_RUNS = 3
LOAD_N = "nab_tweets_GOOG_5min.csv.gz"
SEEDS = {"model": 20, "simulated": 3, "live": 3}

level_option = click.option(
    "--level",
    type=click.Choice(("model", "simulated", "live")),
    default="model",
    show_default=True,
    help="In a model, in virtual time with the real protocol, or in processes.",
)


@click.command()
@click.option("--seeds", type=click.IntRange(1), help="Runs of each, simulated. [default: 1]")
@level_option
@options(quick="Without the sweep over 24 hosts; simulated 600 s of each load; live 40 s of G.")
@click.option(
    "--traces",
    type=click.Path(path_type=Path, file_okay=False),
    help=f"Folder of recorded loads, for load N ({LOAD_N}).",
)
def wladdimiro2021(
    seeds: int | None,
    level: str,
    out: Path | None,
    as_json: bool,
    traces: Path | None,
    quick: bool,
    spread: Spread,
) -> None:
    """Multi-metric scaling with a pool of replicas: Tables II to IV and Figures 5 to 12.

    \b
    model      steps of a second, without protocol; half a minute
    simulated  the runtime in virtual time, tenfold faster; an hour of processor time, with
               --quick nine minutes
    live       processes of this machine, pool against redeployment; five minutes, with --quick two
    """
    from anabranch.wladdimiro_pictures import draw_figures, draw_level
    from anabranch.workloads.wladdimiro2021 import levels, telling
    from anabranch.workloads.wladdimiro2021.evaluation import evaluate

    _refuse_spread(level, spread)
    load_n = None if traces is None else recording(traces, "load", LOAD_N)
    if level == "model":
        with spreading():
            model = evaluate(load_n, sweep=not quick, progress=progress, spread=spread)
        found = Found(
            telling.whole(model),
            telling.numbers(model),
            telling.rows(model),
            partial(draw_figures, model),
        )
    else:
        with spreading():
            if level == "live":
                of_level = levels.evaluate_live(quick=quick, progress=progress)
            else:
                of_level = levels.evaluate_simulated(
                    seeds or 1, load_n, quick=quick, progress=progress, spread=spread
                )
        found = Found(
            telling.whole_of_level(of_level),
            telling.numbers_of_level(of_level),
            telling.rows_of_level(of_level),
            partial(draw_level, of_level),
        )
    publish(_named("wladdimiro2021", level), found, out=out, as_json=as_json, spread=spread)


def _named(experiment: str, level: str) -> str:
    return experiment if level == "model" else f"{experiment}-{level}"


@click.command()
@click.option(
    "--seeds",
    type=click.IntRange(1),
    help=f"Runs of each. [default: by level, {SEEDS['model']}, {SEEDS['simulated']} or "
    f"{SEEDS['live']}]",
)
@level_option
@options(quick=f"{QUICK_RUNS} seeds; beyond the model one, and the first 40 steps of each load.")
@click.option(
    "--traces",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of recordings, for load b (taq_xxx_20180102_quotes.csv.gz).",
)
def dematteis2017(
    seeds: int | None,
    level: str,
    out: Path | None,
    as_json: bool,
    traces: Path | None,
    quick: bool,
    spread: Spread,
) -> None:
    """Predictive control of the latency: Tables I and II and Figures 4 to 6.

    \b
    model      tuple by tuple, without protocol; six minutes of processor time for 20 seeds
    simulated  the runtime in virtual time; with load b two hours of processor time, with
               --quick fifteen minutes, six of them for load a
    live       processes of this machine; with load b 17 minutes, with --quick two
    """
    from anabranch.dematteis_pictures import draw_figures
    from anabranch.workloads.dematteis2017 import levels, telling
    from anabranch.workloads.dematteis2017.evaluation import evaluate
    from anabranch.workloads.dematteis2017.loads import QUOTES, read_counts

    _refuse_spread(level, spread)
    quotes = None if traces is None else recorded(traces, "trades", QUOTES, read_counts)
    steps = levels.QUICK_STEPS if quick else None
    with spreading():
        if level == "model":
            runs = seeds or (QUICK_RUNS if quick else SEEDS[level])
            found = evaluate(runs, quotes, progress=progress, spread=spread)
        else:
            runs = seeds or (1 if quick else SEEDS[level])
            if level == "simulated":
                found = levels.evaluate_simulated(
                    runs, quotes, steps=steps, progress=progress, spread=spread
                )
            else:
                found = levels.evaluate_live(runs, quotes, steps=steps, progress=progress)
    publish(
        _named("dematteis2017", level),
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


def _refuse_spread(level: str, spread: Spread) -> None:
    if level == "live" and spread is not over_cores:
        raise WrongUsage("--on spark: live runs are made on this machine, one after the other")
