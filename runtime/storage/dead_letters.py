"""The file of dead letters: one JSON line for each tuple that failed for good.

All processes of a host append to the same file, each call as one piece of a shared file
(`anabranch.runtime.storage.shared_file`), so that letters are whole and there once whichever
process dies. The file is made with the first letter: a run without failures leaves none. It may be
taken away at any time; further letters go to a new one.

A record: `time` (UTC), `pipeline`, `operator`, `instance`, `step`, `reason`, `where`, `tuple`.
The tuple is JSON where it is JSON. What is not, at whatever depth, becomes a marker:
`{"base64": …}` for bytes, `{"repr": …}` for everything else; and what is longer than
`TUPLE_CHARS_MAX` becomes `{"truncated": <its beginning>, "chars": <its length>}`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.ports.clock import wall_utc
from anabranch.runtime.ports.disk import store
from anabranch.runtime.storage.shared_file import SharedFile, sidecar_path
from anabranch.runtime.values.foreign import shown

TUPLE_CHARS_MAX = 8192
_SHOWN_CHARS = 2048


class DeadLetterFile:
    """Where one instance buries. `count`: letters written in this incarnation.

    `lasting_dir`: folder that outlives this process, so that its next incarnation can put letters
    again of which it is not known whether they were written; None: letters are just appended.
    """

    def __init__(
        self,
        path: Path,
        *,
        pipeline: str,
        operator: str,
        instance: str,
        lasting_dir: Path | None = None,
        durable: bool = False,
    ) -> None:
        self.count = 0
        self.path = path
        self._of = {"pipeline": pipeline, "operator": operator, "instance": instance}
        sidecar = None if lasting_dir is None else sidecar_path(lasting_dir, path)
        self._file = SharedFile(
            path, sidecar, instance, kind="dead letters", durable=durable, free=True
        )

    def stage(self, letters: Sequence[DeadLetter]) -> bytes:
        """What `put` has to be given for these letters."""
        if not letters:
            return b""
        now = wall_utc().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return "".join(self._line(letter, now) for letter in letters).encode()

    async def put(self, number: int, data: bytes) -> None:
        """Append `data` unless it was put under this number, as `ExactWriter.put` does.

        Raises `OSError` that names the file if it cannot be written.
        """
        await self._file.put(number, data)
        self.count += data.count(b"\n")

    def last_put(self) -> int:
        return self._file.last_put()

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Stage and put, without a journal. Raises `OSError` as `put` does: then
        letters are lost, which must not go unseen."""
        if letters:
            self.put_next(self.stage(letters))

    def put_next(self, data: bytes) -> None:
        """Append what was staged, without a journal. Raises `OSError` as `put` does."""
        self._file.put_next(data)
        self.count += data.count(b"\n")

    def close(self) -> None:
        self._file.close()

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
    if type(value) in (str, bytes, bytearray) and len(value) > TUPLE_CHARS_MAX:
        return _truncated(value[:_SHOWN_CHARS], len(value))
    try:
        text = json.dumps(value, default=_marker, allow_nan=False)
    except KeyboardInterrupt:
        raise
    except BaseException:  # keys that JSON lacks, NaN, cycles, whatever a property raises
        text = json.dumps(_marker(value))
    if len(text) <= TUPLE_CHARS_MAX:
        return text
    return _truncated(text[:_SHOWN_CHARS], len(text))


def _truncated(beginning: Any, length: int) -> str:
    return json.dumps({"truncated": beginning, "chars": length}, default=_marker)


def _marker(value: Any) -> dict[str, str]:
    if type(value) in (bytes, bytearray):
        return {"base64": base64.b64encode(value).decode("ascii")}
    return {"repr": shown(value, sys.maxsize)}


def letters_in(path: Path, piece_bytes: int) -> Iterator[bytes]:
    """The file in pieces of whole lines, of about this size; none if it cannot be opened. Raises
    `OSError` if it cannot be read."""
    try:
        file = store().open(path, os.O_RDONLY)
    except OSError:  # no tuple has failed
        return
    with contextlib.closing(file):
        at, rest = 0, b""
        while data := file.read(piece_bytes, at):
            at += len(data)
            lines, newline, rest = (rest + data).rpartition(b"\n")
            if newline:
                yield lines + newline
        if rest:
            yield rest
