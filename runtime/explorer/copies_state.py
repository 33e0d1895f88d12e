"""States of the explorer of copies: what it searches, by which rules, and a state in change."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from anabranch.protocol.copies import CopyHolder, CopySet, CopyWriter, Parts, Position

SNAPSHOT = 2
UNDER_WAY = 2
"""Messages on their way to a holder, and records that do not count yet, at most."""


@dataclass(frozen=True, slots=True)
class CopyScope:
    records: int = 2
    holders: int = 1
    spares: int = 0
    rolls: int = 0
    give_ups: int = 0
    deaths: int = 0
    losses: int = 0
    power: int = 0
    cuts: int = 0
    changes: int = 0
    home_deaths: int = 0
    majorities: int = 0
    snapshot: int = SNAPSHOT

    def __str__(self) -> str:
        counts = {name: getattr(self, name) for name in self.__slots__}
        if self.snapshot == SNAPSHOT:
            del counts["snapshot"]
        told = " ".join(f"{name}={count}" for name, count in counts.items() if count)
        return f"copies: {told}"


@dataclass(frozen=True, slots=True)
class CopyRules:
    """What keeps copies safe; each can be replaced, or left out, to see what it is good for."""

    holder: type[CopyHolder] = CopyHolder
    writer: type[CopyWriter] = CopyWriter
    home: type[CopySet] = CopySet
    fences: bool = True
    """Before an incarnation is read from a copy, its holder is fenced."""
    durable_fences: bool = True
    """A fence outlives a loss of power."""
    reads_complete: bool = True
    """Only complete copies are read."""
    asks_holders: bool = True
    """Behind a loss of power an incarnation compares its journal with a complete copy."""
    records_first: bool = True
    """Home records an incarnation before it begins one."""
    listens: bool = True
    """A holder that hears the writer does not agree to give it up."""
    asks_anew: bool = True
    """What holders have said of one incarnation does not count for the next one."""


SHIPPED = CopyRules()


class CopyLine(NamedTuple):
    """A connection. `sent`: how far the writer has sent; None until the holder has stated what it
    has."""

    sent: Position | None
    there: tuple[Any, ...]
    back: tuple[Position, ...] = ()


class Counted(NamedTuple):
    """The end of what has counted: a place in a part of this author."""

    number: int = 0
    author: int = 0
    size: int = 0


class CopiesState(NamedTuple):
    """`begun`: whether home has begun the incarnation that it has recorded. `fenced`: the holders
    of which it has recorded that they are. `writers`: processes, also of lost incarnations.
    `local`: the journal of a process that is dead, on its host, and whether that has lost its
    power. `read`: from what each incarnation has begun. `born`: of each part, what the journal was
    when it began. `left`: the budgets. `agree`: the holders that have said that they have not heard
    the incarnation for long; `wrong`: those of them that hear it all the same."""

    home: CopySet
    begun: bool
    fenced: frozenset[str]
    writers: tuple[CopyWriter, ...]
    holders: tuple[tuple[str, CopyHolder], ...]
    lines: tuple[tuple[tuple[int, str], CopyLine], ...]
    orders: tuple[tuple[int, int, frozenset[str]], ...]
    news: tuple[tuple[int, int, str], ...]
    local: tuple[Parts, bool] | None
    read: tuple[tuple[int, Parts], ...]
    counted: Counted
    born: tuple[tuple[tuple[int, int], Parts], ...]
    left: CopyScope
    agree: frozenset[str] = frozenset()
    wrong: frozenset[str] = frozenset()


class CopyMove(NamedTuple):
    """`optional`: it need not happen. `fault`: what is wrong with it, instead of a state after."""

    what: str
    optional: bool = False
    fault: str = ""


class CopiesDraft:
    """A state while a move changes it."""

    def __init__(self, state: CopiesState) -> None:
        self.home, self.begun, self.fenced = state.home, state.begun, state.fenced
        self.writers = {writer.incarnation: writer for writer in state.writers}
        self.holders, self.lines, self.born = (
            dict(state.holders),
            dict(state.lines),
            dict(state.born),
        )
        self.orders, self.news = list(state.orders), list(state.news)
        self.local, self.read, self.counted = state.local, dict(state.read), state.counted
        self.left = state.left
        self.agree, self.wrong = state.agree, state.wrong

    def state(self) -> CopiesState:
        return CopiesState(
            self.home,
            self.begun,
            self.fenced,
            tuple(writer for _, writer in sorted(self.writers.items())),
            tuple(sorted(self.holders.items())),
            tuple(sorted(self.lines.items())),
            tuple(self.orders),
            tuple(self.news),
            self.local,
            tuple(sorted(self.read.items())),
            self.counted,
            tuple(sorted(self.born.items())),
            self.left,
            self.agree,
            self.wrong,
        )

    def spend(self, name: str) -> None:
        counts = {each: getattr(self.left, each) for each in CopyScope.__slots__}
        counts[name] -= 1
        self.left = CopyScope(**counts)

    def order(self) -> None:
        """Send the writer which holders there are."""
        home = self.home
        if home.incarnation in self.writers and not home.given_up:
            self.orders.append((home.incarnation, home.order, home.holders))

    def has(self, parts: Parts, wanted: Counted) -> str:
        """What is wrong with these parts as a journal that has the `wanted`; empty if nothing."""
        if not wanted.number:
            return ""
        for before, part in itertools.pairwise(parts):
            if self.born[part.number, part.author][-1] != before:
                return f"part {part.number} does not follow {before.size} records of the one before"
        while parts:
            first = parts[0]
            if any(p[:2] == wanted[:2] and p.size >= wanted.size for p in parts):
                break
            parts = (
                self.born[first.number, first.author] if first.size >= self.left.snapshot else ()
            )
        if not parts:
            return f"record {wanted.size} of part {wanted.number} has counted, and is not there"
        return ""


Change = Callable[[CopiesDraft], None]
