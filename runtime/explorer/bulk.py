"""The same search for millions of states: whole levels at a time, as columns of numbers.

Nothing here depends on the protocol. `Sites` runs the shipped core once for each site and event;
this module applies the answers to arrays. A state is one column of a matrix with a row for the
budgets and one for each instance; states that were reached before are recognised by 128 bits of a
Zobrist hash. Memory: 16 bytes for each state, 9 more with `trails`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.runtime.explorer.bulk_watch import BulkWatch
from anabranch.runtime.explorer.coverage import Coverage
from anabranch.runtime.explorer.lookup import Lookup, SearchLevel
from anabranch.runtime.explorer.machine import Machine
from anabranch.runtime.explorer.scope import Scope
from anabranch.runtime.explorer.search import StateSpace, Verdict
from anabranch.runtime.explorer.trails import Trail, Trails
from anabranch.runtime.explorer.visited import VisitedStates
from anabranch.runtime.explorer.zobrist import Pair

Numbers = NDArray[np.int32]
CHUNK_STATES = 250_000


@dataclass(slots=True)
class Steps:
    """Moves from states of one chunk: index of the state, of the row that acts, of the move."""

    origin: NDArray[np.int64]
    actor: NDArray[np.int16]
    move: Numbers
    left: Numbers
    hashes: Pair


class _Found(Exception):
    def __init__(self, fault: str, origin: int, step: tuple[int, int] | None) -> None:
        self.fault, self.origin, self.step = fault, origin, step


class Bulk:
    """One search. `run` returns the same verdict as `explore` does."""

    def __init__(
        self,
        machine: Machine,
        scope: Scope,
        *,
        trails: bool = True,
        coverage: Coverage | None = None,
    ) -> None:
        if scope.room:
            raise ValueError("bounded channels are searched one state at a time")
        self.world = StateSpace(machine, scope)
        self._coverage = coverage
        self._watch = BulkWatch(self.world) if coverage is not None else None
        self.lookup = Lookup(self.world)
        self.met = VisitedStates()
        self.verdict = Verdict(scope, machine.name, sites=self.world.sites)
        self._trails = Trails(self.world, self.lookup.moves) if trails else None

    def run(
        self,
        *,
        states_max: int = 100_000_000,
        progress: Callable[[Verdict], None] | None = None,
    ) -> Verdict:
        verdict, began = self.verdict, time.monotonic()
        level = self._first()
        verdict.states = 1
        try:
            while level.width and verdict.states < states_max:
                level = self._next(level)
                verdict.states += level.width
                verdict.depth += bool(level.width)
                verdict.seconds = time.monotonic() - began
                if progress:
                    progress(verdict)
            verdict.complete = not level.width
        except _Found as found:
            verdict.fault = found.fault
            if self._trails is not None:
                verdict.path = self._trails.path(found.origin, found.step, verdict.depth)
        verdict.seconds = time.monotonic() - began
        if self._coverage is not None and self._watch is not None:
            self._coverage.update(self._watch.result())
        return verdict

    def _first(self) -> SearchLevel:
        state = self.world.initial()
        rows = np.array(state, dtype=np.int32).reshape(-1, 1)
        self.lookup.learn_sites()
        hashes = self.lookup.hashes.of_states(rows)
        self.met.add(*hashes)
        return SearchLevel(rows, hashes)

    def _next(self, level: SearchLevel) -> SearchLevel:
        blocks: list[SearchLevel] = []
        trails: list[Trail] = []
        for begin in range(0, level.width, CHUNK_STATES):
            end = min(begin + CHUNK_STATES, level.width)
            part = SearchLevel(
                level.rows[:, begin:end], (level.hashes[0][begin:end], level.hashes[1][begin:end])
            )
            try:
                steps = self._new_steps(part)
                for block, trail in self._apply(part, steps):
                    trail.origin += begin
                    blocks.append(block)
                    trails.append(trail)
            except _Found as found:
                found.origin += begin
                raise
        if self._trails is not None and trails:
            self._trails.add(trails)
        return _joined(blocks, len(self.world.budgets.ids) + 1)

    # -- stage one: which states follow, as hashes -------------------------------------------

    def _new_steps(self, part: SearchLevel) -> Steps:
        """One step to each state that was not reached before."""
        busy = np.zeros(part.width, dtype=bool)
        found = [s for row in range(1, len(part.rows)) if (s := self._steps_of(part, row, busy))]
        for index in np.flatnonzero(~busy):
            self.verdict.quiescent += 1
            if fault := self.world.judge.unsettled(self._vector(part.rows[:, index])):
                raise _Found(fault, int(index), None)
        steps = _joined_steps(found)
        fresh = self.met.add(*steps.hashes)
        return Steps(
            steps.origin[fresh],
            steps.actor[fresh],
            steps.move[fresh],
            steps.left[fresh],
            (steps.hashes[0][fresh], steps.hashes[1][fresh]),
        )

    def _steps_of(self, part: SearchLevel, row: int, busy: NDArray[np.bool_]) -> Steps | None:
        """All moves of one instance in all states of a chunk."""
        look, sites = self.lookup, part.rows[row]
        look.learn_moves(sites)
        counts = look.move_count[sites]
        total = int(counts.sum())
        if not total:
            return None
        origin = np.repeat(np.arange(part.width), counts)
        before = np.cumsum(counts) - counts
        move = np.arange(total) - np.repeat(before - look.move_first[sites], counts)
        left = look.spend(part.rows[0][origin], look.move_kind[move])
        possible = np.flatnonzero(left >= 0)
        origin, move, left = origin[possible], move[possible], left[possible]
        self.verdict.transitions += len(move)
        if self._watch:
            self._watch.see_many(part.rows, row, origin, look.move_way[move])
        busy[origin[~look.move_optional[move]]] = True
        wrong = np.flatnonzero(look.move_site[move] < 0)
        if len(wrong):
            self._report(part, int(origin[wrong[0]]), row, int(move[wrong[0]]))
        order = np.argsort(look.move_effect[move], kind="stable")
        origin, move, left = origin[order], move[order], left[order]
        olds = part.hashes[0][origin], part.hashes[1][origin]
        metas = part.rows[0][origin], left
        hashes = look.hashes.moved(olds, (sites[origin], look.move_site[move]), metas)
        self._post(part, row, origin, move, hashes, None)
        actor = np.full(len(move), row, dtype=np.int16)
        return Steps(origin, actor, move.astype(np.int32), left, hashes)

    def _post(
        self,
        part: SearchLevel,
        row: int,
        origin: NDArray[np.int64],
        move: NDArray[np.int64],
        hashes: Pair | None,
        rows: Numbers | None,
    ) -> None:
        """Deliver what moves (sorted by their effects) send, and the instances that they create: as
        changes of hashes, or in `rows` of the states themselves."""
        look = self.lookup
        for begin, end, effect in _runs(look.move_effect[move]):
            sends, born = look.effects.values[effect]
            touched: dict[int, Numbers] = {}
            for child, site in born:
                touched[child] = np.full(end - begin, site, dtype=np.int32)
                if hashes is not None:
                    look.hashes.add(hashes, begin, end, touched[child], 1)
            for receiver, parcel in sends:
                at = touched.get(receiver)
                if at is None:
                    known = receiver + 1 < len(part.rows)
                    at = part.rows[receiver + 1][origin[begin:end]] if known else None
                after = None if at is None else look.arrive(receiver, parcel, at)
                if at is None or after is None or (after < 0).any():
                    bad = 0 if after is None else int(np.flatnonzero(after < 0)[0])
                    self._report(part, int(origin[begin + bad]), row, int(move[begin + bad]))
                assert at is not None
                assert after is not None
                if hashes is not None:
                    look.hashes.add(hashes, begin, end, at, -1)
                    look.hashes.add(hashes, begin, end, after, 1)
                touched[receiver] = after
            if rows is not None:
                for instance, sites in touched.items():
                    rows[instance + 1, begin:end] = sites

    # -- stage two: the new states themselves ------------------------------------------------

    def _apply(self, part: SearchLevel, steps: Steps) -> list[tuple[SearchLevel, Trail]]:
        done = []
        for begin, end, row in _runs(steps.actor):
            origin, move = steps.origin[begin:end], steps.move[begin:end].astype(np.int64)
            order = np.argsort(self.lookup.move_effect[move], kind="stable")
            origin, move = origin[order], move[order]
            rows = np.full((len(self.world.budgets.ids) + 1, len(move)), -1, dtype=np.int32)
            rows[: len(part.rows)] = part.rows[:, origin]
            rows[0] = steps.left[begin:end][order]
            rows[row] = self.lookup.move_site[move]
            self._post(part, row, origin, move, None, rows)
            hashes = (steps.hashes[0][begin:end][order], steps.hashes[1][begin:end][order])
            self._judge(part, rows, row, origin, move)
            trail = Trail(
                origin.astype(np.int32),
                np.full(len(move), row, dtype=np.int16),
                move.astype(np.int32),
            )
            done.append((SearchLevel(rows, hashes), trail))
        return done

    def _judge(
        self,
        part: SearchLevel,
        rows: Numbers,
        row: int,
        origin: NDArray[np.int64],
        move: NDArray[np.int64],
    ) -> None:
        """The invariants between the actor, where its protocol state has changed, and others.

        Each pair of protocol states is judged once for all states in which it occurs.
        """
        look = self.lookup
        changed = np.flatnonzero(look.view_of[part.rows[row][origin]] != look.view_of[rows[row]])
        if not len(changed):
            return
        mine = look.view_of[rows[row][changed]].astype(np.int64)
        ids, judge = self.world.budgets.ids.values, self.world.judge
        for other in range(1, len(rows)):
            if other == row or not look.adjacent(row - 1, other - 1):
                continue
            sites = rows[other][changed]
            pairs = mine << 32 | look.view_of[sites]
            there = np.flatnonzero(sites >= 0)
            for pair, index in zip(*np.unique(pairs[there], return_index=True), strict=True):
                views = divmod(int(pair), 1 << 32)
                fault = judge.between(ids[row - 1], views[0], ids[other - 1], views[1])
                if fault:
                    found = changed[there[index]]
                    raise _Found(fault, int(origin[found]), (row, int(move[found])))
        for index in self._keeperless(rows, row, changed):
            fault = judge.keeperless(self._vector(rows[:, changed[index]]), ids[row - 1])
            found = changed[index]
            raise _Found(fault, int(origin[found]), (row, int(move[found])))

    def _keeperless(self, rows: Numbers, row: int, changed: NDArray[np.int64]) -> NDArray[np.int64]:
        look, kept = self.lookup, np.zeros(len(changed), dtype=bool)
        for other in range(1, len(rows)):
            if look.same_operator(row - 1, other - 1):
                sites = rows[other][changed]
                kept |= (sites >= 0) & look.keeps[look.view_of[sites]]
        return np.flatnonzero(~kept)[:1]

    # -- findings ----------------------------------------------------------------------------

    def _vector(self, column: Numbers) -> tuple[int, ...]:
        """A column as the state that `StateSpace` understands: those present, in their order."""
        meta = int(column[0])
        places = self.world.budgets.positions[meta]
        return (meta, *(int(column[i + 1]) for i in sorted(places, key=places.__getitem__)))

    def _report(self, part: SearchLevel, origin: int, row: int, move: int) -> None:
        state, what = self._vector(part.rows[:, origin]), self.lookup.moves[move]
        fault = what.fault or self.world.judge.dead_letter(state, what)
        raise _Found(fault, origin, (row, move))


def _runs(values: NDArray[np.signedinteger]) -> list[tuple[int, int, int]]:
    """Where equal neighbours begin and end, and their value."""
    if not len(values):
        return []
    edges = np.flatnonzero(np.diff(values)) + 1
    begins = [0, *edges.tolist()]
    return [
        (begin, end, int(values[begin]))
        for begin, end in zip(begins, [*begins[1:], len(values)], strict=True)
    ]


def _joined_steps(found: list[Steps]) -> Steps:
    if not found:
        none = np.zeros(0, dtype=np.int32)
        no_hash = np.zeros(0, dtype=np.uint64)
        return Steps(none.astype(np.int64), none.astype(np.int16), none, none, (no_hash, no_hash))
    return Steps(
        np.concatenate([s.origin for s in found]),
        np.concatenate([s.actor for s in found]),
        np.concatenate([s.move for s in found]),
        np.concatenate([s.left for s in found]),
        (
            np.concatenate([s.hashes[0] for s in found]),
            np.concatenate([s.hashes[1] for s in found]),
        ),
    )


def _joined(blocks: list[SearchLevel], height: int) -> SearchLevel:
    if not blocks:
        none = np.zeros(0, dtype=np.uint64)
        return SearchLevel(np.zeros((height, 0), dtype=np.int32), (none, none))
    width = sum(b.width for b in blocks)
    rows = np.full((height, width), -1, dtype=np.int32)
    at = 0
    for block in blocks:
        rows[: len(block.rows), at : at + block.width] = block.rows
        at += block.width
    return SearchLevel(
        rows,
        (
            np.concatenate([b.hashes[0] for b in blocks]),
            np.concatenate([b.hashes[1] for b in blocks]),
        ),
    )
