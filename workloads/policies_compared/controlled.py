"""A controller in the arena: what it is shown, as an agent shows it of a run with a paced source,
one operator and several hosts."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.control import Control, Sight
from anabranch.runtime.policies.controller import Controller
from anabranch.runtime.policies.look_and_plan import HostLook, OperatorLook, PoolLook, Seen
from anabranch.runtime.policies.policy import Heritage, Scale
from anabranch.runtime.policies.reconcile import PlannedOrder
from anabranch.workloads.policies_compared.hosting import SLOTS, ArenaHosts

SOURCE, WORK = "source", "work"
PACE_S = 1.0
"""A source is shown with what was due in so long."""


class ArenaControl:
    """`arrivals`: when tuples are due, in order."""

    def __init__(
        self,
        policy: Controller[Any],
        scale: Scale,
        arrivals: Sequence[float],
        seed: str,
        inherited: Heritage | None,
    ) -> None:
        self._arrivals = arrivals
        blank = OperatorLook(name=SOURCE, downstream=(WORK,))
        work = OperatorLook(name=WORK, scale=scale, upstream=(SOURCE,))
        self._sight = Sight([blank, work])
        self._control = Control.begin(policy, (WORK,), random.Random(seed), 0.0, inherited)

    def step(
        self,
        now_s: float,
        read: int,
        told: Sequence[tuple[str, str, Reading]],
        coming: int,
        hosts: ArenaHosts,
    ) -> tuple[PlannedOrder, ...]:
        """`read`: tuples that the source has sent. `told`: the name, host and reading of each
        instance. Hosts become as many as are planned, and as its instances take."""
        seen = {
            SOURCE: [Seen(f"{SOURCE}.0", self._reading(now_s, read))],
            WORK: [Seen(name, reading) for name, _, reading in told],
        }
        look = self._sight.look(now_s, seen, {WORK: coming})
        pool = PoolLook(
            tuple(HostLook(h.name, float(SLOTS), h.drains) for h in hosts.of(now_s)),
            hosts.most,
            {name: host for name, host, _ in told} | {f"{SOURCE}.0": hosts.hosts[0].name},
        )
        orders, is_new = self._control.step(replace(look, pool=pool))
        plan = self._control.plan
        if is_new and plan.hosts is not None:
            hosts.planned = True
            hosts.want(max(plan.hosts, math.ceil(plan.wanted.get(WORK, 0) / SLOTS)), now_s)
        return orders

    def heritage(self, now_s: float) -> Heritage:
        return self._control.heritage(now_s)

    def _reading(self, now_s: float, read: int) -> Reading:
        """Of the source, whose pace is what was due in the last second."""
        first, last = (bisect_left(self._arrivals, at_s) for at_s in (now_s - PACE_S, now_s))
        return Reading(
            now_s=now_s, instances=1, instances_changed_s=0.0, covered_s=now_s, is_source=True,
            demand_per_s=(last - first) / min(PACE_S, now_s), processed_total=read,
            sent_to={WORK: read},
        )  # fmt: skip
