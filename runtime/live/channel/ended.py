"""Marks of instances that have ended, in a folder that all of a run see. An instance that cannot
reach one of them need not wait for its next incarnation.

One file per operator, one byte per instance that ever was, at the place of its number: writing one
byte disturbs no other mark, and a million instances need a megabyte.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.ports.disk import store

MARK = b"\1"


def ended_dir(lasting_dir: Path) -> Path:
    return lasting_dir / "ended"


def leave_mark(folder: Path, instance: InstanceId) -> None:
    """Raises `OSError`."""
    _write(folder / instance.operator, instance.number, MARK)


def has_mark(folder: Path, instance: InstanceId) -> bool:
    try:
        file = store().open(folder / instance.operator, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return file.read(1, instance.number) == MARK
    finally:
        file.close()


class EndedMarks:
    """For the agent, which has the right numbers: marks are there again when their file was
    removed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[str, tuple[int, int]] = {}

    def are_to_renew(self, operator: str) -> bool:
        """Whether the file of this operator is not the one of the last call. Raises `OSError`."""
        before = self._seen.get(operator)
        return before is None or before != self._file(operator)

    def renew(self, operator: str, ended: Iterable[int]) -> None:
        """Raises `OSError`."""
        for number in ended:
            leave_mark(self._folder, InstanceId(OperatorName(operator), number))
        if (now := self._file(operator)) is not None:
            self._seen[operator] = now

    def _file(self, operator: str) -> tuple[int, int] | None:
        try:
            found = store().status(self._folder / operator)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino


def mark_all(folder: Path, operator: str, below: int, but: Iterable[int]) -> None:
    """Mark all numbers `below` this one `but` these. To be called only while no instance leaves a
    mark. Raises `OSError`."""
    path = folder / operator
    marks = bytearray(MARK * below)
    before = store().read(path) if store().exists(path) else b""
    for number in but:
        marks[number : number + 1] = before[number : number + 1] or b"\0"
    _write(path, 0, bytes(marks))


def _write(path: Path, at: int, data: bytes) -> None:
    store().make_folder(path.parent, parents=True)
    file = store().open(path, os.O_WRONLY | os.O_CREAT)
    try:
        file.write(data, at)
    finally:
        file.close()
