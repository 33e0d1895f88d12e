"""`anabranch experiment russorusso2018`: operators and hosts scaled by a hierarchy of managers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from anabranch.commands.experimenting import Found, options, progress, publish, recorded, spreading
from anabranch.workloads.experiments.spreading import Spread

SEEDS = 10


@click.command()
@click.option(
    "--seeds",
    type=click.IntRange(1),
    help=f"Runs of each row. [default: {SEEDS}, with --quick 1]",
)
@options(quick="15,000 of the 100,000 slots, and one seed.")
@click.option(
    "--traces",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of recorded loads, for the load (nyc_taxi_30min.csv.gz); without it a synthetic "
    "one.",
)
def russorusso2018(
    seeds: int | None,
    out: Path | None,
    as_json: bool,
    traces: Path | None,
    quick: bool,
    spread: Spread,
) -> None:
    """Operators and hosts by a hierarchy of managers that learn: Tables 1 and 2, Figures 3 to 7.

    A model in slots of a minute, without protocol, 69 days of them. A seed takes four minutes of
    processor time, two fifths of them for the row of Anabranch's own policy; --quick 40 s.
    """
    from anabranch.russorusso_pictures import draw_figures
    from anabranch.workloads.russorusso2018 import loads, telling
    from anabranch.workloads.russorusso2018.evaluation import evaluate

    means = (
        loads.synthetic()
        if traces is None
        else recorded(traces, "load", loads.RECORDING, loads.recorded)
    )
    with spreading():
        found = evaluate(
            seeds or (1 if quick else SEEDS),
            means[: loads.QUICK_SLOTS] if quick else means,
            recorded=traces is not None,
            progress=progress,
            spread=spread,
        )
    publish(
        "russorusso2018",
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
