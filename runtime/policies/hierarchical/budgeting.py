"""Which proposals of its regions the manager of the infrastructure grants (HI17)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.runtime.values.checks import PipelineError


@dataclass(frozen=True, slots=True)
class HostRequest:
    """`action`: -1 or +1 host; `gain`: by how much Q that is better than nothing."""

    region: str
    action: int
    gain: float = 0.0


@dataclass(frozen=True, slots=True)
class HostBudget:
    """At most so many hosts in all, and so many opened in a slot; None: any number."""

    hosts_max: int | None = None
    opened_max: int | None = None

    def __post_init__(self) -> None:
        for name, most in (("hosts_max", self.hosts_max), ("opened_max", self.opened_max)):
            if most is not None and most < 1:
                raise PipelineError(f"budget: expected {name} >= 1, got {most}")


UNBOUNDED = HostBudget()


def grant_hosts(
    requests: Sequence[HostRequest], hosts: int, budget: HostBudget = UNBOUNDED
) -> list[tuple[HostRequest, bool]]:
    """All that fit into the budget, in this rank: those that close hosts, then those that gain
    most, of equal ones by region. `hosts`: open now, in all regions. A host that closes makes room
    for one that opens."""
    answers, opened = [], 0
    for request in sorted(requests, key=lambda r: (r.action > 0, -r.gain, r.region)):
        granted = request.action <= 0 or (
            (budget.hosts_max is None or hosts < budget.hosts_max)
            and (budget.opened_max is None or opened < budget.opened_max)
        )
        if granted:
            hosts += request.action
            opened += request.action > 0
        answers.append((request, granted))
    return answers


@dataclass(frozen=True, slots=True)
class Consolidate:
    """A post-action: the managers of pipelines are asked to leave the emptiest hosts of a region,
    and may decline."""

    region: str


def post_actions(
    granted: Sequence[HostRequest], free_share: Mapping[str, float], above: float = 1.0
) -> list[Consolidate]:
    """Regions where a larger share of the slots is free, and none opens a host now; none unless
    `above` is below 1."""
    opening = {request.region for request in granted if request.action > 0}
    return [
        Consolidate(region)
        for region in sorted(free_share)
        if free_share[region] > above and region not in opening
    ]
