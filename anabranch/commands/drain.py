"""`anabranch drain`: have all instances of other hosts' pipelines leave a host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.commands.agent_options import ask, asking, at_option, say_json, tls_of, token_option
from anabranch.commands.failing import FAILED, Refusal, WrongUsage
from anabranch.commands.shared_options import json_option
from anabranch.commands.telling import say

if TYPE_CHECKING:
    from anabranch.runtime.hosts.requests import HostDrained, HostLine, HostsKnown

LOOK_EVERY_S = 1.0
SILENT = ("silent", "starting", "waiting")
"""States of pipelines that do not report where their instances are."""
EXAMPLES = """\b
Examples:
  anabranch drain press-2                  # before maintenance
  anabranch drain press-2 --timeout 60 --json
  anabranch drain press-2 --undo           # afterwards

\b
Instances of pipelines that were submitted to other hosts relocate, and none come, until --undo,
also when the agent there starts again. The command shows how many are left, and returns when none
is; Ctrl-C ends only the command. Pipelines that were submitted to the host itself stay there.
Exit code: 0 none is left, or it takes instances again; 1 there are some after --timeout, or an
agent does not answer; 2 wrong usage, or no such host.
"""


@dataclass(slots=True)
class Left:
    """`instances`: on the host, by pipeline and its home; `silent`: homes that do not report how
    many they have there."""

    instances: dict[str, int] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)

    @property
    def none(self) -> bool:
        return not self.instances and not self.silent

    def __str__(self) -> str:
        if self.none:
            return "no instances of other hosts' pipelines are there"
        parts = []
        if many := sum(self.instances.values()):
            of = ", ".join(f"{n} of {where}" for where, n in sorted(self.instances.items()))
            parts.append(f"{many} {'instance is' if many == 1 else 'instances are'} there: {of}")
        if self.silent:
            parts.append(f"not told yet by {', '.join(self.silent)}")
        return "; ".join(parts)


@click.command(epilog=EXAMPLES)
@click.argument("host", metavar="HOST")
@at_option
@click.option("--undo", is_flag=True, help="Let the host have instances again.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0),
    metavar="S",
    help="Do not wait longer; the host stays drained.",
)
@token_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    host: str,
    at: str,
    undo: bool,
    timeout_s: float | None,
    token_file: Path | None,
    as_json: bool,
) -> None:
    """Have instances leave a host, and wait until they have."""
    from anabranch.runtime.hosts.requests import HostDrained, MarkDrained

    known = _known(at)
    line = _named(host, known, at)

    def drain() -> HostDrained:
        return ask(line.host.address, token_file, MarkDrained(not undo), HostDrained)

    told, left = drain(), Left()
    if not undo:
        show = (lambda text: None) if as_json else say
        left = _until_left(host, at, drain, timeout_s, show)
    if as_json:
        say_json(
            {
                "host": told.host,
                "drained": told.drained,
                "instances": left.instances,
                "silent": left.silent,
                "stays": told.stays,
            }
        )
    elif undo:
        say(f"{host} takes instances again")
    elif told.stays:
        say(f"what was submitted to {host} stays there: {', '.join(told.stays)}")
    if not left.none:
        context.exit(FAILED)


def _known(at: str) -> HostsKnown:
    from anabranch.commands.hosts import ask_hosts

    with asking():
        return asyncio.run(ask_hosts(at, tls_of(at)))


def _named(host: str, known: HostsKnown, at: str) -> HostLine:
    from anabranch.runtime.values.hints import hint

    by_name = {line.host.name: line for line in known.hosts}
    if host not in by_name:
        way = hint(host, dict.fromkeys(by_name), "there")
        raise WrongUsage(f"the agent at {at} knows no host {host!r}; {way}")
    if by_name[host].state in ("dead", "left"):
        raise Refusal(f"host {host} is not there: {by_name[host].state}, as far as {at} knows")
    return by_name[host]


def _until_left(
    host: str,
    at: str,
    drain: Callable[[], HostDrained],
    timeout_s: float | None,
    show: Callable[[str], None],
) -> Left:
    from anabranch.runtime.ports import clock

    began_s, shown = clock.monotonic(), ""
    while True:
        left = _left(host, at, drain().homes)
        if (text := f"{host} is drained; {left}") != shown:
            show(text)
            shown = text
        if left.none or (timeout_s is not None and clock.monotonic() - began_s >= timeout_s):
            return left
        clock.pause(LOOK_EVERY_S)


def _left(host: str, at: str, homes: list[str]) -> Left:
    """`homes`: hosts of whose pipelines there may be instances."""
    from anabranch.runtime.hosts.pipelines import AskStatus, PipelinesKnown

    left = Left()
    addresses = {line.host.name: line.host.address for line in _known(at).hosts} if homes else {}
    for home in homes:
        try:
            address = addresses[home]
            knows = {line.host.name: line.host.drained for line in _known(address).hosts}
            statuses = ask(address, None, AskStatus(""), PipelinesKnown).pipelines
        except (KeyError, Refusal):
            left.silent.append(home)
            continue
        for one in statuses:
            operators = (one.run or {}).get("operators", [])
            if n := sum(each.get("hosts", {}).get(host, 0) for each in operators):
                left.instances[f"{one.id} on {home}"] = n
        is_silent = any(one.state in SILENT for one in statuses)
        if is_silent or not knows.get(host):
            left.silent.append(home)
    return left
