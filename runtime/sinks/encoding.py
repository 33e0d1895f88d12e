"""Tuples as JSON lines or lines of text, a batch at a time.

JSON as msgspec writes it: str, int, float, bool, None, list, tuple, dict, dataclasses and named
tuples as expected; NaN and infinity, which JSON lacks, as null; `datetime`, `Decimal` and `UUID`
as strings, bytes as base64, sets as lists, enums by their values, NumPy's scalars and arrays as
numbers and lists. Str subclasses, integers of any
length and lone surrogates pass through the standard library's encoder. What neither takes becomes
a dead letter.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from anabranch.runtime.ends import DeadLetter
from anabranch.runtime.payload import describe


def _foreign(value: Any) -> Any:
    """NumPy's scalars and arrays as Python's, without importing NumPy for it."""
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"type {type(value).__name__} has no form in JSON")


_JSON = msgspec.json.Encoder(enc_hook=_foreign)

Encode = Callable[[list[Any]], tuple[bytes, list[DeadLetter]]]


def json_lines(tuples: list[Any]) -> tuple[bytes, list[DeadLetter]]:
    try:
        return _JSON.encode_lines(tuples), []
    except Exception:
        return _one_by_one(tuples, _json_line)


def text_lines(tuples: list[Any]) -> tuple[bytes, list[DeadLetter]]:
    """`str(tuple)` and a line feed; a str as it is, lone surrogates escaped with a backslash."""
    try:
        text = "\n".join(tuples) if set(map(type, tuples)) == {str} else "\n".join(map(str, tuples))
        return f"{text}\n".encode() if tuples else b"", []
    except Exception:
        return _one_by_one(tuples, _text_line)


def _one_by_one(tuples: list[Any], line: Callable[[Any], bytes]) -> tuple[bytes, list[DeadLetter]]:
    lines: list[bytes] = []
    dead: list[DeadLetter] = []
    for one in tuples:
        try:
            lines.append(line(one))
        except Exception as error:
            dead.append(DeadLetter(f"cannot be written: {describe(error)}", one))
    return b"".join(lines), dead


def _json_line(one: Any) -> bytes:
    try:
        return _JSON.encode(one) + b"\n"
    except (TypeError, ValueError, OverflowError):
        return json.dumps(one, allow_nan=False).encode() + b"\n"


def _text_line(one: Any) -> bytes:
    return f"{one}\n".encode(errors="backslashreplace")


FORMATS: dict[str, Encode] = {"jsonl": json_lines, "text": text_lines}
