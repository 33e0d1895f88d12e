"""Random schedules for scopes that are too large to be searched: one path, every state judged."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from anabranch.runtime.explorer.machine import Machine
from anabranch.runtime.explorer.scope import Scope
from anabranch.runtime.explorer.search import NO_ROOM, StateSpace, Vector
from anabranch.runtime.explorer.site import Option, SiteMove
from anabranch.runtime.explorer.sites import Sites


@dataclass(slots=True)
class Walk:
    """One schedule, drawn from `seed`. `fault` is empty if nothing was found."""

    seed: int
    steps: int = 0
    fault: str = ""
    path: list[tuple[Vector, SiteMove]] = field(default_factory=list)


class Walker:
    """Walks one scope again and again; what the core has answered once is remembered."""

    def __init__(self, machine: Machine, scope: Scope) -> None:
        self.world = StateSpace(machine, scope)
        self._known: dict[int, list[tuple[Option, int]]] = {}

    @property
    def sites(self) -> Sites:
        return self.world.sites

    def walk(self, seed: int, *, eagerness: float = 0.5) -> Walk:
        """`eagerness`: how often a decision is preferred while one is possible."""
        rng = random.Random(seed)
        world, walk = self.world, Walk(seed)
        state = world.initial()
        while True:
            step = self._draw(rng, state, eagerness)
            if step is None:
                walk.fault = world.judge.unsettled(state)
                return walk
            move, after = step
            walk.steps += 1
            walk.path.append((state, move))
            if after is None:
                walk.fault = move.fault or world.judge.dead_letter(state, move)
                return walk
            state = after
            walk.fault = world.judge.broken(state, move.site)
            if walk.fault:
                return walk

    def _draw(
        self, rng: random.Random, state: Vector, eagerness: float
    ) -> tuple[SiteMove, Vector | None] | None:
        """One possible move and the state after it, as `StateSpace.apply` says; None at rest."""
        required: list[tuple[Option, int, int]] = []
        optional: list[tuple[Option, int, int]] = []
        for position in range(1, len(state)):
            for option, kind in self._options(state[position]):
                if (left := self.world.budgets.spend(state[0], kind)) >= 0:
                    (optional if option.optional else required).append((option, position, left))
        while required or optional:
            eager = optional and (not required or rng.random() < eagerness)
            choices = optional if eager else required
            option, position, left = choices.pop(rng.randrange(len(choices)))
            move = self.sites.move(option)
            after = NO_ROOM if move is None else self.world.apply(state, position, move, left)
            if move is not None and after is not NO_ROOM:
                return move, after
        return None

    def _options(self, site: int) -> list[tuple[Option, int]]:
        found = self._known.get(site)
        if found is None:
            number, options = self.world.budgets.kinds.number, self.sites.options
            found = [
                (option, number(option.kind))
                for option in options.at(self.sites.sites.values[site])
            ]
            self._known[site] = found
        return found
