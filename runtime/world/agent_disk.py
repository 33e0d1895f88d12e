"""The disk as the agent sees it, and what it may report when that fails: then the same command is
given again, as a user does."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from anabranch.runtime.savepoint.folder import SavepointError
from anabranch.runtime.storage.state_folder import StateError
from anabranch.runtime.world.disk_faults import Blow, DiskFaults

REFUSED = (StateError, SavepointError, OSError)
"""What a command raises that cannot use the state folder, or read a savepoint; nothing has happened
then."""
GIVEN_UP = (
    "the state of the run cannot be kept in",
    "did not start: cannot begin in",
    "did not start: agent.journal: cannot read its extent",
    "the savepoint could not be written",
)
"""What a run reports that has failed because of it; the next one goes on."""
PAUSE_S = 0.05
"""Until the same command is given again."""
LATE_TRIES_MAX = 3
"""So often it may fail when nothing is wrong with the disk any more, or not yet."""


class ByOwner(DiskFaults):
    """Those that instances meet, and those that the agent meets unless it `is_spared`. `agent`:
    name of its store; `others`: of those for which the disk is sound, such as the world itself."""

    def __init__(
        self,
        of_instances: DiskFaults,
        of_agent: DiskFaults,
        *,
        agent: str,
        others: Collection[str],
        is_spared: Callable[[], bool],
    ) -> None:
        self._of_instances = of_instances
        self._of_agent = of_agent
        self._agent = agent
        self._others = others
        self._is_spared = is_spared

    def blow(self, process: str, call: str, path: Path, size: int) -> Blow | None:
        if process in self._others or (process == self._agent and self._is_spared()):
            return None
        faults = self._of_agent if process == self._agent else self._of_instances
        return faults.blow(process, call, path, size)

    def pauses(self, process: str) -> tuple[float, float]:
        return self._of_instances.pauses(process)
