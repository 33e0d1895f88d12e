"""`anabranch replay`: one seed of the swarm again, with everything that happened in it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from anabranch.commands.broken_protocols import need_broken_protocols
from anabranch.commands.failing import DONE, FAILED, WrongUsage
from anabranch.commands.telling import say

if TYPE_CHECKING:
    from anabranch.runtime.simulation.deadly_scene import Crashes
    from anabranch.runtime.simulation.story import Story
    from anabranch.runtime.simulation.trial import Outcome

EXAMPLES = """\b
Examples:
  anabranch replay 4711
  anabranch replay 4711 --control --last 40
  anabranch replay 4711 --json | jq .scene
  anabranch replay 8 --break F11
  anabranch replay 8 --crashes all --control

\b
A seed is a whole world: its graph, load, hosts, decisions and faults, with deaths of
processes in some of them. The same seed does the same everywhere, as the digest at the end shows.
Exit code: 0 valid or unknown, 1 invalid, 2 wrong usage.
"""


@click.command(epilog=EXAMPLES)
@click.argument("seed", type=int)
@click.option(
    "--size",
    type=click.Choice(["small", "large"]),
    default="small",
    show_default=True,
    help="Of the swarm that the seed is from.",
)
@click.option(
    "--crashes",
    type=click.Choice(["some", "all", "none"]),
    default="some",
    show_default=True,
    help="Of the swarm that the seed is from: in which worlds processes die.",
)
@click.option("--break", "rule", metavar="RULE", help="With a rule of the protocol broken.")
@click.option("--control", is_flag=True, help="Leave out tuples.")
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only the last N lines.")
@click.option("--json", "as_json", is_flag=True, help="Print world, outcome and rows as JSON.")
@click.pass_context
def command(
    context: click.Context,
    seed: int,
    size: str,
    crashes: Crashes,
    rule: str | None,
    control: bool,
    last: int | None,
    as_json: bool,
) -> None:
    """Repeat one seed of the simulated swarm and print its whole exchange."""
    from anabranch.protocol.table import TABLE
    from anabranch.runtime.simulation.lapses import lapse_named, neglected
    from anabranch.runtime.simulation.scene import plain
    from anabranch.runtime.simulation.scene_drawing import draw
    from anabranch.runtime.simulation.story import told
    from anabranch.runtime.simulation.trial import Verdict

    table = TABLE
    lapse = lapse_named(rule) if rule is not None else None
    if rule is not None and lapse is None:
        need_broken_protocols("--break")
        from anabranch.runtime.broken_protocols.naming import variant_named

        try:
            table = {**TABLE, **variant_named(rule).patch}
        except ValueError as error:
            raise WrongUsage(f"--break {error}") from None
    scene = draw(seed, size, crashes)
    with neglected(lapse):
        outcome, story = told(scene, table=table)
    rows = [r for r in story.rows if not (control and r.data)]
    rows = rows[-last:] if last else rows
    if as_json:
        told_ = {**asdict(outcome), "verdict": outcome.verdict.value, "digest": story.digest}
        everything = {"outcome": told_, "scene": plain(scene), "rows": [asdict(r) for r in rows]}
        say(json.dumps(everything, indent=2, default=str))
    else:
        say("\n".join([*map(str, rows), "", *_verdict(outcome, story)]))
    context.exit(FAILED if outcome.verdict is Verdict.INVALID else DONE)


def _verdict(outcome: Outcome, story: Story) -> list[str]:
    why = f": {outcome.reason}" if outcome.reason else ""
    return [
        f"seed {outcome.seed} is {outcome.verdict.value}{why}",
        f"{outcome.at_s:.2f} s of virtual time, {outcome.messages} messages, "
        f"{outcome.tuples} tuples delivered, {outcome.joins} joins, {outcome.leaves} leaves, "
        f"{outcome.hand_overs} hand-overs, {outcome.troubles} faults, {outcome.deaths} deaths; "
        f"digest {story.digest}",
    ]
