"""Files that are there after a crash, whole."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

from anabranch.runtime.reporting.failure import PlainError


def sync_file(path: str | Path) -> None:
    """Return when the file's, or folder's, content is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Put `data` in place of the file's content, old or new, never half of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    draft.replace(path)
    if sync:
        sync_file(path.parent)


class Damaged(PlainError, ValueError):
    """A small file is not what was written. The message names it."""


def sealed(values: dict[str, Any]) -> bytes:
    """As JSON, for people too, with a checksum of the rest as `crc`."""
    return json.dumps({**values, "crc": zlib.crc32(json.dumps(values).encode())}).encode()


def unsealed(path: Path) -> dict[str, Any]:
    """What was sealed in this file. Raises `OSError` if it cannot be read, and `Damaged`."""
    data = path.read_bytes()
    try:
        values: dict[str, Any] = json.loads(data)
        del values["crc"]
        whole = sealed(values) == data
    except (ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise Damaged(f"{path} is not what was written: the file is damaged")
    return values
