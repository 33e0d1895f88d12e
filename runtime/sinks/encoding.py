"""Tuples as JSON lines or lines of text, a batch at a time.

JSON as msgspec writes it: str, int, float, bool, None, list, tuple, dict, dataclasses and named
tuples as expected; `datetime`, `Decimal` and `UUID` as strings, bytes as base64, sets as lists,
enums by their values, NumPy's scalars and arrays as numbers and lists. Str subclasses, integers of
any length and lone surrogates pass through the standard library's encoder. What neither takes
becomes a dead letter, and so does what would be read as something else: NaN and infinity, which
msgspec writes as null, and a dict of which two keys are the same text, such as 1 and "1".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from anabranch.runtime.ends import DeadLetter
from anabranch.runtime.foreign import describe

_DIGITS = bytes.maketrans(b"-123456789", b"0000000000")
_TIMES_OF_NUMPY = "mM"


def _foreign(value: Any) -> Any:
    """NumPy's scalars and arrays as Python's, without importing NumPy for it."""
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        plain = value.tolist()
        if type(plain) is not type(value) and not _lost_its_unit(value.dtype.kind, plain):
            return plain
    raise TypeError(f"type {type(value).__name__} has no form in JSON")


def _lost_its_unit(kind: str, plain: Any) -> bool:
    """Whether a time of NumPy's became a number, or nothing."""
    if isinstance(plain, list):
        return any(_lost_its_unit(kind, one) for one in plain)
    return kind in _TIMES_OF_NUMPY and (plain is None or isinstance(plain, int))


_PLAIN = json.JSONEncoder(allow_nan=False, check_circular=False)
_JSON = msgspec.json.Encoder(enc_hook=_foreign)

Encode = Callable[[list[Any]], tuple[bytes, list[DeadLetter]]]


def json_lines(tuples: list[Any]) -> tuple[bytes, list[DeadLetter]]:
    try:
        data = _JSON.encode_lines(tuples)
        has_gaps = b"null" in data and _has_no_number(tuples)
        if not (has_gaps or _may_have_other_keys(data)):
            return data, []
    except KeyboardInterrupt:
        raise
    except BaseException:  # some tuple cannot be written, or be looked at
        pass
    return _one_by_one(tuples, _json_line)


def text_lines(tuples: list[Any]) -> tuple[bytes, list[DeadLetter]]:
    """`str(tuple)` and a line feed; a str as it is, lone surrogates escaped with a backslash."""
    try:
        text = "\n".join(tuples) if set(map(type, tuples)) == {str} else "\n".join(map(str, tuples))
        return f"{text}\n".encode() if tuples else b"", []
    except KeyboardInterrupt:
        raise
    except BaseException:
        return _one_by_one(tuples, _text_line)


def _one_by_one(tuples: list[Any], line: Callable[[Any], bytes]) -> tuple[bytes, list[DeadLetter]]:
    lines: list[bytes] = []
    dead: list[DeadLetter] = []
    for one in tuples:
        try:
            lines.append(line(one))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            dead.append(DeadLetter(f"cannot be written: {describe(error)}", one))
    return b"".join(lines), dead


def _json_line(one: Any) -> bytes:
    try:
        data = _JSON.encode(one)
    except (TypeError, ValueError, OverflowError):
        data = json.dumps(one, allow_nan=False).encode()
    else:
        if b"null" in data and _has_no_number(one):
            raise ValueError("JSON has neither NaN nor infinity")
    if b"{" in data:
        json.loads(data, object_pairs_hook=_check_names, parse_int=str)
    return data + b"\n"


def _has_no_number(value: Any) -> bool:
    """Whether NaN or infinity is anywhere in it."""
    try:
        try:
            _PLAIN.encode(value)
        except TypeError:
            _PLAIN.encode(msgspec.to_builtins(value, enc_hook=_foreign))
    except ValueError:
        return True
    return False


def _may_have_other_keys(data: bytes) -> bool:
    """Whether a key that is no str may be in it: such as numbers and times. A look at the dicts
    themselves would take longer than to write them."""
    if b"{" not in data:
        return False
    digits = data.translate(_DIGITS)
    return b'{"0' in digits or b',"0' in digits


def _check_names(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"a dict has two keys that are {twice!r} in JSON")


def _text_line(one: Any) -> bytes:
    return f"{one}\n".encode(errors="backslashreplace")


FORMATS: dict[str, Encode] = {"jsonl": json_lines, "text": text_lines}
