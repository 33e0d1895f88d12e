"""What a manager has learnt, as bytes: for journals, hand-overs and files. A pack has by which
settings it was learnt, and one that does not fit is refused with both."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgpack
import numpy as np

from anabranch.runtime.policies.hierarchical.learning import Learnt
from anabranch.runtime.policies.hierarchical.levels import Figures
from anabranch.runtime.policies.hierarchical.tables import CostWeights, Form, Tables
from anabranch.runtime.values.checks import PipelineError

PACKED = "anabranch-learnt-1"
PACK_MAX = 64 * 1024
"""Bytes: a heritage has to fit into a frame."""
ARRAYS = ("costs", "levels", "flags", "reached")


class UnfitPack(PipelineError):
    """What was learnt by other settings, or is no pack. The message says how they differ."""


def pack(learnt: Learnt) -> bytes:
    tables = learnt.tables
    arrays = [getattr(tables, name)[0].astype("<f8").tobytes() for name in ARRAYS]
    memory = [learnt.state, learnt.proposed]
    packed: bytes = msgpack.packb(
        [PACKED, _settings(tables.form, tables.weights[0]), memory, arrays]
    )
    if len(packed) > PACK_MAX:
        raise PipelineError(
            f"what was learnt takes {len(packed):,} bytes, and a pack has at most {PACK_MAX:,}: "
            "give the learner fewer sizes or levels"
        )
    return packed


def unpack(packed: bytes, form: Form, weights: CostWeights) -> Learnt:
    """Decides as the one that was packed. Raises `UnfitPack` unless it was learnt by the same form
    and weights."""
    theirs, memory, arrays = _parts(packed)
    ours = _settings(form, weights)
    if theirs != ours:
        names = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
        raise UnfitPack(
            f"what was learnt does not fit: learnt with {_told(theirs, names)}, "
            f"asked for with {_told(ours, names)}"
        )
    tables = Tables(form, [weights])
    tables.restore(*(_array(name, raw, tables) for name, raw in zip(ARRAYS, arrays, strict=True)))
    return _remembered(memory, tables)


def _settings(form: Form, weights: CostWeights) -> dict[str, Any]:
    return asdict(form) | {f"weight of {name}": value for name, value in asdict(weights).items()}


def _told(settings: dict[str, Any], names: list[str]) -> str:
    return ", ".join(f"{name}={settings.get(name)}" for name in names)


def _parts(packed: bytes) -> tuple[dict[str, Any], Any, list[bytes]]:
    try:
        found = msgpack.unpackb(packed)
    except (ValueError, msgpack.UnpackException) as error:
        raise UnfitPack(f"no pack of what was learnt: {error}") from None
    match found:
        case [str(form), dict(settings), memory, [*arrays]] if form == PACKED and len(
            arrays
        ) == len(ARRAYS):
            return settings, memory, arrays
    raise UnfitPack(f"no pack of what was learnt: expected one that begins with {PACKED!r}")


def _array(name: str, raw: object, like: Tables) -> Figures:
    shape = getattr(like, name).shape
    if not isinstance(raw, bytes) or len(raw) != 8 * int(np.prod(shape)):
        raise UnfitPack(f"damaged pack of what was learnt: {name} has another size")
    found = np.frombuffer(raw, dtype="<f8").astype(float).reshape(shape)
    if not (np.isfinite(found).all() and found.min() >= 0):
        raise UnfitPack(f"damaged pack of what was learnt: {name} is not all of 0 or more")
    if name in ("levels", "flags") and not (found.sum(axis=-1) > 0).all():
        raise UnfitPack(f"damaged pack of what was learnt: {name} has a row without counts")
    return found


def _remembered(memory: object, tables: Tables) -> Learnt:
    form = tables.form
    match memory:
        case [None, 0]:
            return Learnt(tables)
        case [[int(size), int(level), int(flag)], int(proposed)] if (
            form.least <= size <= form.most
            and 0 <= level < form.levels
            and 0 <= flag < form.flags
            and proposed in (-1, 0, 1)
        ):
            return Learnt(tables, (size, level, flag), proposed)
    raise UnfitPack("damaged pack of what was learnt: the last state is none")
