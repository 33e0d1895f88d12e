"""What operators keep, as rows of a savepoint, and as changes that a journal has of it.

A key is a row with its state whole, so any number of instances and of key groups can begin from
the rows: each takes those of its groups.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from anabranch.runtime.keyed.holdings import Holdings
from anabranch.runtime.keyed.parts import in_pieces
from anabranch.runtime.keyed.pickling import pickled
from anabranch.runtime.keyed.timers import Names
from anabranch.runtime.keyed.watermarks import Stamper
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Split
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.plan.spec import Span
from anabranch.runtime.ports.clock import wall_here
from anabranch.runtime.savepoint.folder import (
    FORMAT,
    ROWS_AT_ONCE,
    Columns,
    Savepoint,
    SavepointError,
    SavepointHead,
)
from anabranch.runtime.values.foreign import describe

KEYS_AT_ONCE = 512
TEXT_MAX = 200

Told = list[bytes]
"""Changes, as `runtime.keyed.journaling` and `Stamper` read them."""


def in_words(operator: Operator) -> str:
    """What an operator is, as far as that decides what it keeps."""
    what = "a source" if operator.source is not None else "steps"
    if operator.keyed is not None:
        keyed = operator.keyed
        windows = keyed.makes_windows or keyed.ends_by_time
        what = keyed.what if windows else keyed.what.partition(" ")[0]  # which function may change
    if operator.sink is not None:
        what = "a sink"
    by_key = " by key" if operator.edges else ""
    return f"{what}{by_key}" + (f" after {', '.join(operator.upstream)}" * bool(operator.upstream))


def text_of(value: Any) -> str:
    """Readable text of a value, for people that look at a savepoint."""
    try:
        return repr(value)[:TEXT_MAX].encode("utf-8", "backslashreplace").decode()
    except Exception as error:
        return f"(no text: {describe(error)})"


def head_of(
    pipeline: Pipeline,
    state_format: int,
    version: str,
    passed_s: float,
    span: Span | None = None,
    pinned: Mapping[str, int] | None = None,
) -> SavepointHead:
    """`span`: of the event times that the run has taken. `pinned`: numbers of instances that a user
    has set."""
    return SavepointHead(
        format=FORMAT,
        state_format=state_format,
        version=version,
        pipeline=pipeline.name,
        operators={str(o.name): in_words(o) for o in pipeline.operators.values()},
        groups=pipeline.groups,
        passed_s=passed_s,
        written_at=wall_here().isoformat(),
        counted_to=None if span is None else span.rest.start,
        pinned=dict(pinned or {}),
    )


# -- as rows -------------------------------------------------------------------------------------


def rows_of_source(
    operator: str,
    splits: Sequence[Split],
    *,
    pulled: int,
    digest: int,
    claims: int = 0,
    progress: float = 0.0,
) -> Iterator[tuple[str, Columns]]:
    """`splits`: what is left of the first `pulled` ones."""
    yield (
        "sources",
        {
            "operator": [operator],
            "pulled": [pulled],
            "digest": [digest],
            "claims": [claims],
            "progress": [progress],
        },
    )
    yield (
        "splits",
        {
            "operator": [operator] * len(splits),
            "place": [*range(len(splits))],
            "split": [*map(msgspec.msgpack.encode, splits)],
            "split_text": [*map(text_of, splits)],
        },
    )


def splits_left(savepoint: Savepoint) -> dict[str, list[Split]]:
    """By source, in their order."""
    found: dict[str, list[tuple[int, bytes]]] = {}
    for row in savepoint.each("splits"):
        found.setdefault(row["operator"], []).append((row["place"], row["split"]))
    return {
        operator: [msgspec.msgpack.decode(split) for _, split in sorted(splits)]
        for operator, splits in found.items()
    }


def rows_of_keys(operator: str, held: Holdings) -> Iterator[tuple[str, Columns]]:
    """All keys that are here, and their timers."""
    store = held.store
    for group in range(held.groups):
        for keys in in_pieces(store.keys(group), ROWS_AT_ONCE):
            raw = [*map(pickled, keys)]
            states = [pickled(store.states[key]) for key in keys]
            texts = [*map(text_of, keys)]
            n = len(keys)
            yield (
                "keys",
                {
                    "operator": [operator] * n,
                    "group": [group] * n,
                    "key": raw,
                    "key_text": texts,
                    "state": states,
                },
            )
            for timers, processing in ((store.timers, False), (store.processing, True)):
                yield from _rows_of_timers(
                    operator, raw, timers.names(keys) or (), processing=processing
                )


def _rows_of_timers(
    operator: str, keys: list[bytes], each: Iterable[Names | None], *, processing: bool
) -> Iterator[tuple[str, Columns]]:
    rows = [
        (key, name, at)
        for key, names in zip(keys, each, strict=False)
        for name, at in (names or {}).items()
    ]
    if rows:
        n = len(rows)
        yield (
            "timers",
            {
                "operator": [operator] * n,
                "key": [key for key, _, _ in rows],
                "name": [name for _, name, _ in rows],
                "at": [at for _, _, at in rows],
                "processing": [processing] * n,
            },
        )


def row_of_watermark(
    operator: str, instance: str, watermark: float, *, reads_time: bool
) -> tuple[str, Columns]:
    return (
        "watermarks",
        {
            "operator": [operator],
            "instance": [instance],
            "reads_time": [reads_time],
            "watermark": [watermark],
        },
    )


def rows_of_devices(operator: str, latest: Mapping[Any, float]) -> Iterator[tuple[str, Columns]]:
    """`latest`: the latest time of each."""
    for devices in in_pieces(latest, ROWS_AT_ONCE):
        yield (
            "devices",
            {
                "operator": [operator] * len(devices),
                "device": [*map(pickled, devices)],
                "device_text": [*map(text_of, devices)],
                "latest": [latest[device] for device in devices],
            },
        )


# -- as changes ----------------------------------------------------------------------------------


class KeptState:
    """What a savepoint has of the operators of a pipeline. `place_of`: whose a key is, by its
    operator and group, as the run that begins has them."""

    def __init__(self, savepoint: Savepoint) -> None:
        self._savepoint = savepoint
        self._watermarks: dict[tuple[str, bool], float] = {}
        for row in savepoint.each("watermarks"):
            place = row["operator"], row["reads_time"]
            before = self._watermarks.get(place, math.inf)
            self._watermarks[place] = min(before, row["watermark"])

    def watermark(self, operator: str, *, reads_time: bool) -> float:
        """The least that its instances had come to."""
        return self._watermarks.get((operator, reads_time), -math.inf)

    def keyed(
        self, groups: int, owner_of: Callable[[str, int], int]
    ) -> Iterator[tuple[str, int, bytes]]:
        """Changes: of which operator, for which owner. `owner_of`: an operator and a group."""
        timers = self._timers()
        waiting: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
        held = Holdings("", groups)
        for operator, raw, kept in self._keys():
            key, state = _value(raw, operator), _value(kept, operator)
            owner = owner_of(operator, held.store.group_of[key])
            names = timers.pop((operator, raw), ({}, {}))
            entries = waiting.setdefault((operator, owner), [])
            entries.append((key, state, *names))
            if len(entries) == KEYS_AT_ONCE:
                yield operator, owner, _entries(waiting.pop((operator, owner)))
        for (operator, owner), entries in waiting.items():
            yield operator, owner, _entries(entries)

    def _keys(self) -> Iterator[tuple[str, bytes, bytes]]:
        for columns in self._savepoint.rows("keys"):
            yield from zip(columns["operator"], columns["key"], columns["state"], strict=True)

    def time(self, operator: str) -> bytes:
        """How far an instance of a keyed operator has come."""
        return pickled([("time", self.watermark(operator, reads_time=False))])

    def stamps(self) -> dict[str, bytes]:
        """By operator that reads event time: what `Stamper.restore` takes."""
        latest: dict[str, dict[Any, float]] = {
            operator: {} for operator, reads_time in self._watermarks if reads_time
        }
        for row in self._savepoint.each("devices"):
            operator, device = row["operator"], _value(row["device"], row["operator"])
            before = latest[operator].get(device, -math.inf)
            latest[operator][device] = max(before, row["latest"])
        return {
            operator: Stamper.told_of(self.watermark(operator, reads_time=True), devices)
            for operator, devices in latest.items()
        }

    def _timers(self) -> dict[tuple[str, bytes], tuple[Names, Names]]:
        """By operator and key: those in event time, those on the clock."""
        found: dict[tuple[str, bytes], tuple[Names, Names]] = {}
        for row in self._savepoint.each("timers"):
            both = found.setdefault((row["operator"], row["key"]), ({}, {}))
            both[row["processing"]][row["name"]] = row["at"]
        return found


def _entries(entries: list[tuple[Any, ...]]) -> bytes:
    keys, states, *timers = ([*column] for column in zip(*entries, strict=True))
    event, processing = (rows if any(rows) else None for rows in timers)
    return pickled([("entries", keys, states, event, processing)])


def _value(data: bytes, operator: str) -> Any:
    try:
        return pickle.loads(data)
    except Exception as error:
        raise SavepointError(
            f"operator {operator!r}: a value of the savepoint cannot be read here: "
            f"{describe(error)}; its classes have to be where they were"
        ) from error
