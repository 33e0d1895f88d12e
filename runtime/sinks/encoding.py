"""Tuples as JSON lines or lines of text, a batch at a time.

JSON as msgspec writes it: str, int, float, bool, None, list, tuple, dict, dataclasses and named
tuples as expected; `datetime`, `Decimal` and `UUID` as strings, bytes as base64, sets as lists,
enums by their values, NumPy's scalars and arrays as numbers and lists, subclasses as what they
derive from. Integers of any length, lone surrogates and other keys pass through the standard
library's encoder. What neither takes becomes a dead letter, and so does what would be read as
something else: NaN and infinity, which msgspec writes as null, and a dict of which two keys are the
same text, such as 1 and "1". Offsets of time zones with seconds, which msgspec cuts, are written
whole.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import uuid
from collections.abc import Callable
from itertools import chain
from typing import Any

import msgspec

from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.sinks.levels import levels
from anabranch.runtime.values.foreign import describe

_TIMES_OF_NUMPY = "mM"
_TIMES = (dt.datetime, dt.time)
_MINUTE = dt.timedelta(minutes=1)
_TEXT = {str}
_ALONE = [{str}, {int}, {bytes}, set[type]()]
"""Types of keys of which no two are the same text, if a dict has no others."""
_DIGITS = bytes.maketrans(b"123456789", b"000000000")


def _foreign(value: Any) -> Any:
    """What msgspec does not support: a subclass as what it derives from, and NumPy's scalars and
    arrays as Python's, without importing NumPy for it."""
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        plain = value.tolist()
        if type(plain) is not type(value) and not _lost_its_unit(value.dtype.kind, plain):
            return plain
    elif (base := _base(value)) is not None:
        return base
    raise TypeError(f"type {type(value).__name__} has no form in JSON")


def _base(value: Any) -> Any:
    """The same as an object of the known type that its type derives from, if there is one."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, (bytes, bytearray)):
        return b"".join((value,))
    if isinstance(value, decimal.Decimal):
        return decimal.Decimal(value)
    if isinstance(value, uuid.UUID):
        return uuid.UUID(int=value.int)
    return _base_of_time(value)


def _base_of_time(value: Any) -> Any:
    if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):  # of pandas
        return None
    if isinstance(value, dt.datetime):
        of_day = dt.datetime.timetz(value).replace(fold=value.fold)
        return dt.datetime.combine(dt.datetime.date(value), of_day)
    if isinstance(value, dt.date):
        return dt.date(value.year, value.month, value.day)
    if isinstance(value, dt.timedelta):
        return dt.timedelta(value.days, value.seconds, value.microseconds)
    return None


def _lost_its_unit(kind: str, plain: Any) -> bool:
    """Whether a time of NumPy's became a number, or nothing."""
    if isinstance(plain, list):
        return any(_lost_its_unit(kind, one) for one in plain)
    return kind in _TIMES_OF_NUMPY and (plain is None or isinstance(plain, int))


_PLAIN = json.JSONEncoder(allow_nan=False, check_circular=False)
_DENSE = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_JSON = msgspec.json.Encoder(enc_hook=_foreign)

Encode = Callable[[list[Any]], tuple[bytes, list[DeadLetter]]]


def json_lines(tuples: list[Any]) -> tuple[bytes, list[DeadLetter]]:
    try:
        data = _JSON.encode_lines(tuples)
        has_gaps = b"null" in data and _has_no_number(tuples)
        if not has_gaps and _is_written_whole(tuples, data):
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
        by_msgspec = _is_written_whole([one], data)
    except (TypeError, ValueError, OverflowError):
        by_msgspec = False  # lone surrogates, other keys, or what has no form in JSON
    if not by_msgspec:
        data = _DENSE.encode(_builtins(one)).encode()
        _check_keys(one)
    elif b"null" in data and _has_no_number(one):
        raise ValueError("JSON has neither NaN nor infinity")
    return data + b"\n"


def _builtins(one: Any) -> Any:
    """As the standard library's encoder takes it."""
    plain = msgspec.to_builtins(one, enc_hook=_foreign)
    if not any(map(_has_odd_offset, levels([one]))):
        return plain
    kept = msgspec.to_builtins(one, enc_hook=_foreign, builtin_types=(dt.datetime, dt.time))
    return json.loads(json.dumps(kept, allow_nan=False, default=_time_text))


def _time_text(value: dt.datetime | dt.time) -> Any:
    return value.isoformat() if _is_odd(value) else msgspec.to_builtins(value)


def _is_odd(value: dt.datetime | dt.time) -> bool:
    """Whether msgspec would cut the offset of its time zone."""
    offset = value.utcoffset()
    return offset is not None and bool(offset % _MINUTE)


def _has_odd_offset(found: dict[type, list[Any]]) -> bool:
    return any(
        _is_odd(value)
        for kind, values in found.items()
        if issubclass(kind, _TIMES)
        for value in values
    )


def _is_written_whole(tuples: list[Any], data: bytes) -> bool:
    """Whether msgspec has cut nothing, and no two keys of a dict can be the same text. What it has
    made of them shows in most cases where to look, which is cheaper than a look at all values."""
    if b"{" not in data and b":" not in data:
        return True
    digits = data.translate(_DIGITS)
    if b'+00:00"' not in digits and b'-00:00"' not in digits:  # offsets of time zones
        if b"{" not in data:
            return True
        if set(map(type, tuples)) == {dict} and data.count(b"{") == len(tuples):
            return not _has_other_keys({dict: tuples})
    return not any(_has_other_keys(found) or _has_odd_offset(found) for found in levels(tuples))


def _has_other_keys(found: dict[type, list[Any]]) -> bool:
    """Whether keys of a dict are such that two of them may be the same text."""
    for kind, dicts in found.items():
        if issubclass(kind, dict):
            keys = set(chain.from_iterable(map(dict.keys, dicts)))
            if not set(map(type, keys)) <= _TEXT:
                return any(set(map(type, dict.keys(one))) not in _ALONE for one in dicts)
    return False


def _check_keys(one: Any) -> None:
    """Raises `ValueError` if two keys of a dict are the same text."""
    for value in chain.from_iterable(chain.from_iterable(map(dict.values, levels([one])))):
        if isinstance(value, dict):
            names = [_key_text(key) for key in dict.keys(value)]
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise ValueError(f"a dict has two keys that are {twice!r} in JSON")


def _key_text(key: Any) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    (text,) = json.loads(json.dumps(msgspec.to_builtins({key: 0}, enc_hook=_foreign)))
    return str(text)


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


def _text_line(one: Any) -> bytes:
    return f"{one}\n".encode(errors="backslashreplace")


FORMATS: dict[str, Encode] = {"jsonl": json_lines, "text": text_lines}
