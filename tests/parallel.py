"""Which tests share a process, and which begin first, where pytest-xdist runs several processes."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

ONE_SPARK = ("tests/spark_engine/", "tests/spark_bridge/")
"""Each of these folders has one Spark, which is a Java machine, for all its tests."""
LONG = (*ONE_SPARK, "tests/scripts/test_chaos.py", "tests/runtime/world/test_swarm.py")
"""They begin first, in this order, so that at the end no process waits for the last one."""
SPLIT = "test_worlds_are_valid_and_most_prove_something"
"""So long that its parameters are spread over the processes."""


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """The tests of a file share its fixtures, so one process runs them; those of one Spark too."""

    def _split_scope(self, nodeid: str) -> str:
        for folder in ONE_SPARK:
            if nodeid.startswith(folder):
                return folder
        file, _, test = nodeid.partition("::")
        return nodeid if test.startswith(SPLIT) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    config.option.loadscopereorder = False  # it would begin with the files of most tests
    return ByFile(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    return next((n for n, one in enumerate(LONG) if item.nodeid.startswith(one)), len(LONG))
