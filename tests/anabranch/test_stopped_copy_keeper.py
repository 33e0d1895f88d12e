"""A copy keeper that is stopped keeps no writer waiting for ever."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.anabranch.agents import agents
from tests.anabranch.test_give_up_command import check_results, lacks, submit
from tests.anabranch.test_several_hosts import goes_on, three
from tests.runtime.agent_runs import until
from tests.runtime.processes import LINUX


def keepers_of(folder: Path) -> list[int]:
    """Processes that have copies open in a folder below this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                files = [os.readlink(each) for each in (entry / "fd").iterdir()]
            except OSError:
                continue
            if any(name.startswith(str(folder)) and "/copies/" in name for name in files):
                found.append(int(entry.name))
    return found


@pytest.mark.slow
@pytest.mark.skipif(not LINUX, reason="the states of processes are read from /proc")
def test_a_stopped_copy_keeper_is_ended_and_another_one_goes_on(tmp_path: Path) -> None:
    with agents(tmp_path) as started:
        started += three(tmp_path)
        home = started[0]
        until(lambda: set(home.hosts().values()) == {"alive"} and len(home.hosts()) == 3)
        submit(tmp_path, home)
        goes_on(home)
        until(lambda: lacks(home) == {})
        stopped = keepers_of(tmp_path)
        assert stopped
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            until(lambda: not {*stopped} & {*keepers_of(tmp_path)})
        finally:
            for pid in {*stopped} & {*keepers_of(tmp_path)}:
                os.kill(pid, signal.SIGKILL)
        goes_on(home)
        check_results(home)
