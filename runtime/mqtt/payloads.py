"""Payloads of messages as tuples, and tuples as payloads."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any, Literal

import msgpack

from anabranch.runtime.mqtt.senml import resolve
from anabranch.runtime.sinks.encoding import json_lines
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.foreign import describe

Format = Literal["json", "senml", "csv", "msgpack", "text", "bytes"]
READ = ("json", "senml", "csv", "msgpack", "text", "bytes")
WRITTEN = ("json", "csv", "msgpack", "text", "bytes")
DecodePayload = Callable[[bytes, float], list[Any]]
"""Takes a payload and the time when it came. Raises `BadPayload`."""


class BadPayload(ValueError):
    """The payload is not what it was said to be, or the tuple cannot be one."""


def checked_format(given: Any, known: tuple[str, ...]) -> Any:
    if not callable(given) and given not in known:
        raise PipelineError(
            f"mqtt: format must be one of {', '.join(known)}, or a function, got {given!r}"
        )
    return given


def decoder(
    given: Format | Callable[[bytes], Any], header: tuple[str, ...] | None
) -> DecodePayload:
    if callable(given):
        return lambda payload, _: [_called(given, payload)]
    if given == "csv":
        return lambda payload, _: _rows(_text(payload), header)
    return {
        "json": lambda payload, _: [_json(payload)],
        "senml": lambda payload, now_s: resolve(_json(payload), now_s),
        "msgpack": lambda payload, _: [_unpacked(payload)],
        "text": lambda payload, _: [_text(payload)],
        "bytes": lambda payload, _: [payload],
    }[given]


def encoder(given: Format | Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Raises `BadPayload` for a tuple that has no such form."""
    if callable(given):
        return lambda one: _as_bytes(_called(given, one))
    return {
        "json": _as_json,
        "csv": _as_row,
        "msgpack": _packed,
        "text": _as_text,
        "bytes": _as_bytes,
    }[given]


def _called(fn: Callable[[Any], Any], value: Any) -> Any:
    try:
        return fn(value)
    except Exception as error:
        raise BadPayload(describe(error)) from error


def _text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise BadPayload(f"no text in UTF-8: byte {error.start}") from None


def _json(payload: bytes) -> Any:
    try:
        return json.loads(_text(payload), parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise BadPayload(f"no JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise BadPayload("no JSON: nested too deeply") from None


def _no_number(name: str) -> Any:
    raise BadPayload(f"no JSON: {name} is no number there")


def _rows(text: str, header: tuple[str, ...] | None) -> list[Any]:
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error as error:
        raise BadPayload(f"no CSV: {error}") from None
    if header is None:
        return rows
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise BadPayload(f"no CSV: row {number} has {len(row)} fields, not {len(header)}")
    return [dict(zip(header, row, strict=True)) for row in rows]


def _unpacked(payload: bytes) -> Any:
    try:
        return msgpack.unpackb(payload, strict_map_key=False)
    except Exception as error:  # it raises those of several modules
        raise BadPayload(f"no MessagePack: {describe(error)}") from None


def _as_json(one: Any) -> bytes:
    data, dead = json_lines([one])
    if dead:
        raise BadPayload(dead[0].reason)
    return data.removesuffix(b"\n")


def _as_row(one: Any) -> bytes:
    fields = list(one.values()) if isinstance(one, dict) else one
    if not isinstance(fields, (list, tuple)):
        raise BadPayload(f"a row of CSV is a list, a tuple or a dict, not {type(one).__name__}")
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(fields)
    return out.getvalue().encode()


def _packed(one: Any) -> bytes:
    try:
        return bytes(msgpack.packb(one))
    except (TypeError, ValueError, OverflowError) as error:
        raise BadPayload(f"no MessagePack: {error}") from None


def _as_text(one: Any) -> bytes:
    if not isinstance(one, str):
        raise BadPayload(f"expected text, got {type(one).__name__}")
    try:
        return one.encode()
    except UnicodeEncodeError:
        raise BadPayload("text with lone surrogates has no form in UTF-8") from None


def _as_bytes(one: Any) -> bytes:
    if not isinstance(one, (bytes, bytearray)):
        raise BadPayload(f"expected bytes, got {type(one).__name__}")
    return bytes(one)
