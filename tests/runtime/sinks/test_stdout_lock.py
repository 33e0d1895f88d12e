"""The lock by which sinks of standard output take turns, on a disk of a world."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path

from anabranch.runtime.ports.disk import using
from anabranch.runtime.sinks.stdout import Stdout
from anabranch.runtime.world.disk import MemoryDisk
from anabranch.runtime.world.disk_faults import Blow, DiskFaults
from tests.runtime.reading import context
from tests.runtime.virtual_time import in_virtual_time


class FullAtFirst(DiskFaults):
    left = 3

    def blow(self, process: str, call: str, path: Path, size: int) -> Blow | None:
        if call not in ("extend", "write") or not self.left:
            return None
        self.left -= 1
        return Blow(errno.ENOSPC)


@in_virtual_time
async def test_a_lock_for_which_there_is_no_room_is_waited_for() -> None:
    """It says before a long line that this may be torn."""
    faults = FullAtFirst()
    out, into = os.pipe()
    try:
        with using(MemoryDisk(faults).store_of("only")):
            here = dataclasses.replace(context(), run_dir=Path("/"))
            assert await Stdout("text", into).open(here).write(["x" * 5_000]) == []
        assert os.read(out, 10_000) == b"x" * 5_000 + b"\n"
    finally:
        os.close(out)
        os.close(into)
    assert faults.left == 0
