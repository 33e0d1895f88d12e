"""Keeps as many hosts as the controllers of the pipelines here have planned (`runtime.hosts.pool`).

    plans of runs ─▶ pool ─▶ open ─▶ provider        gossip says that it is there
                       ╰───▶ drain ─▶ runs relocate ─▶ empty ─▶ checked ─▶ close

Each pipeline counts its hosts for itself, so the pool has room for all of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self

import msgspec

from anabranch.runtime.hosts.config import AgentConfig, ProviderConfig
from anabranch.runtime.hosts.host import HostState
from anabranch.runtime.hosts.membership import HostMembership
from anabranch.runtime.hosts.pipelines import PipelineStatus
from anabranch.runtime.hosts.pool import (
    ClosePoolHost,
    DrainPoolHost,
    HostPool,
    OpenHost,
    PoolAct,
    PooledHost,
    PooledRun,
    PoolPhase,
    PoolRules,
    why_in_use,
)
from anabranch.runtime.hosts.requests import HostDrained, MarkDrained
from anabranch.runtime.live.hosts.agent_log import AgentLog
from anabranch.runtime.live.hosts.client import AgentError, agent_at
from anabranch.runtime.live.hosts.host_provider import (
    CheckedProvider,
    HostCommands,
    HostProvider,
    LocalHosts,
    ProviderFailed,
)
from anabranch.runtime.live.hosts.hosts_news import HostsNews, HostsTold
from anabranch.runtime.live.hosts.pipelines import Pipelines
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store
from anabranch.runtime.storage.replaced import replace_file

LOOK_S = 2.0
FOUND_S = 10.0
"""For a host of a former agent to be heard of, before it is opened again."""
ENDED = ("finished", "stopped", "failed", "damaged")
"""States of pipelines that have no instances."""
TELLING = ("running", "ending", "closing")


def keeper_of(
    config: AgentConfig,
    membership: HostMembership,
    pipelines: Pipelines,
    told: HostsTold,
    news: HostsNews,
    command: Sequence[str],
    log: AgentLog,
) -> PoolKeeper | None:
    """None where the hosts are fixed. `command`: `anabranch run`."""
    settings = config.provider
    if settings is None or settings.kind == "fixed":
        return None
    provider = _provider_of(settings, config, membership.me.address, command)
    tls = Path(config.tls) if config.tls else None
    return PoolKeeper(
        settings, provider, Path(config.data), membership, pipelines, told, news, tls, log
    )


class PoolKeeper:
    """`folder`: where it keeps the names of its hosts, and where they were last."""

    def __init__(
        self,
        settings: ProviderConfig,
        provider: HostProvider,
        folder: Path,
        membership: HostMembership,
        pipelines: Pipelines,
        told: HostsTold,
        news: HostsNews,
        tls: Path | None,
        log: AgentLog,
    ) -> None:
        self._provider = CheckedProvider(provider, self._in_use)
        self._membership = membership
        self._pipelines = pipelines
        self._told = told
        self._news = news
        self._tls = tls
        self._log = log
        self._file = folder / "pool.json"
        prefix = settings.name or f"{membership.me.name}-"
        self._rules = PoolRules(prefix, settings.hosts_max, settings.boot_s)
        self._written: dict[str, str] = {}
        self._pool = self._kept()
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> Self:
        self._tell(self._others())
        self._task = asyncio.create_task(self._go_on(), name="pool of hosts")
        return self

    def pause(self) -> None:
        """The runs are about to end, which is no reason to close hosts."""
        for task in (self._task, *self._under_way.values()):
            if task is not None:
                task.cancel()

    async def leave(self) -> None:
        """After the runs."""
        self.pause()
        await self._provider.leave()

    async def _go_on(self) -> None:
        while True:
            try:
                await self._look()
            except OSError as error:
                self._log.say("disk", f"cannot keep the names of hosts: {error.strerror}")
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        """Raises `OSError`."""
        runs = pooled_runs(await self._pipelines.statuses(""))
        others, rows = self._others(), [*self._membership.table]
        live = (row.host.name for row in rows if row.state.is_live)
        drained = (row.host.name for row in rows if row.host.drained)
        sight = self._pool.sight(runs, clock.monotonic(), others, live, drained)
        acts, pool = self._pool.step(sight)
        new = {act.name for act in acts} - self._under_way.keys()
        self._take(pool)
        for act in acts:
            if act.name in new and act.name not in self._under_way:
                task = asyncio.create_task(self._carry_out(act), name=f"pool {act.name}")
                self._under_way[act.name] = task
                task.add_done_callback(partial(self._is_done, act.name))
        self._tell(others)

    def _is_done(self, name: str, _task: asyncio.Task[None]) -> None:
        self._under_way.pop(name, None)

    def _others(self) -> int:
        """Live hosts that are none of the pool."""
        rows = [row for row in self._membership.table if row.state.is_live and not row.host.drained]
        return sum(row.host.name not in self._pool.hosts for row in rows)

    async def _carry_out(self, act: PoolAct) -> None:
        try:
            match act:
                case OpenHost(name):
                    self._log.say("opens", f"opens host {name}", about=name)
                    await self._provider.open(name)
                case DrainPoolHost(name, drained):
                    await self._mark(name, drained=drained)
                case ClosePoolHost(name):
                    await self._provider.close(name)
                    self._log.say("closed", f"has closed host {name}", about=name)
                    self._take(self._pool.closed(name, "", clock.monotonic()))
        except (ProviderFailed, AgentError, OSError) as error:
            self._note_failure(act, str(error))

    def _note_failure(self, act: PoolAct, why: str) -> None:
        now_s, what = clock.monotonic(), "drain"
        with suppress(OSError):
            if isinstance(act, OpenHost):
                what = "open"
                self._take(self._pool.failed(act.name, why, now_s))
            elif isinstance(act, ClosePoolHost):
                what = "close"
                self._take(self._pool.closed(act.name, why, now_s))
        self._log.say("pool", f"cannot {what} host {act.name}: {why}", about=act.name)

    # -- the way to a host -----------------------------------------------------------------

    async def _mark(self, name: str, *, drained: bool) -> HostDrained:
        """Raises `AgentError`."""
        row = self._membership.table.get(name)
        if row is None:
            raise AgentError("it is not known")
        async with agent_at(row.host.address, None, tls=self._tls) as agent:
            if agent.unproved:
                raise AgentError(agent.unproved)
            agent.ask(MarkDrained(drained))
            return await agent.reply(HostDrained)

    async def _in_use(self, name: str) -> str:
        """Why there may be an instance on it; empty if there is none, and none can come: no run
        makes any on a host that it knows to be drained."""
        row = self._membership.table.get(name)
        if row is not None:
            if row.state not in (HostState.ALIVE, HostState.SUSPECTED):
                return "it does not answer"
            try:
                marked = await self._mark(name, drained=True)
            except AgentError as error:
                return str(error)
            elsewhere = [home for home in marked.homes if home != self._membership.me.name]
            if used := [*marked.stays, *(f"pipelines of {home}" for home in elsewhere)]:
                return f"it is used by {', '.join(used)}"
        runs = pooled_runs(await self._pipelines.statuses(""))
        return why_in_use(runs, name, is_known=row is not None)

    # -- what is kept and told -------------------------------------------------------------

    def _kept(self) -> HostPool:
        try:
            self._written = msgspec.json.decode(store().read(self._file), type=dict[str, str])
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            self._log.say("damaged", f"{self._file}: {error}; hosts of the pool are not known")
        for address in filter(None, self._written.values()):
            self._membership.seeds.setdefault(address, "")
        now_s = clock.monotonic()
        kept = (
            PooledHost(name, PoolPhase.OPENING, now_s, due_s=now_s + FOUND_S, joined=True)
            for name in self._written
        )
        return HostPool(self._rules, {host.name: host for host in kept})

    def _take(self, pool: HostPool) -> None:
        """Raises `OSError`: then it counts all the same."""
        self._pool = pool
        rows = {name: self._membership.table.get(name) for name in sorted(pool.hosts)}
        now = {
            name: self._written.get(name, "") if row is None else row.host.address
            for name, row in rows.items()
        }
        if now != self._written:
            replace_file(self._file, msgspec.json.encode(now))
            self._written = now

    def _tell(self, others: int) -> None:
        told, pool = self._told, self._pool
        said = (others + self._rules.hosts_max, pool.refused, pool.leaving)
        if said != (told.hosts_max, told.refused, told.leaving):
            told.hosts_max, told.refused, told.leaving = said
            self._pipelines.tell_hosts(told)
            self._news.note_changed()


def pooled_runs(statuses: Iterable[PipelineStatus]) -> list[PooledRun]:
    """Of those that have not ended."""
    return [_pooled(one) for one in statuses if one.state not in ENDED]


def _pooled(one: PipelineStatus) -> PooledRun:
    run = one.run
    if run is None or one.state not in TELLING:
        return PooledRun(one.id, answers=False)
    planned = [each["hosts"] for each in run["controllers"] if each["hosts"] is not None]
    instances = Counter[str](run["ending"])
    for operator in run["operators"]:
        instances.update(operator["hosts"])
    return PooledRun(
        one.id,
        planned=max(planned, default=None),
        instances=instances,
        drained=frozenset(run["drained"]),
        away=frozenset(run["away"]),
    )


def _provider_of(
    settings: ProviderConfig, config: AgentConfig, address: str, command: Sequence[str]
) -> HostProvider:
    if settings.kind == "command":
        return HostCommands(settings.open, settings.close, address, settings.boot_s)
    own = ["--bind", "127.0.0.1:0", "--seed", address, "--region", config.region]
    own += [word for key, value in config.labels.items() for word in ("--label", f"{key}={value}")]
    own += ["--cores", str(settings.cores), "--memory-mb", str(settings.memory_mb)]
    own += ["--warm", str(config.warm), "--log", config.log]
    return LocalHosts(Path(config.data) / "hosts", [*command[:-1], "agent", *own])
