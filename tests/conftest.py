"""What every test needs around it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.runtime.processes import LINUX


@pytest.fixture(autouse=True)
def files_of_the_dead(request: pytest.FixtureRequest) -> Iterator[None]:
    """Who dies within the process of a test closes nothing; it is closed here, after the test."""
    folder = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if folder is None or not LINUX:
        return
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            if Path(os.readlink(f"/proc/self/fd/{number}")).is_relative_to(folder):
                os.close(int(number))
