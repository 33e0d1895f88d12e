"""Copies of a journal on other hosts (`docs/protocol.md` 9; J1 to J9).

The *writer*, an instance, appends to its journal; each *holder*, a host, has a copy, which is a
beginning of that journal. Home, which decides, knows which copies are *complete*: have every record
that counts. A record counts when it is in the journal and all holders that the writer waits for
have acknowledged it; these are always at least those whose copies are complete. So any one of the
complete copies is enough to go on from, and one of them that refuses a lost incarnation is enough
to keep that from acting.

A journal is a row of parts. Each begins with a snapshot, and has a number and an author, the
incarnation that has written it: two copies of the same part are equal as far as both go.

All three are values: each event gives the next one, or raises `CopyError`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from anabranch.protocol.errors import RemoteProtocolError


class CopyError(RemoteProtocolError):
    """Something that a copy cannot take."""


class FencedError(CopyError):
    """An incarnation that was given up: a later one has taken its place, or will."""


class Position(NamedTuple):
    """How far a journal goes: so many bytes of the part with this number, and all before it."""

    number: int = 0
    size: int = 0


class Part(NamedTuple):
    """`author`: the incarnation that has written it. Number 0 is what the journal builds on, as a
    savepoint has it."""

    number: int
    author: int
    size: int


Parts = tuple[Part, ...]
START = Position()
AGREE_MIN = 2
"""So many complete copies a journal has at least, if a majority of their holders may give up its
host: one alone is no majority."""


def end_of(parts: Parts) -> Position:
    return Position(parts[-1].number, parts[-1].size) if parts else START


def contains(parts: Parts, others: Parts) -> bool:
    """Whether a journal with these parts has all that one with the `others` has."""
    if not others:
        return True
    number, author, size = others[-1]
    return any(p.number == number and p.author == author and p.size >= size for p in parts)


@dataclass(frozen=True, slots=True)
class CopyHolder:
    """One copy. `fenced`: the least incarnation that it listens to. `owed`: None, or, of a copy
    that may have lost its end, how far it must have been brought again before it can be read."""

    fenced: int = 0
    parts: Parts = ()
    owed: Position | None = None

    @property
    def position(self) -> Position:
        return end_of(self.parts)

    @property
    def readable(self) -> bool:
        return self.owed is None

    def fence(self, incarnation: int) -> CopyHolder:
        """J4: refuse all incarnations before this one from now on. To be made durable before it is
        answered."""
        self._check(incarnation)
        return replace(self, fenced=incarnation)

    def opened(self, incarnation: int, offered: Parts) -> CopyHolder:
        """J2: the writer has these parts. What it does not have goes: no record of that counts.
        It may have older parts, which this copy needs no more (J6)."""
        kept: list[Part] = []
        held = {part.number: part for part in self.parts}
        first = self.parts[0].number if self._shares_its_first(offered) else 0
        for part in offered:
            if part.number < first:
                continue
            mine = held.get(part.number)
            if mine is None or mine.author != part.author:
                break
            kept.append(mine._replace(size=min(mine.size, part.size)))
            if mine.size < part.size:
                break
        owed = None if self.owed is None else end_of(offered)
        return replace(self.fence(incarnation), parts=tuple(kept), owed=owed)._paid()

    def _shares_its_first(self, offered: Parts) -> bool:
        return bool(self.parts) and self.parts[0][:2] in [part[:2] for part in offered]

    def appended(self, incarnation: int, part: Part, at: int) -> CopyHolder:
        """Bytes of this part, from `at` up to its `size`. Those that are there already do not
        count again. The first of a part begin it."""
        self._check(incarnation)
        last = self.parts[-1] if self.parts else None
        if last is not None and last.number == part.number:
            if last.author != part.author or at > last.size:
                raise CopyError(f"bytes from {at} of part {part.number}, which has {last.size}")
            grown = last._replace(size=max(last.size, part.size))
            return replace(self, parts=(*self.parts[:-1], grown))._paid()
        if at or (last is not None and part.number < last.number):
            raise CopyError(f"part {part.number} from byte {at}, behind {self.position}")
        return replace(self, parts=(*self.parts, part))._paid()

    def dropped(self, incarnation: int, before: int) -> CopyHolder:
        """The parts before this one are not needed any more."""
        self._check(incarnation)
        return replace(self, parts=tuple(p for p in self.parts if p.number >= before))

    def damaged(self, parts: Parts) -> CopyHolder:
        """J5: a loss of power has left these. What was acknowledged may not be among them."""
        return replace(self, parts=parts, owed=Position(2**62))

    def _paid(self) -> CopyHolder:
        paid = self.owed is not None and self.position >= self.owed
        return replace(self, owed=None) if paid else self

    def lives(self, incarnation: int) -> None:
        """J8: it has nothing to say but that it is there."""
        self._check(incarnation)

    def _check(self, incarnation: int) -> None:
        if incarnation < self.fenced:
            raise FencedError(f"incarnation {incarnation} is fenced: {self.fenced} is the least")


@dataclass(frozen=True, slots=True)
class CopyWriter:
    """What an incarnation knows of its copies. `order`: the newest order of home; `waited`: the
    holders whose acknowledgements it waits for; `learning`: those that are brought up to date
    meanwhile. `counted`: how far what it has written counts; all before it began may.
    `drawn`: the newest part whose snapshot is whole, and where that ends."""

    incarnation: int
    parts: Parts = ()
    order: int = 0
    waited: frozenset[str] = frozenset()
    learning: frozenset[str] = frozenset()
    counted: Position = START
    drawn: Position | None = None
    acked: tuple[tuple[str, Position], ...] = field(default=())

    @classmethod
    def begun(
        cls, incarnation: int, parts: Parts, order: int, holders: Collection[str],
        complete: Collection[str],
    ) -> CopyWriter:  # fmt: skip
        """It goes on from these parts. `complete`: of the holders, those with complete copies."""
        waited = frozenset(complete) & frozenset(holders)
        learning = frozenset(holders) - waited
        return cls(incarnation, parts, order, waited, learning, end_of(parts))

    @property
    def end(self) -> Position:
        return end_of(self.parts)

    @property
    def holders(self) -> frozenset[str]:
        return self.waited | self.learning

    def position_of(self, holder: str) -> Position | None:
        """How far its copy goes; None if it has said nothing yet."""
        return dict(self.acked).get(holder)

    def wrote(self, number: int, size: int) -> CopyWriter:
        """The journal has so many bytes of this part now."""
        if self.parts and self.parts[-1].number == number:
            parts = (*self.parts[:-1], self.parts[-1]._replace(size=size))
        else:
            parts = (*self.parts, Part(number, self.incarnation, size))
        return replace(self, parts=parts)

    def drew(self) -> CopyWriter:
        """The snapshot that the last part begins with is whole."""
        return replace(self, drawn=self.end)

    def acknowledged(self, holder: str, position: Position) -> CopyWriter:
        """J1, J3: its copy goes so far; a learner that has all that counts is waited for."""
        if holder not in self.holders:
            return self
        acked = tuple(sorted({**dict(self.acked), holder: position}.items()))
        after = replace(self, acked=acked)
        if holder in self.learning and position >= self.counted:
            learning, waited = self.learning - {holder}, self.waited | {holder}
            after = replace(after, learning=learning, waited=waited)
        return after._count()

    def ordered(self, order: int, holders: Collection[str]) -> CopyWriter:
        """Home says which holders there are from now on. An older order changes nothing."""
        if order <= self.order:
            return self
        there = frozenset(holders)
        waited = self.waited & there
        acked = tuple((holder, position) for holder, position in self.acked if holder in there)
        learning = there - waited
        return replace(
            self, order=order, waited=waited, learning=learning, acked=acked
        )._count()  # fmt: skip

    @property
    def complete(self) -> frozenset[str]:
        """Of these home may know that their copies are complete, since `order`."""
        return self.waited

    @property
    def droppable(self) -> int:
        """J6: the parts before this number may go: all of W have a newer snapshot."""
        if self.drawn is None or self.counted < self.drawn:
            return 0
        return self.drawn.number

    def dropped(self) -> CopyWriter:
        parts = tuple(part for part in self.parts if part.number >= self.droppable)
        return replace(self, parts=parts)

    def _count(self) -> CopyWriter:
        """What all have that are waited for counts; of a holder that has said nothing, nothing is
        known."""
        if not self.waited:
            return self
        acked = dict(self.acked)
        least = min(acked.get(holder, START) for holder in self.waited)
        return replace(self, counted=max(self.counted, least))


@dataclass(frozen=True, slots=True)
class CopySet:
    """What home knows of the copies of one instance, and records as a whole before it acts on it.
    `incarnation`: the newest; `order`: the number of the newest order to it, never used again;
    `holders`: what that says; `complete`: those with complete copies. `added`: in which order each
    holder was added; `removed`: by which order each one was taken away of which the writer may not
    have heard. `given_up`: whether that incarnation gets no more orders, for a later one is to take
    its place. `by_majority`: whether the holders have decided that, the last time, and not a
    user."""

    incarnation: int
    order: int
    holders: frozenset[str]
    complete: frozenset[str]
    added: tuple[tuple[str, int], ...] = ()
    given_up: bool = False
    removed: tuple[tuple[str, int], ...] = ()
    by_majority: bool = False

    @classmethod
    def begun(cls, holders: Collection[str]) -> CopySet:
        """For the first incarnation: its journal is empty, and so are all copies."""
        there = frozenset(holders)
        return cls(1, 1, there, there, tuple((holder, 1) for holder in sorted(there)))

    def with_holder(self, holder: str) -> CopySet:
        """Let the writer bring this one up to date."""
        order = self.order + 1
        added = tuple(sorted({**dict(self.added), holder: order}.items()))
        return replace(self, order=order, holders=self.holders | {holder}, added=added)

    def completed(self, incarnation: int, order: int, holder: str) -> CopySet:
        """J3: this incarnation, which knows this order, says that a copy is complete. That counts
        unless the holder was added, perhaps again, by a later order. In any case the writer has
        obeyed that order."""
        if incarnation != self.incarnation or self.given_up:
            return self
        removed = tuple(each for each in self.removed if each[1] > order)
        since = dict(self.added).get(holder)
        is_new = since is not None and order >= since
        complete = self.complete | {holder} if is_new else self.complete
        return replace(self, complete=complete, removed=removed)

    def without_holder(self, holder: str) -> CopySet:
        """J3: home counts on this one no more, and then the writer hears of it. Raises `CopyError`
        if no complete copy would be left."""
        if not self.complete - {holder}:
            raise CopyError(f"{holder} has the only complete copy")
        return self.struck(holder)

    def struck(self, holder: str) -> CopySet:
        """The same for one that is lost for good, even if no complete copy is left."""
        order = self.order + 1
        return replace(
            self, order=order, holders=self.holders - {holder}, complete=self.complete - {holder},
            added=tuple(each for each in self.added if each[0] != holder),
            removed=(*(each for each in self.removed if each[0] != holder), (holder, order)),
        )  # fmt: skip

    def again(self) -> CopySet:
        """The writer may not have heard the last order, or home its answers: say it once more."""
        order = self.order + 1
        return replace(self, order=order, added=tuple((name, order) for name, _ in self.added))

    @property
    def perhaps_waited(self) -> frozenset[str]:
        """For each of `complete` the writer waits; it may wait for any of these."""
        return self.holders | self.complete | {holder for holder, _ in self.removed}

    def is_majority(self, those: Collection[str]) -> bool:
        """J8: whether these are more than half of the holders that the writer waits for, whichever
        those are."""
        agree = self.complete & frozenset(those)
        others = self.perhaps_waited - frozenset(those)
        return len(self.complete) >= AGREE_MIN and len(agree) > len(others)

    def giving_up(self, *, by_majority: bool | None = None) -> CopySet:
        """J4: the incarnation is to be fenced, as `incarnation` + 1. `by_majority`: None, as the
        last time."""
        by = self.by_majority if by_majority is None else by_majority
        return replace(self, given_up=True, by_majority=by)

    @property
    def to_fence(self) -> frozenset[str]:
        """J4, J9."""
        return self.perhaps_waited if self.by_majority else self.complete

    def sources(
        self, readable: Collection[str], unreadable: Collection[str] = ()
    ) -> frozenset[str]:
        """J4, J9: from which holders the next incarnation may be read, if those that are fenced by
        its number are these: those with copies that can be read just now, and others. Empty: not
        yet."""
        if self.by_majority and not self.is_majority({*readable, *unreadable}):
            return frozenset()
        return self.complete & frozenset(readable)

    def begins_next(self, holders: Collection[str] = ()) -> CopySet:
        """J7: the next incarnation, to be recorded before it is begun. `holders`: those to be added
        at once."""
        order = self.order + 1
        there = self.holders | self.complete | frozenset(holders)
        return replace(
            self, incarnation=self.incarnation + 1, order=order, holders=there, given_up=False,
            added=tuple((holder, order) for holder in sorted(there)), removed=(),
        )  # fmt: skip
