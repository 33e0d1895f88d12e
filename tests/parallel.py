"""Which tests share a process, and which begin first, where pytest-xdist runs several processes."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

ONE_SPARK = ("tests/spark_engine/", "tests/spark_bridge/")
"""Each of these folders has one Spark, which is a Java machine, for all its tests."""
LONG = (*ONE_SPARK, "tests/scripts/test_chaos.py")
"""They begin first, in this order, so that at the end no process waits for the last one."""
LAST = ("tests/runtime/keyed/", "tests/runtime/explorer/", "tests/runtime/world/")
"""They fork little and leave much in memory, which each run after them would fork, too."""
SWARM = "tests/runtime/world/test_swarm.py"
"""So long that its tests are spread over the processes, each by itself: short work for the end."""


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """The tests of a file share its fixtures, so one process runs them; those of one Spark too."""

    def _split_scope(self, nodeid: str) -> str:
        for folder in ONE_SPARK:
            if nodeid.startswith(folder):
                return folder
        return nodeid if nodeid.startswith(SWARM) else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    config.option.loadscopereorder = False  # it would begin with the files of most tests
    return ByFile(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _turn(item.nodeid))


def _turn(nodeid: str) -> int:
    turns = (*LONG, None, *LAST, SWARM)
    named = [n for n, begin in enumerate(turns) if begin and nodeid.startswith(begin)]
    return named[-1] if named else turns.index(None)
