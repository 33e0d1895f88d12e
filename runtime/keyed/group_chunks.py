"""How frozen groups are given away in chunks: at once, or so that it can be begun anew.

Other keys may be worked on between two chunks, and tuples that come for these groups meanwhile go
along, until the last chunks are cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from anabranch.runtime.keyed.holdings import Holdings
from anabranch.runtime.keyed.moving import Giver, Kept
from anabranch.runtime.keyed.store import Entry, KeyStore

HeatOf = Callable[[int], float]


def taken(held: Holdings, giver: Giver, groups: list[int], heat_of: HeatOf) -> Iterator[bytes]:
    """What was given is not here any more: it needs no room, and dies with its receiver."""
    for group in groups:
        yield from giver.keys(group, partial(held.store.take, group))
        kept = held.kept.setdefault(group, deque())
        while len(kept) > (n := giver.tuples_fitting):
            some = [kept.popleft() for _ in range(n)]
            held.pended_out += n
            yield from giver.tuples(group, some)
        chunks = giver.last(group, [*kept], heat_of(group))
        held.give(group, len(kept))
        yield from chunks


def copied(held: Holdings, giver: Giver, groups: list[int], heat_of: HeatOf) -> Iterator[bytes]:
    """Everything stays here until the last chunk was taken: a later incarnation may have to begin
    anew."""
    sent: dict[int, int] = {}
    for group in groups:
        yield from giver.keys(group, Copies(held.store, group).some)
        sent[group] = 0
        for some in _kept(held, giver, group):
            sent[group] += len(some)
            yield from giver.tuples(group, some)
    last = []
    for group in groups:
        rest = [*islice(held.kept.get(group, ()), sent[group], None)]
        sent[group] += len(rest)
        last += giver.last(group, rest, heat_of(group))
    yield from last
    for group in groups:
        held.give(group, sent[group])


def _kept(held: Holdings, giver: Giver, group: int) -> Iterator[list[Kept]]:
    """What was kept for a group, as many as fit at a time, until no more than that is left; more
    may be kept meanwhile."""
    sent, waiting = 0, deque[Kept]()
    while True:
        n = giver.tuples_fitting
        if len(waiting) <= n:
            waiting = deque(islice(held.kept.get(group, ()), sent, None))
            if len(waiting) <= n:
                return
        sent += n
        yield [waiting.popleft() for _ in range(n)]


class Copies:
    """The keys of a group that is at rest, without taking them away."""

    def __init__(self, store: KeyStore, group: int) -> None:
        self._store = store
        self._keys = iter(store.keys(group))

    def some(self, n: int) -> list[Entry]:
        keys, states, event, processing = self._store.entries([*islice(self._keys, n)])
        none = [None] * len(keys)
        rows = zip(keys, states, event or none, processing or none, strict=True)
        return [(key, state, e or {}, p or {}) for key, state, e, p in rows]
