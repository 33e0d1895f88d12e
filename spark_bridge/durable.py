"""Folders that outlive a loss of power, and small files that are known again as they were
written."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from anabranch.runtime.ports.disk import store
from anabranch.runtime.reporting.failure import PlainError


def make_folder(path: Path) -> None:
    """With those above it. It is there after a loss of power, too."""
    disk = store()
    made = [one for one in path.parents if not disk.exists(one)]
    disk.make_folder(path, 0o700, parents=True)
    for one in (path, *made):
        disk.sync_folder(one.parent)


class Damaged(PlainError, ValueError):
    """A small file is not what was written. The message names it."""


def sealed(values: dict[str, Any]) -> bytes:
    """As JSON, for people too, with a checksum of the rest as `crc`."""
    return json.dumps({**values, "crc": zlib.crc32(json.dumps(values).encode())}).encode()


def unsealed(path: Path) -> dict[str, Any]:
    """What was sealed in this file. Raises `OSError` if it cannot be read, and `Damaged`."""
    data = store().read(path)
    try:
        values: dict[str, Any] = json.loads(data)
        del values["crc"]
        whole = sealed(values) == data
    except (ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise Damaged(f"{path} is not what was written: the file is damaged")
    return values
