"""The last dead letter of each reason, so that a summary shows more than a class of errors."""

from __future__ import annotations

import json
import os
from pathlib import Path

LOOKED_AT_BYTES = 65_536
"""Of the end of the file."""
SHOWN_CHARACTERS = 100


def last_of_each(file: Path) -> dict[str, str]:
    """By the reason up to its colon: the rest of it, and where. Empty if the file cannot be
    read."""
    try:
        with file.open("rb") as letters:
            start = max(0, os.fstat(letters.fileno()).st_size - LOOKED_AT_BYTES)
            letters.seek(start)
            lines = letters.read().splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines[1:] if start else lines:
        try:
            letter = json.loads(line)
            reason, _, rest = letter["reason"].partition(":")
            found[reason] = _told(rest.strip(), letter.get("where") or "")
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def _told(rest: str, where: str) -> str:
    rest = " ".join(rest.split())
    if len(rest) > SHOWN_CHARACTERS:
        rest = rest[: SHOWN_CHARACTERS - 1] + "…"
    return f"{rest} ({where})" if rest and where else rest or where
