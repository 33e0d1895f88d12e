"""Which key groups an instance begins with, gives to newcomers, gives away, and calls hot.

Choices only: the core decides whether anything comes of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch.protocol.ids import InstanceId
from anabranch.protocol.ownership import Assignment, Group, Routes, belonging_to, founding
from anabranch.runtime.keyed.placement import balanced, of_share, shares
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.policies.policy import Scale

HOT_GROUPS_TOLD = 3


def founding_routes(pipeline: Pipeline, succs: Iterable[InstanceId]) -> Routes:
    """The owners of the key groups of all operators downstream, at the beginning."""
    succs = frozenset(succs)
    names = sorted({s.operator for s in succs})
    keyed = [name for name in names if pipeline.operators[name].edges]
    return tuple(r for name in keyed for r in founding(name, succs, pipeline.groups))


def founding_groups(pipeline: Pipeline, me: InstanceId, siblings: Iterable[InstanceId]) -> Routes:
    """Those of its own operator that `me` begins with; `siblings`: this one included."""
    if not pipeline.operators[me.operator].edges:
        return ()
    return belonging_to(founding(me.operator, siblings, pipeline.groups), me)


def half(owned: Iterable[Group], heat: Sequence[float]) -> frozenset[Group]:
    """About half of the load."""
    (given,) = balanced({g: heat[g] for g in owned}, 1)
    return frozenset(given)


def part(owned: Iterable[Group], heat: Sequence[float], share: float) -> frozenset[Group]:
    """About that share of the load; none if no group is light enough."""
    return frozenset(of_share({g: heat[g] for g in owned}, share))


def dealt(
    owned: Iterable[Group],
    heat: Sequence[float],
    children: Iterable[InstanceId],
    scale: Scale | None,
) -> Assignment:
    """To each child its share."""
    children = sorted(children)
    parts = shares({g: heat[g] for g in owned}, len(children), scale)
    return tuple(sorted((g, c) for c, part in zip(children, parts, strict=True) for g in part))


def hottest(owned: Iterable[Group], heat: Sequence[float]) -> list[tuple[Group, float]]:
    """The hottest key groups and their shares of the load, hottest first."""
    owned = list(owned)
    total = sum(heat[g] for g in owned)
    top = sorted(owned, key=lambda g: (-heat[g], g))[:HOT_GROUPS_TOLD]
    return [(g, round(heat[g] / total, 3)) for g in top if total and heat[g]]
