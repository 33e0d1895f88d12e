"""The file of dead letters: one JSON line for each tuple that failed for good.

All processes of a host append to the same file. Every call writes its lines with one `write` on a
descriptor opened for appending, which a local file system does not interleave with others.
The file is made with the first letter: a run without failures leaves none.

A record: `time` (UTC), `pipeline`, `operator`, `instance`, `step`, `reason`, `where`, `tuple`.
The tuple is JSON where it is JSON. What is not, at whatever depth, becomes a marker:
`{"base64": …}` for bytes, `{"repr": …}` for everything else; and what is longer than
`TUPLE_CHARS_MAX` becomes `{"truncated": <its beginning>, "chars": <its length>}`.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from anabranch.runtime.ends import DeadLetter

TUPLE_CHARS_MAX = 8192
_SHOWN_CHARS = 2048


class DeadLetterFile:
    """Where one instance buries. `count`: letters written."""

    def __init__(self, path: Path, *, pipeline: str, operator: str, instance: str) -> None:
        self.count = 0
        self.path = path
        self._target = path.absolute()  # functions may change the working directory
        self._of = {"pipeline": pipeline, "operator": operator, "instance": instance}
        self._fd: int | None = None

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Raises `OSError` that names the file if it cannot be written: then letters are lost,
        which must not go unseen."""
        if not letters:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        lines = "".join(self._line(letter, now) for letter in letters)
        try:
            if self._fd is None:
                self._fd = os.open(self._target, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            write_whole(self._fd, lines.encode())
        except OSError as error:
            raise OSError(
                error.errno, f"cannot write dead letters: {error.strerror}", str(self.path)
            ) from error
        self.count += len(letters)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _line(self, letter: DeadLetter, now: str) -> str:
        record = {
            "time": now,
            **self._of,
            "step": letter.step,
            "reason": letter.reason,
            "where": letter.where,
            "tuple": "",
        }
        head = json.dumps(record)  # ASCII, so that lone surrogates survive
        return f"{head[:-3]}{tuple_json(letter.tuple)}}}\n"


def tuple_json(value: Any) -> str:
    """`value` as JSON of at most about `TUPLE_CHARS_MAX` characters; never raises."""
    if isinstance(value, (str, bytes, bytearray)) and len(value) > TUPLE_CHARS_MAX:
        return _truncated(value[:_SHOWN_CHARS], len(value))
    try:
        text = json.dumps(value, default=_marker, allow_nan=False)
    except Exception:  # keys that JSON lacks, NaN, cycles, whatever a property raises
        text = json.dumps(_marker(value))
    if len(text) <= TUPLE_CHARS_MAX:
        return text
    return _truncated(text[:_SHOWN_CHARS], len(text))


def _truncated(beginning: Any, length: int) -> str:
    return json.dumps({"truncated": beginning, "chars": length}, default=_marker)


def _marker(value: Any) -> dict[str, str]:
    if isinstance(value, (bytes, bytearray)):
        return {"base64": base64.b64encode(value).decode("ascii")}
    try:
        return {"repr": repr(value)}
    except Exception as error:
        return {"repr": f"<{type(value).__name__} whose repr raised {type(error).__name__}>"}


def write_whole(fd: int, data: bytes) -> None:
    """One `write`, and further ones only if the system took less (a signal, a full disk)."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])
