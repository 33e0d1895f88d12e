"""Copies of journals of which one rule is broken (`docs/protocol.md` 9)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from anabranch.protocol.copies import CopyHolder, CopySet, CopyWriter, Parts, Position
from anabranch.runtime.explorer.copies_state import SHIPPED, CopyRules, CopyScope


@dataclass(frozen=True, slots=True)
class BrokenCopies:
    """`rule`: which one of `docs/protocol.md` 9, and `what` is done instead. `scope`: one in which
    that is found out."""

    rule: str
    what: str
    scope: CopyScope
    rules: CopyRules


class CountsWhatIsWritten(CopyWriter):
    def wrote(self, number: int, size: int) -> CopyWriter:
        written = CopyWriter.wrote(self, number, size)
        return replace(written, counted=written.end)


class WaitsForOne(CopyWriter):
    def _count(self) -> CopyWriter:
        most = max((position for _, position in self.acked), default=self.counted)
        return replace(self, counted=max(self.counted, most))


class BelievesLearners(CopyWriter):
    @property
    def complete(self) -> frozenset[str]:
        return self.holders


class WaitsForLearnersAtOnce(CopyWriter):
    def acknowledged(self, holder: str, position: Position) -> CopyWriter:
        moved = self
        if holder in self.learning:
            learning, waited = self.learning - {holder}, self.waited | {holder}
            moved = replace(self, learning=learning, waited=waited)
        return CopyWriter.acknowledged(moved, holder, position)


class DropsWhenItIsDrawn(CopyWriter):
    @property
    def droppable(self) -> int:
        return 0 if self.drawn is None else self.drawn.number


class ForgetsLate(CopySet):
    def without_holder(self, holder: str) -> CopySet:
        return replace(CopySet.without_holder(self, holder), complete=self.complete)


class BelievesOldNews(CopySet):
    def completed(self, incarnation: int, order: int, holder: str) -> CopySet:
        return CopySet.completed(self, incarnation, self.order, holder)


class TakesAnyAuthor(CopyHolder):
    def opened(self, incarnation: int, offered: Parts) -> CopyHolder:
        authors = {part.number: part.author for part in self.parts}
        same = [p._replace(author=authors.get(p.number, p.author)) for p in offered]
        return CopyHolder.opened(self, incarnation, tuple(same))


class WantsOlderPartsAgain(CopyHolder):
    def _shares_its_first(self, offered: Parts) -> bool:
        return False


class ReadsWhatIsLeft(CopyHolder):
    @property
    def readable(self) -> bool:
        return True


class FencesOnly(CopySet):
    """It fences one holder, and reads from any complete copy."""

    def sources(
        self, readable: Collection[str], unreadable: Collection[str] = ()
    ) -> frozenset[str]:
        return self.complete if readable else frozenset()


class GoesOnFromOne(CopySet):
    """Without a majority that refuses."""

    def sources(
        self, readable: Collection[str], unreadable: Collection[str] = ()
    ) -> frozenset[str]:
        return self.complete & frozenset(readable)


class ForgetsWhomItHasRemoved(CopySet):
    """A minority that counts itself only, whatever the writer waits for."""

    def is_majority(self, those: Collection[str]) -> bool:
        agree = self.complete & frozenset(those)
        return 2 * len(agree) > len(self.complete)


class CountsHalf(CopySet):
    def is_majority(self, those: Collection[str]) -> bool:
        agree = self.complete & frozenset(those)
        return bool(agree) and 2 * len(agree) >= len(self.perhaps_waited)


ONE_LOST = CopyScope(2, 1, give_ups=1)
NO_POWER = CopyScope(2, 1, give_ups=1, power=1)
BY_MAJORITY = CopyScope(1, 2, majorities=1)
A_DEATH = CopyScope(2, 1, deaths=1, power=1)

BROKEN_COPIES = (
    BrokenCopies(
        "J1",
        "frames leave before a copy has them",
        ONE_LOST,
        replace(SHIPPED, writer=CountsWhatIsWritten),
    ),
    BrokenCopies(
        "J1",
        "one acknowledgement of several is enough",
        CopyScope(1, 2),
        replace(SHIPPED, writer=WaitsForOne),
    ),
    BrokenCopies(
        "J2",
        "parts of any author are taken for the same",
        CopyScope(2, 2, deaths=1, power=1),
        replace(SHIPPED, holder=TakesAnyAuthor),
    ),
    BrokenCopies(
        "J3",
        "the writer waits no more before home has recorded it",
        CopyScope(1, 2, losses=1),
        replace(SHIPPED, home=ForgetsLate),
    ),
    BrokenCopies(
        "J3",
        "a copy is complete before it has everything",
        CopyScope(1, 1, 1, changes=1),
        replace(SHIPPED, writer=BelievesLearners),
    ),
    BrokenCopies(
        "J3",
        "a copy is complete as soon as it is waited for",
        CopyScope(1, 1, 1, changes=1),
        replace(SHIPPED, writer=WaitsForLearnersAtOnce),
    ),
    BrokenCopies(
        "J3",
        "news of a copy count though its holder was added anew",
        CopyScope(1, 1, 1, changes=3),
        replace(SHIPPED, home=BelievesOldNews),
    ),
    BrokenCopies(
        "J4", "an incarnation is resumed without a fence", ONE_LOST, replace(SHIPPED, fences=False)
    ),
    BrokenCopies(
        "J4",
        "one holder is fenced, and another one is read",
        CopyScope(1, 2, give_ups=1),
        replace(SHIPPED, home=FencesOnly),
    ),
    BrokenCopies(
        "J4",
        "a fence does not outlive a loss of power",
        NO_POWER,
        replace(SHIPPED, durable_fences=False),
    ),
    BrokenCopies(
        "J4",
        "a copy is read that is not complete",
        CopyScope(1, 1, 1, give_ups=1, changes=1),
        replace(SHIPPED, reads_complete=False),
    ),
    BrokenCopies(
        "J5",
        "a copy is read though it may have lost its end",
        NO_POWER,
        replace(SHIPPED, holder=ReadsWhatIsLeft),
    ),
    BrokenCopies(
        "J6",
        "older parts go before all have the newer snapshot",
        CopyScope(5, 1, rolls=1, give_ups=1),
        replace(SHIPPED, writer=DropsWhenItIsDrawn),
    ),
    BrokenCopies(
        "J6",
        "a copy without older parts begins anew when the writer has them",
        CopyScope(2, 2, rolls=1, give_ups=1, snapshot=1),
        replace(SHIPPED, holder=WantsOlderPartsAgain),
    ),
    BrokenCopies(
        "J7",
        "an incarnation begins before home has recorded it",
        CopyScope(1, 1, give_ups=1, home_deaths=1),
        replace(SHIPPED, records_first=False),
    ),
    BrokenCopies(
        "J7",
        "an incarnation believes the journal on its host",
        A_DEATH,
        replace(SHIPPED, asks_holders=False),
    ),
    BrokenCopies(
        "J8",
        "a holder that hears the writer agrees to give it up",
        BY_MAJORITY,
        replace(SHIPPED, listens=False),
    ),
    BrokenCopies(
        "J8",
        "half of the holders are enough",
        BY_MAJORITY,
        replace(SHIPPED, home=CountsHalf),
    ),
    BrokenCopies(
        "J8",
        "a minority counts itself only, after home has taken the others away",
        CopyScope(1, 2, majorities=1, changes=1),
        replace(SHIPPED, home=ForgetsWhomItHasRemoved),
    ),
    BrokenCopies(
        "J8",
        "what was said of one incarnation counts for the next one",
        CopyScope(1, 2, give_ups=1, majorities=1),
        replace(SHIPPED, asks_anew=False),
    ),
    BrokenCopies(
        "J9",
        "a majority gives up a host, and fences nothing",
        BY_MAJORITY,
        replace(SHIPPED, fences=False),
    ),
    BrokenCopies(
        "J9",
        "one fenced holder is enough for the next incarnation",
        BY_MAJORITY,
        replace(SHIPPED, home=GoesOnFromOne),
    ),
)
