"""Answers which hosts there are, which all may know."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.runtime.hosts.membership import HostMembership
from anabranch.runtime.hosts.requests import AskHosts, HostLine, HostsKnown
from anabranch.runtime.live.hosts.refusals import Refusals
from anabranch.runtime.live.hosts.request_server import say
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.ports import clock


class HostsDesk:
    def __init__(self, membership: Callable[[], HostMembership], refusals: Refusals) -> None:
        self._membership = membership
        self._refusals = refusals

    async def tell(self, request: AskHosts, stream: FrameStream) -> None:
        membership, now = self._membership(), clock.monotonic()
        rows = sorted(membership.table, key=lambda row: row.host.name)
        probe_s = membership.latencies.of
        lines = [
            HostLine(r.host, r.state.name.lower(), now - r.since, probe_s(r.host.name))
            for r in rows
        ]
        stream.allow(2**20)
        gossip = {
            "frames of gossip that make no sense": membership.malformed,
            "gossip in the name of another host": membership.false_names,
            "gossip on other hosts that is not taken": membership.false_rows,
        }
        refused = dict(self._refusals.counts) | {what: n for what, n in gossip.items() if n}
        say(stream, HostsKnown(membership.me.name, lines, membership.refused, refused))
        await stream.drained()
