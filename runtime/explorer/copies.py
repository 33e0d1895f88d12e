"""Copies of one journal on other hosts: every interleaving of the shipped `CopyHolder`,
`CopyWriter` and `CopySet` (`docs/protocol.md` 9).

An instance writes `records`, in a part for each incarnation and `rolls` more; the snapshot that a
part begins with is whole after `snapshot`. `holders` have copies, `spares` may get one. Home gives
up the instance's host `give_ups` times by an operator's command, and `majorities` times because a
majority of the holders do not hear the incarnation: it lives on, in a partition, and all that it
sends comes at any time. Its process dies `deaths` times and goes on at its own host. `losses`
holders are gone for good; `power` hosts lose any part of what they have written last; `cuts`
connections break; `changes` holders are added or taken away; home dies `home_deaths` times.

Properties. Q1 what counts of an incarnation is known to all later ones that have been read. Q2 each
complete copy that can be read, and each journal that an incarnation is read from, is whole and has
all that has counted. Q3 the writer waits for all complete copies. Q4 in the end all that is written
counts, and copies are complete, if there are hosts for it. Q5 when an incarnation is given up by
majority, more than half of the holders that it waits for do not hear it, and when the next one
begins, more than half of them refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from anabranch.protocol.copies import CopyError, CopyWriter, FencedError, Part, Position
from anabranch.runtime.explorer.copies_accidents import CopyAccidents
from anabranch.runtime.explorer.copies_home import HomeMoves
from anabranch.runtime.explorer.copies_state import (
    SHIPPED,
    UNDER_WAY,
    Change,
    CopiesDraft,
    CopiesState,
    CopyLine,
    CopyMove,
    CopyRules,
    CopyScope,
    Counted,
)
from anabranch.runtime.explorer.cuts import Broken
from anabranch.runtime.explorer.search import STATES_MAX, Verdict, search


class CopiesModel:
    """The model: states and what can follow."""

    def __init__(self, scope: CopyScope, rules: CopyRules = SHIPPED) -> None:
        self.scope = scope
        self.rules = rules
        names = [f"h{n}" for n in range(1, scope.holders + scope.spares + 1)]
        self.first, self.hosts = names[: scope.holders], names

    def initial(self) -> CopiesState:
        home = self.rules.home.begun(self.first)
        writer = self.rules.writer.begun(1, (), home.order, self.first, self.first)
        holders = tuple((name, self.rules.holder()) for name in self.hosts)
        no_host, read = frozenset[str](), ((1, ()),)
        without = (), (), (), None  # lines, orders, news, a dead process
        return CopiesState(
            home, True, no_host, (writer,), holders, *without, read, Counted(), (), self.scope
        )

    def successors(self, state: CopiesState) -> Iterator[tuple[CopyMove, CopiesState | None]]:
        for move, change in self._moves(state):
            draft = CopiesDraft(state)
            try:
                change(draft)
                self._check(draft)
            except Broken as broken:
                yield move._replace(fault=str(broken)), None
            else:
                yield move, draft.state()

    def judged(self, state: CopiesState, move: CopyMove, after: CopiesState | None) -> str:
        return move.fault

    def _check(self, draft: CopiesDraft) -> None:
        writer = draft.writers.get(draft.home.incarnation)
        if writer is not None and not draft.home.complete <= writer.waited:
            early = min(draft.home.complete - writer.waited)
            raise Broken(f"Q3: the writer does not wait for {early}, whose copy is complete")
        for host in sorted(draft.home.complete & draft.holders.keys()):
            holder = draft.holders[host]
            if holder.readable and (wrong := draft.has(holder.parts, draft.counted)):
                raise Broken(f"Q2: {host}: {wrong}")

    def unsettled(self, state: CopiesState) -> str:
        """What is wrong with a state in which nothing more happens."""
        holders, home = dict(state.holders), state.home
        running = [w for w in state.writers if w.incarnation == home.incarnation]
        if home.given_up or not state.begun or not running:
            if state.local is not None and not state.local[1]:
                return "Q4: the instance could go on on its host"
            readable = [h for h in home.complete if h in holders and holders[h].readable]
            if home.given_up or state.local is None:
                readable = [*home.sources(readable, holders)]
            return f"Q4: the instance could go on from {min(readable)}" if readable else ""
        if not holders:
            return ""
        (writer,) = running
        if writer.counted != writer.end:
            return f"Q4: incarnation {writer.incarnation} waits for ever"
        least = min(self.scope.holders, len(holders))
        if home.complete != home.holders or len(home.complete & holders.keys()) < least:
            return "Q4: copies are not made again"
        return ""

    def _moves(self, state: CopiesState) -> Iterator[tuple[CopyMove, Change]]:
        for writer in state.writers:
            yield from self._of_writer(state, writer)
        for (incarnation, host), line in state.lines:
            if line.there:
                what = f"{host} takes {line.there[0]} of incarnation {incarnation}"
                yield CopyMove(what), partial(self._take, incarnation=incarnation, host=host)
            if line.back:
                what = f"incarnation {incarnation} hears that {host} has {line.back[0]}"
                yield CopyMove(what), partial(self._hear, incarnation=incarnation, host=host)
            if state.left.cuts:
                what = f"incarnation {incarnation} loses its connection to {host}"
                yield CopyMove(what, True), partial(self._cut, incarnation=incarnation, host=host)
        if state.orders:
            yield CopyMove(f"the order {state.orders[0]} comes"), self._obey
        if state.news:
            yield CopyMove(f"home hears {state.news[0]}"), self._note
        yield from HomeMoves(self.rules, self.scope.holders, state).moves()
        yield from CopyAccidents(self.rules).moves(state)

    # -- the writer --------------------------------------------------------------------------------

    def _of_writer(
        self, state: CopiesState, writer: CopyWriter
    ) -> Iterator[tuple[CopyMove, Change]]:
        i = writer.incarnation
        mine = bool(writer.parts) and writer.parts[-1].author == i
        if state.left.records and _uncounted(writer) < UNDER_WAY:
            if mine:
                yield CopyMove(f"{i} writes"), partial(self._write, incarnation=i)
            if not mine or (state.left.rolls and writer.parts[-1].size >= self.scope.snapshot):
                yield CopyMove(f"{i} begins a part"), partial(self._write, incarnation=i, new=True)
        lines, holders = dict(state.lines), dict(state.holders)
        for host in sorted(writer.holders & holders.keys()):
            line = lines.get((i, host))
            if line is None:
                fenced = holders[host].fenced > i
                what = f"{i} connects to {host}"
                yield CopyMove(what, fenced), partial(self._connect, incarnation=i, host=host)
            elif len(line.there) < UNDER_WAY and (following := _following(writer, line.sent)):
                what = f"{i} sends {following[0]} to {host}"
                yield CopyMove(what), partial(self._send, incarnation=i, host=host)

    def _write(self, draft: CopiesDraft, incarnation: int, new: bool = False) -> None:
        draft.spend("records")
        writer = draft.writers[incarnation]
        number, size = writer.end
        if new:
            if writer.parts and writer.parts[-1].author == incarnation:
                draft.spend("rolls")
            number, size = number + 1, 0
            draft.born[number, incarnation] = writer.parts
        writer = writer.wrote(number, size + 1)
        self._look(draft, incarnation, writer)
        draft.writers[incarnation] = writer.drew() if size + 1 == self.scope.snapshot else writer

    def _connect(self, draft: CopiesDraft, incarnation: int, host: str) -> None:
        parts = draft.writers[incarnation].parts
        draft.lines[incarnation, host] = CopyLine(None, (("open", parts),))

    def _send(self, draft: CopiesDraft, incarnation: int, host: str) -> None:
        line = draft.lines[incarnation, host]
        following = _following(draft.writers[incarnation], line.sent)
        assert following is not None
        part, at = following
        draft.lines[incarnation, host] = line._replace(
            sent=Position(part.number, part.size), there=(*line.there, ("add", part, at))
        )

    def _hear(self, draft: CopiesDraft, incarnation: int, host: str) -> None:
        line = draft.lines[incarnation, host]
        position, *rest = line.back
        sent = position if line.sent is None else line.sent
        draft.lines[incarnation, host] = line._replace(sent=sent, back=tuple(rest))
        before = draft.writers[incarnation]
        self._change(draft, before, before.acknowledged(host, position))

    def _obey(self, draft: CopiesDraft) -> None:
        incarnation, order, holders = draft.orders.pop(0)
        if (before := draft.writers.get(incarnation)) is not None:
            self._change(draft, before, before.ordered(order, holders), told=True)
            after = draft.writers[incarnation]
            for i, host in [key for key in draft.lines if key[0] == incarnation]:
                if host not in after.holders:
                    del draft.lines[i, host]

    def _change(
        self, draft: CopiesDraft, before: CopyWriter, after: CopyWriter, *, told: bool = False
    ) -> None:
        """What follows for others from what the writer has now."""
        self._look(draft, before.incarnation, after)
        for host in sorted(after.complete if told else after.complete - before.complete):
            draft.news.append((after.incarnation, after.order, host))
        if (before_part := after.droppable) and after.dropped() != after:
            after = after.dropped()
            for (i, host), line in list(draft.lines.items()):
                if i == after.incarnation:
                    there = (*line.there, ("drop", before_part))
                    draft.lines[i, host] = line._replace(there=there)
        draft.writers[after.incarnation] = after

    def _look(self, draft: CopiesDraft, incarnation: int, after: CopyWriter) -> None:
        """What counts now."""
        before, counted = draft.writers[incarnation], after.counted
        if counted == before.counted:
            return
        (author,) = (part.author for part in after.parts if part.number == counted.number)
        place = Counted(counted.number, author, counted.size)
        for later, parts in draft.read.items():
            if later > incarnation and (wrong := draft.has(parts, place)):
                raise Broken(f"Q1: incarnation {incarnation} acts beside {later}: {wrong}")
        if place[::2] > draft.counted[::2]:
            draft.counted = place

    # -- holders -----------------------------------------------------------------------------------

    def _take(self, draft: CopiesDraft, incarnation: int, host: str) -> None:
        line = draft.lines[incarnation, host]
        frame, *rest = line.there
        holder = draft.holders.get(host)
        try:
            if holder is None:
                raise CopyError("gone")
            match frame:
                case ("open", parts):
                    holder = holder.opened(incarnation, parts)
                case ("add", part, at):
                    holder = holder.appended(incarnation, part, at)
                case ("drop", before):
                    holder = holder.dropped(incarnation, before)
        except FencedError:
            del draft.lines[incarnation, host]
        except CopyError as error:
            if holder is not None:
                raise Broken(f"Q2: {host} cannot take what comes: {error.what}") from None
            del draft.lines[incarnation, host]
        else:
            assert holder is not None
            draft.holders[host] = holder
            back = line.back if frame[0] == "drop" else (*line.back, holder.position)
            if incarnation not in draft.writers:
                back = ()
            draft.lines[incarnation, host] = line._replace(there=tuple(rest), back=back)
            if not rest and incarnation not in draft.writers:
                del draft.lines[incarnation, host]

    def _cut(self, draft: CopiesDraft, incarnation: int, host: str) -> None:
        draft.spend("cuts")
        del draft.lines[incarnation, host]

    # -- home receives ----------------------------------------------------------------------

    def _note(self, draft: CopiesDraft) -> None:
        draft.home = draft.home.completed(*draft.news.pop(0))


def explore_copies(
    scope: CopyScope,
    rules: CopyRules = SHIPPED,
    *,
    states_max: int = STATES_MAX,
    progress: Callable[[Verdict], None] | None = None,
) -> Verdict:
    """Search all interleavings of the copies of one journal."""
    verdict = Verdict(scope, "copies of journals")
    return search(CopiesModel(scope, rules), verdict, states_max=states_max, progress=progress)


def _uncounted(writer: CopyWriter) -> int:
    """How many records do not count yet."""
    number, size = writer.counted
    newer = sum(part.size for part in writer.parts if part.number > number)
    return newer + sum(part.size - size for part in writer.parts if part.number == number)


def _following(writer: CopyWriter, sent: Position | None) -> tuple[Part, int] | None:
    """What comes behind that in the journal: a part, and from where on."""
    for part in () if sent is None else writer.parts:
        assert sent is not None
        if part.number == sent.number and part.size > sent.size:
            return part, sent.size
        if part.number > sent.number:
            return part, 0
    return None
