"""Owners of the key groups of a keyed operator: versioned statements, and how they are merged.

The keys of a keyed operator fall into a fixed number of groups. Every group has one owner, the
instance that keeps the state of its keys and processes its tuples. Each sender to the operator
has routes: which owner it knows for each group. A route has a version, which only the owner raises,
when it gives the group away. So the route with the higher version is valid, in whatever order
routes arrive (`docs/protocol.md` 5; without versions, an instance that has just started sends to
one that has left).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from anabranch.protocol.ids import InstanceId, OperatorName

Group = int


class Route(NamedTuple):
    """Group `group` of the operator of `owner` belongs to `owner`, since `version` changes."""

    owner: InstanceId
    group: Group
    version: int = 0


Routes = tuple[Route, ...]
"""At most one route for each group of each operator, by operator and group."""

Assignment = tuple[tuple[Group, InstanceId], ...]
"""Groups and the instances that are to own them."""


def merged(known: Routes, news: Iterable[Route]) -> Routes:
    """The known routes with newer ones: of two routes of one group, the one with the higher
    version. The same object if none is newer."""
    best = {(r.owner.operator, r.group): r for r in known}
    learnt = False
    for route in news:
        key = (route.owner.operator, route.group)
        old = best.get(key)
        if old is None or old.version < route.version:
            best[key] = route
            learnt = True
    if not learnt:
        return known
    return tuple(best[key] for key in sorted(best))


def is_behind(known: Routes, others: Iterable[Route]) -> bool:
    """Whether `others`, from a sender, names owners that are not known here."""
    return merged(known, others) is not known


def changed(routes: Routes) -> Routes:
    """Those that differ from what all instances knew at the beginning."""
    return tuple(r for r in routes if r.version)


def groups_of(routes: Iterable[Route]) -> frozenset[Group]:
    return frozenset(r.group for r in routes)


def owners_of(routes: Iterable[Route]) -> frozenset[InstanceId]:
    return frozenset(r.owner for r in routes)


def belonging_to(routes: Iterable[Route], owner: InstanceId) -> Routes:
    return tuple(r for r in routes if r.owner == owner)


def leading_to(routes: Iterable[Route], operators: Iterable[OperatorName]) -> Routes:
    """Those about certain operators."""
    wanted = frozenset(operators)
    return tuple(r for r in routes if r.owner.operator in wanted)


def without(routes: Routes, groups: frozenset[Group]) -> Routes:
    return tuple(r for r in routes if r.group not in groups)


def reassigned(owned: Routes, assignment: Assignment) -> Routes:
    """The next versions of owned groups, with their new owners; raises `KeyError` for a group
    that is not owned."""
    versions = {r.group: r.version for r in owned}
    return tuple(Route(to, group, versions[group] + 1) for group, to in sorted(assignment))


def founding(operator: OperatorName, instances: Iterable[InstanceId], groups: int) -> Routes:
    """The first owners: groups are dealt to the instances with which a run begins."""
    founders = sorted(x for x in instances if x.operator == operator)
    return tuple(Route(founders[g % len(founders)], g) for g in range(groups))
