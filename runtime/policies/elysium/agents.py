"""Hosts without a controller: each looks at its own instances and asks others for room.

An instance goes to the first agent, by rising id, that has room for it: distributed first fit. An
agent whose host is used too much sheds an instance, a keeper only if it has nothing else: a chain
of single instances, all keepers, could not get off a host otherwise (EL-G20). One whose instances
all fit elsewhere drains, but only into agents of **smaller** id: so no two drain into each other,
nothing goes in a circle, and the host of least id never drains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.runtime.policies.elysium.costs import HostCost

CPU_MOST = 0.8


@dataclass(frozen=True, slots=True)
class OwnInstance:
    """`cores` that it takes. `keeper`: it has a role to hand over if it goes."""

    name: str
    cores: float
    keeper: bool = False


@dataclass(frozen=True, slots=True)
class OtherHost:
    """What an agent has of another: cores of its instances, as that one has sent them."""

    id: int
    host: HostCost
    taken: float
    draining: bool = False


@dataclass(frozen=True, slots=True)
class HostReading:
    """`reserved`: cores that this host has promised to instances on their way."""

    id: int
    host: HostCost
    own: Sequence[OwnInstance]
    others: Sequence[OtherHost]
    reserved: float = 0.0
    draining: bool = False

    @property
    def taken(self) -> float:
        return sum(one.cores for one in self.own) + self.reserved


@dataclass(frozen=True, slots=True)
class Keep:
    """Everything stays."""


@dataclass(frozen=True, slots=True)
class Shed:
    """This instance is to go to another host."""

    instance: str


@dataclass(frozen=True, slots=True)
class DrainHost:
    """Each of these is to go to the host of that id; a refusal cancels what is left of it."""

    moves: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class CloseHost:
    """The host is empty and may close."""


HostDecision = Keep | Shed | DrainHost | CloseHost


def has_room(reading: HostReading, cores: float, most: float = CPU_MOST) -> bool:
    """What an agent answers that is asked for room."""
    return not reading.draining and reading.host.bears(reading.taken + cores, most)


def decide(reading: HostReading, most: float = CPU_MOST) -> HostDecision:
    """Of one host, by itself."""
    if not reading.own:
        last = not any(other.id < reading.id for other in reading.others)
        return Keep() if last or reading.reserved > 0 else CloseHost()
    if not reading.host.bears(reading.taken, most):
        if len(reading.own) == 1:
            return Keep()
        return Shed(min(reading.own, key=lambda one: (one.keeper, one.cores, one.name)).name)
    if reading.reserved > 0:
        return Keep()
    return DrainHost(moves) if (moves := _moves(reading, most)) else Keep()


def _moves(reading: HostReading, most: float) -> tuple[tuple[str, int], ...]:
    """Where each of its instances fits, the largest first; empty if one fits nowhere."""
    below = sorted((o for o in reading.others if o.id < reading.id), key=lambda other: other.id)
    found = []
    for one in sorted(reading.own, key=lambda one: (-one.cores, one.name)):
        fits = (at for at, o in enumerate(below) if _takes(o, one.cores, most))
        at = next(fits, None)
        if at is None:
            return ()
        below[at] = replace(below[at], taken=below[at].taken + one.cores)
        found.append((one.name, below[at].id))
    return tuple(found)


def _takes(other: OtherHost, cores: float, most: float) -> bool:
    return not other.draining and other.host.bears(other.taken + cores, most)
