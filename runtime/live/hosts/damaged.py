"""What lies among the pipelines of a host and cannot be read: it is reported, and left alone."""

from __future__ import annotations

from anabranch.runtime.hosts.pipelines import PipelineStatus
from anabranch.runtime.live.hosts.agent_log import AgentLog
from anabranch.runtime.live.hosts.pipeline_folder import DamagedFolder, folder_at, readable
from anabranch.runtime.ports.disk import store

NAMED_MAX = 100
REMEDY = "the agent leaves it alone: remove it, or mend it and start the agent again"
WHOLE = "this was damaged and is whole again; start the agent again to go on with it"


class DamagedPipelines:
    """Looked at anew whenever they are asked for."""

    def __init__(self, host: str, log: AgentLog) -> None:
        self._host = host
        self._log = log
        self._found: list[DamagedFolder] = []
        self._unnamed = 0

    def add(self, damaged: DamagedFolder) -> None:
        if len(self._found) == NAMED_MAX:
            self._unnamed += 1
            return
        self._found.append(damaged)
        self._log.say("damaged", f"{damaged}; {REMEDY}", place=readable(str(damaged.path)))

    def tell_rest(self) -> None:
        """Of those that are too many to be named."""
        if self._unnamed:
            text = f"{self._unnamed} more there are damaged, or are no pipelines; {REMEDY}"
            self._log.say("damaged", text)

    def named(self, wanted: str) -> list[DamagedFolder]:
        """By the name of the folder, or the part of it before the version; all for ""."""
        found = []
        for before in self._found:
            name = before.path.name
            if wanted in ("", name, readable(name), name.partition("@")[0]) and (
                now := _looked_at(before)
            ):
                found.append(now)
        return found

    def statuses(self, wanted: str) -> list[PipelineStatus]:
        return [self._status(damaged) for damaged in self.named(wanted)]

    def _status(self, damaged: DamagedFolder) -> PipelineStatus:
        name = readable(damaged.path.name)
        return PipelineStatus(
            id=name,
            name=name.partition("@")[0],
            version="",
            host=self._host,
            module="",
            state="damaged",
            submitted_at="",
            pid=None,
            starts=0,
            run=None,
            message=str(damaged),
        )


def _looked_at(before: DamagedFolder) -> DamagedFolder | None:
    """As it is now; None if it has gone."""
    try:
        if before.path.name not in store().names(before.path.parent):
            return None
        folder_at(before.path)
    except DamagedFolder as damaged:
        return damaged
    except OSError:
        return before
    return DamagedFolder(before.path, WHOLE)
