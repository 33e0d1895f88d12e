"""What an instance holds of its operator's key groups, and every way in which that changes.

    arrive ▶ arriving ── open ▶ behind ── caught_up ▶ owned ── freeze ▶ frozen ── give ▶ gone
                                                own ▶

- arriving: chunks have come, perhaps all of them. Nothing of them is mixed with what is here, so
  that they can be replaced by those of a later incarnation of the giver, which begins anew.
- behind: state is here, and what was kept must be processed before anything that comes now.
- owned: tuples are processed. frozen: tuples are kept, to go along when the group is given away.

The methods that record their own name and arguments are the changes that a journal consists of: the
same calls in the same order give the same holdings (`anabranch.runtime.keyed.journaling`).
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from anabranch.runtime.keyed.moving import Arrival, Head, Kept
from anabranch.runtime.keyed.state_changes import NoStateChanges
from anabranch.runtime.keyed.store import KeyStore

Groups = frozenset[int]
NO_GROUPS: Groups = frozenset()


class Holdings:
    """`late`: late tuples, by what became of them. `pended_out`: kept tuples that have gone with
    their groups. `shut`: groups with state here whose tuples must not be processed."""

    def __init__(self, operator: str, groups: int) -> None:
        self.operator = operator
        self.groups = groups
        self.changes = NoStateChanges()
        self.careful = False
        """Whether states of any size are looked at after each call."""
        self.store = KeyStore(groups)
        self.owned = self.frozen = self.behind = self.shut = NO_GROUPS
        self.kept: dict[int, deque[Kept]] = {}
        self.arriving: dict[int, Arrival] = {}
        self.watermark = -math.inf
        self.late: Counter[str] = Counter()
        self.pended_out = 0
        self.opened_in = 0
        """Kept tuples that have come with groups which were opened."""

    @property
    def pended(self) -> int:
        kept = sum(map(len, self.kept.values())) if self.kept else 0
        return kept + self._arrived

    @property
    def pended_in(self) -> int:
        return self.opened_in + self._arrived

    @property
    def _arrived(self) -> int:
        return sum(len(a.kept) for a in self.arriving.values()) if self.arriving else 0

    @property
    def whole(self) -> Groups:
        """Groups whose last chunk has come, and that are not open yet."""
        return frozenset(g for g, arrival in self.arriving.items() if arrival.complete)

    @property
    def here(self) -> Groups:
        """Groups that are open, in whatever phase. One that has only arrived, even as a whole, is
        not: a later incarnation of its giver may be giving all of it again."""
        return self.owned | self.frozen | self.behind

    def set_groups(self, owned: Groups, frozen: Groups, behind: Groups) -> None:
        self.owned, self.frozen, self.behind = owned, frozen, behind
        self.shut = frozen | behind

    # -- changes -----------------------------------------------------------------------------

    def own(self, groups: Iterable[int]) -> None:
        """With nothing in them."""
        self.set_groups(self.owned | {*groups}, self.frozen, self.behind)
        self.changes.add("own", [*groups])

    def freeze(self, groups: Iterable[int]) -> None:
        mine = self.owned & {*groups}
        self.set_groups(self.owned - mine, self.frozen | mine, self.behind)
        self.changes.add("freeze", [*mine])

    def keep(self, group: int, kept: Kept) -> None:
        queue = self.kept.get(group)
        if queue is None:
            queue = self.kept[group] = deque()
        queue.append(kept)
        self.changes.add("keep", group, tuple(kept))

    def hold_time_back(self, group: int) -> None:
        """Before what was kept is processed. What a predecessor states of event time does not cover
        tuples that it still had for the earlier owner of a group, so one that was kept may have met
        more than one behind it. With each, the event time of its key goes on no further than to the
        least mark of those behind it."""
        least: dict[Any, float] = {}
        held_back = deque[Kept]()
        for one in reversed(self.kept.get(group, ())):
            behind = least.get(one.key, math.inf)
            least[one.key] = min(behind, max(one.watermark, one.mark))
            if one.watermark > behind:
                one = one._replace(watermark=behind)
            held_back.appendleft(one)
        if held_back:
            self.kept[group] = held_back

    def work_off(self, group: int, n: int) -> None:
        """The first of what was kept are processed."""
        self._drop_kept(group, n)
        self.changes.add("work_off", group, n)

    def arrive(self, chunk: bytes) -> bool:
        """Take in a chunk. False: it does not follow those before, so that something is missing.
        Chunks of an older incarnation of the giver than the newest one seen are passed over."""
        if not self.awaits(chunk):
            return False
        head = Head.of(chunk)
        arrival = self._arrival_for(head)
        if head.incarnation == arrival.incarnation:
            arrival.take(self.operator, head, chunk)
            self.arriving[head.group] = arrival
        return True

    def awaits(self, chunk: bytes) -> bool:
        """Whether a chunk follows those that have come, or does not matter any more."""
        head = Head.of(chunk)
        arrival = self._arrival_for(head)
        return head.incarnation < arrival.incarnation or head.number == arrival.chunks

    def _arrival_for(self, head: Head) -> Arrival:
        arrival = self.arriving.get(head.group)
        if arrival is None or head.incarnation > arrival.incarnation:
            return Arrival(head.incarnation)
        return arrival

    def open(self, group: int) -> float:
        """What has arrived becomes what is here; returns how hot it was."""
        self.changes.add("open", group)
        return self._open(group)

    def _open(self, group: int) -> float:
        self.set_groups(self.owned, self.frozen, self.behind | {group})
        arrival = self.arriving.pop(group, None)
        if arrival is None:
            return 0.0
        self.store.put(group, arrival.entries)
        self.kept[group] = deque([*arrival.kept, *self.kept.get(group, ())])
        self.opened_in += len(arrival.kept)
        return arrival.heat

    def caught_up(self, group: int) -> None:
        """Nothing that was kept is left to process."""
        self.kept.pop(group, None)
        self.set_groups(self.owned | {group}, self.frozen, self.behind - {group})
        self.changes.add("caught_up", group)

    def give(self, group: int, tuples: int) -> None:
        """A frozen group, and so many of the tuples kept for it, belong to another instance."""
        self.store.drop(group)
        self._drop_kept(group, tuples)
        self.pended_out += tuples
        self.set_groups(self.owned, self.frozen - {group}, self.behind)
        self.changes.add("give", group, tuples)

    def resume(self, owned: Iterable[int], frozen: Iterable[int]) -> None:
        """Groups as they are to be after a restoration; `owned` without the frozen ones. Those
        that have kept tuples are behind, and those that are not open yet, as journals of earlier
        versions have them."""
        mine = frozenset(owned)
        self.changes.add("resume", [*mine], [*frozen])
        for group in sorted(mine & self.whole):
            self._open(group)
        behind = mine & (self.behind | {g for g, kept in self.kept.items() if kept})
        self.set_groups(mine - behind, frozenset(frozen), behind)

    def forget(self, keys: list[Any]) -> None:
        """Keys whose states are not worth keeping, as far as they have no timers."""
        keys = self.store.without_timers(keys)
        self.store.forget(keys)
        self.changes.forgot(keys)

    def _drop_kept(self, group: int, n: int) -> None:
        kept = self.kept.get(group)
        if kept is None:
            return
        for _ in range(min(n, len(kept))):
            kept.popleft()
        if not kept:
            del self.kept[group]
