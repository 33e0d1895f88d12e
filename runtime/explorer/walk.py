"""Random schedules for scopes far too large to be searched: one path, every state judged."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from anabranch.runtime.explorer.machine import Machine
from anabranch.runtime.explorer.scope import Scope
from anabranch.runtime.explorer.search import Vector, World
from anabranch.runtime.explorer.sites import Move, Sites


@dataclass(slots=True)
class Walk:
    """One schedule, drawn from `seed`. `fault` is empty if nothing was found."""

    seed: int
    steps: int = 0
    fault: str = ""
    path: list[tuple[Vector, Move]] = field(default_factory=list)


class Walker:
    """Walks one scope again and again; what the core has answered once is remembered."""

    def __init__(self, machine: Machine, scope: Scope) -> None:
        self.world = World(machine, scope)

    @property
    def sites(self) -> Sites:
        return self.world.sites

    def walk(self, seed: int, *, eagerness: float = 0.5) -> Walk:
        """`eagerness`: how often a decision is preferred while one is possible."""
        rng = random.Random(seed)
        world, walk = self.world, Walk(seed)
        state = world.initial()
        while True:
            choices = self._choices(state)
            optional = [c for c in choices if c[0].optional]
            required = [c for c in choices if not c[0].optional]
            if not required:
                walk.fault = world.judge.unsettled(state)
                if walk.fault or not optional or rng.random() > eagerness:
                    return walk
            eager = optional and (not required or rng.random() < eagerness)
            move, position, left = rng.choice(optional if eager else required)
            after = world.apply(state, position, move, left)
            walk.steps += 1
            walk.path.append((state, move))
            if after is None:
                walk.fault = move.fault or world.judge.dead_letter(state, move)
                return walk
            state = after
            walk.fault = world.judge.broken(state, position)
            if walk.fault:
                walk.path.append((state, move))
                return walk

    def _choices(self, state: Vector) -> list[tuple[Move, int, int]]:
        spend, moves = self.world.budgets.spend, self.sites.moves
        return [
            (move, position, left)
            for position in range(1, len(state))
            for move in moves(state[position])
            if (left := spend(state[0], move.kind)) >= 0
        ]
