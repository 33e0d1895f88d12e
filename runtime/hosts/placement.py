"""Chooses the host of a new instance: a pure function, `place`, which another one can replace.

The answer leaves out hosts that the instance must not be on, and hosts without room. It sorts the
others: if the operator wants to be near another one, by their distance from that; then the host of
the creator first; then by the distance from the creator, and from the neighbours; then by room;
then by name. So the same hosts and the same wish always give the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.runtime.plan.place import ANYWHERE, Location
from anabranch.runtime.values.hints import hint

UNKNOWN_S = math.inf
"""A latency that was not measured."""


@dataclass(frozen=True, slots=True)
class HostRoom:
    """A host and what is free on it. `latency_s`: to other hosts, by their names."""

    name: str
    cores: float
    memory_mb: float
    region: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    latency_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wish:
    """What an instance of `operator` needs. `creator`: the host of the instance that creates it.
    `neighbours`: the hosts of its neighbours, one for each. `instances`: the hosts of the instances
    of operators that it wants to be near, by operator. `not_on`: hosts that it must not be on,
    and why, such as one that is drained."""

    operator: str
    place: Location = ANYWHERE
    cores: float = 0.0
    memory_mb: float = 0.0
    creator: str = ""
    neighbours: Sequence[str] = ()
    instances: Mapping[str, Collection[str]] = field(default_factory=dict)
    not_on: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """A host, and why it comes before the next one."""

    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class Placement:
    """The best host comes first. No choices: `refusal` has the reasons, host by host."""

    choices: tuple[Choice, ...]
    refusal: str = ""


Placing = Callable[[Sequence[HostRoom], Wish], Placement]


def place(hosts: Sequence[HostRoom], wish: Wish) -> Placement:
    """Where an instance may be. Hosts have different names."""
    by_name = {host.name: host for host in hosts}
    why_not = {name: _why_not(by_name[name], wish) for name in sorted(by_name)}
    fit = [host for host in hosts if not why_not[host.name]]
    if not fit:
        told = "; ".join(f"{name}: {why}" for name, why in why_not.items())
        return Placement((), f"no host for {wish.operator!r}: {told or 'no host is live'}")
    fit.sort(key=lambda host: _rank(host, wish, by_name))
    return Placement(tuple(Choice(host.name, _reason(host, wish, by_name)) for host in fit))


def _why_not(host: HostRoom, wish: Wish) -> str:
    """Empty if an instance may be there."""
    if (why := wish.not_on.get(host.name)) is not None:
        return why
    if (region := wish.place.region) is not None and host.region != region:
        return f"its region is {host.region!r}, not {region!r}"
    for key, value in wish.place.labels:
        if key not in host.labels:
            return f"it has no label {key!r}{_meant(key, host.labels)}"
        if host.labels[key] != value:
            return f"its label {key!r} is {host.labels[key]!r}, not {value!r}"
    if host.cores < wish.cores:
        return f"{host.cores:g} cores are free, {wish.cores:g} are needed"
    if host.memory_mb < wish.memory_mb:
        return f"{host.memory_mb:g} MB are free, {wish.memory_mb:g} are needed"
    return ""


def _meant(key: str, labels: Mapping[str, str]) -> str:
    told = hint(key, sorted(labels)) if labels else ""
    return f"; {told}" if told else ""


Rank = tuple[float, bool, float, float, float, float, str]


def _rank(host: HostRoom, wish: Wish, by_name: Mapping[str, HostRoom]) -> Rank:
    """Smaller is better. It ends with the name, so no two hosts have the same."""
    to_neighbours = [latency_s(host, by_name, other) for other in wish.neighbours]
    return (
        max(_distances_s(host, wish, by_name), default=0.0),
        host.name != wish.creator,
        latency_s(host, by_name, wish.creator) if wish.creator else 0.0,
        max(to_neighbours, default=0.0),
        -host.cores,
        -host.memory_mb,
        host.name,
    )


def _distances_s(host: HostRoom, wish: Wish, by_name: Mapping[str, HostRoom]) -> Iterator[float]:
    """To the nearest instance of each operator that it wants to be near."""
    for operator in wish.place.near:
        there = wish.instances.get(operator, ())
        yield min((latency_s(host, by_name, other) for other in there), default=UNKNOWN_S)


def latency_s(host: HostRoom, by_name: Mapping[str, HostRoom], other: str) -> float:
    """The larger one of what the two have measured; either alone will do."""
    if host.name == other:
        return 0.0
    known = [host.latency_s.get(other)]
    if other in by_name:
        known.append(by_name[other].latency_s.get(host.name))
    return max((each for each in known if each is not None), default=UNKNOWN_S)


def _reason(host: HostRoom, wish: Wish, by_name: Mapping[str, HostRoom]) -> str:
    near = [
        f"{_told(distance_s)} from {operator!r}"
        for operator, distance_s in zip(
            wish.place.near, _distances_s(host, wish, by_name), strict=True
        )
    ]
    if host.name == wish.creator:
        near.append("the host of its creator")
    elif wish.creator:
        near.append(f"{_told(latency_s(host, by_name, wish.creator))} from its creator")
    near.append(f"{host.cores:g} cores and {host.memory_mb:g} MB are free")
    return ", ".join(near)


def _told(latency_s: float) -> str:
    return "at an unknown distance" if latency_s == UNKNOWN_S else f"{1000 * latency_s:.3g} ms"
