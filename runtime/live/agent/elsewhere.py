"""What a run has of other hosts from the agent of its own one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from anabranch.runtime.live.agent.host_sites import ONE_HOST, Elsewhere
from anabranch.runtime.live.hosts.host_directory import HostDirectory
from anabranch.runtime.live.process.process import OnOutput
from anabranch.runtime.live.process.remote import RemoteProcesses
from anabranch.runtime.ports import clock

HOME_S = 10.0
"""For the agent to report its name; it does so at once."""
LOOK_S = 0.01


def elsewhere_of(directory: HostDirectory) -> Elsewhere:
    """Once the agent has reported on which host the run is. Only that one, if it does not."""
    deadline = clock.monotonic() + HOME_S
    while (home := directory.home) is None or home.host not in directory.hosts:
        if clock.monotonic() > deadline:
            return ONE_HOST
        clock.pause(LOOK_S)
    return Elsewhere(
        home.host,
        directory.rooms,
        partial(_processes, directory),
        directory.drained,
        directory.listen,
        directory.tls,
        limits=directory.limits,
        begins=directory.begins,
    )


def _processes(
    directory: HostDirectory,
    host: str,
    on_output: OnOutput,
    on_lost: Callable[[str], None],
    on_followed: Callable[[], None],
) -> RemoteProcesses:
    return RemoteProcesses(host, partial(directory.dial, host), on_output, on_lost, on_followed)
