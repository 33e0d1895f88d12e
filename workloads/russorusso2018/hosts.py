"""Hosts of two slots in regions, and which instances are where (HI18)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

from anabranch.runtime.policies.hierarchical.levels import SLOTS, Whole
from anabranch.workloads.russorusso2018.setup import OPERATORS, REGION_OF, REGIONS


class Fleet:
    """Of several runs side by side. By run and region: `hosts` that are open, `idle` ones among
    them, `taken` slots."""

    def __init__(self, hosts: Sequence[int | None], spare: Sequence[int]) -> None:
        """Each run begins with one instance of each operator, on `hosts` in each region; None: on
        as many as that takes, and `spare` more."""
        shape = len(hosts), len(REGIONS)
        self.taken: Whole = np.zeros(shape, dtype=np.int64)
        self.idle: Whole = np.zeros(shape, dtype=np.int64)
        self._used: list[list[list[list[int]]]] = [[[] for _ in REGIONS] for _ in hosts]
        """Operators of the instances on each host with any, by run and region."""
        needed = [-(-REGION_OF.count(r) // SLOTS) for r in range(len(REGIONS))]
        for run, (given, more) in enumerate(zip(hosts, spare, strict=True)):
            self.idle[run] = [n + more if given is None else given for n in needed]
        self.hosts: Whole = self.idle.copy()
        for run in range(len(hosts)):
            for operator in range(len(OPERATORS)):
                self.place(run, operator)

    @property
    def free_slots(self) -> Whole:
        return SLOTS * self.hosts - self.taken

    def place(self, run: int, operator: int) -> bool:
        """On the fullest host with a free slot; False if there is none."""
        region = REGION_OF[operator]
        used = self._used[run][region]
        host = next((host for host in used if len(host) < SLOTS), None)
        if host is None:
            if not self.idle[run, region]:
                return False
            self.idle[run, region] -= 1
            host = []
            used.append(host)
        host.append(operator)
        self.taken[run, region] += 1
        return True

    def remove(self, run: int, operator: int, rng: Random, emptiest: bool = False) -> None:
        """An instance of the operator, drawn uniformly; of those on the emptiest hosts if
        `emptiest` (HI-G23)."""
        region = REGION_OF[operator]
        used = self._used[run][region]
        where = [host for host in used for one in host if one == operator]
        if emptiest:
            fewest = min(map(len, where))
            where = [host for host in where if len(host) == fewest]
        host = rng.choice(where)
        host.remove(operator)
        self.taken[run, region] -= 1
        if not host:
            self._used[run][region] = [other for other in used if other is not host]
            self.idle[run, region] += 1

    def change(self, actions: Whole) -> None:
        """Open and close hosts, by run and region: only idle ones close."""
        if np.any(self.idle + actions < 0):
            raise ValueError("a host with an instance on it never closes")
        self.hosts += actions
        self.idle += actions
