"""Every point at which a process may be killed or power be lost, one after the other.

A scenario is run again and again on a new disk in memory, and each time ends in the next of its
calls to the disk. What the disk has then is shown to a check, as it is after a kill, and as each
loss of power may have left it.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from anabranch.runtime.ports.disk import store, using
from anabranch.runtime.world.disk import Killed, MemoryDisk
from anabranch.runtime.world.disk_faults import (
    NO_FAULTS,
    NOTHING_LEFT,
    AllOf,
    KilledAt,
    Left,
    Lengths,
    SomeOf,
)

SEEDS = range(2)
AFTER = (0, 1, -1)
"""How many bytes of a write are written before its process is killed in it; -1: all but one."""


@dataclass
class Crash:
    """`point`: of which call, and after how many bytes; `left`: of what was not synced, None if
    only the process was killed."""

    point: tuple[int, int]
    left: str | None

    def __str__(self) -> str:
        return f"call {self.point[0]}, {self.point[1]} bytes; left: {self.left}"


class NotOutlived(AssertionError):
    """A crash after which the check has failed."""


Scenario = Callable[[], Awaitable[None]]
Check = Callable[[], Awaitable[None]]
"""Uses the disk as another process, and raises what it finds wrong."""


def make_lasting(folder: Path) -> None:
    """As the agent does it before anything else."""
    for one in reversed([folder, *folder.parents[:-1]]):
        store().make_folder(one)
        store().sync_folder(one.parent)


async def try_all(scenario: Scenario, check: Check, *, power: bool) -> int:
    """How many crashes were tried. `power`: it is lost with each of them."""
    tried = 0
    for number in range(100_000):
        for after in AFTER:
            faults = KilledAt(number, after)
            disk = MemoryDisk(faults)
            await _begun(disk, scenario)
            if after and not faults.writes:
                break
            for crash, left_over in _ends(disk, (number, after), power):
                await _checked(left_over, check, crash)
                tried += 1
        if not faults.met:
            return tried
    raise AssertionError("the scenario has no end")


async def _begun(disk: MemoryDisk, scenario: Scenario) -> None:
    with using(disk.store_of("first")), contextlib.suppress(Killed):
        await scenario()
    disk.faults = NO_FAULTS


def _ends(
    disk: MemoryDisk, point: tuple[int, int], power: bool
) -> Iterator[tuple[Crash, MemoryDisk]]:
    if not power:
        yield Crash(point, None), disk
        return
    for name, left in _lefts(point):
        after = copy.deepcopy(disk)
        after.lose_power(left)
        yield Crash(point, name), after


def _lefts(point: tuple[int, int]) -> Iterator[tuple[str, Left]]:
    yield "nothing", NOTHING_LEFT
    yield "everything", AllOf()
    yield "contents", AllOf(named=False)
    yield "lengths and names", Lengths(contents=False)
    for seed in SEEDS:
        yield f"seed {seed}", SomeOf(random.Random(f"{point} {seed}"))


async def _checked(disk: MemoryDisk, check: Check, crash: Crash) -> None:
    with using(disk.store_of("second")):
        try:
            await check()
        except Exception as error:
            raise NotOutlived(f"{crash}: {error!r}") from error
