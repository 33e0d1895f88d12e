"""A state folder (`--state DIR`) belongs to one run at a time, on whichever engine: its lock, by
which file the run of an engine is known, and what a run that goes on has to read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.store import File

LOCK = "lock"
RUN = "run.json"
"""Of a run on processes."""
JOB = "spark.json"
"""Of a run on Spark."""


class StateError(ValueError):
    """The folder cannot be used in this way. The message says why, and what can be done."""


def locked(path: Path, *, ours: bool) -> File:
    """The lock of the folder, with the process that holds it written into. `ours`: whether a run
    is known to be there. Raises `StateError`, `OSError`."""
    if not ours and not _is_lock(path / LOCK):
        raise StateError(
            f"state folder {str(path)!r} holds {LOCK!r}, which is not part of a run; "
            "name another folder"
        )
    while True:
        lock = store().open(path / LOCK, os.O_CREAT | os.O_RDWR)
        if not lock.lock(wait=False):
            with closing(lock):
                holder = lock.read(20, 0).decode("ascii", "replace").strip()
            raise StateError(
                f"state folder {str(path)!r} is in use by another run"
                + (f" (process {holder})" if holder else "")
                + "; wait until that has ended, or name another folder"
            )
        with suppress(FileNotFoundError):
            if lock.status().st_ino == store().status(path / LOCK).st_ino:
                break
        lock.close()  # the run that held it has removed it in this moment
    try:
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n".encode(), 0)
    except OSError:
        lock.close()  # or this program could not try again
        raise
    return lock


def in_use_by(path: Path) -> str | None:
    """What the process that has the folder has written of itself, its number; None if none has it,
    or that cannot be seen."""
    with suppress(OSError), closing(store().open(path / LOCK, os.O_RDWR)) as lock:
        if not lock.lock(wait=False):
            return lock.read(20, 0).decode("ascii", "replace").strip()
    return None


def inputs_in_words(inputs: Mapping[OperatorName, Sequence[str]]) -> dict[str, list[str]]:
    """What sources read in the place of their own: patterns by name, as text for any file."""
    return {
        str(name): [os.fsencode(one).decode("utf-8", "backslashreplace") for one in patterns]
        for name, patterns in inputs.items()
    }


def check_inputs(
    before: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]], path: Path
) -> None:
    """Raise `StateError` if a run was begun with other files, or frames, for its sources than it is
    to go on with."""
    for name in {**before, **now}:
        was, became = before.get(name), now.get(name)
        if was != became:
            raise StateError(
                f"state folder {str(path)!r} holds a run that was begun "
                + _said(name, became if was is None else was, given=was is not None)
                + "; go on with it in the same way, or give it up with --fresh"
            )


def _said(name: str, patterns: Sequence[str] | None, *, given: bool) -> str:
    ways = " ".join(f"--input {name}={pattern}" for pattern in patterns or ())
    return f"{'with' if given else 'without'} {ways or f'a DataFrame for source {name!r}'}"


def _is_lock(path: Path) -> bool:
    """Whether a lock of ours is there, or none: it holds the number of a process, or zeros if power
    was lost when it was new."""
    try:
        text = store().read(path)[:20]
    except FileNotFoundError:
        return True
    number = text.strip(b"\0").strip()
    return not number or number.isdigit()
