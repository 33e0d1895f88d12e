"""Text in UTF-16 or UTF-32, which is recognised by how it begins. Cut at single bytes it would seem
to be lines of letters with zeros between them."""

from __future__ import annotations

import codecs

from anabranch.runtime.plan.ends import InputError

LOOK_BYTES = 4096
_SURE_BYTES = 8
_MARKS = {  # the longer ones first: one of UTF-16 begins one of UTF-32
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def refuse_wide_text(place: str, beginning: bytes, encoding: str) -> None:
    """Raise `InputError` if what begins so is wide text. `encoding`: what it was declared to be."""
    wide = _wide_encoding(beginning[:LOOK_BYTES], encoding)
    if wide is not None:
        raise InputError(
            f"{place} begins as text in {wide.upper()} does; convert it first, for example with "
            f"iconv -f {wide} -t utf-8"
        )


def _wide_encoding(beginning: bytes, encoding: str) -> str | None:
    for mark, wide in _MARKS.items():
        # In UTF-8 no text begins so; in Latin-1 it may be two letters.
        if beginning.startswith(mark) and (encoding == "utf_8" or b"\0" in beginning):
            return wide
    even, odd = beginning[::2], beginning[1::2]
    if len(beginning) >= _SURE_BYTES and any(even) != any(odd):  # ASCII without a mark
        return "utf-16be" if any(odd) else "utf-16le"
    return None
