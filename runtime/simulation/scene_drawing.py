"""Draws the scene that a seed stands for."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from anabranch.protocol.limits import Limits
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.simulation.deadly_scene import Crashes, with_deaths
from anabranch.runtime.simulation.happenings import Action, Damage, Decision, Trouble
from anabranch.runtime.simulation.keyed_scene import with_keys
from anabranch.runtime.simulation.models import Model, Rule
from anabranch.runtime.simulation.scene import Scene
from anabranch.runtime.simulation.settings import Births, Knobs, Net


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How big worlds get. `small` ones number their tuples; `large` ones count them."""

    name: str
    operators: tuple[int, ...]
    starting: tuple[int, ...]
    tuples: tuple[int, int]
    load_s: tuple[float, float]
    decisions: int
    troubles: int
    instances_max: int
    numbered: bool


SIZES = {
    "small": Size(
        name="small",
        operators=(2, 3, 3, 3, 3, 4, 4, 4, 5, 6),
        starting=(1, 2, 2, 3, 3),
        tuples=(6, 40),
        load_s=(0.1, 1.0),
        decisions=16,
        troubles=4,
        instances_max=26,
        numbered=True,
    ),
    "large": Size(
        name="large",
        operators=(3, 4, 5, 6),
        starting=(1, 3, 6, 12),
        tuples=(2_000, 50_000),
        load_s=(2.0, 10.0),
        decisions=120,
        troubles=20,
        instances_max=150,
        numbered=False,
    ),
}


def draw(seed: int, size: str = "small", crashes: Crashes = "some") -> Scene:
    """The world of a seed. `crashes`: whether processes die in it, in all worlds, some, or none.
    Raises `KeyError` for an unknown size."""
    scene = with_keys(_Drawing(seed, SIZES[size]).scene())
    return scene if crashes == "none" else with_deaths(scene, always=crashes == "all")


class _Drawing:
    def __init__(self, seed: int, size: Size) -> None:
        self.seed = seed
        self.size = size
        self.rng = random.Random(f"{size.name} {seed}")
        self.names = [f"O{i}" for i in range(self.rng.choice(size.operators))]
        self.load_s = self.rng.uniform(*size.load_s)
        self.safety_s = self.load_s * self.rng.uniform(1.0, 1.6) + 0.1
        self.latency_s = 0.0005 * 40 ** self.rng.random()
        self.policy = self.chance(0.3)
        self.ends = self.chance(0.4)
        self.exodus = not self.policy and self.chance(0.15)
        """All instances want to go, and roles change hands, while paths are clogged."""

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def scene(self) -> Scene:
        size, rng = self.size, self.rng
        edges = self._edges()
        sources = [n for n in self.names if n not in {b for _, b in edges}]
        tuples = rng.randint(*size.tuples)
        arrivals = {s: self._arrivals(tuples // len(sources) + 1) for s in sources}
        models = tuple(self._model(n, i, tuples) for i, n in enumerate(self.names))
        return Scene(
            seed=self.seed,
            size=size.name,
            edges=edges,
            models=models,
            counts={n: rng.choice(size.starting[2 if self.exodus else 0 :]) for n in self.names},
            hosts=tuple(self._host() for _ in range(rng.randint(1, 4))),
            net=self._net(),
            limits=self._limits(),
            knobs=self._knobs(),
            births=self._births(),
            arrivals=arrivals,
            numbered=size.numbered,
            policy=self.policy,
            ends=self.ends,
            safety_s=self.safety_s,
            decisions=self._decisions(edges),
            troubles=self._troubles(),
        )

    # -- the graph -------------------------------------------------------------------------

    def _edges(self) -> tuple[tuple[str, str], ...]:
        """A chain, more often than not; otherwise any graph whose sources lead somewhere."""
        names, rng = self.names, self.rng
        if self.chance(0.4):
            return tuple((names[i], names[i + 1]) for i in range(len(names) - 1))
        edges: set[tuple[str, str]] = set()
        sources = {names[0]}
        for i, name in enumerate(names[1:], start=1):
            if self.chance(0.15) and i < len(names) - 1:
                sources.add(name)
                continue
            above = rng.sample(names[:i], min(i, rng.choice((1, 1, 2))))
            edges |= {(a, name) for a in above}
        for source in sources:
            if not any(a == source for a, _ in edges):
                below = [n for n in names[names.index(source) + 1 :] if n not in sources]
                edges.add((source, rng.choice(below)))
        return tuple(sorted(edges))

    def _model(self, name: str, index: int, tuples: int) -> Model:
        rng = self.rng
        rules: tuple[Rule, ...] = ("pass", "pass", "pass", "pass", "pass", "double", "thin")
        cost_s = 0.0 if not index else rng.uniform(0.05, 1.5) * self.load_s / tuples
        return Model(
            name=name,
            cost_s=cost_s,
            rule=rng.choice(rules),
            selectivity=rng.choice((1.0, 1.0, 1.0, 0.5, 1.3)),
            scale=self._scale(cost_s),
            flush_s=rng.choice((0.0, 0.01, 0.2)),
        )

    def _scale(self, cost_s: float) -> Scale | None:
        if not self.policy:
            return None
        rng = self.rng
        given = 1 / cost_s if cost_s and self.chance(0.5) else None
        return Scale(
            capacity=given,
            max_instances=rng.randint(2, 6),
            period_s=rng.uniform(0.05, 0.3),
            cooldown_s=rng.uniform(0.0, 0.3),
        )

    # -- the surroundings ------------------------------------------------------------------

    def _host(self) -> tuple[float, float]:
        cores = math.inf if self.chance(0.6) else float(self.rng.randint(1, 4))
        return self.rng.uniform(0.5, 2.0), cores

    def _net(self) -> Net:
        rng = self.rng
        return Net(
            latency_s=self.latency_s,
            local_s=self.latency_s * rng.uniform(0.05, 1.0),
            spread=rng.choice((1.0, 1.0, 3.0)),
            jitter=rng.choice((0.0, 0.3, 2.0)),
            straggling=rng.choice((0.0, 0.0, 0.03, 0.1)),
            tuples_per_s=rng.choice((math.inf, math.inf, 2_000.0 * self.size.decisions)),
        )

    def _limits(self) -> Limits:
        rng = self.rng
        batch = rng.choice((1, 3, 10, 1024))
        return Limits(
            batch_tuples_max=batch,
            credit_tuples=rng.choice((batch, 8 * batch, 4096)),
            outbox_tuples_max=batch * rng.choice((1, 2, 8)),
            linger_s=rng.choice((0.0, 0.005, 0.02)),
            reconnect_first_s=0.02,
            reconnect_max_s=0.2,
        )

    def _knobs(self) -> Knobs:
        rng = self.rng
        return Knobs(
            tick_s=rng.uniform(0.08, 0.2) if self.policy else 0.0,
            read_every_s=self.load_s / 20,
            slice_s=rng.choice((0.005, 0.02, 1.0)),
            ack_delay_s=rng.choice((0.002, 0.02)),
            first_window_tuples=rng.choice((1, 4, 16, 256)),
            broker=self.chance(0.4),
        )

    def _births(self) -> Births:
        rng = self.rng
        return Births(
            ready_s=self.latency_s * rng.choice((0.1, 1.0, 5.0)),
            slow=rng.choice((0.0, 0.2)),
            slow_s=self.load_s * rng.random(),
            few=rng.choice((0.0, 0.2)),
            failing=rng.choice((0.0, 0.1)),
            instances_max=self.size.instances_max,
        )

    # -- what happens ----------------------------------------------------------------------

    def _arrivals(self, tuples: int) -> tuple[tuple[float, int], ...]:
        """Bursts of any size at any time; the last is due at the end of the load."""
        rng = self.rng
        bursts = rng.choice((1, 5, 20))
        times = [*sorted(rng.uniform(0, self.load_s) for _ in range(bursts - 1)), self.load_s]
        shares = sorted(rng.randint(0, tuples) for _ in range(bursts - 1))
        return tuple(zip(times, [*shares, tuples], strict=True))

    def _times(self, n: int) -> list[float]:
        """Scattered, or so close together that all rounds overlap, at the end of the input too."""
        rng = self.rng
        if self.chance(0.4):
            return sorted(rng.uniform(0, self.safety_s) for _ in range(n))
        first, width = rng.uniform(0, self.safety_s * 0.7), self.latency_s * rng.uniform(1, 8)
        if self.ends and self.chance(0.5):
            first = self.load_s + self.latency_s * rng.uniform(-8, 4)
        return sorted(first + rng.uniform(0, width) for _ in range(n))

    def _decisions(self, edges: tuple[tuple[str, str], ...]) -> tuple[Decision, ...]:
        """On all operators, or on two neighbouring ones, where rounds meet more often."""
        rng = self.rng
        most = self.size.decisions
        n = rng.randint(2, most) if not self.policy else rng.randint(0, most // 2)
        actions: tuple[Action, ...] = ("duplicate",) * 5 + ("leave",) * 6 + ("hand_over",) * 4
        if self.exodus:
            n, actions = most, ("leave", "leave", "hand_over")
        among: tuple[str, ...] = rng.choice(edges) if self.chance(0.5) else tuple(self.names)
        return tuple(
            Decision(
                at_s=at_s,
                operator=rng.choice(among),
                action=rng.choice(actions),
                n=rng.choice((1, 1, 1, 2)),
                whom=rng.random(),
                fit=self.chance(0.9),
            )
            for at_s in self._times(n)
        )

    def _troubles(self) -> tuple[Trouble, ...]:
        rng = self.rng
        damages: tuple[Damage, ...] = ("cut", "cut", "hang_up", "clog", "deafen", "slow")
        n = 0 if self.chance(0.3) else rng.randint(1, self.size.troubles)
        if self.exodus:
            n, damages = self.size.troubles, ("clog", "deafen")
        return tuple(
            Trouble(
                at_s=at_s,
                damage=rng.choice(damages),
                whom=rng.random(),
                last_s=self.safety_s * rng.uniform(0.02, 0.5),
                factor=rng.uniform(2, 20),
            )
            for at_s in self._times(n)
        )
