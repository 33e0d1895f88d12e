"""The changes of an instance's key groups as bytes, and holdings made of such bytes again.

A change is a chunk that has come from another instance, as it is, or a pickle of words: a word is
the name of a method of `Holdings` and its arguments, or one of those below, which state how
something is now. Changes applied in their order to empty holdings give the same holdings.

`snapshot` states all there is, piece by piece, while work goes on. The state of a key that changes
is recorded as a whole, or in the parts that have changed (`anabranch.runtime.keyed.parts`), and
timers one by one. Each record has the present value, so the last record of a key, a part or a timer
is right, in a piece or in a change; a large key is in several pieces. Everything else of a group is
stated at one moment. Records before that moment do not matter, so they may name what is not there.
A snapshot that was not finished adds nothing to the records before it.
"""

from __future__ import annotations

import pickle
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from anabranch.runtime.keyed.handler import NOTHING
from anabranch.runtime.keyed.holdings import Holdings
from anabranch.runtime.keyed.moving import Arrival, Kept, is_chunk
from anabranch.runtime.keyed.parts import Parted, in_pieces
from anabranch.runtime.keyed.pickling import pickled
from anabranch.runtime.keyed.state_changes import NoStateChanges, StateChanges, Word
from anabranch.runtime.keyed.timers import Rows
from anabranch.runtime.processing.steps import StepError
from anabranch.runtime.reporting.failure import StateSpoilt
from anabranch.runtime.values.foreign import describe, is_a, shown

KEYS_AT_ONCE = 512

# -- writing -------------------------------------------------------------------------------------


def changes(held: Holdings, noted: StateChanges) -> Iterator[bytes]:
    """What has changed since this was asked last, if anything has. In pieces of so many keys, parts
    or timers: to pickle many small objects at once takes several times the memory of what comes of
    it."""
    words, noted.words = noted.words, []
    touched, noted.touched = noted.touched, set()
    store = held.store
    for word, full in _news(held, touched):
        words.append(word)
        if full:
            yield _pickled(held, words)
            words = []
    for name, timers in ("event", store.timers), ("processing", store.processing):
        for columns in timers.changes(KEYS_AT_ONCE):
            words.append((name, *columns))
            if len(columns[0]) == KEYS_AT_ONCE:
                yield _pickled(held, words)
                words = []
    if noted.forgotten:
        # A set less a view would look at every key that is held.
        gone = [key for key in noted.forgotten if key not in store.states]
        words.append(("forgotten", gone))
        noted.forgotten = set()
    sums = _sums(held)
    words += [word for word in sums if word not in noted.told]
    noted.told = sums
    if words:
        yield _pickled(held, words)


def _news(held: Holdings, touched: Iterable[Any]) -> Iterator[tuple[Word, bool]]:
    """The states of these keys, as far as they are here and have changed, and whether a word is as
    long as it may be."""
    states = held.store.states
    for keys in in_pieces(touched, KEYS_AT_ONCE):
        try:
            here, now = keys, [*map(states.__getitem__, keys)]
        except KeyError:  # some have gone
            here = [key for key in keys if key in states]
            now = [*map(states.__getitem__, here)]
        if now and is_a(now[0], Parted):
            yield from _news_in_parts(here, now)
        elif now:
            yield _whole(here, now), len(here) == KEYS_AT_ONCE


def _news_in_parts(keys: list[Any], states: list[Parted]) -> Iterator[tuple[Word, bool]]:
    kind = type(states[0])
    new: list[Any] = []
    whole: list[Any] = []
    changed: list[Any] = []
    news: list[Any] = []
    for key, state in zip(keys, states, strict=True):
        if state.told:
            changed.append(key)
            news.append(state.news())
        else:
            new.append(key)
            whole.append(state)
            state.note_told()
    if new:
        yield ("rows", kind, new, kind.rows(whole), None, None), False
    if changed:
        yield ("parts", kind, changed, news), False


def _sums(held: Holdings) -> list[Word]:
    return [
        ("counted", held.opened_in, held.pended_out, *held.late.items()),
        ("time", held.watermark),
    ]


def _whole(keys: list[Any], states: list[Any]) -> Word:
    """Keys with their states; their timers are not among them."""
    return ("entries", keys, states, None, None)


def snapshot(held: Holdings, keys_max: int) -> Iterator[bytes]:
    """All there is, in pieces of about so many keys, parts or timers. A piece must come behind all
    changes made before it, and before those made after it."""
    return _Drawing(held, keys_max).pieces()


class _Drawing:
    """`room`: for so much more is there room in the piece that is made of `words`. A word is made
    for the piece that is next, never for a later one."""

    def __init__(self, held: Holdings, keys_max: int) -> None:
        self._held = held
        self._store = held.store
        self._most = self._room = max(1, keys_max)
        self._words: list[Word] = []

    def pieces(self) -> Iterator[bytes]:
        held = self._held
        groups = [*held.owned], [*held.frozen], [*held.behind]
        self._words += [("groups", *groups), *_sums(held)]
        for group in range(held.groups):
            kept = [tuple(k) for k in held.kept.get(group, ())]
            arrival = held.arriving.get(group)
            self._words.append(("group", group, kept, arrival and arrival.as_plain()))
            self._room -= len(kept)
            self._room -= len(arrival.entries) + len(arrival.kept) if arrival else 0
            yield from self._keys(self._store.keys(group))
        yield self._piece()

    def _piece(self) -> bytes:
        words, self._words, self._room = self._words, [], self._most
        return _pickled(self._held, words)

    def _keys(self, keys: list[Any]) -> Iterator[bytes]:
        some: list[Any] = []
        alike = self._alike(keys)
        for key in keys:
            weight = 1 if alike else self._weight(key)
            if weight > self._room and (some or self._words):
                self._tell(some)
                yield self._piece()
                some = []
            if weight > self._room:
                yield from self._large(key)
            else:
                some.append(key)
                self._room -= weight
        self._tell(some)

    def _alike(self, keys: list[Any]) -> bool:
        """Whether each of these keys is one thing: it has no timers, and its state no parts."""
        timed = len(self._store.timers) or len(self._store.processing)
        return not timed and not any(self._in_parts(key) for key in keys[:1])

    def _in_parts(self, key: Any) -> bool:
        return is_a(self._store.states.get(key), Parted)

    def _weight(self, key: Any) -> int:
        store = self._store
        state = store.states.get(key)
        weight = state.weight(self._most) if is_a(state, Parted) else 1
        if len(store.timers) or len(store.processing):
            return max(weight, store.timers.count(key), store.processing.count(key))
        return weight

    def _tell(self, keys: list[Any]) -> None:
        """Of these keys, as far as they are here."""
        keys = [key for key in keys if key in self._store.states]
        if not keys:
            return
        keys, states, *timers = self._store.entries(keys)
        if is_a(states[0], Parted):
            kind = type(states[0])
            self._words.append(("rows", kind, keys, kind.rows(states), *timers))
        else:
            self._words.append(("entries", keys, states, *timers))

    def _large(self, key: Any) -> Iterator[bytes]:
        """A key that needs several pieces."""
        store, state = self._store, self._store.states.get(key, NOTHING)
        if state is NOTHING:
            return
        if not is_a(state, Parted):
            self._words.append(_whole([key], [state]))
        else:
            pieces = state.pieces(self._most)
            while store.states.get(key) is state and (news := next(pieces, None)) is not None:
                self._words.append(("parts", type(state), [key], [news]))
                yield self._piece()
        for word, timers in ("event", store.timers), ("processing", store.processing):
            for some in in_pieces(timers.of_key(key), self._most):
                self._words.append((word, *timers.now([(key, name) for name in some])))
                yield self._piece()


def _pickled(held: Holdings, words: list[Word]) -> bytes:
    try:
        return pickled(words)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        kind = StepError if held.careful else StateSpoilt
        raise kind(
            f"operator {held.operator!r}, {_culprit(words)}: what is kept of it cannot be written "
            f"to the journal ({describe(error)}); states must be values that can be pickled"
        ) from error


def _culprit(words: list[Word]) -> str:
    """Which key has what cannot be written."""
    for word, *rest in words:
        if word in _BY_KEY:
            for key, *of_key in zip(*rest[:2] if word == "entries" else rest[1:3], strict=True):
                try:
                    pickled((key, of_key))
                except BaseException:
                    return f"key {shown(key)}"
    return "tuples of groups on the move"


_BY_KEY = frozenset(("entries", "rows", "parts"))


# -- reading -------------------------------------------------------------------------------------


def restore(held: Holdings, told: Iterable[bytes]) -> None:
    """Apply changes, without noting them again."""
    noted, held.changes = held.changes, NoStateChanges()
    reading = _Reading(held)
    try:
        for change in told:
            reading.apply(change)
    finally:
        held.changes = noted
        if isinstance(noted, StateChanges):
            noted.told = _sums(held)


class _Reading:
    def __init__(self, held: Holdings) -> None:
        self._held = held
        self._known: dict[str, Callable[..., Any]] = {
            "own": held.own,
            "freeze": held.freeze,
            "keep": self._keep,
            "work_off": held.work_off,
            "open": held.open,
            "caught_up": held.caught_up,
            "give": held.give,
            "resume": held.resume,
            "entries": held.store.replace,
            "rows": self._rows,
            "parts": held.store.take_in,
            "event": held.store.timers.take_in,
            "processing": held.store.processing.take_in,
            "forgotten": held.store.forget,
            "counted": self._counted,
            "time": self._time,
            "groups": self._groups,
            "group": self._group,
        }

    def apply(self, change: bytes) -> None:
        if is_chunk(change):
            self._held.arrive(change)
            return
        try:
            words = pickle.loads(change)
        except Exception as error:
            raise StepError(
                f"operator {self._held.operator!r}: a change of key state in the journal cannot be "
                f"read here: {describe(error)}"
            ) from error
        for word, *rest in words:
            self._known[word](*rest)

    def _rows(
        self, kind: type[Parted], keys: list[Any], rows: list[Any], event: Rows, processing: Rows
    ) -> None:
        self._held.store.replace(keys, kind.of_rows(rows), event, processing)

    def _keep(self, group: int, kept: tuple[Any, ...]) -> None:
        self._held.keep(group, Kept._make(kept))

    def _counted(self, opened_in: int, pended_out: int, *late: tuple[str, int]) -> None:
        self._held.opened_in, self._held.pended_out = opened_in, pended_out
        self._held.late = Counter(dict(late))

    def _time(self, watermark: float) -> None:
        self._held.watermark = watermark

    def _groups(self, owned: list[int], frozen: list[int], behind: list[int]) -> None:
        self._held.set_groups(frozenset(owned), frozenset(frozen), frozenset(behind))

    def _group(
        self, group: int, kept: list[tuple[Any, ...]], arrival: tuple[Any, ...] | None
    ) -> None:
        held = self._held
        held.kept.pop(group, None)
        held.arriving.pop(group, None)
        if kept:
            held.kept[group] = deque(map(Kept._make, kept))
        if arrival is not None:
            held.arriving[group] = Arrival.of_plain(arrival)
