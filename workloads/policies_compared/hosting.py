"""The hosts on which the instances of the arena are, and what they cost.

A host has `SLOTS` cores and takes an instance on each. Newcomers go to the fullest host with a free
slot. It is paid from when it is asked for until it is closed. Where a controller plans hosts, these
are open, also idle ones, and a newcomer without a free slot is refused; hosts that are too many are
drained: their instances relocate, one after the other, before they close. Of all others a newcomer
without a free slot asks for a host and waits until it has booted, and the last instance that ends
closes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

SLOTS, BOOT_S = 4, 2.0


@dataclass(slots=True)
class ArenaHost:
    """`used`: slots, those of instances on their way included."""

    name: str
    ready_s: float
    used: int = 0
    drains: bool = False


@dataclass(slots=True)
class ArenaHosts:
    """`planned`: whether a controller says how many there should be. `boot_s`: 0 where the load is
    known, since a host can then be asked for in time."""

    most: int
    boot_s: float
    planned: bool = False
    hosts: list[ArenaHost] = field(default_factory=list)
    _made: int = 0

    def begin(self, instances: int) -> list[ArenaHost]:
        """Where these are, on as many hosts as they take, all of which are there."""
        for _ in range(math.ceil(instances / SLOTS)):
            self._ask(0.0, 0.0)
        return [self.place(0.0, 1)[0] for _ in range(instances)]

    @property
    def paid(self) -> int:
        return len(self.hosts)

    def place(self, now_s: float, count: int) -> list[ArenaHost]:
        """For so many newcomers, or fewer if there are no more slots."""
        found = []
        for _ in range(count):
            free = [h for h in self.hosts if h.used < SLOTS and not h.drains]
            if self.planned:
                free = [host for host in free if host.ready_s <= now_s]
            elif not free and len(self.hosts) < self.most:
                free = [self._ask(now_s, self.boot_s)]
            if not free:
                break
            host = max(free, key=lambda h: h.used)
            host.used += 1
            found.append(host)
        return found

    def end(self, host: ArenaHost) -> None:
        """Of an instance on it."""
        host.used -= 1
        if not host.used and (host.drains or not self.planned):
            self.hosts.remove(host)

    def want(self, count: int, now_s: float) -> None:
        """As a pool: more hosts, or those with the fewest instances drain."""
        count = max(1, min(count, self.most))
        there = [host for host in self.hosts if not host.drains]
        draining = sorted((h for h in self.hosts if h.drains), key=lambda h: -h.used)
        for host in draining[: max(0, count - len(there))]:
            host.drains = False
            there.append(host)
        while len(there) < count and len(self.hosts) < self.most:
            there.append(self._ask(now_s, self.boot_s))
        # The first has the keeper, which stays.
        for host in sorted(there[1:], key=lambda h: h.used)[: max(0, len(there) - count)]:
            host.drains = True
        self.hosts = [host for host in self.hosts if host.used or not host.drains]

    def refuge(self, host: ArenaHost, now_s: float) -> ArenaHost | None:
        """Where an instance relocates to whose host drains; None while there is no slot."""
        if not host.drains:
            return None
        some = self.place(now_s, 1)
        return some[0] if some else None

    def of(self, now_s: float) -> Iterator[ArenaHost]:
        """Those that are there."""
        return (host for host in self.hosts if host.ready_s <= now_s)

    def _ask(self, now_s: float, boot_s: float) -> ArenaHost:
        host = ArenaHost(f"host{self._made}", now_s + boot_s)
        self._made += 1
        self.hosts.append(host)
        return host
