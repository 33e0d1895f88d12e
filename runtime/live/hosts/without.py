"""Has the runs of a host go on without another one."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.runtime.hosts.pipelines import HostGivenUp
from anabranch.runtime.live.hosts.attended import Attended

NOTED_S = 15.0
"""For a run to note it."""


async def without(runs: Iterable[Attended], home: str, host: str) -> HostGivenUp:
    done: list[str] = []
    refused: dict[str, str] = {}
    for one in [*runs]:
        if one.task is None:
            continue  # it has ended
        if one.process is None:
            refused[one.id] = f"it does not run just now: {one.message}"
            continue
        why = await one.process.give_up(host, NOTED_S)
        if why is None:
            refused[one.id] = "it does not answer"
        elif why:
            refused[one.id] = why
        else:
            done.append(one.id)
    return HostGivenUp(home, host, done, refused)
