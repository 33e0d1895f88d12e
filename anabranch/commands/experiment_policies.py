"""`anabranch experiment policies`: all policies on the same loads under the same costs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from anabranch.commands.experimenting import Found, options, progress, publish, spreading
from anabranch.commands.failing import Refusal, WrongUsage
from anabranch.workloads.experiments.spreading import Spread

if TYPE_CHECKING:
    from anabranch.runtime.policies.policy import Policy

EXAMPLES = """\b
Examples:
  anabranch experiment policies --data recordings --out results
  anabranch experiment policies --quick --json
  anabranch experiment policies --policy mine.py:ByQueue --quick
"""
SEEDS = 3


@click.command(epilog=EXAMPLES)
@click.option("--seeds", type=click.IntRange(1), default=SEEDS, show_default=True)
@options(quick="One seed and no recorded loads.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Folder of recorded loads, or one with a folder `load` of them.",
)
@click.option(
    "--policy",
    "own",
    multiple=True,
    metavar="FILE.py:NAME",
    help="A policy of one's own beside the shipped ones: its class, or a value of it.",
)
def policies(
    seeds: int,
    out: Path | None,
    as_json: bool,
    data: Path | None,
    own: tuple[str, ...],
    quick: bool,
    spread: Spread,
) -> None:
    """Which policy should I take? Violations of a latency bound, instances paid, reconfigurations,
    overshoot, settling and messages of all policies on the same loads."""
    from anabranch.policies_pictures import draw
    from anabranch.runtime.policies.decider import PolicyError
    from anabranch.workloads.policies_compared import telling
    from anabranch.workloads.policies_compared.contestants import Contestant, contestants
    from anabranch.workloads.policies_compared.evaluation import evaluate
    from anabranch.workloads.policies_compared.scenes import SUFFIXES, recordings_in

    if data is not None and not any(recordings_in(data)):
        raise WrongUsage(
            f"--data {data}: no recorded loads there; expected files *{', *'.join(SUFFIXES)}"
        )
    compared = contestants() + [Contestant(text, _policy(text)) for text in own]
    folder = None if quick else data
    try:
        with spreading():
            found = evaluate(compared, 1 if quick else seeds, folder, progress, spread)
    except PolicyError as error:
        raise Refusal(str(error)) from None
    publish(
        "policies",
        Found(
            telling.whole(found), telling.numbers(found), telling.rows(found), partial(draw, found)
        ),
        out=out,
        as_json=as_json,
        spread=spread,
    )


def _policy(text: str) -> Policy[Any]:
    from anabranch.loading import LoadError, load_policy
    from anabranch.runtime.policies.controller import Controller

    try:
        policy = load_policy(text)
    except LoadError as error:
        raise WrongUsage(f"--policy {text}: {error}") from None
    if isinstance(policy, Controller):
        raise WrongUsage(
            f"--policy {text}: a controller decides for several operators, and here is one; "
            "compare it on a pipeline with `anabranch simulate --compare`"
        )
    return policy
