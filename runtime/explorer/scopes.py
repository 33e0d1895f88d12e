"""Named scopes: small ones for every run of the tests, deep ones on demand."""

from __future__ import annotations

from anabranch.runtime.explorer.copies_state import CopyScope
from anabranch.runtime.explorer.cuts import CutScope
from anabranch.runtime.explorer.scope import Scope


def scopes_of(*texts: str) -> dict[str, Scope]:
    return {text: Scope.parse(text) for text in texts}


DIAMOND = "edges=0-1,0-2,1-3,2-3"
TRIANGLE = "edges=0-1,0-2,1-2"
TWO_SOURCES = "edges=0-2,1-2,2-3"
TWO_SINKS = "edges=0-1,1-2,1-3"

SMALL = scopes_of(
    # Joins, leaves and tuples, each with the others.
    "1,1 joins=1 tuples=1",
    "1,1 joins=2 tuples=1",
    "1,1 joins=1 leaves=1 tuples=2 batch=2",
    "1,2 joins=1 leaves=2",
    "1,2 joins=1 leaves=1 tuples=1",
    "2,1 joins=1 leaves=2",
    "2,2 leaves=2 tuples=1",
    "1,2,1 joins=1 leaves=1 tuples=1",
    "1,2,2 leaves=2 tuples=1",
    "1,1,1 joins=2 leaves=1 tuples=1",
    # The keeper's role.
    "1,1 fresh=1 leaves=1 tuples=1",
    "1,2 joins=1 fresh=1 leaves=1",
    "1,2 leaves=1 sibling=2",
    "2,2 leaves=2 sibling=1",
    "1,2,1 joins=1 leaves=1 sibling=1",
    # Other graphs.
    f"1,1,1,1 {DIAMOND} joins=1 leaves=1 tuples=1",
    f"1,2,1 {TRIANGLE} joins=1 leaves=1 tuples=1",
    f"1,1,1,1 {TWO_SOURCES} joins=1 leaves=1 tuples=1",
    f"1,1,1,1 {TWO_SINKS} joins=1 leaves=1 tuples=1",
    # The end of the stream.
    "2,1 tuples=1 finish",
    "1,2 joins=1 leaves=1 tuples=1 finish",
    "1,2 joins=2 finish",
    "1,2,1 joins=1 leaves=1 finish",
    "1,2 leaves=1 sibling=1 tuples=1 finish",
    f"1,1,1 {TRIANGLE} joins=1 tuples=1 finish",
    # Starting processes takes time, and may fail; channels have bounds.
    "1,2 joins=1 leaves=1 tuples=1 spawn",
    "1,1 joins=1 fresh=1 finish spawn",
    "2,2 joins=1 tuples=2 scalable=1 room=1",
    # Keyed operators: children, new owners and siblings get key groups.
    "1,1,1 joins=1 tuples=2 keyed=1",
    "1,1 joins=2 tuples=1 groups=2 scalable=1 keyed=1",
    "1,1 joins=1 moves=1 tuples=1 groups=2 keyed=1 spawn slow",
    "1,1 joins=1 leaves=1 tuples=1 batch=2 groups=2 keyed=1",
    "1,2,1 leaves=1 moves=1 tuples=2 keyed=1",
    "1,2,1 joins=1 leaves=1 tuples=1 keyed=1",
    "1,2,1 joins=1 leaves=1 moves=1 keyed=1",
    "1,2 moves=2 groups=3 keyed=1",
    "2,2 leaves=2 moves=1 tuples=1 keyed=1",
    # The same with several upstream operators, as a sink, and two in a row.
    f"1,1,2,1 {TWO_SOURCES} leaves=1 moves=1 tuples=2 keyed=2",
    "1,1,2 joins=1 moves=1 keyed=2",
    "1,2,2 leaves=1 moves=1 tuples=1 keyed=2",
    "1,2,2 moves=2 tuples=2 keyed=1,2",
    "1,1,1 joins=2 tuples=1 keyed=1,2",
    f"1,1,1 {TRIANGLE} joins=1 moves=1 tuples=1 keyed=1,2",
    "1,2,2 leaves=2 moves=1 keyed=1",
    # And with the keeper's role, and the end of the stream.
    "1,2 leaves=1 fresh=1 moves=1 keyed=1",
    "1,2 joins=1 leaves=2 sibling=1 keyed=1",
    "1,3 leaves=2 groups=3 scalable=1 keyed=1",
    "1,2 leaves=1 moves=1 tuples=2 keyed=1 finish",
    "1,1,1 joins=1 leaves=1 tuples=1 keyed=1 finish slow",
    "1,2,1 leaves=1 sibling=1 moves=1 keyed=1 finish",
    "1,2,2 moves=2 tuples=1 keyed=1,2 finish",
    # Processes die, of any instance and at any moment: while it scales,
    "1,1 joins=1 tuples=2 crashes=2 spawn",
    "1,2 joins=1 leaves=2 crashes=2",
    "1,2,1 joins=1 leaves=1 tuples=1 crashes=1 spawn",
    "2,2 leaves=2 tuples=1 crashes=2",
    "1,2,2 leaves=2 tuples=2 crashes=1",
    # hands its role over, to a fresh instance and to a sibling,
    "1,2 leaves=1 fresh=1 tuples=1 crashes=2 spawn",
    "1,2,1 joins=1 leaves=1 sibling=1 crashes=1 spawn",
    # and comes to its end;
    "1,2 joins=1 leaves=1 tuples=1 crashes=1 finish",
    "1,1 joins=1 leaves=1 fresh=1 crashes=2 finish spawn",
    "1,2 leaves=1 sibling=1 tuples=1 crashes=1 finish",
    # owners, new owners, children and routers of key groups, while these move; with results behind
    # them and with key groups behind them.
    "1,1,1 joins=1 tuples=2 crashes=1 keyed=1",
    "1,1 joins=1 tuples=1 crashes=2 groups=2 keyed=1 spawn slow",
    "1,1 joins=1 moves=1 tuples=1 crashes=1 batch=2 groups=2 scalable=1 keyed=1 slow",
    "1,2,1 leaves=1 moves=1 tuples=2 crashes=1 keyed=1",
    "1,2,1 moves=2 tuples=2 crashes=2 keyed=1 slow",
    "1,2,1 joins=1 leaves=1 tuples=1 crashes=1 keyed=1",
    "1,1,2 leaves=1 tuples=2 crashes=2 scalable=2 keyed=1",
    "1,2,2 moves=2 tuples=1 crashes=1 keyed=1,2",
    "1,2,2 moves=1 tuples=2 crashes=2 keyed=1,2",
    "1,2 leaves=1 fresh=1 moves=1 crashes=1 keyed=1",
    "1,2 leaves=1 moves=1 tuples=1 crashes=2 keyed=1 finish slow",
    "1,1,1 joins=1 tuples=1 crashes=1 keyed=1 finish slow",
    # Where two operations meet (`anabranch verify --coverage` shows which scope goes through what):
    # the role goes to a fresh instance and to a sibling at once,
    "1,1 leaves=1 fresh=1 sibling=1 crashes=1",
    "1,1 fresh=1 sibling=1 scalable=0,1 finish spawn",
    "1,1,2 joins=1 fresh=1 sibling=1 tuples=1 scalable=0 spawn",
    "1,2,1 sibling=2 finish",
    "1,2 leaves=2 fresh=1 finish",
    # several children are told of the end,
    "1,1 joins=1 batch=2 finish",
    # an instance leaves while an owner gives groups to its children,
    "1,1,2 joins=1 leaves=1 keyed=1",
    "2,1 joins=1 leaves=1 tuples=1 keyed=1",
    "1,1,2 joins=1 leaves=1 groups=2 keyed=1 spawn slow",
    "2,1 joins=1 leaves=2 crashes=1 keyed=1 slow",
    "1,1,1 joins=1 tuples=1 groups=2 scalable=1 keyed=1 slow",
    # or to a new owner,
    "2,2 leaves=2 groups=2 keyed=1 slow",
    "1,2,2 leaves=2 groups=2 keyed=1 slow",
    "1,2,2 leaves=1 moves=1 groups=2 keyed=1 slow",
    "1,2 joins=1 leaves=1 groups=2 keyed=1 slow",
    # an instance that gives groups away takes others over,
    "1,2 moves=2 tuples=1 groups=2 keyed=1 slow",
    "1,2,1 moves=2 tuples=1 groups=2 keyed=1 slow",
    "1,2,1 leaves=1 moves=1 groups=2 keyed=1 slow",
    "1,3 leaves=1 moves=1 groups=2 keyed=1 spawn slow",
    "1,3 leaves=2 moves=1 groups=3 keyed=1 slow",
    "1,2 leaves=1 moves=1 crashes=1 tuples=1 groups=2 scalable=0,1 keyed=1 slow",
    # or the role, or gives it away,
    "1,2 leaves=1 sibling=1 groups=2 keyed=1 slow",
    "1,2 joins=1 leaves=1 sibling=1 groups=2 scalable=1 keyed=1 spawn slow",
    "1,1 joins=1 sibling=1 groups=2 keyed=1 spawn slow",
    "1,1 joins=1 sibling=1 moves=1 tuples=1 keyed=1 slow",
    "1,1 joins=1 fresh=1 groups=2 keyed=1 slow",
    "2,2 sibling=1 moves=1 groups=2 keyed=1 slow",
    "1,1,2 sibling=1 moves=2 groups=2 keyed=1,2 spawn",
    "1,1,2 leaves=1 sibling=1 moves=1 groups=2 keyed=2 slow",
    "1,1,1 sibling=2 moves=1 crashes=1 tuples=1 groups=2 keyed=1 slow",
    "1,2 fresh=1 moves=1 crashes=1 tuples=1 scalable=0 keyed=1 slow",
    "1,2 fresh=1 moves=1 keyed=1 finish slow",
    "2,1 fresh=1 sibling=1 keyed=1 finish spawn",
    "2,1 fresh=1 moves=2 crashes=1 keyed=1 spawn slow",
    "2,1 joins=1 fresh=1 moves=1 keyed=1 spawn slow",
    "2,1,1 leaves=1 fresh=1 moves=1 crashes=1 keyed=1,2 slow",
    f"1,1,1 {TRIANGLE} leaves=1 fresh=1 crashes=1 tuples=1 scalable=1 keyed=1 spawn slow",
    f"1,1,1 {TRIANGLE} leaves=1 sibling=1 moves=1 crashes=1 tuples=1 groups=2 scalable=1 keyed=2 "
    "spawn slow",
    # a message on its way finds its receiver at the end of a move, or of the stream,
    "1,1,1 joins=1 moves=1 keyed=1,2 slow",
    "1,2,1 moves=2 keyed=1,2 slow",
    "1,1,2 joins=1 moves=1 keyed=1,2 slow",
    "1,1 joins=1 moves=1 crashes=1 keyed=1 finish",
    "2,1,1 leaves=1 moves=2 crashes=1 groups=2 keyed=1 finish",
    # and groups move three times, through two operators in a row.
    "1,2,2 moves=3 tuples=2 keyed=1,2",
    # Instances relocate, keepers too, and are neighbours;
    "1,1 relocations=2 tuples=1",
    "1,2 leaves=1 relocations=1 tuples=1",
    "1,2,1 joins=1 relocations=1",
    "2,2 relocations=2",
    # with the other ways to hand over the role, slow and failing starts, and the end of the stream;
    "1,2 relocations=1 sibling=1 leaves=1 spawn",
    "1,1 relocations=1 fresh=1 sibling=1 spawn",
    "1,2 joins=1 relocations=1 finish spawn",
    "1,1 relocations=2 tuples=1 crashes=1 finish spawn",
    "1,2,1 leaves=1 relocations=1 tuples=1 crashes=1",
    # with key groups, which go along;
    "1,1,1 relocations=1 tuples=2 keyed=1",
    "1,2,1 relocations=1 tuples=2 crashes=1 keyed=1 slow",
    "1,2 relocations=1 moves=1 tuples=1 groups=2 keyed=1 slow",
    "1,1 relocations=2 tuples=1 crashes=1 groups=2 keyed=1 spawn slow",
    "1,2 leaves=1 relocations=1 groups=2 keyed=1 slow",
    "1,2,2 relocations=1 moves=1 keyed=1,2 slow",
    "1,1,2 leaves=1 sibling=1 relocations=1 keyed=1 slow",
    "1,2 relocations=1 moves=1 groups=2 scalable=0,1 keyed=1 spawn",
    "1,1 joins=1 relocations=1 tuples=1 keyed=1 finish slow",
    "1,2 relocations=1 sibling=1 moves=1 scalable=1 keyed=1 spawn slow",
)
"""Seconds in all."""

DEEP = scopes_of(
    # Most of those that the first models searched (`docs/protocol.md` 3).
    "1,1 joins=2 leaves=2 tuples=2 batch=2",
    "1,1,1 joins=3 leaves=3 tuples=1",
    "1,1,1 joins=3 leaves=3",
    "1,2,2 joins=2 leaves=3",
    "1,2,2 joins=1 leaves=3 tuples=2",
    "1,2,3 leaves=3 tuples=3",
    "1,1,1,1 joins=3 leaves=3",
    "1,1,1,1,1 joins=3 leaves=3",
    "1,2,2,1 joins=1 leaves=2 tuples=2",
    "1,2,1 joins=1 leaves=2 fresh=1 sibling=1",
    "2,2,2 joins=1 leaves=3",
    f"1,2,2,1 {DIAMOND} joins=1 leaves=2 tuples=1",
    f"1,1,1 {TRIANGLE} joins=2 leaves=2 tuples=2",
    f"1,2,2 {TRIANGLE} joins=1 leaves=2",
    f"1,1,1,1 {TWO_SOURCES} joins=2 leaves=2 tuples=1",
    f"1,1,1,1 {TWO_SINKS} joins=2 leaves=2 tuples=1",
    # The end of the stream (2.8).
    "1,1,1 joins=2 leaves=2 tuples=1 finish",
    "1,2,2 joins=1 leaves=1 finish",
    "1,2,1 joins=1 sibling=1 tuples=1 finish",
    "1,1,1 joins=1 fresh=1 tuples=1 finish",
    "2,2 joins=1 leaves=1 tuples=1 finish",
    f"1,1,1 {TRIANGLE} joins=1 tuples=1 finish",
    # Slow and failing starts.
    "1,1,1 joins=2 leaves=2 fresh=1 spawn",
    "1,2,1 joins=1 leaves=1 sibling=1 finish spawn",
    # Keyed operators: those of section 5, and what it only reasoned about: several children of
    # one birth, several upstream operators, keyed sinks, two and three in a row.
    "1,2,1 joins=1 leaves=1 tuples=3 groups=2 keyed=1",
    "2,2,1 leaves=1 moves=1 tuples=3 groups=2 keyed=1",
    "1,1,1 joins=2 leaves=1 tuples=2 batch=2 groups=2 scalable=1 keyed=1",
    f"1,1,2,1 {TWO_SOURCES} joins=1 leaves=1 moves=1 tuples=2 keyed=2",
    "1,1,2 joins=1 leaves=1 moves=1 tuples=2 groups=2 keyed=2",
    "1,2,2 joins=1 leaves=1 moves=1 tuples=1 keyed=1,2",
    "1,2,2,1 leaves=1 moves=2 tuples=2 keyed=1,2",
    "1,2,2,2 moves=3 tuples=2 keyed=1,2,3",
    "1,2,1 leaves=2 fresh=1 sibling=1 moves=1 keyed=1",
    "1,2,1 joins=1 leaves=1 moves=1 tuples=1 keyed=1 finish slow",
    # Processes die.
    "1,1,1 joins=2 leaves=2 tuples=1 crashes=3 finish spawn",
    "1,2,1 joins=1 leaves=2 fresh=1 sibling=1 crashes=3 spawn",
    "1,2,1 joins=1 leaves=1 moves=1 tuples=2 crashes=1 keyed=1",
    "2,2,1 leaves=1 moves=1 tuples=2 crashes=2 groups=2 keyed=1",
    "1,1,1 joins=1 leaves=1 tuples=2 crashes=1 batch=2 groups=2 scalable=1 keyed=1 spawn",
    "1,2,2 joins=1 leaves=1 moves=1 tuples=1 crashes=1 keyed=1,2",
    "1,2,2 moves=2 tuples=2 crashes=3 keyed=1,2 slow",
    "1,2,1 leaves=1 moves=1 sibling=1 tuples=2 crashes=2 keyed=1 finish",
    # And relocate.
    "1,2,1 joins=1 leaves=1 relocations=1",
    "1,2,1 relocations=2 tuples=1 crashes=2 keyed=1",
)
"""Minutes in all, on two cores."""

DEEPEST = scopes_of(
    "1,1,1 joins=3 leaves=3 tuples=2",
    "1,1,1 joins=2 leaves=2 tuples=2 batch=2",
    "1,1,1 joins=4 leaves=4",
    "1,2,2 joins=2 leaves=2 tuples=1",
    "2,2,2 joins=1 leaves=3 tuples=1",
    "1,2,1 joins=1 leaves=2 fresh=1 sibling=1 tuples=1",
    "1,1,1 joins=1 leaves=3 fresh=2 sibling=1",
    "2,2,2 joins=1 leaves=3 sibling=1",
    f"1,1,2,1 {DIAMOND} joins=2 leaves=2 tuples=1",
    f"1,1,1 {TRIANGLE} joins=3 leaves=3",
    f"1,2,2 {TRIANGLE} joins=1 leaves=2 tuples=1",
    "1,2,1 joins=2 leaves=2 tuples=2 keyed=1",
    "1,1,1 joins=3 leaves=2 tuples=2 groups=3 scalable=1 keyed=1",
    "2,2,2 joins=1 leaves=2 moves=1 tuples=1 keyed=1",
)
"""The largest of `docs/protocol.md` 3 and 5: many minutes and gigabytes each."""

SETS = {"small": SMALL, "deep": DEEP, "deepest": DEEPEST}

CUTS_SMALL = (
    CutScope(2, 0, 1),
    CutScope(2, 1, 1),
    CutScope(3, 1, 1),
    CutScope(2, 0, 1, deaths=1),
    CutScope(2, 1, 0, deaths=1),
)
CUTS_DEEP = (
    *CUTS_SMALL,
    CutScope(2, 1, 2),
    CutScope(3, 1, 2),
    CutScope(4, 0, 2),
    CutScope(2, 1, 1, deaths=1),
    CutScope(2, 1, 0, deaths=2),
)

COPIES_SMALL = (
    CopyScope(2, 1, give_ups=1),
    CopyScope(2, 1, give_ups=2),
    CopyScope(1, 2, give_ups=1),
    CopyScope(5, 1, rolls=1, give_ups=1),
    CopyScope(2, 1, give_ups=1, power=1),
    CopyScope(2, 1, give_ups=1, home_deaths=1),
    CopyScope(2, 1, deaths=1, power=1),
    CopyScope(1, 2, losses=1),
    CopyScope(2, 1, 1, give_ups=1, losses=1),
    CopyScope(1, 1, 1, give_ups=1, changes=1),
    CopyScope(1, 1, 1, changes=3),
    CopyScope(1, 2, majorities=1),
    CopyScope(1, 2, majorities=1, losses=1),
)
COPIES_DEEP = (
    *COPIES_SMALL,
    CopyScope(2, 2, give_ups=1),
    CopyScope(1, 2, give_ups=2),
    CopyScope(2, 2, deaths=1, power=1),
    CopyScope(2, 1, give_ups=1, deaths=1, power=1),
    CopyScope(2, 1, give_ups=1, cuts=1, home_deaths=1),
    CopyScope(1, 2, 1, give_ups=1, losses=1),
    CopyScope(2, 2, rolls=1, give_ups=1, snapshot=1),
    CopyScope(1, 2, majorities=1, home_deaths=1),
    CopyScope(1, 2, majorities=1, power=1),
    CopyScope(1, 2, majorities=1, changes=1),
    CopyScope(1, 2, majorities=1, deaths=1),
    CopyScope(1, 2, give_ups=1, majorities=1),
)
