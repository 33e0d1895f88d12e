"""`anabranch replay`: one seed of the swarm again, with everything that happened in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from anabranch.commands.broken_protocols import need_broken_protocols
from anabranch.commands.failing import DONE, FAILED, WrongUsage
from anabranch.commands.telling import say

if TYPE_CHECKING:
    from anabranch.runtime.world.drawn_trial import Crashes
    from anabranch.runtime.world.trial import WorldOutcome

EXAMPLES = """\b
Examples:
  anabranch replay 4711
  anabranch replay 4711 --control --last 40
  anabranch replay 4711 --json | jq .world
  anabranch replay 8 --break F11
  anabranch replay 8 --crashes all --control

\b
A seed is a whole world: its pipeline, load, decisions and faults, with deaths of processes
in some of them. Agent and instances are those of a run, on virtual time. The same seed does
the same in each call of the same version, as the checksum at the end shows.
Exit code: 0 valid or unknown, 1 invalid, 2 wrong usage.
"""

OPTIONS = {
    "size": "--size",
    "crashes": "--crashes",
    "scene": "--scene",
    "rule": "--break",
    "control": "--control",
    "last": "--last",
    "as_json": "--json",
}
"""By the names of parameters."""


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
@click.option("--scene", default="", metavar="NAME", help="Of the swarm: its only pipeline.")
@click.option(
    "--break", "rule", metavar="RULE", help="With a rule of the protocol broken, or a class."
)
@click.option("--control", is_flag=True, help="Leave out tuples.")
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only the last N lines.")
@click.option("--json", "as_json", is_flag=True, help="Print world, outcome and rows as JSON.")
@click.pass_context
def command(
    context: click.Context,
    seed: int,
    size: str,
    crashes: Crashes,
    scene: str,
    rule: str | None,
    control: bool,
    last: int | None,
    as_json: bool,
) -> None:
    """Repeat one seed of the simulated swarm and print its whole exchange."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        context.exit(_in_a_process_of_its_own(context.params))
    from anabranch.runtime.world.drawing import NAMES
    from anabranch.runtime.world.drawn_trial import plain
    from anabranch.runtime.world.lapse_list import lapse_named
    from anabranch.runtime.world.lapses import neglected
    from anabranch.runtime.world.swarm import Patch, hushed, patched
    from anabranch.runtime.world.trial import WorldVerdict, told
    from anabranch.spark_bridge.world.drawing import drawn
    from anabranch.spark_bridge.world.gateway_link import SPARK
    from anabranch.spark_bridge.world.seeds import all_lapses

    patch: Patch = {}
    lapse = lapse_named(rule, all_lapses()) if rule is not None else None
    if rule is not None and lapse is None:
        need_broken_protocols("--break")
        from anabranch.runtime.broken_protocols.naming import variant_named

        try:
            patch = variant_named(rule).patch
        except ValueError as error:
            raise WrongUsage(f"--break {error}") from None
    scenes = (*NAMES, SPARK)
    if scene and scene not in scenes:
        raise WrongUsage(f"--scene {scene}: expected one of {', '.join(scenes)}")
    trial = drawn(seed, scene, size=size, crashes=crashes)
    with neglected(lapse), patched(patch), hushed():
        outcome, story = told(trial)
    rows = [r for r in story if not (control and r.data)]
    rows = rows[-last:] if last else rows
    if as_json:
        everything = {
            "outcome": outcome.plain,
            "world": plain(trial),
            "rows": [asdict(r) for r in rows],
        }
        say(json.dumps(everything, indent=2, default=str))
    else:
        say("\n".join([*map(str, rows), "", *_verdict(outcome)]))
    context.exit(FAILED if outcome.verdict is WorldVerdict.INVALID else DONE)


def _in_a_process_of_its_own(given: dict[str, Any]) -> int:
    """One in which the order of sets is that of the swarm. Returns its exit code."""
    arguments = ["replay", str(given["seed"])]
    for name, option in OPTIONS.items():
        value = given[name]
        if value is True:
            arguments.append(option)
        elif value:
            arguments += [option, str(value)]
    command = [sys.executable, "-m", "anabranch.cli", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.stdout:
        say(done.stdout.removesuffix("\n"))
    if done.stderr:
        click.echo(done.stderr, nl=False, err=True)
    return done.returncode


def _verdict(outcome: WorldOutcome) -> list[str]:
    why = f": {outcome.reason}" if outcome.reason else ""
    happened = "".join(f", {n} {what}" for what, n in sorted(outcome.happened.items()) if n)
    return [
        f"seed {outcome.seed} is {outcome.verdict.value}{why}",
        f"{outcome.virtual_s:.2f} s of virtual time, {outcome.events} events, "
        f"{outcome.tuples} tuples delivered{happened}; checksum {outcome.trace:08x}",
    ]
