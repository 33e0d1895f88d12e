"""All processes of a world end at once, the agent too, and in some worlds the power with them: the
run goes on from the disk, and the oracle finds what it finds where nothing has happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from anabranch.runtime.live.instance.instance import Instance
from anabranch.runtime.live.journal.journal import Journal
from anabranch.runtime.live.process import instance_process
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.trial import EXACTLY, Trial, Word, drawn, ending, judged
from anabranch.runtime.world.troubles import Troubles
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
        count=60,
        span_s=0.05,
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
    return ending(replace(drawn(1124), delivery="at-most-once"))


@pytest.mark.parametrize(
    "trial",
    [next(with_poison()), losing_power(0.034), leaving(), *map(ending, map(drawn, (2, 14)))],
)
def test_a_run_goes_on_from_what_the_disk_has(trial: Trial) -> None:
    found = judged(trial)
    assert found.word is Word.VALID, found.text


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
    assert any(judged(trial).word is Word.INVALID for trial in trials())
