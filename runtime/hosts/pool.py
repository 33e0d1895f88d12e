"""Hosts that open and close as they are needed: the rules, as a pure state machine.

    (none) ─▶ opening ─ it is live ─▶ open ─ too many ─▶ draining ─ it is empty ─▶ closing ─▶ (none)
                 ▲                     │ ▲                  │
                 ╰──── it is gone ─────╯ ╰─ needed again ───╯

A pool drains and closes only hosts that it has opened itself, so no two pools drain each other's,
and the host of the pool never drains. A host that is gone is opened again under its name: it has
the journals of its instances. A step that fails is tried again later; the controllers that plan get
its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

FIRST_WAIT_S = 5.0
"""After a host could not be opened; doubled each time, up to the boot deadline."""


class PoolPhase(Enum):
    OPENING = "opening"
    OPEN = "open"
    DRAINING = "draining"
    CLOSING = "closing"


@dataclass(frozen=True, slots=True)
class PooledHost:
    """`since_s`: of the phase, or when it was last seen. `failed`: how often it could not be opened
    in a row; `due_s`: when it is tried again, 0 while that is under way. `joined`: it has been
    there."""

    name: str
    phase: PoolPhase
    since_s: float
    failed: int = 0
    due_s: float = 0.0
    joined: bool = False


@dataclass(frozen=True, slots=True)
class PoolRules:
    """`prefix`: of the names of its hosts. `boot_s`: for a host to be there once it was opened."""

    prefix: str
    hosts_max: int
    boot_s: float = 60.0


@dataclass(frozen=True, slots=True)
class PoolSight:
    """`wanted`: hosts in all; None: nothing is said, so they stay as they are. `others`: hosts that
    are live and none of the pool. `needed`: of the pool, whose files are needed. `instances`: on a
    host of the pool; of those that are not named it is not known."""

    now_s: float
    wanted: int | None
    others: int
    live: frozenset[str] = frozenset()
    drained: frozenset[str] = frozenset()
    needed: frozenset[str] = frozenset()
    instances: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PooledRun:
    """A run as it has told: for how many hosts its controllers plan, if they do; how many instances
    it has on each host, with those on their way and those whose processes still end; hosts on which
    it makes none; and hosts that it waits for. `answers`: if not, nothing of it is known."""

    name: str
    answers: bool = True
    planned: int | None = None
    instances: Mapping[str, int] = field(default_factory=dict)
    drained: frozenset[str] = frozenset()
    away: frozenset[str] = frozenset()


def why_in_use(runs: Iterable[PooledRun], name: str, *, is_known: bool) -> str:
    """Why an instance may be on a host, or come there; empty if none is and none can. `is_known`:
    runs know the host."""
    for run in runs:
        if not run.answers:
            return f"{run.name} does not say where its instances are"
        if n := run.instances.get(name, 0):
            return f"{n} of {run.name} {'is' if n == 1 else 'are'} there"
        if is_known and name not in run.drained:
            return f"{run.name} does not know yet that it is drained"
    return ""


@dataclass(frozen=True, slots=True)
class OpenHost:
    name: str


@dataclass(frozen=True, slots=True)
class DrainPoolHost:
    """Or let it take instances again."""

    name: str
    drained: bool


@dataclass(frozen=True, slots=True)
class ClosePoolHost:
    name: str


PoolAct = OpenHost | DrainPoolHost | ClosePoolHost


@dataclass(frozen=True, slots=True)
class HostPool:
    """`refused`: why there are fewer hosts than were asked for; empty if there are as many."""

    rules: PoolRules
    hosts: Mapping[str, PooledHost] = field(default_factory=dict)
    refused: str = ""

    @property
    def leaving(self) -> frozenset[str]:
        """On which nothing may be made."""
        return frozenset(self._in(PoolPhase.DRAINING, PoolPhase.CLOSING))

    def step(self, sight: PoolSight) -> tuple[list[PoolAct], HostPool]:
        """What is to be done now. Each act is told again until it shows."""
        pool = self._seen(sight)
        acts: list[PoolAct] = []
        if sight.wanted is not None:
            acts, pool = pool._counted(sight)
        for name in sorted(sight.needed - pool.hosts.keys()):
            acts.append(OpenHost(name))
            pool = pool._with(PooledHost(name, PoolPhase.OPENING, sight.now_s))
        acts += pool._mended(sight, {act.name for act in acts})
        return acts, pool._marked(acts, sight.now_s)

    def sight(
        self,
        runs: Sequence[PooledRun],
        now_s: float,
        others: int,
        live: Iterable[str],
        drained: Iterable[str],
    ) -> PoolSight:
        """While one of them does not answer, nothing is planned and no host is known to be empty.
        Each counts its hosts for itself."""
        answer = all(run.answers for run in runs)
        planned = [run.planned for run in runs if run.planned is not None]
        says = answer and (bool(planned) or not runs)
        instances = {name: sum(run.instances.get(name, 0) for run in runs) for name in self.hosts}
        away = {name for run in runs for name in run.away}
        return PoolSight(
            now_s,
            sum(planned) if says else None,
            others,
            frozenset(live),
            frozenset(drained),
            frozenset(name for name in away if name.startswith(self.rules.prefix)),
            instances if answer else {},
        )

    def failed(self, name: str, why: str, now_s: float) -> HostPool:
        """It could not be opened, or is not there by its deadline."""
        host = self.hosts.get(name)
        if host is None:
            return self
        wait_s = min(self.rules.boot_s, FIRST_WAIT_S * 2.0 ** min(host.failed, 16))
        after = replace(host, since_s=now_s, failed=host.failed + 1, due_s=now_s + wait_s)
        return replace(self._with(after), refused=f"{name}: {why}")

    def closed(self, name: str, why_not: str, now_s: float) -> HostPool:
        """`why_not`: it stays; empty if it is closed."""
        if name not in self.hosts:
            return self
        if why_not:
            return self._with(replace(self.hosts[name], phase=PoolPhase.DRAINING, since_s=now_s))
        return replace(self, hosts={n: h for n, h in self.hosts.items() if n != name})

    # -- parts of a step -------------------------------------------------------------------

    def _seen(self, sight: PoolSight) -> HostPool:
        """Those that have come, are gone, or are late."""
        pool, now_s = self, sight.now_s
        for name, host in self.hosts.items():
            late = now_s - host.since_s >= self.rules.boot_s
            if name in sight.live and host.phase is PoolPhase.OPENING:
                pool = replace(pool, refused="")._with(_open(name, now_s))
            elif name in sight.live:
                pool = pool._with(replace(host, since_s=now_s))
            elif late and host.phase is PoolPhase.OPENING and host.due_s == 0:
                told = f"it is not there {self.rules.boot_s:g} s after it was opened"
                pool = pool.failed(name, told, now_s)
            elif late and host.phase in (PoolPhase.OPEN, PoolPhase.DRAINING):
                gone = replace(_open(name, now_s), phase=PoolPhase.OPENING, due_s=now_s)
                pool = pool._with(gone)
        return pool

    def _counted(self, sight: PoolSight) -> tuple[list[PoolAct], HostPool]:
        """More of them, or fewer."""
        asked = max(0, (sight.wanted or 0) - sight.others)
        number = min(asked, self.rules.hosts_max)
        there = [*self._in(PoolPhase.OPENING, PoolPhase.OPEN)]
        pool, acts = self, list[PoolAct]()
        back = sorted(self._in(PoolPhase.DRAINING), key=lambda n: (-self._on(n, sight), n))
        for name in back[: max(0, number - len(there))]:
            pool = pool._with(_open(name, sight.now_s))
            there.append(name)
        room = self.rules.hosts_max - len(self.hosts)  # those that drain are there, too
        for name in self._new_names(min(room, number - len(there))):
            acts.append(OpenHost(name))
            pool = pool._with(PooledHost(name, PoolPhase.OPENING, sight.now_s))
        if number < len(there):
            for name in [n for n in there if self._was_in_vain(n, sight)][: len(there) - number]:
                there.remove(name)
                acts.append(ClosePoolHost(name))
            spare = [n for n in there if n not in sight.needed and n in sight.live]
            spare.sort(key=lambda n: (self._on(n, sight), _reversed(n)))
            for name in spare[: len(there) - number]:
                pool = pool._with(replace(self.hosts[name], phase=PoolPhase.DRAINING))
        if asked > self.rules.hosts_max:
            pool = replace(pool, refused=f"the pool has at most {self.rules.hosts_max} hosts")
        elif asked <= len(pool._in(PoolPhase.OPEN)):
            pool = replace(pool, refused="")
        return acts, pool

    def _mended(self, sight: PoolSight, told: set[str]) -> Iterator[PoolAct]:
        """What the phases of hosts ask for."""
        for name, host in sorted(self.hosts.items()):
            if name in told:
                continue
            if host.phase is PoolPhase.OPENING and 0 < host.due_s <= sight.now_s:
                yield OpenHost(name)
            elif host.phase is PoolPhase.OPEN and name in sight.drained:
                yield DrainPoolHost(name, drained=False)
            elif host.phase is PoolPhase.DRAINING and name in sight.live:
                if name not in sight.drained:
                    yield DrainPoolHost(name, drained=True)
                elif sight.instances.get(name) == 0:
                    yield ClosePoolHost(name)

    def _marked(self, acts: list[PoolAct], now_s: float) -> HostPool:
        pool = self
        for act in acts:
            host = pool.hosts[act.name]
            if isinstance(act, ClosePoolHost):
                pool = pool._with(replace(host, phase=PoolPhase.CLOSING, since_s=now_s))
            elif isinstance(act, OpenHost):
                pool = pool._with(replace(host, since_s=now_s, due_s=0.0))
        return pool

    def _was_in_vain(self, name: str, sight: PoolSight) -> bool:
        """It has never been there, and nothing can be on it."""
        host = self.hosts.get(name)
        return host is not None and bool(host.failed) and not host.joined and name not in sight.live

    def _in(self, *phases: PoolPhase) -> list[str]:
        return [name for name, host in self.hosts.items() if host.phase in phases]

    def _new_names(self, count: int) -> Iterator[str]:
        number = 1
        while count > 0:
            if (name := f"{self.rules.prefix}{number}") not in self.hosts:
                yield name
                count -= 1
            number += 1

    def _on(self, name: str, sight: PoolSight) -> float:
        return sight.instances.get(name, float("inf"))

    def _with(self, host: PooledHost) -> HostPool:
        return replace(self, hosts={**self.hosts, host.name: host})


def _open(name: str, now_s: float) -> PooledHost:
    return PooledHost(name, PoolPhase.OPEN, now_s, joined=True)


def _reversed(name: str) -> tuple[int, str]:
    """The youngest first: names end with numbers."""
    digits = name[len(name.rstrip("0123456789")) :]
    return (-int(digits) if digits else 0, name)
