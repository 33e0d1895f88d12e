"""State of a key in parts, of which only those that change are recorded in the journal.

A key may have thousands of windows open, and a window thousands of tuples. A record of them is as
large as what has changed:

- a state in parts (`Parted`) records the parts that were touched since its last record;
- a part (`StatePart`) is recorded as a whole, without its logs;
- of a log (`PartLog`), only the items are recorded that were added since.

A record of a part has its present value, and a record of an item has its number in the log. So the
last record is right, whatever earlier records of the same part contain, and if they are missing.
What comes from a pickle counts as recorded: it was read from a journal, or from a chunk that is in
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from typing import Any, NamedTuple, Self


class PieceSpan(NamedTuple):
    """Items of a log, from number `at` on; those before number `begin` are gone. `whole`: there
    are no others, whatever was recorded before."""

    begin: int
    at: int
    items: list[Any]
    whole: bool = False


class PartLog:
    """A list that is added to at its end and dropped from at its beginning. Each item has a number,
    which it keeps. `told`: the number of the first item that was not recorded."""

    __slots__ = ("_first", "_items", "_stop", "begin", "told")

    def __init__(self, items: Iterable[Any] = (), begin: int = 0) -> None:
        self.begin = begin
        self.told = 0
        self._items = [*items]
        self._first, self._stop = 0, len(self._items)

    def __len__(self) -> int:
        return self._stop - self._first

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items[self._first : self._stop])

    def __reduce__(self) -> tuple[Any, ...]:
        return _told_log, ([*self], self.begin)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartLog) and (self.begin, [*self]) == (other.begin, [*other])

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Log({[*self]!r}, {self.begin})"

    @property
    def end(self) -> int:
        """The number of the next item."""
        return self.begin + self._stop - self._first

    def append(self, item: Any) -> None:
        items, stop = self._items, self._stop
        if stop == len(items):
            items.append(item)
            self._stop = stop + 1
        else:
            self.extend((item,))

    def extend(self, items: Iterable[Any]) -> None:
        if self._stop != len(self._items):  # behind it stand items of a copy
            self._items = self._items[: self._stop]
        self._items.extend(items)
        self._stop = len(self._items)

    def copy(self) -> PartLog:
        """One that stays as it is, whatever is added to the other. Both have their items in the
        same list until the second of them is added to."""
        other = PartLog((), self.begin)
        other.told = self.told
        other._items, other._first, other._stop = self._items, self._first, self._stop
        return other

    def drop(self, n: int) -> None:
        """The first `n` items, or as many as there are."""
        self._first = min(self._first + n, self._stop)
        self.begin += n
        if 2 * self._first >= self._stop:
            self._items = self._items[self._first : self._stop]
            self._first, self._stop = 0, len(self._items)

    def last(self, n: int) -> list[Any]:
        return self._items[max(self._first, self._stop - n) : self._stop]

    def span(self, at: int, most: int | None = None) -> PieceSpan:
        """Items from number `at` on, so many at most."""
        at = min(max(at, self.begin), self.end)
        start = self._first + at - self.begin
        stop = self._stop if most is None else min(self._stop, start + most)
        return PieceSpan(self.begin, at, self._items[start:stop])

    def news(self) -> PieceSpan:
        """What was added since this was asked last."""
        begin, stop = self.begin, self._stop
        at = max(self.told, begin)
        self.told = begin + stop - self._first
        return PieceSpan(begin, at, self._items[self._first + at - begin : stop], at == begin)

    def take_in(self, span: PieceSpan) -> None:
        """What was recorded of a log that is to be like this one."""
        begin, at, items, whole = span
        if whole:
            self.begin, self._items, self._first, self._stop = begin, [], 0, 0
        self.drop(begin - self.begin)
        self.extend([None] * (at - self.end))  # what is missing comes later
        start = self._first + at - self.begin
        self._items[start : start + len(items)] = items
        self._stop = len(self._items)
        self.told = self.end


def _told_log(items: list[Any], begin: int) -> PartLog:
    log = PartLog(items, begin)
    log.told = log.end
    return log


class StatePart:
    """A part of a state: a value that is recorded as a whole, without its logs."""

    __slots__ = ()

    def logs(self) -> tuple[Any, ...]:
        """Its logs; of a part that was recorded, their spans."""
        return ()

    def with_logs(self, *logs: Any) -> Self:
        """The same with other logs, or with spans."""
        return self

    def row(self) -> tuple[Any, ...]:
        """What it is made of, in the order of its constructor."""
        raise NotImplementedError

    def note_told(self) -> None:
        """All of it is recorded."""
        for log in self.logs():
            log.news()

    @property
    def size(self) -> int:
        """How many things it consists of, or one."""
        return max(1, sum(map(len, self.logs())))

    def news(self) -> Self:
        """As it is recorded now."""
        logs = self.logs()
        return self.with_logs(*[log.news() for log in logs]) if logs else self

    def received(self, here: Self | None) -> Self:
        """What was recorded, as a part again; `here`: what is here of it, which goes on in it."""
        spans = self.logs()
        if not spans:
            return self
        logs = []
        for span, log in zip_longest(spans, here.logs() if here is not None else ()):
            log = PartLog((), span.begin) if log is None else log
            log.take_in(span)
            logs.append(log)
        return self.with_logs(*logs)

    def piece(self, at: int, most: int) -> Self:
        """Items of each log from number `at` on."""
        logs = self.logs()
        return self.with_logs(*[log.span(at, most) for log in logs]) if logs else self

    @property
    def end(self) -> int:
        """The number behind the last item of its logs."""
        return max((int(log.end) for log in self.logs()), default=0)


class Parted:
    """A state in parts. What `news` and `pieces` give, `take_in` takes in, into a state that was
    made without arguments if there is none."""

    __slots__ = ()

    told = True
    """Whether something of it was recorded, or it can be recorded by `news` from the beginning."""

    def note_told(self) -> None:
        """All of it is recorded, for the first time."""

    def weight(self, most: int) -> int:
        """How many things it consists of; a number above `most` stands for any above it."""
        raise NotImplementedError

    def news(self) -> Any:
        """What has changed since this was asked last."""
        raise NotImplementedError

    def take_in(self, news: Any) -> None:
        raise NotImplementedError

    def pieces(self, most: int) -> Iterator[Any]:
        """All of it, about so many things at a time, as it is when a piece is asked for. Between
        two pieces it may change, and record that."""
        raise NotImplementedError

    @classmethod
    def rows(cls, states: Iterable[Any]) -> list[Any]:
        """All of these states, in a form that is short and fast to pickle."""
        return [*states]

    @classmethod
    def of_rows(cls, rows: list[Any]) -> list[Any]:
        """The states again, all of them recorded."""
        return rows


class Parts(dict[Any, Any], Parted):
    """Parts by name, of one kind. A caller that changes one calls `touch`, if that is to be
    recorded."""

    kind: type[StatePart]

    # Set when they are needed: of many keys there is one part, which comes and goes untold.
    told = False
    _touched: set[Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_row, (type(self), *type(self).rows((self,)))

    def touch(self, name: Any) -> None:
        """A part was changed, came or went."""
        if not self.told:
            return  # all of it is written the first time
        if self._touched is None:
            self._touched = {name}
        else:
            self._touched.add(name)

    def note_told(self) -> None:
        self.told = True
        for part in self.values():
            part.note_told()

    def weight(self, most: int) -> int:
        if len(self) > most:
            return len(self)
        return sum([part.size for part in self.values()])

    def news(self) -> Any:
        touched, self._touched = self._touched or (), None
        there = [(name, self[name].news()) for name in touched if name in self]
        return there, [name for name in touched if name not in self]

    def take_in(self, news: Any) -> None:
        there, gone = news
        self.told = True
        for name, part in there:
            self[name] = part.received(self.get(name))
        for name in gone:
            self.pop(name, None)

    def pieces(self, most: int) -> Iterator[Any]:
        some: list[Any] = []
        room = most
        for name in [*self]:
            at = 0
            while (part := self.get(name)) is not None:
                some.append((name, part.piece(at, room)))
                at += room
                room -= min(room, part.size)
                if not room:
                    yield some, []
                    some, room = [], most
                if at >= part.end:
                    break
        yield some, []

    @classmethod
    def rows(cls, states: Iterable[Any]) -> list[Any]:
        return [[(name, *part.row()) for name, part in state.items()] for state in states]

    @classmethod
    def of_rows(cls, rows: list[Any]) -> list[Any]:
        return [_of_row(cls, row) for row in rows]


def _of_row(made: type[Parts], row: list[Any]) -> Parts:
    kind = made.kind
    state = made([(name, kind(*values)) for name, *values in row])
    state.told = True
    return state


def in_pieces(rows: Iterable[Any], most: int) -> Iterator[list[Any]]:
    """Lists of so many, the last one of fewer."""
    each = iter(rows)
    while some := [*islice(each, most)]:
        yield some
