"""What the agent of a host sends its runs about other hosts: its whole table, when that changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from anabranch.runtime.hosts.hosting import Home, HostOffer
from anabranch.runtime.hosts.membership import HostMembership
from anabranch.runtime.live.hosts.pipeline_folder import PipelineFolder
from anabranch.runtime.ports.disk import store

AT_MOST_EVERY_S = 1.0
LATENCIES_EVERY_S = 10.0
NOTABLE = 1.5
"""By which factor a latency has to change."""


class HostsTold:
    """`host`: of the agent, whose runtime has that version; `tls`: where its certificate is.
    `hosts_max`, `refused`: as in `Home`; `leaving`: hosts on which nothing new may be made."""

    def __init__(self, host: str, anabranch: str, tls: str) -> None:
        self.offers: list[HostOffer] = []
        self.hosts_max = 0
        self.refused = ""
        self.leaving: frozenset[str] = frozenset()
        self._host = host
        self._anabranch = anabranch
        self._tls = tls

    def home_of(self, folder: PipelineFolder) -> Home:
        record = folder.record
        bundle = str(folder.bundle) if store().exists(folder.bundle) else ""
        of_run = (self._host, record.run, self._anabranch, record.version, bundle, self._tls)
        return Home(*of_run, self.hosts_max, self.refused)


class HostsNews:
    """`tell`: is called when `told` has changed, at most once a second."""

    def __init__(
        self, membership: HostMembership, told: HostsTold, tell: Callable[[], None]
    ) -> None:
        self._membership = membership
        self._told = told
        self._tell = tell
        self._latencies: dict[str, float] = {}
        """As they were sent."""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._look()
        self._task = asyncio.create_task(self._go_on(), name="news of hosts")

    def note_changed(self) -> None:
        self._changed.set()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _go_on(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LATENCIES_EVERY_S):
                    await self._changed.wait()
            self._changed.clear()
            if self._look():
                self._tell()
            await asyncio.sleep(AT_MOST_EVERY_S)

    def _look(self) -> bool:
        """Whether there is news."""
        offers = self._offers()
        is_new = offers != self._told.offers
        self._told.offers = offers
        return is_new

    def _offers(self) -> list[HostOffer]:
        me, offers = self._membership.me.name, []
        for row in sorted(self._membership.table, key=lambda row: row.host.name):
            host = row.host
            offers.append(
                HostOffer(
                    host.name,
                    host.address,
                    host.region,
                    host.labels,
                    host.cores,
                    host.memory_mb,
                    host.version,
                    row.state.name.lower(),
                    {} if host.name == me else self._latency_from(me, host.name),
                    host.drained or host.name in self._told.leaving,
                )
            )
        return offers

    def _latency_from(self, me: str, other: str) -> dict[str, float]:
        """Sent again only if it has changed much."""
        now_s, told_s = self._membership.latencies.of(other), self._latencies.get(other)
        if now_s is None:
            return {}
        if told_s is None or not told_s / NOTABLE <= now_s <= told_s * NOTABLE:
            self._latencies[other] = told_s = now_s
        return {me: told_s}
