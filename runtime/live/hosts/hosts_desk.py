"""Answers which hosts there are, which all may see, and drains this one."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.runtime.hosts.membership import HostMembership
from anabranch.runtime.hosts.requests import (
    AskHosts,
    HostDrained,
    HostLine,
    HostsKnown,
    MarkDrained,
    RequestFailed,
)
from anabranch.runtime.live.hosts.refusals import Refusals
from anabranch.runtime.live.hosts.request_server import say
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.ports import clock


class HostsDesk:
    """`drain`: has the host drained, or no longer, and keeps that; raises `OSError`. `at_home`: the
    pipelines that run here because they were submitted to this host; `homes`: of those that may
    have instances here."""

    def __init__(
        self,
        membership: Callable[[], HostMembership],
        refusals: Refusals,
        drain: Callable[[bool], None],
        at_home: Callable[[], list[str]],
        homes: Callable[[], list[str]],
    ) -> None:
        self._membership = membership
        self._refusals = refusals
        self._drain = drain
        self._at_home = at_home
        self._homes = homes

    async def drain(self, request: MarkDrained, stream: FrameStream) -> None:
        try:
            self._drain(request.drained)
        except OSError as error:
            told = f"cannot keep on the disk that the host is drained: {error.strerror}"
            say(stream, RequestFailed(told, wrong=False))
        else:
            me = self._membership().me
            say(stream, HostDrained(me.name, me.drained, self._at_home(), self._homes()))
        await stream.drained()

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
