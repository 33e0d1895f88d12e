"""What the text pipelines have in common: the text of a tuple, and its words."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

_LINK = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
_HANDLE = re.compile(r"(?<!\w)@\w+")
_WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")
_APOSTROPHES = {0x2018: "'", 0x2019: "'", 0x02BC: "'"}  # typographic ones


def text_of(item: str | Mapping[str, object]) -> str:
    """The text of a tuple: the tuple itself, or its field `text` (else `value`) if it is a record.

    Raises `TypeError` for anything else.
    """
    if isinstance(item, Mapping):
        item = item.get("text", item.get("value"))  # type: ignore[assignment]
    if not isinstance(item, str):
        raise TypeError(f"expected a text or a record with a field 'text', got {item!r:.200}")
    return item


def words_of(text: str) -> list[str]:
    """Its words in lower case, with inner apostrophes and hyphens; links and handles dropped."""
    plain = html.unescape(text).translate(_APOSTROPHES)
    return _WORD.findall(_HANDLE.sub(" ", _LINK.sub(" ", plain)).lower())
