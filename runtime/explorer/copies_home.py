"""What home may do in the explorer of copies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from anabranch.protocol.copies import Parts, contains
from anabranch.runtime.explorer.copies_state import (
    Change,
    CopiesDraft,
    CopiesState,
    CopyMove,
    CopyRules,
)
from anabranch.runtime.explorer.cuts import Broken


class HomeMoves:
    """What home may do in a state."""

    def __init__(self, rules: CopyRules, holders_wanted: int, state: CopiesState) -> None:
        self.rules, self.holders_wanted = rules, holders_wanted
        self.state, self.home = state, state.home
        self.holders = dict(state.holders)

    def moves(self) -> Iterator[tuple[CopyMove, Change]]:
        state, home = self.state, self.home
        if home.given_up and not state.begun:
            yield CopyMove(f"home records incarnation {home.incarnation + 1}"), _record_late
        elif home.given_up:
            yield from self._fencing()
            if home.by_majority and state.left.give_ups:
                what = f"a user gives up the host of incarnation {home.incarnation}, too"
                yield CopyMove(what, True), _give_up
        elif not state.begun:
            yield from self._beginning()
        elif state.local is not None:
            yield CopyMove(f"home records incarnation {home.incarnation + 1}"), _record_next
        if state.begun and not home.given_up:
            if state.left.give_ups:
                what = f"home gives up the host of incarnation {home.incarnation}"
                yield CopyMove(what, True), _give_up
            if state.left.majorities:
                yield from self._asking()
            yield from self._choosing()

    def _fencing(self) -> Iterator[tuple[CopyMove, Change]]:
        following = self.home.incarnation + 1
        candidates = self.home.to_fence if self.rules.reads_complete else self.home.holders
        for host in sorted(candidates & self.holders.keys()):
            holder = self.holders[host]
            fences = self.rules.fences and holder.fenced < following
            if fences or (holder.readable and host not in self.state.fenced):
                yield CopyMove(f"{host} is fenced by {following}"), partial(self._fence, host=host)
        if self._sources():
            if self.rules.records_first:
                yield CopyMove(f"home records incarnation {following}"), _record_next
            else:
                yield from self._beginning(following)

    def _fence(self, draft: CopiesDraft, host: str) -> None:
        holder = draft.holders[host]
        if self.rules.fences:
            holder = draft.holders[host] = holder.fence(draft.home.incarnation + 1)
        if holder.readable:
            draft.fenced |= {host}

    def _sources(self) -> frozenset[str]:
        fenced = self.state.fenced & self.holders.keys()
        following = self.home.incarnation + self.home.given_up
        refuse = [host for host, holder in self.holders.items() if holder.fenced >= following]
        return self.home.sources(fenced, refuse) if self.rules.reads_complete else fenced

    def _asking(self) -> Iterator[tuple[CopyMove, Change]]:
        """Whether holders hear the writer."""
        i, state = self.home.incarnation, self.state
        for host in sorted(self.home.perhaps_waited & self.holders.keys() - state.agree):
            what = f"{host} has not heard incarnation {i} for long, and says so"
            yield CopyMove(what, True), partial(_agree, host=host)
            if not self.rules.listens:
                what = f"{host} hears incarnation {i}, and says that it does not"
                yield CopyMove(what, True), partial(_agree, host=host, hears=True)
        if self.home.is_majority(state.agree):
            what = f"the host of incarnation {i} is given up by majority"
            yield CopyMove(what, True), _give_up_by_majority

    def _beginning(self, number: int = 0) -> Iterator[tuple[CopyMove, Change]]:
        i = number or self.home.incarnation
        if self.state.local is not None:
            yield from self._beginning_again(*self.state.local)
            return
        for host in sorted(self._sources()):
            parts = self.holders[host].parts
            change = partial(self._begin, parts=parts, number=number)
            yield CopyMove(f"incarnation {i} begins, read from {host}"), change
        if not self._sources() and not number:
            yield CopyMove(f"home gives up incarnation {i}, which did not begin"), _give_up_again

    def _beginning_again(self, local: Parts, lossy: bool) -> Iterator[tuple[CopyMove, Change]]:
        i = self.home.incarnation
        if not (lossy and self.rules.asks_holders):
            change = partial(self._begin, parts=local)
            yield CopyMove(f"incarnation {i} begins where the last one was"), change
            return
        for host in sorted(self.home.complete & self.holders.keys()):
            holder = self.holders[host]
            if holder.readable and holder.fenced <= i:
                parts = local if contains(local, holder.parts) else holder.parts
                change = partial(self._begin, parts=parts, asked=host)
                yield (
                    CopyMove(
                        f"incarnation {i} begins where the last one was; {host} says",
                    ),
                    change,
                )

    def _begin(self, draft: CopiesDraft, parts: Parts, number: int = 0, asked: str = "") -> None:
        i = number or draft.home.incarnation
        if i in draft.writers:
            raise Broken(f"Q1: there are two processes of incarnation {i}")
        if wrong := draft.has(parts, draft.counted):
            raise Broken(f"Q2: incarnation {i}: {wrong}")
        if self.home.by_majority and not asked and draft.local is None:
            _check_refusals(draft, i)
        if asked:
            draft.holders[asked] = draft.holders[asked].fence(i)
        home = draft.home.begins_next() if number else draft.home
        draft.writers[i] = self.rules.writer.begun(
            i, parts, home.order, home.holders, home.complete
        )
        draft.read[i] = parts
        draft.wrong = frozenset() if self.rules.asks_anew else draft.agree
        draft.agree = draft.wrong
        if number:  # it is begun, and not recorded yet
            draft.begun = False
            return
        draft.begun, draft.fenced, draft.local = True, frozenset(), None

    def _choosing(self) -> Iterator[tuple[CopyMove, Change]]:
        """Which hosts are holders."""
        home = self.home
        for host in sorted(home.holders):
            gone = host not in self.holders
            if (gone or self.state.left.changes) and home.complete - {host}:
                change = partial(self._remove, host=host, gone=gone)
                yield CopyMove(f"home takes {host} away", not gone), change
        others = [host for host in sorted(self.holders) if host not in home.holders]
        lacks = len(home.holders & self.holders.keys()) < self.holders_wanted
        if others and (lacks or self.state.left.changes):
            change = partial(self._add, host=others[0], lacks=lacks)
            yield CopyMove(f"home adds {others[0]}", not lacks), change

    def _remove(self, draft: CopiesDraft, host: str, gone: bool) -> None:
        if not gone:
            draft.spend("changes")
        draft.home = draft.home.without_holder(host)
        draft.order()

    def _add(self, draft: CopiesDraft, host: str, lacks: bool) -> None:
        if not lacks:
            draft.spend("changes")
        draft.home = draft.home.with_holder(host)
        draft.order()


def _record_next(draft: CopiesDraft) -> None:
    draft.home, draft.begun = draft.home.begins_next(), False


def _record_late(draft: CopiesDraft) -> None:
    """It has begun already."""
    draft.home, draft.begun, draft.fenced = draft.home.begins_next(), True, frozenset()


def _give_up(draft: CopiesDraft) -> None:
    draft.spend("give_ups")
    draft.home = draft.home.giving_up(by_majority=False)
    draft.local, draft.fenced = None, frozenset()


def _agree(draft: CopiesDraft, host: str, hears: bool = False) -> None:
    draft.agree |= {host}
    draft.wrong |= {host} if hears else frozenset()


def _give_up_by_majority(draft: CopiesDraft) -> None:
    draft.spend("majorities")
    home = draft.home
    writer = draft.writers.get(home.incarnation)
    silent = draft.agree - draft.wrong
    if writer is not None and 2 * len(writer.waited & silent) <= len(writer.waited):
        told = f"incarnation {home.incarnation} is given up, which half of its holders still hear"
        raise Broken(f"Q5: {told}")
    draft.home = home.giving_up(by_majority=True)
    draft.local, draft.fenced = None, frozenset()


def _check_refusals(draft: CopiesDraft, following: int) -> None:
    """Of the incarnation before."""
    before = max((i for i in draft.writers if i < following), default=0)
    if not before:
        return
    waited = draft.writers[before].waited
    refuse = [host for host in waited & draft.holders.keys() if draft.holders[host].fenced > before]
    if 2 * len(refuse) <= len(waited):
        told = f"incarnation {following} begins, and half of the holders still take {before}"
        raise Broken(f"Q5: {told}")


def _give_up_again(draft: CopiesDraft) -> None:
    draft.home, draft.begun, draft.fenced = draft.home.giving_up(), True, frozenset()
