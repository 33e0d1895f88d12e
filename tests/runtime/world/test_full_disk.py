"""A disk that is full for a time: instances that begin wait for room, as those do that write."""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from anabranch.runtime.live.agent.starter import START_TRIES_S
from anabranch.runtime.ports import clock
from anabranch.runtime.reporting.report import Report
from anabranch.runtime.values.kinds import EventKind
from anabranch.runtime.world.disk_faults import Blow, DiskFaults
from anabranch.runtime.world.drawn_trial import Trial
from anabranch.runtime.world.load import InputLoad
from anabranch.runtime.world.scenes import SCENES
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.trial import results, world_of
from anabranch.runtime.world.troubles import Troubles

LONG_S = 2 * START_TRIES_S
"""More than an instance has to begin, and more than it is tried again."""


@dataclass
class FullFor(DiskFaults):
    """There is no room for so long. `left`: so many calls that need some find it before."""

    seconds: float
    left: int = 0
    began_s: float | None = None

    def blow(self, process: str, call: str, path: Path, size: int) -> Blow | None:
        if call not in ("make", "append", "extend"):
            return None
        if self.left:
            self.left -= 1
            return None
        now = clock.monotonic()
        self.began_s = now if self.began_s is None else self.began_s
        return Blow(errno.ENOSPC) if now < self.began_s + self.seconds else None


def ran(faults: DiskFaults, troubles: Troubles, scene: str = "chain") -> Report:
    trial = Trial(
        seed=1,
        size="small",
        scene=SCENES[scene],
        load=InputLoad(count=100, span_s=0.5, bursts=()),
        decisions=(),
        conditions=Conditions(),
    )
    world = world_of(replace(trial, troubles=troubles), disk_faults=faults)
    report = world.run()
    assert report.failure is None
    assert [*trial.scene.faults(results(trial, world), trial.load)] == []
    return report


def test_first_instances_wait_for_room_to_begin() -> None:
    report = ran(FullFor(LONG_S), Troubles())
    assert sum(operator.deaths for operator in report.operators) == 0
    (waits, goes_on) = (
        [e for e in report.events if e.kind is kind]
        for kind in (EventKind.WAITS, EventKind.GOES_ON)
    )
    assert {e.instance for e in waits} == {e.instance for e in goes_on} != set()
    assert all("No space left on device" in e.detail for e in waits)


@dataclass
class FullAndKilled(FullFor):
    """And so many processes die that have waited for room longer than a start is tried."""

    to_kill: int = 2

    def blow(self, process: str, call: str, path: Path, size: int) -> Blow | None:
        found = super().blow(process, call, path, size)
        waited_s = 0.0 if self.began_s is None else clock.monotonic() - self.began_s
        if found is None or waited_s < 1.2 * START_TRIES_S or not self.to_kill:
            return found
        self.to_kill -= 1
        return Blow(0)


@pytest.mark.parametrize("left", [40, 60, 80, 100])
def test_an_instance_that_is_resumed_waits_for_room(left: int) -> None:
    """Without that it would die again and again, which ends the run."""
    troubles = Troubles(until_s=LONG_S, kills=0.3, kills_each_max=2)
    report = ran(FullFor(LONG_S, left), troubles)
    assert any(operator.deaths for operator in report.operators)


@pytest.mark.parametrize("left", [20, 60, 100])
def test_one_that_is_killed_after_it_has_waited_for_room_for_long_is_tried_again(left: int) -> None:
    """How long it waited says nothing about the next one."""
    troubles = Troubles(until_s=3.0, kills=3.0, kills_each_max=1)
    report = ran(FullAndKilled(LONG_S, left), troubles)
    assert EventKind.START_FAILED in [event.kind for event in report.events]


def test_the_disk_that_is_full_does_not_hide_an_instance_that_hangs() -> None:
    """It says for as long as it waits that it does."""
    troubles = Troubles(until_s=5.0, hangs=3.0, kills_each_max=1)
    with pytest.raises(AssertionError, match="was not ready within"):
        ran(FullFor(LONG_S), troubles)
