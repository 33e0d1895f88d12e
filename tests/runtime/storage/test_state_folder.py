"""The lock of a state folder."""

from __future__ import annotations

import random
from pathlib import Path

from anabranch.runtime.ports.disk import using
from anabranch.runtime.storage.state_folder import locked
from anabranch.runtime.world.disk import MemoryDisk
from anabranch.runtime.world.disk_faults import ByChance

FOLDER = Path("/state")


def test_a_folder_for_whose_lock_there_was_no_room_can_be_locked_when_there_is() -> None:
    refused = 0
    for seed in range(30):
        faults = ByChance(random.Random(seed), full=0.5)
        store = MemoryDisk(faults).store_of("agent")
        store.make_folder(FOLDER)
        with using(store):
            try:
                locked(FOLDER, ours=True)
            except OSError:
                refused += 1
                faults.quiet = True
                locked(FOLDER, ours=True)
    assert refused > 10
