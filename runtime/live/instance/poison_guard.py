"""How an instance finds the tuple that ends its process, and goes on without it.

A library that crashes, a call of `os._exit`, a tuple that needs more memory than there is: whatever
ends the process comes again in the next incarnation, for nothing of it was recorded. So after two
incarnations that got nothing done the next one is *careful*:

    which tuple it will try ──▶ journal      one at a time, the next one when this is processed
    it dies                 ──▶ the next incarnation reads there that it was tried, alone
    tried twice in vain     ──▶ a dead letter, and the stream goes on

One death may come from outside while a tuple happens to be tried; two on the same tuple, alone, are
taken as proof. Deaths that no tuple can be the reason of do not count: a disk that fails, a process
that was stopped, all processes killed at once.

A death was not in vain if the journal names the tuple that was tried, for the same
tuple ends its process only once more. The agent gets how many there were (`lessons`), and does
not count them among those after which the run fails: several such tuples may come from different
predecessors, in another order each time. They come to an end, for each of them brings a burial
closer, and so many burials in a row fail the run, too.

An incarnation is careful for as many tuples as may have been in work when the last one died and
some more. One that is not careful asks one question per slice.

Not found so: what crashes before it is a tuple (while its batch is unpacked) or after (while a
result is put at its target), timers, and sources, which cannot leave out what they have not read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from anabranch.runtime.processing.steps import StepError
from anabranch.runtime.values.kinds import TUPLES_FAULT

if TYPE_CHECKING:
    from anabranch.runtime.live.commit.commits import Commits
    from anabranch.runtime.live.commit.recovery import Past
    from anabranch.runtime.live.instance.intake import Queued
    from anabranch.runtime.live.instance.profile import Profile

DEATHS = 2
"""After so many with nothing done, the next incarnation guards its tuples."""
TRIES = 2
"""So often a tuple that is tried alone may end its process; then it is a dead letter."""
GUARDED_TUPLES = 1_000
"""How long an incarnation is careful beyond what may have been in work when the last one died."""
DOUBLINGS_MAX = 10
IN_A_ROW_MAX = 10
"""After so many burials with no tuple processed in between it is not the tuples' fault."""

Place = tuple[Any, ...]
"""Of a tuple: what kind of queue it is in, which one, and where there."""
FRAME = "frame"
POISON = "poison_guard"
"""Name of what is written of this."""
ENDED_ITS_PROCESS = "ended its process: "
"""How the reason of such a dead letter begins; how the process ended follows."""
Mark = tuple[tuple[str, int, tuple[int, int]], ...]


def place_of(item: Queued, index: int) -> Place:
    """`index`: among the tuples of its batch that can be read."""
    return FRAME, str(item.channel.peer), item.number, index


class PoisonGuard:
    """`on`: whether to ask before each tuple. `buried`: gets the reason of each burial."""

    def __init__(
        self, profile: Profile, commits: Commits | None, buried: Callable[[str], None]
    ) -> None:
        self._profile = profile
        self._commits = commits
        self._tell_buried = buried
        self.on = False
        self._left = 0
        self._began_at: Mark = ()
        """How far the input was processed when this incarnation began."""
        self._vain = 0
        """How many incarnations, the last of them the one before this, got nothing done; without
        those of which it is known which tuple was tried: they were careful for long enough."""
        self._deaths: dict[Place, tuple[str, ...]] = {}
        """How the process ended, each time that one of these tuples was being tried alone."""
        self.lessons = 0
        """How many such deaths there were, those included that have been forgotten since."""
        self._trying: Place | None = None
        self._in_a_row = 0
        """Burials since a tuple was last processed."""
        if commits is not None and not profile.duties.loses:  # else nothing comes again
            self._consider(senders=1)

    # -- over deaths ---------------------------------------------------------------------------

    def snapshot(self) -> tuple[Any, ...]:
        deaths = tuple(self._deaths.items())
        return self._began_at, self._vain, deaths, self._trying, self._in_a_row, self.lessons

    def restore(self, past: Past, gathered: int = 0) -> None:
        """`gathered`: how many tuples may have been in work beside those that came on credit."""
        in_vain = self._profile.in_vain
        self._began_at = _mark(past)
        if POISON not in past.parts or not in_vain or self._profile.duties.loses:
            return  # the whole run was resumed, maybe with other functions
        began_at, vain, deaths, trying, self._in_a_row, self.lessons = past.parts[POISON]
        self._deaths = dict(deaths)
        end = in_vain[-1]
        learnt = trying is not None and end.cause in TUPLES_FAULT
        self._vain = vain + (not learnt) if began_at == self._began_at else 0
        if learnt:
            self.lessons += 1
            self._deaths[trying] = (*self._deaths.get(trying, ()), end.how)
        settled: dict[str, float] = {totals.peer: math.inf for totals in past.totals}
        settled |= {str(c.peer): c.row.settled for c in past.channels.values() if c.row}
        self._forget(p for p in self._deaths if p[0] == FRAME and p[2] < settled.get(p[1], 0))
        self._consider(max(1, len(past.channels)), gathered)

    def _consider(self, senders: int, gathered: int = 0) -> None:
        if max(len(self._profile.in_vain), self._vain) >= DEATHS or self._deaths:
            self.on = True
            in_work = senders * self._profile.limits.credit_tuples + gathered
            self._left = (in_work + GUARDED_TUPLES) * 2 ** min(self._vain, DOUBLINGS_MAX)

    def _forget(self, places: Iterable[Place]) -> None:
        for place in list(places):
            del self._deaths[place]

    # -- before and after each tuple -----------------------------------------------------------

    def condemns(self, place: Place) -> bool:
        """Whether this tuple is to be buried."""
        return self.on and len(self._deaths.get(place, ())) >= TRIES

    async def before(self, place: Place) -> str:
        """Why not to work on this tuple: it is to be buried at once. Empty: it is recorded that it
        is tried, or it is not `on` any more; when it is processed, that has to be reported by
        `done`.
        """
        if self.condemns(place):
            return self._bury(self._deaths[place])
        commits = self._commits
        assert commits is not None
        self._trying = place if self._left > 0 else None
        if self._trying is None:
            await commits.committed(at_once=True)
            self._relax()
        elif place[0] == FRAME and not self._in_a_row:
            await commits.write_down(POISON)
        else:  # a burial is recorded once, and other places mean another tuple after each commit
            await commits.committed(at_once=True)
        return ""

    def done(self) -> None:
        """It is processed: in the same commit as what became of it."""
        if self._trying is not None:
            self._deaths.pop(self._trying, None)
            self._trying, self._in_a_row = None, 0
            self._count_down()

    def _bury(self, ends: tuple[str, ...]) -> str:
        """Its reason. In the same commit as the letter, since nothing is awaited in between."""
        reason = self._why(ends)
        self._trying = None
        self._in_a_row += 1
        if self._profile.exact:  # else all comes again, up to the next one like it
            self._left = min(self._left, GUARDED_TUPLES)
        # Neither a kept tuple nor one that is ready has a number: another is in its place now.
        self._forget(p for p, ends in self._deaths.items() if len(ends) >= TRIES and p[0] != FRAME)
        self._tell_buried(reason)
        self._count_down()
        return reason

    def _count_down(self) -> None:
        assert self._commits is not None
        self._commits.want()
        self._left -= 1

    def _why(self, ends: tuple[str, ...]) -> str:
        reason = ENDED_ITS_PROCESS + ", then ".join(dict.fromkeys(ends))
        if self._in_a_row >= IN_A_ROW_MAX:
            raise StepError(
                f"more than {IN_A_ROW_MAX} tuples one after the other, each of them alone, have "
                f"{reason}. It seems to be the function rather than the tuples: try it on one of "
                f"those in {str(self._profile.pipeline.dead_letters_path)!r}"
            )
        return reason

    def _relax(self) -> None:
        """Work as usual. Where whole batches come again, those that were buried may be in them."""
        self.on = False
        exact = self._profile.exact
        proven = {p: e for p, e in self._deaths.items() if len(e) >= TRIES and p[0] == FRAME}
        self._deaths = {} if exact else proven


def _mark(past: Past) -> Mark:
    rows = ((str(c.peer), c.row) for c in past.channels.values() if c.row is not None)
    return tuple(sorted((peer, row.tuples_settled, row.partial) for peer, row in rows))
