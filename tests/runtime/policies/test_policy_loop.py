"""Siblings that decide alone, in a closed loop of virtual time: load, meters, policies."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, field, replace

import pytest

from anabranch.runtime.measuring.meter import Meter
from anabranch.runtime.policies.decision import Duplicate, Leave
from anabranch.runtime.policies.memory import Memory, born, heritage
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.policies.probabilistic import decide

STEP_S = 0.1
JOIN_S = 0.15
CREDIT = 400.0
HELD_MAX = 8192.0


@dataclass
class Sibling:
    meter: Meter
    memory: Memory = field(default_factory=Memory)
    keeper: bool = False
    queue: float = 0.0
    leaving: bool = False
    waited_s: float = 0.0
    fraction: float = 0.0

    def whole(self, done: float) -> int:
        """Tuples done, whole ones only; the rest counts next time."""
        tuples = math.floor(done + self.fraction)
        self.fraction += done - tuples
        return tuples


class Loop:
    """An operator of siblings which each do `capacity` tuples/s, and predecessors in front.

    Predecessors send to whoever has credit and hold the rest, up to `HELD_MAX`, where they stop
    reading; a duplicate starts after `JOIN_S`; `cores` bounds what all siblings together can do,
    in instances, and `tells_wait` lets them notice it. `tells_rank`: neighbours tell ranks.
    """

    def __init__(
        self,
        scale: Scale,
        seed: int,
        cores: float = math.inf,
        tells_wait: bool = False,
        tells_rank: bool = False,
    ) -> None:
        self.scale = scale
        self.capacity = 1000.0
        self.cores = cores
        self.tells_wait = tells_wait
        self.tells_rank = tells_rank
        self.rng = random.Random(seed)
        self.now_s = 0.0
        self.held = 0.0
        self.joining: list[tuple[float, Sibling]] = []
        self.siblings = [self._sibling(keeper=True)]
        self.history: list[tuple[float, int]] = []

    def run(self, per_s: float, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.now_s += STEP_S
            self._route(per_s * STEP_S * self.rng.uniform(0.9, 1.1))
            self._work()
            self._decide()
            self._change()
            self.history.append((self.now_s, len(self.siblings)))

    def counts_since(self, start_s: float) -> list[int]:
        return [n for t, n in self.history if t > start_s]

    def _sibling(self, keeper: bool = False) -> Sibling:
        meter = Meter(period_s=self.scale.period_s, now_s=self.now_s, capacity=self.scale.capacity)
        return Sibling(meter, keeper=keeper)

    def _route(self, tuples: float) -> None:
        self.held = min(self.held + tuples, HELD_MAX)
        for sibling in sorted(self.siblings, key=lambda s: s.queue):
            share = min(self.held, CREDIT - sibling.queue, tuples / len(self.siblings) * 2)
            sibling.queue += max(0.0, share)
            self.held -= max(0.0, share)
            sibling.meter.received(round(max(0.0, share)))

    def _work(self) -> None:
        share = min(1.0, self.cores / len(self.siblings))
        speed = share * self.capacity
        for sibling in self.siblings:
            done = min(sibling.queue, speed * STEP_S)
            sibling.queue -= done
            sibling.meter.processed(sibling.whole(done), done / speed)
            sibling.meter.queue(round(sibling.queue), round(self.held))
            if self.tells_wait:
                sibling.waited_s += done / speed * (1 - share)
                sibling.meter.cpu_wait(sibling.waited_s)

    def _decide(self) -> None:
        for rank, sibling in enumerate(self.siblings):
            seen = sibling.meter.reading(self.now_s, keeper=sibling.keeper)
            seen = replace(seen, rank=rank if self.tells_rank else None)
            decision, sibling.memory = decide(seen, self.scale, sibling.memory, self.rng)
            if isinstance(decision, Duplicate):
                sibling.meter.own_operation(True)
                self.joining += [(self.now_s + JOIN_S, sibling)] * decision.n
            sibling.leaving = isinstance(decision, Leave)

    def _change(self) -> None:
        before = len(self.siblings)
        for leaver in [s for s in self.siblings if s.leaving]:
            self.siblings.remove(leaver)
            self.held += leaver.queue
        for _, parent in [j for j in self.joining if j[0] <= self.now_s]:
            parent.meter.own_operation(False)
            child = self._sibling()
            child.memory = born(heritage(parent.memory, self.now_s), self.now_s)
            self.siblings.append(child)
        self.joining = [j for j in self.joining if j[0] > self.now_s]
        if len(self.siblings) != before:
            for sibling in self.siblings:
                sibling.meter.instances(len(self.siblings), self.now_s)


def reversals(counts: list[int]) -> int:
    """How often the number of instances turned from rising to falling or back."""
    moves = [b - a for a, b in itertools.pairwise(counts) if a != b]
    return sum(a * b < 0 for a, b in itertools.pairwise(moves))


SEEDS = range(3)
GIVEN = Scale(max_instances=12, capacity=1000.0)
MEASURED = Scale(max_instances=12)


@pytest.mark.parametrize("scale", [GIVEN, MEASURED], ids=["given", "measured"])
@pytest.mark.parametrize("load", [0.5, 1.1, 3.3, 5.0])
@pytest.mark.parametrize("ranks", [False, True], ids=["drawing", "in_turn"])
def test_siblings_settle_within_one_instance_of_the_ideal_and_rest(
    scale: Scale, load: float, ranks: bool
) -> None:
    """Load in capacities of one instance; up, and down again from twice the load."""
    ideal = math.ceil(load / scale.target)
    for seed in SEEDS:
        loop = Loop(scale, seed, tells_rank=ranks)
        loop.run(load * 1000, 60)
        up = loop.counts_since(40)
        assert abs(up[-1] - ideal) <= 1, (seed, up)
        assert reversals(up) == 0, (seed, up)
        loop.run(2 * load * 1000, 20)
        loop.run(load * 1000, 60)
        down = loop.counts_since(110)
        assert abs(down[-1] - ideal) <= 1, (seed, down)
        assert reversals(down) == 0, (seed, down)


@pytest.mark.parametrize("ranks", [False, True], ids=["drawing", "in_turn"])
def test_a_step_of_load_is_answered_within_ten_seconds(ranks: bool) -> None:
    for seed in SEEDS:
        loop = Loop(MEASURED, seed, tells_rank=ranks)
        loop.run(500, 20)
        loop.run(4000, 10)
        assert len(loop.siblings) >= 4, (seed, loop.counts_since(20))
        loop.run(4000, 10)
        assert loop.held < 1000, seed


@pytest.mark.parametrize("ranks", [False, True], ids=["drawing", "in_turn"])
def test_when_the_load_ends_only_the_keeper_remains(ranks: bool) -> None:
    for seed in SEEDS:
        loop = Loop(MEASURED, seed, tells_rank=ranks)
        loop.run(5000, 20)
        assert len(loop.siblings) > 5
        loop.run(0, 60)
        assert len(loop.siblings) == 1, seed
        assert loop.siblings[0].keeper


@pytest.mark.parametrize("ranks", [False, True], ids=["drawing", "in_turn"])
def test_instances_stay_within_reach_of_the_maximum_under_any_load(ranks: bool) -> None:
    scale = Scale(max_instances=4)
    for seed in SEEDS:
        loop = Loop(scale, seed, tells_rank=ranks)
        loop.run(50_000, 60)
        assert max(loop.counts_since(0)) <= 6, seed
        assert loop.counts_since(50)[-1] >= 4, seed


def test_steps_that_bring_nothing_are_tried_less_and_less() -> None:
    """A host without processors, and nobody says so: only the throughput shows it."""
    for seed in SEEDS[:2]:
        loop = Loop(Scale(max_instances=40), seed, cores=2)
        loop.run(50_000, 180)
        failed = sorted(s.memory.failed_steps for s in loop.siblings)
        assert failed[len(failed) // 2] >= 2, seed
        last = loop.counts_since(120)
        assert last[-1] - last[0] <= 8, seed


@pytest.mark.parametrize("ranks", [False, True], ids=["drawing", "in_turn"])
def test_instances_that_wait_for_processors_do_not_multiply(ranks: bool) -> None:
    for seed in SEEDS:
        loop = Loop(Scale(max_instances=40), seed, cores=2, tells_wait=True, tells_rank=ranks)
        loop.run(50_000, 60)
        assert max(loop.counts_since(0)) <= 12, seed
