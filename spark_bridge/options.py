"""The options of `format("anabranch")`, from text to values, with errors that help."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.spark_bridge.messages import RowShape
from anabranch.spark_bridge.places import Place, PlaceUnknown

KNOWN = {
    "run": "folder of the pipeline's run; says where the gateway is and proves membership",
    "gateway": "host:port of the gateway, several with commas; needs token",
    "token": "the run's secret, out of gateway.json",
    "stream": "name given to ab.spark.feed or ab.spark.collect",
    "patience": "seconds to wait for a gateway that does not answer (30)",
    "rows": "write: auto (bare value of one column, else dict by name) or list",
    "final": "batch write: true if the stream's input ends with it",
    "writeId": "batch write: a name; the same name is written once, however often it comes",
    "schema": "read: DDL; asked from the gateway if not given",
    "subscriber": "stream read: name under which rows are acknowledged (default)",
    "startingOffsets": "stream read: earliest (default) or latest",
    "maxRowsPerTrigger": "stream read: rows of one micro-batch (no limit)",
    "tasks": "read: about so many Spark tasks (2)",
    "rowsPerTask": "read: at most so many rows in a task (200000)",
    "pollWait": "stream read: milliseconds that a request for new rows waits (50)",
}
_BY_LOWER = {name.lower(): name for name in KNOWN}
_STREAM = re.compile(r"^[A-Za-z][A-Za-z0-9_-]{0,62}$")


class OptionError(ValueError):
    """An option is missing, misspelt, or no such value. The message names it."""


@dataclass(frozen=True, slots=True)
class Options:
    """All options; defaults as in `KNOWN`."""

    place: Place
    stream: str
    patience_s: float = 30.0
    rows: RowShape = "auto"
    final: bool = False
    write_id: str | None = None
    subscriber: str = "default"
    from_latest: bool = False
    rows_per_trigger: int | None = None
    tasks: int = 2
    rows_per_task: int = 200_000
    poll_wait_ms: int = 50

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Options:
        """Raises `OptionError`, or `PlaceUnknown` if the gateway cannot be found."""
        get = {name.lower(): value for name, value in given.items()}
        _check_names(given)
        stream = get.get("stream", "")
        if not _STREAM.match(stream):
            raise OptionError(f"option stream: expected a stream's name, got {stream!r}")
        return cls(
            place=_place(get),
            stream=stream,
            patience_s=_number(get, "patience", 30, 0),
            rows=_shape(get),
            final=_choice(get, "final", ("false", "true")) == "true",
            write_id=get.get("writeid"),
            subscriber=get.get("subscriber", "default"),
            from_latest=_choice(get, "startingOffsets", ("earliest", "latest")) == "latest",
            rows_per_trigger=_number(get, "maxRowsPerTrigger", 0, 0) or None,
            tasks=_number(get, "tasks", 2, 1),
            rows_per_task=_number(get, "rowsPerTask", 200_000, 1),
            poll_wait_ms=_number(get, "pollWait", 50, 0, 10_000),
        )


def _check_names(given: Mapping[str, str]) -> None:
    """Other options may be Spark's own; one that is nearly ours is a slip."""
    for name in given:
        near = difflib.get_close_matches(name.lower(), _BY_LOWER, 1, 0.85)
        if near and name.lower() not in _BY_LOWER:
            raise OptionError(f"there is no option {name!r}; did you mean {_BY_LOWER[near[0]]!r}?")


def _place(get: Mapping[str, str]) -> Place:
    if "run" in get:
        return Place.of_run(get["run"])
    if "gateway" in get:
        if "token" not in get:
            raise OptionError("option gateway also needs option token; or give option run instead")
        return Place.at(get["gateway"], get["token"])
    raise PlaceUnknown("give option run (the pipeline's run folder), or gateway and token")


def _shape(get: Mapping[str, str]) -> RowShape:
    return "list" if _choice(get, "rows", ("auto", "list")) == "list" else "auto"


def _choice(get: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """One of the choices; the first is the default."""
    value = get.get(name.lower(), choices[0]).lower()
    if value not in choices:
        raise OptionError(f"option {name}: expected {' or '.join(choices)}, got {value!r}")
    return value


def _number(get: Mapping[str, str], name: str, default: int, least: int, most: int = 2**53) -> int:
    text = get.get(name.lower(), str(default))
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise OptionError(f"option {name}: expected a whole number from {least}, got {text!r}")
    return value
