"""The log of results between the sink instances and the gateway, as both see it on disk.

    STREAM/stream.json             schema and generation, made by the process that comes first
    STREAM/claim                   locked meanwhile
    STREAM/acks.json               what subscribers acknowledged, written by the gateway only
    STREAM/PART/FIRSTROW.seg       frames of rows; the name is the number of the first row
    STREAM/PART/closed             its writer is gone: nothing will be added

Each sink instance writes one part of its own (`anabranch.spark_bridge.part_writer`), so instances
need nothing from each other and may come and go. Rows of a part are numbered without gaps and never
change, so a row range always names the same rows. Whole segments are deleted once every
subscriber has acknowledged them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from anabranch.runtime.columns.schemas import arrow_schema
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store
from anabranch.runtime.reporting.failure import PlainError
from anabranch.runtime.storage.replaced import replace_file
from anabranch.spark_bridge.durable import Damaged, make_folder, sealed, unsealed

STREAM_FILE = "stream.json"
CLOSED_FILE = "closed"
_CLAIM_FILE = "claim"
SEGMENT_SUFFIX = ".seg"
_ROWS = "arrow"
"""The form of the payloads of frames: record batches of Arrow, without their schema."""


class LogError(PlainError, OSError):
    """The log cannot be used as asked."""


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """`generation` names this log for good: offsets of another log must not be read here."""

    schema: str
    generation: str


def stream_dir(state: Path, stream: str) -> Path:
    return state / "collect" / stream


def claim_stream(folder: Path, schema: str) -> StreamInfo:
    """Make the stream's folder, or join it if others have; all get the same generation.

    Raises `LogError` if it holds results of another schema.
    """
    disk, path = store(), folder / STREAM_FILE
    make_folder(folder)
    if not disk.exists(path):
        claim = disk.open(folder / _CLAIM_FILE, os.O_RDWR | os.O_CREAT)
        try:
            claim.lock(wait=True)
            if not disk.exists(path):  # no other one was faster
                generation = clock.secret(8).hex()
                made = {"schema": schema, "generation": generation, "rows": _ROWS}
                replace_file(path, sealed(made))
        finally:
            claim.close()
    info = read_stream(folder)
    if arrow_schema(info.schema, sparks=True) != arrow_schema(schema, sparks=True):
        raise LogError(
            f"{folder} holds results with the schema {info.schema!r}, not {schema!r}; "
            "give the stream another name or the run another state folder"
        )
    return info


def read_stream(folder: Path) -> StreamInfo:
    """Raises `LogError` if nothing was written there yet, or not what is there."""
    try:
        found = unsealed(folder / STREAM_FILE)
        if found.get("rows") != _ROWS:
            raise LogError(
                f"{folder} holds results of an earlier version of Anabranch; collect them with "
                "that one, or give the stream another name"
            )
        return StreamInfo(str(found["schema"]), str(found["generation"]))
    except (OSError, KeyError) as error:
        raise LogError(f"{folder} holds no results ({error})") from None
    except Damaged as error:
        raise LogError(f"{error}; put it back, or give the stream another name") from None


def segment_name(first_row: int) -> str:
    return f"{first_row:018d}{SEGMENT_SUFFIX}"


def segments(part: Path) -> Iterator[tuple[int, str]]:
    """(first row, file name) of a part's segments, in order; nothing if the part is gone."""
    yield from sorted(
        (int(name.removesuffix(SEGMENT_SUFFIX)), name)
        for name in store().names(part)
        if name.endswith(SEGMENT_SUFFIX)
    )


def log_bytes(folder: Path) -> int:
    """Bytes of all segments of a stream that are still there."""
    parts = (folder / name for name in store().names(folder))
    return sum(_size(part / name) for part in parts for _, name in segments(part))


def _size(segment: Path) -> int:
    try:
        return store().status(segment).st_size
    except FileNotFoundError:  # deleted by the gateway while we look
        return 0
