"""`anabranch experiment`: published evaluations, run again."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.commands.experiment_elysium import lombardi2018
from anabranch.commands.experiment_hierarchy import russorusso2018
from anabranch.commands.experiment_levels import dematteis2017, wladdimiro2021
from anabranch.commands.experiment_policies import policies
from anabranch.commands.experimenting import progress
from anabranch.commands.failing import WrongUsage
from anabranch.commands.out_folder import OutFolder
from anabranch.commands.telling import say

if TYPE_CHECKING:
    from anabranch.workloads.belkhiria2019.evaluation import Evaluation
    from anabranch.workloads.belkhiria2019.metrics import Following

EXAMPLES = """\b
Examples:
  anabranch experiment belkhiria2019 --out results
  anabranch experiment belkhiria2019 --quick --json
  anabranch experiment belkhiria2019 --load requests.csv.gz
  anabranch experiment scale
  anabranch experiment wladdimiro2021 --out results
  anabranch experiment dematteis2017 --quick --json
  anabranch experiment dematteis2017 --level live --quick
  anabranch experiment dematteis2017 --on spark=local[2] --out results
  anabranch experiment russorusso2018 --traces recordings --out results
  anabranch experiment lombardi2018 --traces recordings --out results
  anabranch experiment policies --data recordings --out results
"""
QUICK_SEEDS = 5
TRACE_SEEDS = 10


@click.group(epilog=EXAMPLES)
def command() -> None:
    """Run a published evaluation again, theirs beside ours."""


@command.command(epilog=EXAMPLES)
@click.option("--seeds", type=click.IntRange(1), default=100, show_default=True)
@click.option("--out", type=OutFolder(), help="For the results.")
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as JSON.")
@click.option(
    "--load",
    default="brownian",
    show_default=True,
    metavar="brownian|TRACEFILE",
    help="What the operators are offered.",
)
@click.option(
    "--traces",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("../shared/data/load"),
    show_default=True,
    help="Folder of recorded loads, which follow the Brownian one.",
)
@click.option("--quick", is_flag=True, help=f"{QUICK_SEEDS} seeds and no recorded loads.")
def belkhiria2019(
    seeds: int, out: Path | None, as_json: bool, load: str, traces: Path, quick: bool
) -> None:
    """Decentralised scaling: accuracy, throughput, settling and messages of five policies."""
    from anabranch.workloads.belkhiria2019.evaluation import evaluate
    from anabranch.workloads.belkhiria2019.recorded import recorded
    from anabranch.workloads.belkhiria2019.setup import Setup
    from anabranch.workloads.belkhiria2019.telling import whole
    from anabranch.workloads.curve_base import CurveError

    setup = Setup()
    try:
        offered = None if load == "brownian" else recorded(setup, Path(load))
    except (CurveError, OSError) as error:
        raise WrongUsage(f"--load {load}: {error}") from None
    evaluation = evaluate(setup, QUICK_SEEDS if quick else seeds, progress, offered)
    further, skipped = ({}, []) if quick or offered is not None else _along_traces(traces)
    text = whole(evaluation, further, skipped)
    numbers = _numbers(evaluation, further, skipped)
    if out is not None:
        skipped += _write(evaluation, text, numbers, out)
    say(json.dumps(numbers, indent=2) if as_json else text)


@command.command(epilog=EXAMPLES)
@click.option("--out", type=OutFolder(), help="For the results.")
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as JSON.")
@click.option("--quick", is_flag=True, help="Up to 1,000 instances.")
def scale(out: Path | None, as_json: bool, quick: bool) -> None:
    """A doubling load on 10 to 100,000 instances: how traffic and settling grow."""
    from anabranch.workloads.belkhiria2019.growth import SIZES, growth
    from anabranch.workloads.belkhiria2019.telling import growth_table

    rows = []
    for row in growth(SIZES[:3] if quick else SIZES):
        rows.append(row)
        click.echo(f"{row.policy}, {row.instances:,} instances: {row.seconds:.1f} s", err=True)
    text = growth_table(rows)
    numbers = json.dumps([asdict(row) for row in rows], indent=2)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "scale.md").write_text(text, encoding="utf-8")
        (out / "scale.json").write_text(numbers + "\n", encoding="utf-8")
    say(numbers if as_json else text)


command.add_command(wladdimiro2021)
command.add_command(dematteis2017)
command.add_command(russorusso2018)
command.add_command(lombardi2018)
command.add_command(policies)


def _along_traces(folder: Path) -> tuple[dict[str, dict[str, Following]], list[str]]:
    """Each policy along each recorded load; and why some are missing."""
    from anabranch.workloads.belkhiria2019.evaluation import (
        CORRECTED,
        LIMIT,
        OURS,
        PUBLISHED,
        along,
    )
    from anabranch.workloads.belkhiria2019.recorded import RECORDED, recorded
    from anabranch.workloads.belkhiria2019.setup import Setup

    setup = Setup()
    if not folder.is_dir():
        return {}, [f"recorded loads: no folder {folder} (see --traces)"]
    results, skipped = {}, []
    for name in RECORDED:
        if not (folder / name).is_file():
            skipped.append(f"{name}: not in {folder}")
            continue
        load = recorded(setup, folder / name)
        results[name.split(".")[0]] = {
            policy: along(setup, load, TRACE_SEEDS, policy)
            for policy in (PUBLISHED, CORRECTED, OURS, LIMIT)
        }
        click.echo(f"recorded load {name}", err=True)
    return results, skipped


def _numbers(
    evaluation: Evaluation, further: dict[str, dict[str, Following]], skipped: list[str]
) -> dict[str, object]:
    return {
        "setup": asdict(evaluation.setup),
        "seeds": evaluation.seeds,
        "policies": {name: asdict(scores) for name, scores in evaluation.scores.items()},
        "recorded": {
            name: {policy: asdict(numbers) for policy, numbers in by.items()}
            for name, by in further.items()
        },
        "skipped": skipped,
    }


def _write(evaluation: Evaluation, text: str, numbers: dict[str, object], out: Path) -> list[str]:
    """Table, numbers and figures; prints why figures are missing."""
    from anabranch.experiment_pictures import draw_figures
    from anabranch.picture import PictureUnavailable

    out.mkdir(parents=True, exist_ok=True)
    (out / "results.md").write_text(text, encoding="utf-8")
    (out / "results.json").write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
    try:
        draw_figures(evaluation, out)
    except PictureUnavailable as error:
        click.echo(f"no figures: {error}", err=True)
        return [f"figures: {error}"]
    return []
