"""The agent of a host: it knows the other hosts, and answers commands.

HostAgent ─┬─ DataFolder: key and incarnation of the host, the secret
           ├─ Door: where it listens
           ├─ Gossip ── HostMembership: which hosts are live
           ├─ Pipelines ── RunProcess: a process for each pipeline
           │      ╰─ HostsNews: which hosts there are
           ├─ PoolKeeper: hosts that it opens and closes
           ├─ HostedRuns ── HostedWorker: a process for each run of another host
           ╰─ RequestServer: what commands ask
"""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.runtime.hosts.config import AgentConfig, host_of, instances_at
from anabranch.runtime.hosts.effects import Changed, Joined, NameTaken
from anabranch.runtime.hosts.host import HostInfo, HostState
from anabranch.runtime.hosts.membership import HostMembership
from anabranch.runtime.hosts.pipelines import FRAME_BYTES_MAX
from anabranch.runtime.hosts.requests import (
    GREETING,
    AskHosts,
    Challenge,
    MarkDrained,
)
from anabranch.runtime.live.hosts.agent_log import AgentLog
from anabranch.runtime.live.hosts.at_broker import may_dial, open_door, take_broker
from anabranch.runtime.live.hosts.data_folder import DataFolder, open_folder
from anabranch.runtime.live.hosts.door import Door
from anabranch.runtime.live.hosts.gossip import GOSSIP, Gossip, Told
from anabranch.runtime.live.hosts.hosted_runs import HostedRuns
from anabranch.runtime.live.hosts.hosted_worker import WorkerOrder, order_for
from anabranch.runtime.live.hosts.hosts_desk import HostsDesk
from anabranch.runtime.live.hosts.hosts_news import HostsNews, HostsTold
from anabranch.runtime.live.hosts.lines import KEPT, Lines
from anabranch.runtime.live.hosts.pipeline_desk import PipelineDesk, in_words
from anabranch.runtime.live.hosts.pipelines import Pipelines
from anabranch.runtime.live.hosts.pool_keeper import PoolKeeper, keeper_of
from anabranch.runtime.live.hosts.refusals import Refusals
from anabranch.runtime.live.hosts.request_server import RequestServer
from anabranch.runtime.live.hosts.tls import TlsFolder, check_agent
from anabranch.runtime.ports import clock

if TYPE_CHECKING:
    from anabranch.runtime.live.hosts.lan import Lan

_IN_WORDS = {
    HostState.ALIVE: "is alive",
    HostState.SUSPECTED: "does not answer",
    HostState.DEAD: "is taken for dead",
    HostState.LEFT: "has left",
}


SOON_DAYS = 30.0
"""A certificate that ends earlier is reported with what to do."""
INTERRUPTED = 130
"""Exit code."""
DRAINED, TAKES_AGAIN = "is drained: instances leave it", "takes instances again"


class AgentFailed(Exception):
    """The agent cannot go on. The message says why, and what can be done."""


class HostAgent:
    """`command`: `anabranch run` as a list of words."""

    def __init__(
        self, config: AgentConfig, version: str, log: AgentLog, command: Sequence[str]
    ) -> None:
        self.config = config
        self.version = version
        self._log = log
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._folder: DataFolder
        self._gossip: Gossip
        self._command = command
        self._pipelines: Pipelines
        self._told = HostsTold(config.name, version, config.tls)
        self._news: HostsNews | None = None
        self._pool: PoolKeeper | None = None
        self._hosted = HostedRuns(
            Path(config.data) / "hosted", config.name, version, command, self._order, log
        )
        self._joined = False
        self._refusals = Refusals(log)
        self._tls: TlsFolder | None = None

    async def run(self) -> None:
        """Until SIGTERM or Ctrl-C. Raises `AgentFailed`, `FolderError`, `TlsError`."""
        if (config := self.config).tls:
            self._take_certificate(Path(config.tls))
        self._folder = folder = open_folder(Path(config.data))
        for damaged in folder.damaged:
            self._log.say("damaged", damaged)
        try:
            take_broker(config, folder.path, self._log)
            parent = folder.path / "pipelines"
            self._pipelines = Pipelines(
                parent, config.name, self._command, config.warm, self._log, self._told
            )
            self._pipelines.is_drained = folder.is_drained
            door = Door(
                {
                    GOSSIP: lambda stream: self._gossip.answer(stream),
                    KEPT: lambda stream: self._gossip.answer_in_turns(stream),
                    GREETING: self._request_server().serve,
                },
                self._refusals,
                self._tls,
            )
            address = await self._open(door)
            self._gossip = self._gossip_at(address)
            self._take_signals()
            self._log.say(
                "started",
                f"listens at {address}; data in {folder.path}",
                address=address,
                data=str(folder.path),
            )
            self._gossip.start()
            lan = self._on_lan(self._gossip.membership.me)
            try:
                self._begin_work()
                await self._over
            except OSError as error:
                raise AgentFailed(f"cannot use {in_words(error)}") from None
            finally:
                await self._close(lan)
                door.close()
                self._log.say("left", "has left")
        finally:
            folder.close()

    def _begin_work(self) -> None:
        """Raises `OSError`."""
        self._hosted.open()
        news = self._news = HostsNews(
            self._gossip.membership, self._told, lambda: self._pipelines.tell_hosts(self._told)
        )
        news.start()
        self._pipelines.resume()
        own = (self.config, self._gossip.membership, self._pipelines, self._told, news)
        if pool := keeper_of(*own, self._command, self._log):
            self._pool = pool.start()

    async def _close(self, lan: Lan | None) -> None:
        if self._news is not None:
            self._news.close()
        if self._pool is not None:
            self._pool.pause()
        closed = [] if lan is None else [lan.close()]
        await asyncio.gather(
            self._gossip.leave(), self._pipelines.close(), self._hosted.close(), *closed
        )
        if self._pool is not None:
            await self._pool.leave()

    def _order(self, state: Path) -> WorkerOrder:
        return order_for(instances_at(self._gossip.membership.me.address), state, self.config.tls)

    def _gossip_at(self, address: str) -> Gossip:
        config, folder = self.config, self._folder
        advertised = address if config.advertise == config.bind else config.advertise
        me = host_of(
            config,
            advertised,
            folder.key,
            folder.incarnation,
            self.version,
            drained=folder.is_drained,
        )
        lines = None if self._tls is None else Lines(self._tls, self._refusals)
        membership = HostMembership(
            me,
            config.seeds,
            clock.chance(),
            clock.monotonic(),
            None if lines is None else lines.cost,
        )
        return Gossip(
            membership, self._tell, self._keep, partial(may_dial, config), lines, self._refusals
        )

    def _take_certificate(self, folder: Path) -> None:
        def changed(wrong: str) -> None:
            told = f"{wrong}; the one before counts on" if wrong else "it counts from now on"
            text = f"{folder} has changed: {told}"
            self._log.say("certificate", text, wrong=wrong)

        self._tls = TlsFolder(folder, changed, self._check_certificate)

    def _check_certificate(self, folder: Path) -> None:
        """Raises `TlsError`."""
        until = check_agent(folder, self.config.name, self.config.advertise)
        days = (ssl.cert_time_to_seconds(until) - clock.wall()) / 86_400
        text = f"has a certificate that is valid until {until}"
        if days < SOON_DAYS:
            text += f", {days:.0f} days from now; put another one into {folder} before that"
        self._log.say("certificate", text, until=until)

    async def _open(self, door: Door) -> str:
        try:
            return await open_door(door, self.config)
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise AgentFailed(
                f"cannot listen at {self.config.bind}: {why}; does another agent run there? "
                "--bind 127.0.0.1:0 takes any free port"
            ) from None

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._end)

    def _end(self) -> None:
        """The second time at once: the runs end by themselves when this process is gone, and are
        kept."""
        if self._over.done():
            os._exit(INTERRUPTED)
        self._over.set_result(None)

    # -- gossip ----------------------------------------------------------------------------

    def _on_lan(self, me: HostInfo) -> Lan | None:
        """What is found there is a seed."""
        if not self.config.mdns:
            return None
        from anabranch.runtime.live.hosts.lan import Lan

        seeds, own = self._gossip.membership.seeds, {*self.config.seeds}

        def found(address: str) -> None:
            seeds.setdefault(address, "")
            self._log.say("mdns", f"mDNS names an agent at {address}", address=address)

        def lost(address: str) -> None:
            if address not in own:
                seeds.pop(address, None)

        def failed(why: str) -> None:
            self._log.say("mdns", f"cannot use mDNS: {why}; the host goes on with its seeds")

        lan = Lan(me, self.config.bind, found, lost, failed)
        lan.start()
        return lan

    def _drain(self, drained: bool) -> None:
        """Raises `OSError`."""
        if drained is self._gossip.membership.me.drained:
            return
        self._folder.keep_drained(drained=drained)
        self._pipelines.is_drained = drained
        self._gossip.drain(drained=drained)
        self._log.say("drained", DRAINED if drained else TAKES_AGAIN, drained=drained)
        if self._news is not None:
            self._news.note_changed()

    def _keep(self, incarnation: int) -> None:
        """A host that cannot keep its incarnation may send nothing more."""
        try:
            self._folder.keep(incarnation)
        except OSError as error:
            self._gossip.close()
            if not self._over.done():
                text = f"cannot write to {self._folder.path}: {error.strerror}; make room there"
                self._over.set_exception(AgentFailed(text))

    def _tell(self, told: Told) -> None:
        match told:
            case Joined():
                self._joined = True
                self._log.say("joined", "other hosts have answered")
            case Changed(host, _, state):
                if self._news is not None:
                    self._news.note_changed()
                where = f" at {host.address}" if state is HostState.ALIVE else ""
                text = f"host {host.name}{where} {_IN_WORDS[state]}{', drained' * host.drained}"
                self._log.say(state.name.lower(), text, about=host.name, address=host.address)
            case NameTaken(holder):
                self._be_refused(holder)

    def _be_refused(self, holder: str | None) -> None:
        me = self._gossip.membership.me
        text = _why_refused(holder, me, self._folder.path)
        self._log.say("refused", text, holder=holder)
        if not self._joined and holder not in (None, me.address) and not self._over.done():
            self._over.set_exception(AgentFailed(text))

    # -- requests --------------------------------------------------------------------------

    def _request_server(self) -> RequestServer:
        folder = self._folder

        def challenge(nonce: bytes) -> Challenge:
            return Challenge(nonce, self.config.name, self.version, str(folder.token_file))

        desk = PipelineDesk(self._pipelines)
        hosts = HostsDesk(
            lambda: self._gossip.membership,
            self._refusals,
            self._drain,
            lambda: self._pipelines.running,
            lambda: self._hosted.homes,
        )
        return RequestServer(
            challenge,
            folder.secret,
            {AskHosts: hosts.tell},
            {**desk.handlers, **self._hosted.handlers, MarkDrained: hosts.drain},
            FRAME_BYTES_MAX,
            self._refusals,
        )


def _why_refused(holder: str | None, me: HostInfo, folder: Path) -> str:
    if holder is None:
        return "the other hosts have no room for another one"
    if holder == me.address:
        return (
            f"was known at this address with another data folder than {folder}; it waits until the "
            "others take that one for dead"
        )
    return (
        f"another live host, at {holder}, has the name {me.name!r}; give this one another name "
        "with --name"
    )
