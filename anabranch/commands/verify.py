"""`anabranch verify`: every interleaving of the core that the live processes run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.commands.broken_protocols import need_broken_protocols
from anabranch.commands.failing import FAILED, WrongUsage
from anabranch.commands.out_folder import OutFolder
from anabranch.commands.telling import say

if TYPE_CHECKING:
    from anabranch.runtime.explorer.scope import Scope
    from anabranch.runtime.explorer.survey import AnyScope, Summary

HELP = """Explore every interleaving of the protocol core, the one that live processes run.

A scope is a small pipeline and what may happen to it. Checked are the invariants I1 to I11, that
no tuple is lost or doubled (S1, S2), nothing is addressed to a terminated instance (S3), views
are complete at rest (S4), every operator has a keeper (S5), and that operations, tuples and
executions come to their end (L1 to L3). Of operators with key groups: that every tuple is
processed once and in the order of its key (K1, K2), and that a group has one owner, which all of
its senders know (K3 to K7), while groups move to children, to new owners and between siblings. If
processes die, at any moment and anywhere, all of this holds for their next incarnations too.
Where other hosts have copies of journals, and hosts are lost: that two incarnations of an
instance never act together, and that the next one knows all that has counted (Q1 to Q5).

\b
Examples:
  anabranch verify                                  the small scopes, in seconds
  anabranch verify --scope deep                     those of the design, in hours
  anabranch verify --scope "1,2,1 joins=1 leaves=2 tuples=1"
  anabranch verify --instances 1,2,2 --joins 1 --leaves 3 --tuples 2
  anabranch verify --instances 1,2,2 --keyed 1,2 --moves 2 --tuples 2
  anabranch verify --instances 1,2,1 --leaves 1 --tuples 2 --crashes 2
  anabranch verify --published --svg charts         what the paper's protocol loses, and how
  anabranch verify --mutants                        every rule broken, and what finds it
  anabranch verify --coverage                       what was met in which state, beside what
  anabranch verify --coverage --scope small --scope deep      and what no small scope reaches
"""


@click.command("verify", help=HELP)
@click.option(
    "--scope",
    "named",
    multiple=True,
    metavar="NAME|TEXT",
    help="small (default), deep, deepest, sessions, copies, or a scope in words. Repeatable.",
)
@click.option("--instances", metavar="N,N,...", help="Own scope: instances of each operator.")
@click.option("--edges", metavar="A-B,...", help="Its graph, by operator numbers. [default: chain]")
@click.option("--joins", type=click.IntRange(0), default=0, help="Duplications.")
@click.option("--batch", type=click.IntRange(1), default=1, help="Most children of one.")
@click.option("--leaves", type=click.IntRange(0), default=0, help="Instances that leave.")
@click.option("--fresh", type=click.IntRange(0), default=0, help="Hand-overs to a fresh instance.")
@click.option("--sibling", type=click.IntRange(0), default=0, help="Hand-overs to a sibling.")
@click.option("--relocations", type=click.IntRange(0), default=0, help="Instances that relocate.")
@click.option("--keyed", metavar="N,...", help="Operators with key groups, by number.")
@click.option("--groups", type=click.IntRange(1), help="Key groups of each. [default: 1]")
@click.option("--moves", type=click.IntRange(0), default=0, help="Key groups given to siblings.")
@click.option("--crashes", type=click.IntRange(0), default=0, help="Processes that die.")
@click.option("--tuples", type=click.IntRange(0), default=0, help="Tuples read by the sources.")
@click.option(
    "--room", type=click.IntRange(0), default=0, help="Tuples per channel. [default: any]"
)
@click.option("--finish", is_flag=True, help="The stream ends, and all instances must.")
@click.option("--spawn", is_flag=True, help="Starts take time, and may fail.")
@click.option("--slow", is_flag=True, help="Moving key groups takes time.")
@click.option("--mutants", is_flag=True, help="Break every rule once (in a clone only).")
@click.option(
    "--published", is_flag=True, help="Find the published protocol's faults (in a clone only)."
)
@click.option("--coverage", "covering", is_flag=True, help="Tell what the searches go through.")
@click.option("--json", "as_json", is_flag=True, help="Print the coverage as JSON, nothing else.")
@click.option("--svg", type=OutFolder(), help="Folder for charts of what is found.")
@click.option("--states-max", type=click.IntRange(1), default=100_000_000, show_default=True)
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True, help="Processes.")
@click.option("--quiet", is_flag=True, help="No progress.")
def command(
    named: tuple[str, ...],
    mutants: bool,
    published: bool,
    covering: bool,
    as_json: bool,
    svg: Path | None,
    states_max: int,
    jobs: int,
    quiet: bool,
    **own: str | int | bool | None,
) -> None:
    from anabranch.runtime.explorer.survey import survey_all

    if mutants or published:
        need_broken_protocols("--mutants" if mutants else "--published")
    if mutants:
        sys.exit(0 if _show_mutants() else FAILED)
    if published:
        sys.exit(0 if _show_published(svg) else FAILED)
    if as_json and not covering:
        raise WrongUsage("--json says how the coverage is printed: --coverage --json")
    scopes = _chosen(named, own)
    found = survey_all(
        scopes,
        bulk=bool(own["instances"]) or set(named) - {"small"} != set(),
        states_max=states_max,
        jobs=min(jobs, len(scopes)),
        report=None if quiet else _progress,
        covering=covering,
    )
    if covering:
        sys.exit(0 if _show_coverage(found, svg, as_json) else FAILED)
    sys.exit(0 if _show(found, svg) else FAILED)


def _progress(line: str) -> None:
    click.echo(line, err=True)


def _chosen(named: tuple[str, ...], own: dict[str, str | int | bool | None]) -> list[AnyScope]:
    from anabranch.runtime.explorer.scopes import (
        COPIES_DEEP,
        COPIES_SMALL,
        CUTS_DEEP,
        CUTS_SMALL,
        SETS,
    )

    texts = list(named)
    if own["instances"]:
        texts.append(_in_words(own))
    elif any(own[name] for name in own if name != "batch"):
        raise WrongUsage("an own scope begins with --instances, such as --instances 1,2,1")
    scopes: list[AnyScope] = []
    for text in texts or ["small"]:
        if text in SETS:
            scopes += SETS[text].values()
        if text in ("small", "deep", "sessions"):
            scopes += CUTS_SMALL if text == "small" else CUTS_DEEP
        if text in ("small", "deep", "copies"):
            scopes += COPIES_SMALL if text == "small" else COPIES_DEEP
        if text not in (*SETS, "sessions", "copies"):
            scopes.append(_parsed(text))
    return scopes


def _parsed(text: str) -> Scope:
    from anabranch.runtime.explorer.scope import Scope
    from anabranch.runtime.explorer.scopes import SETS

    if not text[:1].isdigit():
        raise WrongUsage(f"no scope {text!r}; named are {', '.join([*SETS, 'sessions', 'copies'])}")
    try:
        return Scope.parse(text)
    except ValueError as error:
        raise WrongUsage(str(error)) from None


def _in_words(own: dict[str, str | int | bool | None]) -> str:
    words = [str(own["instances"])]
    for name, value in own.items():
        if value is True:
            words.append(name)
        elif value and name != "instances":
            words.append(f"{name}={value}")
    return " ".join(words)


def _show(found: Iterable[Summary], svg: Path | None) -> bool:
    """One row for each scope, the story of each fault, and a total."""
    say(f"{'scope':64} {'states':>12} {'transitions':>13} {'deep':>5} {'seconds':>8}")
    rows = []
    for one in found:
        rows.append(one)
        mark = "" if one.sound else "   FOUND" if one.fault else "   not finished"
        counts = f"{one.states:12,} {one.transitions:13,} {one.depth:5} {one.seconds:8.1f}"
        say(f"{one.scope:64} {counts}{mark}")
        if one.fault:
            say(f"\n{one.story}\n")
            _save(svg, f"found-{len(rows)}", one)
    states, transitions = sum(r.states for r in rows), sum(r.transitions for r in rows)
    seconds = sum(r.seconds for r in rows)
    say(
        f"{len(rows)} scopes, {states:,} states, {transitions:,} transitions, "
        f"{seconds:,.0f} s of searching, {states / max(seconds, 1e-3):,.0f} states/s: "
        + ("nothing found" if all(r.sound for r in rows) else "NOT as it should be")
    )
    return all(r.sound for r in rows)


def _show_coverage(found: Iterable[Summary], svg: Path | None, as_json: bool) -> bool:
    """What all scopes together go through, and what no small one does."""
    from anabranch.commands import covering
    from anabranch.runtime.explorer.coverage import Coverage
    from anabranch.runtime.explorer.scopes import SMALL

    every, small = Coverage(), Coverage()

    def noted() -> Iterator[Summary]:
        for one in found:
            every.update(one.coverage or Coverage())
            if one.scope in {str(scope) for scope in SMALL.values()}:
                small.update(one.coverage or Coverage())
            yield one

    if as_json:
        rows = list(noted())
        say(json.dumps(covering.plain_values(every), indent=2))
        return all(row.sound for row in rows)
    sound = _show(noted(), svg)
    compared = small if small.cells and small.pairs != every.pairs else None
    say("\n".join(covering.told(every, compared)))
    return sound


def _show_mutants() -> bool:
    """The table: rule, how it is broken, which scope found out, how, after how many states."""
    from anabranch.runtime.broken_protocols.hunt import hunt

    say(f"{'rule':7} {'broken so':80} {'found in':57} {'states':>7} {'steps':>5}  as")
    escaped = 0
    for catch in hunt():
        say(
            f"{catch.rule:7} {catch.what:80} {catch.by:57} {catch.states:7,} {catch.steps:5}  "
            f"{catch.fault.split(':')[0] or 'ESCAPED'}"
        )
        escaped += not catch.fault
    say("every broken rule is found out" if not escaped else f"{escaped} ESCAPED")
    return not escaped


def _show_published(svg: Path | None) -> bool:
    from anabranch.runtime.broken_protocols.counterexamples import PUBLISHED
    from anabranch.runtime.explorer.survey import survey

    say("The published protocol (Belkhiria & Tedeschi 2019), not ours.\n")
    missing = 0
    for case in PUBLISHED:
        found = survey(case.scope, case.machine(), wanted=case.is_it)
        missing += not found.fault
        expected = f"{found.steps} steps, {case.steps} in protocol.md"
        say(f"{case.name}: {found.machine}; {case.scope}; {expected}")
        say(f"{found.story or 'NOT FOUND'}\n")
        _save(svg, case.name, found)
    return not missing


def _save(folder: Path | None, name: str, found: Summary) -> None:
    if folder is not None and found.picture:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.svg"
        path.write_text(found.picture, encoding="utf-8")
        say(f"  drawn: {path}")
