"""Notes what a search goes through: each cell, with the operations that were open beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anabranch.runtime.explorer.coverage import Coverage, Open, named_by, open_at
from anabranch.runtime.explorer.sites import Sites


class Watch:
    """Notes, for one search, what every transition goes through."""

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        self.coverage = Coverage()
        self._open: list[int] = []
        self._own: dict[int, int] = {}
        self._seen: set[tuple[int, int, int]] = set()

    def open_at(self, site: int) -> int:
        """The operations that are open at an instance, with those that a death has left open."""
        while len(self._open) < len(self.sites.sites):
            self._open.append(self._open_now(len(self._open)))
        return self._open[site]

    def _open_now(self, site: int) -> int:
        dying = self.sites.comes_again(site)
        return int(open_at(self.sites.node_at(site).state)) | (int(Open.DEATH) if dying else 0)

    def see(self, way: int, site: int, near: int) -> None:
        """A transition from a site; `way`: the number of the cells that it goes through."""
        key = (way, self._others_here(site), near)
        if key not in self._seen:
            self._seen.add(key)
            for cell in self.sites.ways.values[way]:
                self.coverage.add(cell, key[1], near)

    def _others_here(self, site: int) -> int:
        """What else is open at a site than the operation that its condition names."""
        found = self._own.get(site)
        if found is None:
            state = self.sites.node_at(site).state
            named = named_by(state)
            found = self._own[site] = self.open_at(site) & ~int(named)
        return found

    def result(self) -> Coverage:
        """The coverage, with cells that were used outside of transitions."""
        for way in self.sites.aside:
            for cell in self.sites.ways.values[way]:
                self.coverage.add(cell)
        return self.coverage


def neighbours_open(
    watch: Watch, sites: Iterable[int], adjacent: Iterable[Iterable[int]]
) -> Iterator[int]:
    """For each instance of a state, what is open at its neighbours."""
    masks = [watch.open_at(site) for site in sites]
    for others in adjacent:
        near = 0
        for other in others:
            near |= masks[other]
        yield near
