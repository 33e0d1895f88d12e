"""Channels of which one part is broken: their handshake, their session, or their credit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from anabranch.protocol.handshake import Abandon, Handshake, Hello, Progress, Resume, Step
from anabranch.protocol.session import Session
from anabranch.runtime.explorer.cuts import SHIPPED, ChannelParts, CutScope


@dataclass(frozen=True, slots=True)
class BrokenChannel:
    """`rule`: which one of `docs/protocol.md` 7 or 4, and `what` is done instead. `scope`: one in
    which that is found out."""

    rule: str
    what: str
    scope: CutScope
    parts: ChannelParts


class TakesAnyHello(Handshake):
    def greeted(self, hello: Hello, mine: Progress) -> Step:
        step = Handshake.greeted(replace(self, newest=Hello()), hello, mine)
        old = [Abandon(self.newest) if isinstance(a, Abandon) else a for a in step.actions]
        return step._replace(actions=tuple(old))


class ComparesNumbersOnly(Handshake):
    def greeted(self, hello: Hello, mine: Progress) -> Step:
        newest = replace(self.newest, incarnation=hello.incarnation)
        return Handshake.greeted(replace(self, newest=newest), hello, mine)


class KeepsOldConnections(Handshake):
    def greeted(self, hello: Hello, mine: Progress) -> Step:
        return Handshake.greeted(replace(self, connected=False), hello, mine)


class TakesAnyResume(Handshake):
    def resumed(self, connection: Hello, resume: Resume) -> Step:
        return Handshake.resumed(self, self.newest, resume)


class TakesAnyNumber(Session[int]):
    def receive(self, number: int) -> bool:
        self.expected = max(self.expected, number + 1)
        return True


class TakesAndRepeatsEverything(TakesAnyNumber):
    def resume(self, expected: int, acknowledged: int | None = None) -> Iterator[tuple[int, int]]:
        return zip(range(self.first_kept, self.next_number), self.kept, strict=True)


class FreesWhatHasCome(Session[int]):
    def resume(self, expected: int, acknowledged: int | None = None) -> Iterator[tuple[int, int]]:
        return super().resume(expected)


ONE_CUT = CutScope(2, 0, 1)
ONE_DEATH = CutScope(2, 0, 0, deaths=1)
SMALL_WINDOW = CutScope(2, 0, 1, window=1)

BROKEN_CHANNELS = (
    BrokenChannel(
        "H1",
        "a hello is taken though a newer connection has said it",
        ONE_CUT,
        replace(SHIPPED, handshake=TakesAnyHello),
    ),
    BrokenChannel(
        "H1",
        "connections are compared by their number, whichever incarnation has made them",
        ONE_DEATH,
        replace(SHIPPED, handshake=ComparesNumbersOnly),
    ),
    BrokenChannel(
        "H1",
        "the old connection is still read, and any number is taken",
        ONE_CUT,
        replace(SHIPPED, handshake=KeepsOldConnections, session=TakesAnyNumber),
    ),
    BrokenChannel(
        "H3",
        "all that is kept is repeated, and any number is taken",
        ONE_CUT,
        replace(SHIPPED, session=TakesAndRepeatsEverything),
    ),
    BrokenChannel(
        "H3",
        "what has come is taken for safe",
        ONE_DEATH,
        replace(SHIPPED, session=FreesWhatHasCome),
    ),
    BrokenChannel(
        "H4",
        "a resume is taken though a newer connection has said hello",
        CutScope(2, 1, 1),
        replace(SHIPPED, handshake=TakesAnyResume),
    ),
    BrokenChannel(
        "credit",
        "credit is not stated anew on a new connection",
        SMALL_WINDOW,
        replace(SHIPPED, states_on_connect=False),
    ),
    BrokenChannel(
        "credit",
        "credit counts since the connection began",
        SMALL_WINDOW,
        replace(SHIPPED, counts_from_the_beginning=False),
    ),
)
