"""Experiments that are run at several levels: in a model, in virtual time, and live."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.commands.experimenting import options, progress, publish, spreading
from anabranch.commands.failing import WrongUsage
from anabranch.workloads.experiments.spreading import Spread, over_cores

if TYPE_CHECKING:
    from anabranch.workloads.curve_base import FloatArray

QUICK_RUNS = 3


@click.command()
@options(quick="Without the sweep over 24 hosts.")
@click.option(
    "--traces",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of recorded loads, for load N (nab_tweets_GOOG_5min.csv.gz).",
)
def wladdimiro2021(
    out: Path | None, as_json: bool, traces: Path | None, quick: bool, spread: Spread
) -> None:
    """Multi-metric scaling with a pool of replicas: Tables II to IV in a step model."""
    from anabranch.wladdimiro_pictures import draw_figures
    from anabranch.workloads.wladdimiro2021 import telling
    from anabranch.workloads.wladdimiro2021.evaluation import evaluate

    recording = None if traces is None else traces / "nab_tweets_GOOG_5min.csv.gz"
    if recording is not None and not recording.is_file():
        raise WrongUsage(f"--traces: there is no {recording}")
    with spreading():
        found = evaluate(recording, sweep=not quick, progress=progress, spread=spread)
    publish(
        "wladdimiro2021",
        telling.whole(found),
        telling.numbers(found),
        out=out,
        as_json=as_json,
        draw=lambda folder: draw_figures(found, folder),
        runs=None if spread is over_cores else telling.rows(found),
    )


@click.command()
@click.option("--seeds", type=click.IntRange(1), default=20, show_default=True)
@options(quick=f"{QUICK_RUNS} seeds.")
@click.option(
    "--traces",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of recordings, for load b (taq_xxx_20180102_quotes.csv.gz).",
)
def dematteis2017(
    seeds: int, out: Path | None, as_json: bool, traces: Path | None, quick: bool, spread: Spread
) -> None:
    """Predictive control of the latency: Tables I and II tuple by tuple, keys of Figure 5."""
    from anabranch.dematteis_pictures import draw_figures
    from anabranch.workloads.dematteis2017 import telling
    from anabranch.workloads.dematteis2017.evaluation import evaluate

    quotes = None if traces is None else _quotes_in(traces)
    with spreading():
        found = evaluate(QUICK_RUNS if quick else seeds, quotes, progress=progress, spread=spread)
    publish(
        "dematteis2017",
        telling.whole(found),
        telling.numbers(found),
        out=out,
        as_json=as_json,
        draw=lambda folder: draw_figures(found, folder),
        runs=None if spread is over_cores else telling.rows(found),
    )


def _quotes_in(folder: Path) -> FloatArray:
    from anabranch.workloads.dematteis2017.loads import QUOTES, find_quotes, read_counts

    path = find_quotes(folder)
    if path is None:
        raise WrongUsage(f"--traces: there is no {QUOTES} in {folder}")
    try:
        return read_counts(path)
    except (OSError, ValueError) as error:
        raise WrongUsage(f"--traces: {error}") from None
