"""The core's answers as arrays, with one entry for each site, move, effect and arrival."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from anabranch.runtime.explorer.interned import Interned
from anabranch.runtime.explorer.search import StateSpace
from anabranch.runtime.explorer.site import SiteMove
from anabranch.runtime.explorer.zobrist import Pair, Zobrist

Numbers = NDArray[np.int32]
D = TypeVar("D", bound=np.generic)
UNKNOWN = -9
Effect = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]
"""What a move sends, and which instances it creates, as in `SiteMove`."""


@dataclass(slots=True)
class SearchLevel:
    """States at one distance from the beginning: `rows[0]` budgets, `rows[1 + id]` sites."""

    rows: Numbers
    hashes: Pair

    @property
    def width(self) -> int:
        return int(self.rows.shape[1])


class Lookup:
    """Filled from `StateSpace` as the search meets something new; read by index otherwise."""

    def __init__(self, world: StateSpace, *, seed: int = 2019) -> None:
        self.world = world
        self.moves: list[SiteMove] = []
        self.effects: Interned[Effect] = Interned()
        self.effects.number(((), ()))
        self.move_kind = np.zeros(0, dtype=np.int32)
        self.move_site = np.zeros(0, dtype=np.int32)
        self.move_effect = np.zeros(0, dtype=np.int32)
        self.move_way = np.zeros(0, dtype=np.int32)
        self.move_optional = np.zeros(0, dtype=bool)
        # In arrays by site, the last entry is for site -1: an instance that does not exist.
        self.move_count = np.full(1, 0, dtype=np.int32)
        self.move_first = np.zeros(1, dtype=np.int32)
        self.view_of = np.full(1, -1, dtype=np.int32)
        self.local = np.zeros(1, dtype=np.int32)
        self.keeps = np.zeros(1, dtype=bool)
        self._known_sites = 0
        self._known_moves = 0
        self._locals: dict[int, list[int]] = {}
        self._arrivals: dict[tuple[int, int], Numbers] = {}
        self._left = np.full((0, 0), UNKNOWN, dtype=np.int32)
        self.hashes = Zobrist(seed)

    # -- growing -----------------------------------------------------------------------------

    def learn_sites(self) -> None:
        """Enlarge the arrays for the sites and budgets that the world has numbered since."""
        sites, views = self.world.sites, self.world.sites.views
        known, count = self._known_sites, len(sites.sites)
        if count > known:
            room = max(count, len(self.move_count) - 1)
            if room > len(self.move_count) - 1:
                room = count + count // 2 + 1000
                self.move_count = _grown(self.move_count, room + 1, UNKNOWN, last=0)
                self.move_first = _grown(self.move_first, room + 1, 0, last=0)
                self.view_of = _grown(self.view_of, room + 1, -1, last=-1)
                self.local = _grown(self.local, room + 1, 0, last=0)
                self.hashes.make_room_for_sites(room + 1)
            self.view_of[known:count] = sites.view_of[known:count]
            for number in range(known, count):
                me = self.world.budgets.ids.number(sites.sites.values[number].me)
                mine = self._locals.setdefault(me, [])
                self.local[number] = len(mine)
                mine.append(number)
            self._known_sites = count
        if len(views) > len(self.keeps) - 1:
            keeps = [sites.machine.is_keeper(state) for state in views.values]
            self.keeps = np.array([*keeps, False], dtype=bool)
        self.hashes.make_room_for_metas(len(self.world.budgets.metas))

    def learn_moves(self, sites: Numbers) -> None:
        """Compute the moves of those of these sites that are new, by the core."""
        unknown = sites[self.move_count[sites] == UNKNOWN]
        if not len(unknown):
            return
        for site in np.unique(unknown).tolist():
            moves = self.world.sites.moves(site)
            self.move_first[site] = len(self.moves)
            self.move_count[site] = len(moves)
            self.moves.extend(moves)
        self.learn_sites()
        self._learn_new_moves()

    def _learn_new_moves(self) -> None:
        known, count = self._known_moves, len(self.moves)
        if count > len(self.move_kind):
            room = count + count // 2
            self.move_kind = _grown(self.move_kind, room, 0)
            self.move_site = _grown(self.move_site, room, 0)
            self.move_effect = _grown(self.move_effect, room, 0)
            self.move_way = _grown(self.move_way, room, 0)
            self.move_optional = _grown(self.move_optional, room, False)
        for number in range(known, count):
            move = self.moves[number]
            self.move_kind[number] = move.kind
            self.move_site[number] = move.site
            self.move_effect[number] = self.effects.number((move.sends, move.born))
            self.move_optional[number] = move.optional
            self.move_way[number] = move.way
        self._known_moves = count

    # -- reading -----------------------------------------------------------------------------

    def spend(self, metas: Numbers, kinds: Numbers) -> Numbers:
        """For each of `metas`, the budgets after a move of the kind at the same place in `kinds`;
        negative if a budget does not suffice."""
        budgets = self.world.budgets
        shape = (len(budgets.kinds), len(budgets.metas))
        if shape[0] > self._left.shape[0] or shape[1] > self._left.shape[1]:
            self._left = _grown_table(self._left, (shape[0] * 2, shape[1] * 2))
        left = self._left[kinds, metas]
        unknown = np.flatnonzero(left == UNKNOWN)
        if len(unknown):
            width = self._left.shape[1]
            for key in np.unique(kinds[unknown].astype(np.int64) * width + metas[unknown]).tolist():
                kind, meta = divmod(key, width)
                self._left[kind, meta] = budgets.spend(meta, kind)
            self.learn_sites()
            left = self._left[kinds, metas]
        return left

    def arrive(self, receiver: int, parcel: int, sites: Numbers) -> Numbers:
        """Sites of one receiver after a parcel has been put on its channel."""
        key = (receiver, parcel)
        table = self._arrivals.get(key)
        mine = self._locals.get(receiver, [])
        if table is None or len(table) < len(mine):
            old = np.zeros(0, dtype=np.int32) if table is None else table
            table = _grown(old, len(mine) + len(mine) // 2 + 16, UNKNOWN)
            self._arrivals[key] = table
        at = self.local[sites]
        after = table[at]
        unknown = np.flatnonzero(after == UNKNOWN)
        if len(unknown):
            for local in np.unique(at[unknown]).tolist():
                table[local] = self.world.sites.arrive(mine[local], parcel)
            self.learn_sites()
            after = table[at]
        return after

    def adjacent(self, x: int, y: int) -> bool:
        ids, topology = self.world.budgets.ids.values, self.world.sites.scope.topology
        a, b = ids[x].operator, ids[y].operator
        if a == b:
            return self.world.sites.scope.is_keyed(a)  # siblings own key groups (K5)
        return topology.feeds(a, b) or topology.feeds(b, a)

    def same_operator(self, x: int, y: int) -> bool:
        ids = self.world.budgets.ids.values
        return ids[x].operator == ids[y].operator


def _grown(old: NDArray[D], size: int, fill: object, *, last: object = None) -> NDArray[D]:
    """A copy with room for more; with `last`, the old last entry moves to the new end."""
    new = np.full(size, fill, dtype=old.dtype)
    kept = len(old) if last is None else len(old) - 1
    new[:kept] = old[:kept]
    if last is not None:
        new[-1] = last
    return new


def _grown_table(old: Numbers, shape: tuple[int, int]) -> Numbers:
    new = np.full(shape, UNKNOWN, dtype=np.int32)
    new[: old.shape[0], : old.shape[1]] = old
    return new
