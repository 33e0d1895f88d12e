"""`anabranch experiment russorusso2018`: operators and hosts scaled by a hierarchy of managers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.commands.experimenting import Found, options, progress, publish, spreading
from anabranch.commands.failing import WrongUsage
from anabranch.workloads.experiments.spreading import Spread

if TYPE_CHECKING:
    from anabranch.workloads.curve_base import FloatArray

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
    from anabranch.workloads.russorusso2018 import telling
    from anabranch.workloads.russorusso2018.evaluation import evaluate
    from anabranch.workloads.russorusso2018.loads import QUICK_SLOTS, synthetic

    means = synthetic() if traces is None else _recorded_in(traces)
    with spreading():
        found = evaluate(
            seeds or (1 if quick else SEEDS),
            means[:QUICK_SLOTS] if quick else means,
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


def _recorded_in(folder: Path) -> FloatArray:
    from anabranch.workloads.curve_base import CurveError
    from anabranch.workloads.russorusso2018.loads import RECORDING, find_recording, recorded

    path = find_recording(folder)
    if path is None:
        raise WrongUsage(f"--traces: there is no {RECORDING} in {folder}")
    try:
        return recorded(path)
    except (CurveError, OSError) as error:
        raise WrongUsage(f"--traces: {error}") from None
