"""Extents of journals after losses of power, one behind the other."""

from __future__ import annotations

import itertools
from pathlib import Path

from anabranch.runtime.ports.disk import using
from anabranch.runtime.storage.extent import Extent, ExtentFile, read_extent
from anabranch.runtime.world.disk import MemoryDisk
from anabranch.runtime.world.disk_faults import Left
from tests.runtime.crashes import make_lasting

JOURNAL = Path("/journals/one.0")
NOTED = [Extent(1, 100), Extent(1, 200), Extent(1, 300)]
CUTS = [2, 300, 523, 600, 1_024]
"""Lengths that a file may have after a loss of power; its slots are 512 bytes long."""
SECTORS = [(False, False), (False, True), (True, False), (True, True)]


class _Cut(Left):
    """Files are cut, and these of the sectors are on the disk."""

    def __init__(self, size: int, sectors: tuple[bool, bool]) -> None:
        self._size = size
        self._sectors = itertools.chain(sectors, itertools.repeat(False))

    def size(self, least: int, kept: int, now: int) -> int:
        return min(now, max(kept, self._size))

    def sector(self) -> bool:
        return next(self._sectors)

    def names(self, count: int) -> int:
        return count


def _noted_and_lost(disk: MemoryDisk, process: str, left: Left) -> Extent:
    with using(disk.store_of(process)):
        make_lasting(JOURNAL.parent)
        extent = ExtentFile(JOURNAL)
        for part, size in NOTED:
            extent.note(part, size)
    disk.lose_power(left)
    with using(disk.store_of(f"after the {process}")):
        return read_extent(JOURNAL, power=True)


def test_what_one_loss_of_power_has_torn_is_not_there_beside_what_the_next_one_tears() -> None:
    for first, second in itertools.product(itertools.product(CUTS, SECTORS), repeat=2):
        disk = MemoryDisk()
        for process, left in (("first", first), ("second", second)):
            found = _noted_and_lost(disk, process, _Cut(*left))
            assert found in {Extent(), *NOTED}, (first, second)
