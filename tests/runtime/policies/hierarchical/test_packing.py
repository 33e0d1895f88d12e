"""Packs of what was learnt: they decide as before, and one that does not fit is refused."""

from __future__ import annotations

import random

import msgpack
import numpy as np
import pytest

from anabranch.runtime.policies.hierarchical.learning import Learnt, RegionLearner, RegionView
from anabranch.runtime.policies.hierarchical.packing import (
    PACK_MAX,
    UnfitPack,
    pack,
    unpack,
)
from anabranch.runtime.values.checks import PipelineError

MANAGER = RegionLearner()


def views(seed: int, slots: int) -> list[RegionView]:
    rng = random.Random(seed)
    return [
        RegionView(rng.randint(1, 9), rng.randint(0, 2), rng.randint(0, 4), rng.random(),
                   rng.randint(0, 1))
        for _ in range(slots)
    ]  # fmt: skip


def learnt(slots: int = 60, manager: RegionLearner = MANAGER) -> Learnt:
    memory = manager.begin()
    for view in views(1, slots):
        _, memory = manager.decide(view, memory, enacted=0)
    return memory


@pytest.mark.parametrize("slots", [0, 1, 60])
@pytest.mark.parametrize("by_free_slots", [False, True])
def test_what_is_unpacked_decides_as_what_was_packed(slots: int, by_free_slots: bool) -> None:
    manager = RegionLearner(by_free_slots=by_free_slots)
    one = learnt(slots, manager)
    packed = pack(one)
    assert len(packed) <= PACK_MAX
    other = unpack(packed, manager.form, manager.weights)
    for view in views(2, 40):
        first, one = manager.decide(view, one)
        second, other = manager.decide(view, other)
        assert first == second
    assert pack(one) == pack(other)


@pytest.mark.parametrize(
    ("other", "theirs", "ours"),
    [
        (RegionLearner(hosts_max=20), "most=50", "most=20"),
        (RegionLearner(levels=20), "levels=11", "levels=21"),
        (RegionLearner(gamma=0.9), "gamma=0.99", "gamma=0.9"),
        (RegionLearner(w_d=0.5), "weight of event=0.7", "weight of event=0.5"),
        (RegionLearner(by_free_slots=True), "flags=2", "flags=3"),
        (RegionLearner(fade_days=7), "fade_slots=None", "fade_slots=10080"),
    ],
)
def test_a_pack_that_does_not_fit_is_refused_with_both(
    other: RegionLearner, theirs: str, ours: str
) -> None:
    with pytest.raises(UnfitPack) as refused:
        unpack(pack(learnt(3)), other.form, other.weights)
    learnt_with, _, asked_for = str(refused.value).partition("asked for")
    assert theirs in learnt_with
    assert ours in asked_for


def damaged(part: int, value: object) -> bytes:
    parts = msgpack.unpackb(pack(learnt(3)))
    parts[part] = value
    found: bytes = msgpack.packb(parts)
    return found


def arrays(at: int, raw: bytes) -> list[bytes]:
    found: list[bytes] = msgpack.unpackb(pack(learnt(3)))[3]
    found[at] = raw
    return found


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xc1",
        msgpack.packb("anabranch-learnt-1"),
        damaged(0, "anabranch-learnt-0"),
        damaged(1, ["least"]),
        damaged(2, [[51, 0, 0], 0]),
        damaged(2, [[1, 0, 0], 2]),
        damaged(2, None),
        damaged(3, []),
        damaged(3, arrays(0, b"short")),
        damaged(3, arrays(0, np.full(1122, np.nan).tobytes())),
        damaged(3, arrays(0, np.full(1122, -1.0).tobytes())),
        damaged(3, arrays(1, np.zeros(121).tobytes())),
        pack(learnt(3))[:-1],
    ],
)
def test_what_is_damaged_is_refused(packed: bytes) -> None:
    with pytest.raises(UnfitPack):
        unpack(packed, MANAGER.form, MANAGER.weights)


def test_any_changed_byte_is_refused_or_makes_a_memory_that_can_decide() -> None:
    whole, rng = pack(learnt(20)), random.Random(3)
    for at in rng.sample(range(len(whole)), 150) + list(range(300)):
        broken = bytearray(whole)
        broken[at] ^= 1 << rng.randrange(8)
        try:
            memory = unpack(bytes(broken), MANAGER.form, MANAGER.weights)
        except PipelineError:
            continue
        proposal, _ = MANAGER.decide(views(4, 1)[0], memory)
        assert proposal.action in (-1, 0, 1)


def test_what_is_too_large_for_a_pack_is_refused() -> None:
    large = RegionLearner(hosts_max=200)
    with pytest.raises(PipelineError, match="fewer sizes or levels"):
        pack(large.begin())
