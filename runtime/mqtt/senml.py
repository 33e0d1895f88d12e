"""SenML in JSON (RFC 8428): a pack of measurements, resolved to records that stand alone."""

from __future__ import annotations

import base64
import binascii
import math
import re
from typing import Any

VERSION = 10
RELATIVE_BELOW_S = 2.0**28
"""A time below this is relative to now (section 4.5.3)."""
_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9:./_]*")
_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("bn", "bu", "n", "u", "vs", "vd"), str),
    **dict.fromkeys(("bt", "bv", "bs", "bver", "v", "s", "t", "ut"), (int, float)),
    "vb": bool,
}
_BASES = ("bn", "bt", "bu", "bv", "bs")
_VALUES = ("v", "vs", "vb", "vd")


class SenmlError(ValueError):
    """The pack is not as RFC 8428 has it. The message says which record, counted from 1."""


def resolve(pack: Any, now_s: float) -> list[dict[str, Any]]:
    """Records with `n`, `t` (seconds since 1970), `u` if it has a unit, one of `v`, `vs`, `vb`,
    `vd` (bytes) unless it has a sum alone, `s`, `ut`, and labels of others as they are. `now_s`: to
    what relative times are relative. A record of base values alone gives nothing."""
    if not isinstance(pack, list) or not pack:
        raise SenmlError("no SenML: expected an array of records")
    bases: dict[str, Any] = {}
    version: float = VERSION
    found = []
    for number, record in enumerate(pack, 1):
        try:
            version = _check(record, version)
            bases |= {label: record[label] for label in _BASES if label in record}
            if not set(record) <= {*_BASES, "bver"} or "bv" in record or "bs" in record:
                found.append(_resolved(record, bases, now_s))
        except SenmlError as error:
            raise SenmlError(f"no SenML: record {number}: {error}") from None
    return found


def _check(record: Any, version: float) -> float:
    """The version of the pack so far."""
    if not isinstance(record, dict):
        raise SenmlError("expected an object")
    for label, value in record.items():
        kind = _KINDS.get(label)
        if kind is None:
            if label.endswith("_"):
                raise SenmlError(f"{label!r} must be understood, and is not known")
        elif not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise SenmlError(f"{label!r} has a value of another type")
    version = record.get("bver", version)
    if version > VERSION:
        raise SenmlError(f"version {version:g} is not known; expected at most {VERSION}")
    return version


def _resolved(record: dict[str, Any], bases: dict[str, Any], now_s: float) -> dict[str, Any]:
    name = bases.get("bn", "") + record.get("n", "")
    if not _NAME.fullmatch(name):
        raise SenmlError(f"{name!r} is no name" if name else "it has no name")
    at = bases.get("bt", 0) + record.get("t", 0)
    resolved: dict[str, Any] = {"n": name, "t": at if at >= RELATIVE_BELOW_S else now_s + at}
    if (unit := record.get("u", bases.get("bu"))) is not None:
        resolved["u"] = unit
    resolved |= _value(record, bases)
    if "s" in record or "bs" in bases:
        resolved["s"] = bases.get("bs", 0) + record.get("s", 0)
    elif not set(resolved) & set(_VALUES):
        raise SenmlError("it has neither a value nor a sum")
    if any(isinstance(v, float) and not math.isfinite(v) for v in resolved.values()):
        raise SenmlError("a number is beyond the range of floats")
    others = {k: v for k, v in record.items() if k not in _KINDS}
    return {**resolved, **({"ut": record["ut"]} if "ut" in record else {}), **others}


def _value(record: dict[str, Any], bases: dict[str, Any]) -> dict[str, Any]:
    own = [label for label in _VALUES if label in record]
    if len(own) > 1:
        raise SenmlError(f"it has several values: {', '.join(own)}")
    if own and own[0] != "v":
        return {own[0]: _bytes(record["vd"]) if own[0] == "vd" else record[own[0]]}
    if own or ("bv" in bases and "s" not in record and "bs" not in bases):
        return {"v": bases.get("bv", 0) + record.get("v", 0)}
    return {}


def _bytes(text: str) -> bytes:
    """Base64 for URLs, without padding."""
    try:
        padded = text + "=" * (-len(text) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise SenmlError("'vd' is no base64 for URLs") from None
