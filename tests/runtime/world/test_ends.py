"""All processes of a world end at once, the agent too, and in some worlds the power with them: the
run goes on from the disk, and the oracle finds what it finds where nothing has happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.live.instance.instance import Instance
from anabranch.runtime.live.journal.journal import Journal
from anabranch.runtime.live.process import instance_process
from anabranch.runtime.world.drawing import drawn
from anabranch.runtime.world.drawn_trial import EXACTLY, AgentDisk, Trial
from anabranch.runtime.world.load import InputLoad
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.trial import WorldVerdict, judged
from anabranch.runtime.world.troubles import Troubles
from anabranch.runtime.world.variants import ending
from anabranch.runtime.world.world import End

Patch = pytest.MonkeyPatch


def with_poison() -> Iterator[Trial]:
    """A tuple ends its processes, and power is lost."""
    trials = (ending(drawn(seed, "poison")) for seed in range(400))
    return (trial for trial in trials if trial.outlives_power)


def at_the_beginning() -> Iterator[Trial]:
    """Power is lost when the first instances are just there, on a slow disk."""
    return map(losing_power, (at_ms / 1000 for at_ms in range(30, 60)))


def losing_power(at_s: float) -> Trial:
    return replace(
        drawn(2, "chain"),
        load=InputLoad(count=60, span_s=0.05, bursts=()),
        limits=DEFAULT_LIMITS,
        decisions=(),
        conditions=Conditions(),
        troubles=Troubles(),
        killed=0.0,
        full=0.0,
        delivery=EXACTLY,
        ends=(End(at_s, power=True),),
        sync_s=0.005,
    )


def leaving() -> Trial:
    """Power is lost when a source instance is about to leave, and the agent has not noted yet which
    split it has read: nothing but the instance's journal knows it."""
    decisions = (
        *("0.0023 double duplicate", "0.0813 numbers hand_over", "0.1067 numbers leave"),
        *("0.1112 double leave", "0.1310 some duplicate", "0.1354 some duplicate"),
        *("0.2606 numbers duplicate", "0.3332 numbers duplicate", "0.3830 numbers leave"),
    )
    return replace(
        losing_power(0.11738855205709448),
        seed=1124,
        load=InputLoad(count=150, span_s=0.2, bursts=()),
        decisions=decisions,
        conditions=Conditions(latency_s=0.0002, jitter_s=0.001, cuts=0.0),
        delivery="at-most-once",
        sync_s=0.0,
    )


@pytest.mark.parametrize(
    "trial",
    [next(with_poison()), losing_power(0.034), leaving(), *map(ending, map(drawn, (2, 14)))],
)
def test_a_run_goes_on_from_what_the_disk_has(trial: Trial) -> None:
    found = judged(trial)
    assert found.verdict is WorldVerdict.VALID, found.text


BAD_DISK = AgentDisk(full=0.05, unreadable=0.1, unsyncable=0.05, killed=0.02)


def test_whatever_the_disk_does_to_the_agent_another_one_goes_on() -> None:
    """It may wait for room, refuse to begin, give up, or die in the middle of a write."""
    met: Counter[str] = Counter()
    for seed in (2, 14, 33):
        found = judged(replace(ending(drawn(seed)), agent_disk=BAD_DISK))
        assert found.verdict is WorldVerdict.VALID, found.text
        met += found.happened
    wanted = {"full", "unreadable", "unsyncable", "killed"}
    assert {f"agent's disk {kind}" for kind in wanted} - met.keys() == set()


def acknowledges_before_it_syncs(patch: Patch) -> None:
    async def synced(self: Journal) -> None: ...

    patch.setattr(Journal, "synced", synced)


def is_ready_before_it_is_kept(patch: Patch) -> None:
    async def at_once(instance: Instance, begin: Callable[[], None]) -> None:
        begin()

    patch.setattr(instance_process, "_begin_when_kept", at_once)


@pytest.mark.parametrize(
    ("trials", "broken"),
    [
        (with_poison, acknowledges_before_it_syncs),
        (at_the_beginning, is_ready_before_it_is_kept),
    ],
)
def test_a_broken_variant_is_found_out(
    trials: Callable[[], Iterator[Trial]], broken: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    broken(monkeypatch)
    assert any(judged(trial).verdict is WorldVerdict.INVALID for trial in trials())
