"""The instances with which a run begins, and what each gets of its neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.runtime.live.agent.roster import Member
from anabranch.runtime.live.link.messages import Bootstrap
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.reporting.status import id_to_wire


def waves(pipeline: Pipeline) -> list[list[Operator]]:
    """The operators from the sinks up: the successors of an instance listen before it starts."""
    below: dict[str, list[str]] = {name: [] for name in pipeline.operators}
    for operator in pipeline.operators.values():
        for above in operator.upstream:
            below[above].append(operator.name)
    height: dict[str, int] = {}
    # An operator is defined after everything upstream of it, so the other way round visits
    # whatever is below it first.
    for name in reversed(pipeline.operators):
        height[name] = 1 + max((height[b] for b in below[name]), default=-1)
    found: list[list[Operator]] = [[] for _ in range(1 + max(height.values(), default=-1))]
    for name, operator in pipeline.operators.items():
        found[height[name]].append(operator)
    return found


def bootstrap_of(
    member: Member, pipeline: Pipeline, founders: Mapping[str, Sequence[Member]]
) -> Bootstrap:
    """Neighbouring operators have complete views of each other. Successors must be ready
    already."""
    name = member.id.operator
    succs = [m for o in pipeline.operators.values() if name in o.upstream for m in founders[o.name]]
    preds = [m for above in pipeline.operators[name].upstream for m in founders[above]]
    return Bootstrap(
        succs=[(id_to_wire(m.id), m.address) for m in succs],
        preds=[id_to_wire(m.id) for m in preds],
        keeper=member.keeper,
    )
