"""The step model: slots of a minute, all managers act once in each (HI1, HI19).

Several runs under the same load go side by side, so that their learners are swept together. What
is decided in a slot holds from the next one on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from anabranch.runtime.policies.hierarchical.granting import (
    Answers,
    GrantAnswer,
    InstanceRequest,
    Tokens,
    grant,
    grant_by_tokens,
)
from anabranch.runtime.policies.hierarchical.levels import Figures, Whole
from anabranch.runtime.policies.hierarchical.thresholds import IDLE_HOSTS
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.russorusso2018.hosts import Fleet
from anabranch.workloads.russorusso2018.managing import (
    OperatorLearners,
    RegionLearners,
    RegionManagers,
    Simple,
    threshold,
)
from anabranch.workloads.russorusso2018.rows import (
    LEARNS,
    OWN,
    SIMPLE,
    STATIC,
    THRESHOLD,
    TRIES,
    Row,
)
from anabranch.workloads.russorusso2018.setup import (
    CAPACITY,
    FACTORS,
    HOSTS_MAX,
    NETWORK_S,
    OPERATORS,
    REGION_OF,
    REGIONS,
    RESPONSE_MAX_S,
    STATIC_HOSTS,
    response_times,
)
from anabranch.workloads.russorusso2018.siblings import Siblings

IN_REGION = np.array([[float(r == of) for r in range(len(REGIONS))] for of in REGION_OF])


@dataclass(frozen=True, slots=True)
class Course:
    """Of one run, by slot: `response_s` end to end, `instances` and open `hosts` in all, whether a
    change of instances was granted, and the mean cost of the regions' managers (HI8)."""

    response_s: NDArray[np.float32]
    instances: NDArray[np.int16]
    hosts: NDArray[np.int16]
    changed: NDArray[np.bool_]
    cost: NDArray[np.float32]

    @property
    def violated(self) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self.response_s > np.float32(RESPONSE_MAX_S)
        return found


def simulate(rows: Sequence[Row], load: FloatArray, seed: int) -> list[Course]:
    """`load`: tuples per second in each slot. The same rows, load and seed give the same
    courses."""
    model = StepModel(rows, seed)
    slots, runs = len(load), len(rows)
    response = np.zeros((slots, runs), dtype=np.float32)
    instances, hosts = np.zeros((2, slots, runs), dtype=np.int16)
    changed = np.zeros((slots, runs), dtype=bool)
    cost = np.zeros((slots, runs), dtype=np.float32)
    for t, rate in enumerate(load.tolist()):
        instances[t] = model.instances.sum(axis=1)
        hosts[t] = model.fleet.hosts.sum(axis=1)
        response[t], changed[t], cost[t] = model.step(t, rate)
    return [
        Course(response[:, r], instances[:, r], hosts[:, r], changed[:, r], cost[:, r])
        for r in range(runs)
    ]


class StepModel:
    def __init__(self, rows: Sequence[Row], seed: int) -> None:
        self.rows = tuple(rows)
        self.fleet = Fleet(
            [STATIC_HOSTS if row.regions == STATIC else None for row in rows],
            [IDLE_HOSTS if row.regions == SIMPLE else 0 for row in rows],
        )
        self.instances: Whole = np.ones((len(rows), len(OPERATORS)), dtype=np.int64)
        self._rngs = [Random(f"{seed} {row.name}") for row in rows]
        self._tokens = [None if r.tokens is None else Tokens.full(*r.tokens) for r in rows]
        self._by_threshold = self._runs(THRESHOLD)
        self._by_learning = self._runs(LEARNS)
        self._learners = OperatorLearners([rows[run] for run in self._by_learning])
        self._own = {
            run: Siblings(self._rngs[run], row.emptiest)
            for run, row in enumerate(rows)
            if row.operators == OWN
        }
        self._regions = [*_region_managers(rows, seed)]
        self._w_d = np.array([row.w_d for row in rows])[:, None]

    def _runs(self, operators: str) -> Whole:
        found = [run for run, row in enumerate(self.rows) if row.operators == operators]
        return np.array(found, dtype=np.int64)

    def step(self, t: int, rate: float) -> tuple[Figures, NDArray[np.bool_], Figures]:
        """Response times, whether instances change, and costs of the regions, by run."""
        rates, instances = rate * FACTORS, self.instances
        responses = response_times(rates, instances.astype(float))
        response = responses.sum(axis=1) + NETWORK_S
        uses = np.minimum(1.0, rates / (instances * CAPACITY))
        hosts = self.fleet.hosts.copy()
        enacted, refused = self._operators(t, rates, responses, uses)
        used = (instances * uses) @ IN_REGION / (instances @ IN_REGION)
        self._act(used, refused)
        self.instances = instances + enacted
        cost = self._w_d * (refused > 0) + (1 - self._w_d) * hosts / HOSTS_MAX
        changed: NDArray[np.bool_] = np.any(enacted != 0, axis=1)
        return response, changed, cost.mean(axis=1)

    def _operators(
        self, t: int, rates: FloatArray, responses: Figures, uses: Figures
    ) -> tuple[Whole, Whole]:
        """What was granted of each operator, and how many requests were refused in each region."""
        proposed = np.zeros_like(self.instances)
        gains = np.zeros_like(responses)
        some = self._by_threshold
        proposed[some] = threshold(uses[some], self.instances[some])
        some = self._by_learning
        if len(some):
            proposed[some], gains[some] = self._learners.propose(
                self.instances[some], rates, responses[some]
            )
        enacted = np.zeros_like(proposed)
        refused = np.zeros((len(self.rows), len(REGIONS)), dtype=np.int64)
        for run in np.flatnonzero(proposed.any(axis=1)).tolist():
            requests = [
                InstanceRequest(o, int(proposed[run, o]), REGIONS[REGION_OF[o]],
                        float(responses[run, o]), float(gains[run, o]))
                for o in np.flatnonzero(proposed[run]).tolist()
            ]  # fmt: skip
            too_slow = responses[run].sum() + NETWORK_S > RESPONSE_MAX_S
            for request, answer in self._grant(run, requests, bool(too_slow)):
                if answer is GrantAnswer.GRANTED:
                    self._enact(run, request)
                    enacted[run, request.operator] = request.action
                refused[run, REGIONS.index(request.region)] += answer is GrantAnswer.NO_SLOT
        for run, siblings in self._own.items():
            enacted[run], refused[run] = siblings.step(t, rates, self.fleet, run)
        if len(some):
            self._learners.enacted(enacted[some])
        self._tokens = [tokens and tokens.next_slot() for tokens in self._tokens]
        return enacted, refused

    def _grant(self, run: int, requests: list[InstanceRequest], too_slow: bool) -> Answers:
        free = dict(zip(REGIONS, self.fleet.free_slots[run].tolist(), strict=True))
        tokens = self._tokens[run]
        if tokens is None:
            return grant(requests, free)
        answers, self._tokens[run] = grant_by_tokens(requests, free, tokens, too_slow)
        return answers

    def _enact(self, run: int, request: InstanceRequest) -> None:
        if request.action < 0:
            emptiest = self.rows[run].emptiest
            self.fleet.remove(run, request.operator, self._rngs[run], emptiest)
        elif not self.fleet.place(run, request.operator):
            raise ValueError(f"granted without a free slot: {request}")

    def _act(self, used: Figures, refused: Whole) -> None:
        """Managers of regions: after the grants, on the hosts that are open now."""
        actions = np.zeros_like(self.fleet.hosts)
        free = self.fleet.free_slots
        for runs, managers in self._regions:
            actions[runs] = managers.act(
                self.fleet.hosts[runs], self.fleet.idle[runs], free[runs], used[runs],
                refused[runs],
            )  # fmt: skip
        self.fleet.change(actions)


def _region_managers(rows: Sequence[Row], seed: int) -> Iterator[tuple[Whole, RegionManagers]]:
    """Those of runs that can be asked together; static regions have none."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for run, row in enumerate(rows):
        groups.setdefault((row.regions, row.free_slots, row.fade_days), []).append(run)
    for (regions, *_), some in groups.items():
        runs, of_them = np.array(some), [rows[run] for run in some]
        if regions == SIMPLE:
            yield runs, Simple()
        elif regions != STATIC:
            rng = np.random.default_rng((seed, 1)) if regions == TRIES else None
            yield runs, RegionLearners(of_them, rng)
