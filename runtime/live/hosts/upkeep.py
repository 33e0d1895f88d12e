"""Keeps the process of a pipeline running: one that was killed begins again, and goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from anabranch.runtime.live.hosts.agent_log import AgentLog
from anabranch.runtime.live.hosts.attendance import RunProcess
from anabranch.runtime.live.hosts.attended import STOPPED, Attended
from anabranch.runtime.live.hosts.hosts_news import HostsTold
from anabranch.runtime.live.hosts.pipeline_folder import new_run
from anabranch.runtime.ports.disk import store
from anabranch.runtime.storage.state_folder import in_use_by

ANSWER_S = 3.0
"""For figures of a run."""
ASK_EVERY_S = 0.2
FORMER_S = 0.1
"""Between two looks whether a process of a former agent has ended."""
WAIT_S, WAIT_MAX_S = 1.0, 60.0
"""Before a process that was killed begins again: doubled each time, and 1 s after one that has
begun its run."""


class Upkeep:
    """Of all pipelines of a host. `command`: `anabranch run` as a list of words. `hosts`: what runs
    get about other hosts; None: nothing."""

    def __init__(
        self, command: Sequence[str], warm: int, log: AgentLog, hosts: HostsTold | None = None
    ) -> None:
        self.closing = False
        """Whether the agent ends: then a process that ends does not begin again."""
        self._command = command
        self._warm = warm
        self._log = log
        self._hosts = hosts

    def start(self, one: Attended) -> None:
        one.message = ""
        one.news.clear()
        one.task = asyncio.create_task(self._keep_running(one), name=f"pipeline {one.id}")
        one.task.add_done_callback(lambda task: self._over(one, task))

    def _over(self, one: Attended, task: asyncio.Task[None]) -> None:
        one.task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            one.message = f"the agent itself has failed: {error!r}; start it again to go on"
            self._log.say("failed", f"pipeline {one.id}: {one.message}", pipeline=one.id)
        one.news.set()
        one.printed.set()

    async def _keep_running(self, one: Attended) -> None:
        wait_s = WAIT_S
        while True:
            code, why = 0, ""
            await self._former_ended(one)
            try:
                code = await self._run_once(one)
            except OSError as error:
                why = f"its process cannot begin: {error.strerror}"
                one.news.set()
            if self.closing:
                return
            if not why and code >= 0 and (code != STOPPED or one.folder.record.ending):
                state, message = one.verdict(code)
                one.end(state, message)
                text = f"pipeline {one.id} has {state}{message and f': {message}'}"
                self._log.say(state, text, pipeline=one.id)
                return
            how = f"by signal {-code}" if code < 0 else "from outside"
            one.message = (
                f"{why or f'its process was ended {how}'}; it begins again in {wait_s:.0f} s"
            )
            self._log.say("waiting", f"pipeline {one.id}: {one.message}", pipeline=one.id)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, WAIT_MAX_S)

    async def _former_ended(self, one: Attended) -> None:
        """A run whose agent was killed takes some seconds to stop, longer if a host that it uses is
        away; until then it has the state folder."""
        while (former := in_use_by(one.folder.state)) is not None:
            message = f"its former process ({former}) has not ended yet"
            if one.message != message:
                one.message = message
                self._log.say("waiting", f"pipeline {one.id}: {message}", pipeline=one.id)
                one.news.set()
            await asyncio.sleep(FORMER_S)

    async def _run_once(self, one: Attended) -> int:
        folder = one.folder
        if not folder.record.run or (folder.record.begun and not folder.is_kept):
            folder.note(run=new_run())  # what other hosts have kept is of another run
        record = folder.record
        store().remove(folder.report)
        target = f"{record.module}:{record.variable}" if record.variable else record.module
        settings = [word for each in record.settings for word in ("--set", each)]
        options = ["--state", "../state", "--resume-or-begin", "--report", "../report.json"]
        begins = [*self._command, target, *options, "--warm", str(self._warm), *settings]
        process = await RunProcess.begin([*begins, "--attended"], folder.files, one.add_output)
        one.process = process
        one.starts += 1
        if self._hosts is not None:
            process.tell_hosts(self._hosts.home_of(folder), self._hosts.offers)
        if record.ending:  # the process before was killed while it ended
            process.tell(record.ending)
        self._log.say("begins", f"pipeline {one.id} begins", pipeline=one.id, pid=process.pid)
        watch = asyncio.create_task(self._watch_begin(one, process), name=f"begin of {one.id}")
        try:
            return await process.ended()
        finally:
            watch.cancel()
            one.process = None

    async def _watch_begin(self, one: Attended, process: RunProcess) -> None:
        while True:
            if await process.ask(ANSWER_S):
                break
            await asyncio.sleep(ASK_EVERY_S)
        if not one.folder.record.begun:
            one.note(begun=True)
        one.news.set()
        self._log.say("runs", f"pipeline {one.id} runs", pipeline=one.id)
