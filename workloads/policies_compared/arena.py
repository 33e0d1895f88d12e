"""One operator under a load: the real meter and policy of each instance, a model of the rest.

Tuple by tuple, without the protocol: a tuple goes to the instance that is soonest free, as the
router sends it, and waits upstream while each has as much as its credit allows. A newcomer works
`JOIN_S` after it was asked for; one that leaves gets no more tuples, and ends when its queue is
empty.
All times are seconds. Work and arrivals are drawn from the seed alone, so every contestant gets the
same tuples.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from anabranch.runtime.measuring.level import Level
from anabranch.runtime.measuring.meter import Meter
from anabranch.runtime.measuring.reading import Figures, Planned, Reading
from anabranch.runtime.measuring.slot_meter import added
from anabranch.runtime.policies.bounds import places
from anabranch.runtime.policies.controller import Controller
from anabranch.runtime.policies.decider import Decider
from anabranch.runtime.policies.decision import Decision, Duplicate, Leave
from anabranch.runtime.policies.fixed import Fixed
from anabranch.runtime.policies.policy import Heritage, Policy, Scale
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.policies_compared.contestants import INSTANCES_MAX, Contestant
from anabranch.workloads.policies_compared.controlled import WORK, ArenaControl
from anabranch.workloads.policies_compared.hosting import BOOT_S, SLOTS, ArenaHost, ArenaHosts
from anabranch.workloads.policies_compared.scenes import TRAINING_SEED, Scene, training

WORK_S, WORK_CV2 = 0.04, 0.25
TICK_S = 0.5
"""How often an instance looks at its figures."""
CREDIT_S = 0.25
"""So much work may lie at an instance."""
JOIN_S, LEAVE_S = 0.5, 0.5
NEIGHBOURS = 8
"""Instances before and behind the operator together."""


@dataclass(slots=True)
class Instance:
    """`free_s`: when it has done what lies there; `lies`: those tuples, when they came, when they
    are done, and their work; `here`: how many, for the meter."""

    number: int
    host: ArenaHost
    rank: int
    meter: Meter
    here: Level
    decider: Decider
    since_s: float
    free_s: float
    lies: deque[tuple[float, float, float]] = field(default_factory=deque)
    busy_until_s: float = -1.0
    leaves_s: float = math.inf

    def work_off(self, begin_s: float, now_s: float) -> None:
        """What is done of the tick between the two."""
        here_s = sum(min(end_s, now_s) - max(came_s, begin_s) for came_s, end_s, _ in self.lies)
        self.here.set(here_s / (now_s - begin_s), begin_s)
        done, busy_s = 0, 0.0
        while self.lies and self.lies[0][1] <= now_s:
            busy_s += self.lies.popleft()[2]
            done += 1
        if done:
            self.meter.processed(done, busy_s)


@dataclass(frozen=True, slots=True)
class Course:
    """What happened. By tick: `load` and `instances` at work, `paid`, with those that start or
    drain, and `hosts`. By result: `ends` and `latencies`. `operations`: batches of joins and
    leaves; `waiting`: tuples that are left over."""

    load: FloatArray
    instances: FloatArray
    paid: FloatArray
    hosts: FloatArray
    ends: FloatArray
    latencies: FloatArray
    operations: int
    messages: int
    waiting: int


def run(scene: Scene, contestant: Contestant, seed: int) -> Course:
    """The same for the same seed. One that has learnt before has done so on `training`."""
    left = _learnt(contestant) if contestant.trained else None
    return _Arena(scene, contestant, seed, left).run()


@lru_cache(maxsize=64)
def _learnt(contestant: Contestant) -> Heritage:
    scene = training()
    arena = _Arena(scene, replace(contestant, trained=False), TRAINING_SEED, None)
    arena.run()
    return arena.learnt(scene.seconds)


def _drawn(scene: Scene, seed: int, per_instance: float) -> tuple[list[float], list[float]]:
    """When tuples arrive, in order, and how long each takes."""
    rng = np.random.default_rng((seed, 0))
    most = INSTANCES_MAX / WORK_S
    rates = np.minimum(scene.load * per_instance, most)
    counts = rng.poisson(rates * scene.interval_s)
    at = np.repeat(np.arange(len(counts)) * scene.interval_s, counts)
    at = np.sort(at + rng.random(len(at)) * scene.interval_s)
    work = rng.gamma(1 / WORK_CV2, WORK_S * WORK_CV2, len(at))
    return at.tolist(), work.tolist()


class _Arena:
    def __init__(
        self, scene: Scene, contestant: Contestant, seed: int, left: Heritage | None
    ) -> None:
        self.scene, self.contestant = scene, contestant
        controlled = isinstance(contestant.policy, Controller)
        self.scale = Scale(
            max_instances=INSTANCES_MAX,
            period_s=contestant.period_s,
            policy=Fixed() if controlled else contestant.policy,
        )
        per_instance = self.scale.target / WORK_S
        self._at, self._work = _drawn(scene, seed, per_instance)
        self._rng = random.Random(f"{seed} {contestant.name}")
        self._next = 0
        self._ends: list[float] = []
        self._latencies: list[float] = []
        self._active: list[Instance] = []
        self._draining: list[Instance] = []
        self._starting: list[tuple[float, ArenaHost, dict[str, float]]] = []
        most = math.ceil(INSTANCES_MAX / SLOTS)
        self._hosts = ArenaHosts(most, 0.0 if contestant.knows else BOOT_S)
        self._made = 0
        self._control = self._controlled(contestant.policy, seed, left)
        self._sums: Figures | None = None
        self._planned: Planned | None = None
        """By the keeper, the first instance, which never leaves."""
        self.operations = self.messages = 0

    def run(self) -> Course:
        ticks = round(self.scene.seconds / TICK_S)
        begun = self._hosts.begin(self.contestant.start)
        self._active = [self._newcomer(0.0, host, {}) for host in begun]
        instances, paid, hosts = np.zeros(ticks), np.zeros(ticks), np.zeros(ticks)
        for tick in range(ticks):
            now_s = round((tick + 1) * TICK_S, 6)
            instances[tick] = len(self._active)
            paid[tick] = len(self._active) + len(self._draining) + len(self._starting)
            hosts[tick] = self._hosts.paid
            held = self._deal(now_s)
            self._change(now_s)
            self._decide(now_s, held)
        load = np.repeat(self.scene.load, round(self.scene.interval_s / TICK_S))
        return Course(
            load,
            instances,
            paid,
            hosts,
            np.array(self._ends),
            np.array(self._latencies),
            self.operations,
            self.messages,
            waiting=len(self._at) - self._next,
        )

    # -- tuples ----------------------------------------------------------------------------

    def _deal(self, now_s: float) -> int:
        """Hand out what has come by now, as far as credit goes; how many are held."""
        at, work, i = self._at, self._work, self._next
        heap = [(one.free_s, one.rank) for one in self._active]
        heapq.heapify(heap)
        got = [0] * len(heap)
        begin_s = now_s - TICK_S
        full_s = now_s + CREDIT_S
        while i < len(at) and at[i] < now_s:
            free_s, rank = heap[0]
            if free_s >= full_s:
                break
            came_s = max(at[i], begin_s)
            end_s = max(came_s, free_s) + work[i]
            heapq.heapreplace(heap, (end_s, rank))
            self._active[rank].lies.append((came_s, end_s, work[i]))
            got[rank] += 1
            self._ends.append(end_s)
            self._latencies.append(end_s - at[i])
            i += 1
        for free_s, rank in heap:
            self._active[rank].free_s = free_s
        for one, count in zip(self._active, got, strict=True):
            one.meter.received(count)
            one.work_off(begin_s, now_s)
        self._next = i
        waiting = i
        while waiting < len(at) and at[waiting] < now_s:
            waiting += 1
        return waiting - i

    # -- instances -------------------------------------------------------------------------

    def _newcomer(self, now_s: float, host: ArenaHost, heritage: dict[str, float]) -> Instance:
        here = Level(now_s)
        meter = Meter(period_s=self.scale.period_s, now_s=now_s, instances=1, here=here)
        decider = Decider.begin(self.scale, heritage, now_s)
        self._made += 1
        return Instance(self._made - 1, host, 0, meter, here, decider, now_s, now_s)

    def _change(self, now_s: float) -> None:
        """Newcomers whose time has come, and leavers."""
        come = [join for join in self._starting if join[0] <= now_s]
        self._starting = [join for join in self._starting if join[0] > now_s]
        go = [one for one in self._active if one.leaves_s <= now_s]
        self._active = [one for one in self._active if one.leaves_s > now_s]
        drained = self._draining + go
        self._draining = [one for one in drained if one.free_s > now_s]
        for one in drained:
            if one.free_s <= now_s:
                self._hosts.end(one.host)
        for _, host, heritage in come:
            self._active.append(self._newcomer(now_s, host, heritage))
        for rank, one in enumerate(self._active):
            one.rank = rank
            one.meter.instances(len(self._active), now_s)

    # -- decisions -------------------------------------------------------------------------

    def _decide(self, now_s: float, held: int) -> None:
        if self.contestant.knows:
            self._follow(now_s)
            return
        readings = [self._reading(one, now_s, held) for one in self._active]
        if self._control is not None:
            self._order(self._control, readings, now_s)
            return
        if self.scale.policy.in_concert:
            self._tell(readings)
            readings = [replace(one, operator=self._sums) for one in readings]
        self._act(readings, now_s)
        if self._is_planned():
            self._act([replace(one, planned=self._planned) for one in readings], now_s)

    def _act(self, readings: list[Reading], now_s: float) -> None:
        for one, reading in zip(self._active, readings, strict=True):
            if one.leaves_s == math.inf:
                self._carry_out(one, one.decider.decide(reading, self._rng), now_s)

    def _carry_out(self, one: Instance, decision: Decision, now_s: float) -> None:
        match decision:
            case Duplicate(n=count):
                self._join(one, count, now_s)
            case Leave():
                self._leave(one, now_s)
            case _:
                pass

    def _is_planned(self) -> bool:
        """Whether there is a new plan of the keeper, of which all hear at once."""
        planned = self._active[0].decider.planned
        if planned == self._planned:
            return False
        self._planned = planned
        self.messages += 1 + len(self._active)
        return True

    def _reading(self, one: Instance, now_s: float, held: int) -> Reading:
        one.meter.queue(len(one.lies), held)
        one.meter.own_operation(now_s < one.busy_until_s)
        reading = one.meter.reading(now_s, keeper=one.rank == 0)
        return reading.with_rank(one.rank) if self.contestant.ranks else reading

    def _tell(self, readings: list[Reading]) -> None:
        """The sums of a slot, once all instances that were there throughout have told."""
        known = self._sums.slot if self._sums else -1
        own = [r.own for r in readings if r.own is not None]
        slot = max((figures.slot for figures in own), default=-1)
        if slot <= known:
            return
        begun_s = (slot + 1) * self.scale.period_s
        some = [figures for figures in own if figures.slot == slot]
        if len(some) == sum(one.since_s < begun_s for one in self._active):
            self._sums = added(some)
            self.messages += 2 * len(readings)

    def _join(self, maker: Instance, wanted: int, now_s: float) -> None:
        living = len(self._active) + len(self._draining) + len(self._starting)
        count, _ = places(wanted, living, "operator", self.scale)
        hosts = self._hosts.place(now_s, count)
        if not hosts:
            return
        heritage = maker.decider.heritage(now_s)
        joins = [(max(now_s, host.ready_s) + JOIN_S, host, heritage) for host in hosts]
        maker.busy_until_s = max(at_s for at_s, _, _ in joins)
        self._starting += joins
        self.operations += 1
        self.messages += 2 * NEIGHBOURS + len(hosts)

    def _leave(self, one: Instance, now_s: float) -> None:
        staying = sum(other.leaves_s == math.inf for other in self._active)
        if one.rank == 0 or staying <= self.scale.min_instances:
            return
        one.leaves_s = now_s + LEAVE_S
        self.operations += 1
        self.messages += 2 * NEIGHBOURS

    # -- a controller ----------------------------------------------------------------------

    def _controlled(
        self, policy: Policy[Any], seed: int, left: Heritage | None
    ) -> ArenaControl | None:
        if not isinstance(policy, Controller):
            return None
        scale, text = replace(self.scale, policy=policy), f"{seed} {self.contestant.name}"
        return ArenaControl(policy, scale, self._at, text, left)

    def learnt(self, now_s: float) -> Heritage:
        return {} if self._control is None else self._control.heritage(now_s)

    def _order(self, control: ArenaControl, readings: list[Reading], now_s: float) -> None:
        """Each instance tells its reading once per period, and is told what it is to do."""
        staying = [
            (f"{WORK}.{one.number}", one.host.name, reading)
            for one, reading in zip(self._active, readings, strict=True)
            if one.leaves_s == math.inf
        ]
        orders = control.step(now_s, self._next, staying, len(self._starting), self._hosts)
        of = {f"{WORK}.{one.number}": one for one in self._active}
        for order in orders:
            self._carry_out(of[order.instance], order.act, now_s)
        if now_s % self.scale.period_s < TICK_S:
            self.messages += len(staying)
        self.messages += len(orders)
        for one in self._active:
            if one.rank and (to := self._hosts.refuge(one.host, now_s)):
                self._hosts.end(one.host)
                one.host = to
                self.operations += 1
                self.messages += 4 * NEIGHBOURS + 1

    def _follow(self, now_s: float) -> None:
        """With the load known: as many as it needs now, in one batch."""
        index = min(int(now_s / self.scene.interval_s), len(self.scene.load) - 1)
        wanted = min(max(1, math.ceil(self.scene.load[index])), INSTANCES_MAX)
        staying = [one for one in self._active if one.leaves_s == math.inf]
        missing = wanted - len(staying) - len(self._starting)
        if missing > 0:
            self._join(staying[0], missing, now_s)
        for one in staying[wanted:] if missing < 0 else ():
            self._leave(one, now_s)


def settings_told() -> dict[str, Any]:
    """What the figures rest on."""
    return {
        "work_s": WORK_S,
        "work_cv2": WORK_CV2,
        "instances_max": INSTANCES_MAX,
        "join_s": JOIN_S,
        "leave_s": LEAVE_S,
        "slots_of_a_host": SLOTS,
        "boot_s": BOOT_S,
        "neighbours": NEIGHBOURS,
    }
