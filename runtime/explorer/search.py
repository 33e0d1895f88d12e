"""Breadth-first search through every interleaving; the first fault has a shortest story.

There are two searches of a `StateSpace`. This one takes one state at a time: a small scope is
searched in three quarters of the time, channels may have bounds, one fault may be looked for behind
others, and the space may be another one (`cuts`). `bulk` takes whole levels as arrays, which is
quicker from about 10^5 states on and keeps 16 bytes of each. Tests compare what they count, go
through and find.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.explorer.coverage import Coverage
from anabranch.runtime.explorer.judge import Judge
from anabranch.runtime.explorer.machine import Machine
from anabranch.runtime.explorer.scope import Scope
from anabranch.runtime.explorer.site import SiteMove
from anabranch.runtime.explorer.sites import FULL, Sites
from anabranch.runtime.explorer.watch import Watch, neighbours_open

Vector = tuple[int, ...]
"""A state of the whole: the number of the shared budgets, then the site of each instance."""

NO_ROOM: Vector = ()


STATES_MAX = 5_000_000


class AnyMove(Protocol):
    @property
    def optional(self) -> bool:
        """Whether the move is optional: a state is at rest if all its moves are."""


State = TypeVar("State", bound=Hashable)
Move = TypeVar("Move", bound=AnyMove)
Parents = dict[State, tuple[State, Move] | None]


class Space(Protocol[State, Move]):
    """What is searched: instances of a pipeline (`StateSpace`), or one channel (`cuts`)."""

    def initial(self) -> State: ...

    def successors(self, state: State) -> Iterator[tuple[Move, State | None]]:
        """Every enabled move and the state after it; None if it breaks a property by itself."""

    def judged(self, state: State, move: Move, after: State | None) -> str:
        """The property that is broken by a move which leads to a new state, or to none."""

    def unsettled(self, state: State) -> str:
        """What is wrong with a state at rest."""


@dataclass(slots=True)
class Verdict:
    """`fault` is empty if nothing was found; `complete` if the whole scope was searched. `scope`
    names it. `sites`: of the instances whose path this is."""

    scope: object
    machine: str
    states: int = 0
    transitions: int = 0
    quiescent: int = 0
    depth: int = 0
    seconds: float = 0.0
    complete: bool = False
    fault: str = ""
    path: list[tuple[Any, Any]] = field(default_factory=list)
    sites: Sites | None = None


class StateSpace:
    """States as vectors, and their successors."""

    def __init__(self, machine: Machine, scope: Scope) -> None:
        self.sites = Sites(machine, scope)
        self.budgets = self.sites.budgets
        self.judge = Judge(self.sites)
        self.watch: Watch | None = None
        self._adjacent: dict[int, list[list[int]]] = {}

    def judged(self, state: Vector, move: SiteMove, after: Vector | None) -> str:
        if after is None:
            return move.fault or self.judge.dead_letter(state, move)
        return self.judge.broken(after, move.site)

    def unsettled(self, state: Vector) -> str:
        return self.judge.unsettled(state)

    def initial(self) -> Vector:
        return (self.budgets.initial(), *self.sites.founding_sites())

    def successors(self, state: Vector) -> Iterator[tuple[SiteMove, Vector | None]]:
        """Every enabled move and the state after it; None if the move breaks a property by
        itself."""
        near = self.open_nearby(state) if self.watch else []
        for position in range(1, len(state)):
            for move in self.sites.moves(state[position]):
                left = self.budgets.spend(state[0], move.kind)
                if left >= 0:
                    after = self.apply(state, position, move, left)
                    if after is not NO_ROOM:
                        if self.watch:
                            self.watch.see(move.way, state[position], near[position - 1])
                        yield move, after

    def open_nearby(self, state: Vector) -> list[int]:
        """What is under way at the neighbours of each instance."""
        assert self.watch
        adjacent = self._adjacent.get(state[0])
        if adjacent is None:
            population = self.budgets.metas.values[state[0]].population
            adjacent = self._adjacent[state[0]] = [
                [i for i, other in enumerate(population) if other != me and self.meets(me, other)]
                for me in population
            ]
        return list(neighbours_open(self.watch, state[1:], adjacent))

    def meets(self, one: InstanceId, other: InstanceId) -> bool:
        """Whether two instances are neighbours or siblings."""
        feeds, (a, b) = self.sites.scope.topology.feeds, (one.operator, other.operator)
        return a == b or feeds(a, b) or feeds(b, a)

    def apply(self, state: Vector, position: int, move: SiteMove, left: int) -> Vector | None:
        """The state after a move: None if that breaks a property, `NO_ROOM` if it has to wait."""
        if move.site < 0:
            return None
        after = list(state)
        after[0] = left
        after[position] = move.site
        places = self.budgets.positions[left]
        for child, site in move.born:
            after.insert(places[child], site)
        arrive = self.sites.arrive
        for receiver, parcel in move.sends:
            place = places.get(receiver)
            if place is None:
                return None
            after[place] = arrived = arrive(after[place], parcel)
            if arrived < 0:
                return NO_ROOM if arrived == FULL else None
        return tuple(after)


def explore(
    machine: Machine,
    scope: Scope,
    *,
    states_max: int = STATES_MAX,
    wanted: Callable[[str], bool] = bool,
    progress: Callable[[Verdict], None] | None = None,
    coverage: Coverage | None = None,
) -> Verdict:
    """Search the instances of a scope. `coverage` learns what was gone through."""
    world = StateSpace(machine, scope)
    if coverage is not None:
        world.watch = Watch(world.sites)
    verdict = Verdict(scope, machine.name, sites=world.sites)
    search(world, verdict, states_max=states_max, wanted=wanted, progress=progress)
    if coverage is not None and world.watch is not None:
        coverage.update(world.watch.result())
    return verdict


def search(
    space: Space[State, Move],
    verdict: Verdict,
    *,
    states_max: int = STATES_MAX,
    wanted: Callable[[str], bool] = bool,
    progress: Callable[[Verdict], None] | None = None,
) -> Verdict:
    """Search a space to its end, to the first fault that is `wanted`, or to `states_max` states.

    A search for one fault goes on behind others where it can. The verdict is filled in.
    """
    began = time.monotonic()
    first = space.initial()
    parents: Parents[State, Move] = {first: None}
    frontier = [first]
    while frontier and not verdict.fault and len(parents) < states_max:
        frontier = _expand(space, frontier, parents, verdict, wanted)
        verdict.depth += bool(frontier)
        verdict.seconds = time.monotonic() - began
        verdict.states = len(parents)
        if progress:
            progress(verdict)
    verdict.complete = not frontier and not verdict.fault
    return verdict


def _expand(
    space: Space[State, Move],
    frontier: list[State],
    parents: Parents[State, Move],
    verdict: Verdict,
    wanted: Callable[[str], bool],
) -> list[State]:
    found: list[State] = []
    for state in frontier:
        busy = False
        for move, after in space.successors(state):
            verdict.transitions += 1
            busy = busy or not move.optional
            if after is not None:
                if after in parents:
                    continue
                parents[after] = (state, move)
                found.append(after)
            fault = space.judged(state, move, after)
            if fault and wanted(fault):
                verdict.fault, verdict.path = fault, [*_path(parents, state), (state, move)]
                return []
        if not busy:
            verdict.quiescent += 1
            fault = space.unsettled(state)
            if fault and wanted(fault):
                verdict.fault, verdict.path = fault, _path(parents, state)
                return []
    return found


def _path(parents: Parents[State, Move], state: State) -> list[tuple[State, Move]]:
    path: list[tuple[State, Move]] = []
    while (parent := parents[state]) is not None:
        path.append(parent)
        state = parent[0]
    return path[::-1]
