"""What may happen to hosts and processes in the explorer of copies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from anabranch.protocol.copies import Parts
from anabranch.runtime.explorer.copies_state import (
    Change,
    CopiesDraft,
    CopiesState,
    CopyMove,
    CopyRules,
)


class CopyAccidents:
    """`rules`: what a loss of power leaves depends on them."""

    def __init__(self, rules: CopyRules) -> None:
        self.rules = rules

    def moves(self, state: CopiesState) -> Iterator[tuple[CopyMove, Change]]:
        left = state.left
        current = [w for w in state.writers if w.incarnation == state.home.incarnation]
        if left.deaths and current and not state.home.given_up:
            (writer,) = current
            i = writer.incarnation
            change = partial(self._die, incarnation=i, parts=writer.parts, lossy=False)
            yield CopyMove(f"incarnation {i} dies", True), change
            for parts in _cuts(writer.parts) if left.power else ():
                what = f"the host of incarnation {i} loses its power, {parts} is left"
                change = partial(self._die, incarnation=i, parts=parts, lossy=True)
                yield CopyMove(what, True), change
        for host, holder in state.holders:
            if left.losses:
                yield CopyMove(f"{host} is lost", True), partial(self._lose, host=host)
            for parts in _cuts(holder.parts) if left.power else ():
                what = f"{host} loses its power, {parts} is left"
                yield CopyMove(what, True), partial(self._lose_power, host=host, parts=parts)
        if left.home_deaths:
            yield CopyMove("home dies, and is resumed", True), self._home_dies

    def _die(self, draft: CopiesDraft, incarnation: int, parts: Parts, lossy: bool) -> None:
        draft.spend("deaths")
        if lossy:
            draft.spend("power")
        del draft.writers[incarnation]
        draft.local = parts, lossy
        _silence(draft, incarnation)

    def _lose(self, draft: CopiesDraft, host: str) -> None:
        draft.spend("losses")
        del draft.holders[host]
        draft.fenced -= {host}
        for key in [key for key in draft.lines if key[1] == host]:
            del draft.lines[key]

    def _lose_power(self, draft: CopiesDraft, host: str, parts: Parts) -> None:
        draft.spend("power")
        holder = draft.holders[host].damaged(parts)
        if not self.rules.durable_fences:
            holder = self.rules.holder(0, holder.parts, holder.owed)
        draft.holders[host] = holder
        draft.fenced -= {host}
        for key in [key for key in draft.lines if key[1] == host]:
            del draft.lines[key]

    def _home_dies(self, draft: CopiesDraft) -> None:
        """What it has recorded stays. Whether it has begun what it has recorded it does not know,
        so it begins another one."""
        draft.spend("home_deaths")
        draft.fenced = draft.agree = draft.wrong = frozenset()
        draft.orders, draft.news = [], []
        if draft.begun and not draft.home.given_up and draft.local is None:
            draft.home = draft.home.again()
            draft.order()
        elif not draft.begun and draft.local is None:
            draft.begun, draft.home = True, draft.home.giving_up()
        elif not draft.begun:
            draft.home = draft.home.begins_next()


def _silence(draft: CopiesDraft, incarnation: int) -> None:
    """A process has ended. What it has sent is still under way."""
    for (i, host), line in list(draft.lines.items()):
        if i == incarnation and not line.there:
            del draft.lines[i, host]
        elif i == incarnation:
            draft.lines[i, host] = line._replace(back=())


def _cuts(parts: Parts) -> Iterator[Parts]:
    """What may be left of a journal: all, or less."""
    yield parts
    while parts:
        last = parts[-1]
        parts = (*parts[:-1], last._replace(size=last.size - 1)) if last.size > 1 else parts[:-1]
        yield parts
