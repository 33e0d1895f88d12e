"""How each state of a search was first reached, level by level, for the story of a fault."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.runtime.explorer.search import StateSpace
from anabranch.runtime.explorer.site import SiteMove

Numbers = NDArray[np.int32]
Path = list[tuple[tuple[int, ...], SiteMove]]


@dataclass(slots=True)
class Trail:
    """Of the states of one level: the index of the state before, the row that acted, the move."""

    origin: Numbers
    actor: NDArray[np.int16]
    move: Numbers


class Trails:
    """`moves`: by number."""

    def __init__(self, world: StateSpace, moves: list[SiteMove]) -> None:
        self._world = world
        self._moves = moves
        self._levels: list[Trail] = []

    def add(self, trails: list[Trail]) -> None:
        """The next level, in pieces."""
        self._levels.append(_joined(trails))

    def path(self, index: int, last: tuple[int, int] | None, depth: int) -> Path:
        """To the state at this index of the level at this depth, and with the `last` step beyond
        it, by doing all of it again."""
        steps = [last] if last else []
        for trail in reversed(self._levels[:depth]):
            steps.append((int(trail.actor[index]), int(trail.move[index])))
            index = int(trail.origin[index])
        budgets = self._world.budgets
        path: Path = []
        state: tuple[int, ...] | None = self._world.initial()
        for row, number in reversed(steps):
            assert state is not None
            move = self._moves[number]
            path.append((state, move))
            left = budgets.spend(state[0], move.kind)
            position = budgets.positions[state[0]][row - 1]
            state = self._world.apply(state, position, move, left)
        return path


def _joined(trails: list[Trail]) -> Trail:
    return Trail(
        np.concatenate([t.origin for t in trails]),
        np.concatenate([t.actor for t in trails]),
        np.concatenate([t.move for t in trails]),
    )
