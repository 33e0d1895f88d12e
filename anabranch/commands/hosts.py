"""`anabranch hosts`: the hosts that an agent knows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from anabranch.commands.agent_options import asking, at_option, tls_of
from anabranch.commands.shared_options import json_option
from anabranch.commands.telling import say

if TYPE_CHECKING:
    from anabranch.runtime.hosts.requests import HostLine, HostsKnown

EXAMPLES = """\b
Examples:
  anabranch hosts
  anabranch hosts --at 127.0.0.1:7434
  anabranch hosts --json | jq '.hosts[] | select(.state == "alive") | .name'

\b
A host that has left, or does not come back, is shown for a day.
Exit code: 0 done, 1 no agent answers, 2 wrong usage.
"""


@click.command(epilog=EXAMPLES)
@at_option
@json_option
def command(at: str, as_json: bool) -> None:
    """Show the hosts that an agent knows, and in which state each of them is."""
    with asking():
        known = asyncio.run(ask_hosts(at, tls_of(at)))
    if as_json:
        import msgspec

        say(msgspec.json.encode(_as_json(at, known)).decode())
    else:
        _show(known)


async def ask_hosts(at: str, tls: Path | None) -> HostsKnown:
    from anabranch.runtime.hosts.requests import AskHosts, HostsKnown
    from anabranch.runtime.live.hosts.client import agent_at

    async with agent_at(at, None, 2**20, tls) as agent:
        agent.ask(AskHosts())
        return await agent.reply(HostsKnown)


def _as_json(at: str, known: HostsKnown) -> dict[str, Any]:
    hosts = [
        {
            "name": line.host.name,
            "state": line.state,
            "drained": line.host.drained,
            "for_s": round(line.for_s, 1),
            "probe_ms": None if line.probe_s is None else round(1000 * line.probe_s, 3),
            "region": line.host.region,
            "labels": line.host.labels,
            "cores": line.host.cores,
            "memory_mb": line.host.memory_mb,
            "address": line.host.address,
            "incarnation": line.host.incarnation,
            "version": line.host.version,
        }
        for line in known.hosts
    ]
    mine = {"host": known.me, "name_taken": known.name_taken, "refused": known.refused}
    return {"at": at, **mine, "hosts": hosts}


def _show(known: HostsKnown) -> None:
    head = ("host", "state", "for", "probe", "region", "cores", "memory", "address", "labels")
    lines = [
        (
            f"{line.host.name}{' *' * (line.host.name == known.me)}",
            _state(line),
            _span(line.for_s),
            "-" if line.probe_s is None else f"{1000 * line.probe_s:.2g} ms",
            line.host.region or "-",
            str(line.host.cores),
            f"{line.host.memory_mb:,} MB",
            line.host.address,
            " ".join(f"{key}={value}" for key, value in line.host.labels.items()) or "-",
        )
        for line in known.hosts
    ]
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    for line in (head, *lines):
        say("  ".join(map(str.ljust, line, widths)).rstrip())
    say(f"* the host of this agent; {_alive(known)}")
    if known.refused:
        told = "; ".join(f"{reason} ({count:,})" for reason, count in known.refused.items())
        say(f"refused since it began: {told}")
    if known.name_taken:
        say(f"the others refuse this host: another one has the name {known.me!r}")


def _state(line: HostLine) -> str:
    is_drained = line.host.drained and line.state in ("alive", "suspected")
    return f"{line.state}, drained" if is_drained else line.state


def _alive(known: HostsKnown) -> str:
    alive = sum(line.state == "alive" for line in known.hosts)
    return f"{alive} of {len(known.hosts)} alive"


def _span(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
