"""The changes of an instance's key groups as bytes, and holdings made of such bytes again.

A change is a chunk that has come from another instance, as it is, or a pickle of words: a word is
the name of a method of `Holdings` and its arguments, or one of those below, which state how
something is now. Changes applied in their order to empty holdings give the same holdings.

`picture` states all there is, piece by piece, while work goes on. Keys are told whole whenever
they change, and when they go, so the last that is told of a key is right, by a piece or by a
change. Everything else of a group is stated at one moment; what was told of it before that does
not matter, and so may be about things that are not there. A picture that was not finished says
nothing that was not known without it.
"""

from __future__ import annotations

import pickle
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from anabranch.runtime.foreign import describe, shown
from anabranch.runtime.keyed.holdings import Holdings
from anabranch.runtime.keyed.moving import Arrival, Kept, is_chunk
from anabranch.runtime.keyed.notes import NoNotes, Notes, Word
from anabranch.runtime.keyed.pickling import pickled
from anabranch.runtime.keyed.timers import Rows
from anabranch.runtime.steps import StepError

KEYS_AT_ONCE = 512

# -- writing -------------------------------------------------------------------------------------


def changes(held: Holdings, notes: Notes) -> Iterator[bytes]:
    """What has changed since this was asked last, if anything has. In pieces of so many keys: to
    pickle many small objects at once takes several times the memory of what comes of it."""
    words, notes.words = notes.words, []
    touched, notes.touched = iter(notes.touched), set()
    while some := [*islice(touched, KEYS_AT_ONCE)]:
        words += _entries_of(held, some)
        if len(some) == KEYS_AT_ONCE and words:
            yield _pickled(held, words)
            words = []
    if notes.forgotten:
        words.append(("forgotten", [*(notes.forgotten - held.store.states.keys())]))
        notes.forgotten = set()
    sums = _sums(held)
    words += [word for word in sums if word not in notes.told]
    notes.told = sums
    if words:
        yield _pickled(held, words)


def _sums(held: Holdings) -> list[Word]:
    return [
        ("counted", held.opened_in, held.pended_out, *held.late.items()),
        ("time", held.watermark),
    ]


def picture(held: Holdings, keys_max: int) -> Iterator[bytes]:
    """All there is, in pieces of about so many keys. A piece must come behind all changes made
    before it, and before those made after it."""
    groups = [*held.owned], [*held.frozen], [*held.behind]
    words: list[Word] = [("groups", *groups), *_sums(held)]
    told = 0
    for group in range(held.groups):
        kept = [tuple(k) for k in held.kept.get(group, ())]
        arrival = held.arriving.get(group)
        words.append(("group", group, kept, arrival and arrival.as_plain()))
        told += len(kept) + (len(arrival.entries) + len(arrival.kept) if arrival else 0)
        keys = held.store.keys(group)
        while told + len(keys) > keys_max:
            room = max(0, keys_max - told)
            some, keys = keys[:room], keys[room:]
            yield _pickled(held, [*words, *_entries_of(held, some)])
            words, told = [], 0
        words += _entries_of(held, keys)
        told += len(keys)
    yield _pickled(held, words)


def _entries_of(held: Holdings, keys: Iterable[Any]) -> list[Word]:
    """Of these keys, as far as they are here."""
    store, wanted = held.store, [*keys]
    if not store.states:
        return []
    try:
        columns = store.entries(wanted)
    except KeyError:
        columns = store.entries([*(store.states.keys() & wanted)])
    return [("entries", *columns)] if columns[0] else []


def _pickled(held: Holdings, words: list[Word]) -> bytes:
    try:
        return pickled(words)
    except Exception as error:
        raise StepError(
            f"operator {held.operator!r}, {_culprit(words)}: what is kept of it cannot be written "
            f"to the journal ({describe(error)}); states must be values that can be pickled"
        ) from error


def _culprit(words: list[Word]) -> str:
    for word, *rest in words:
        if word == "entries":
            for key, state, *_ in zip(*rest[:2], strict=True):
                try:
                    pickled((key, state))
                except Exception:
                    return f"key {shown(key)}"
    return "tuples of groups on the move"


# -- reading -------------------------------------------------------------------------------------


def restore(held: Holdings, told: Iterable[bytes]) -> None:
    """Apply changes, without noting them again."""
    notes, held.notes = held.notes, NoNotes()
    reading = _Reading(held)
    try:
        for change in told:
            reading.apply(change)
    finally:
        held.notes = notes
        if isinstance(notes, Notes):
            notes.told = _sums(held)


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
            "forgotten": self._forgotten,
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

    def _keep(self, group: int, kept: tuple[Any, ...]) -> None:
        self._held.keep(group, Kept._make(kept))

    def _forgotten(self, keys: list[Any]) -> None:
        none: Rows = None
        self._held.store.event.replace(keys, none)
        self._held.store.processing.replace(keys, none)
        for key in keys:
            self._held.store.forget(key)

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
