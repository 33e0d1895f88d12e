"""What an instance is, from its beginning to its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.protocol.ids import InstanceId
from anabranch.protocol.limits import Limits
from anabranch.runtime.live.instance.delivery import DeliveryDuties, duties_of
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import RunContext
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.values.kinds import Ending

FIXED = Scale(max_instances=1)


@dataclass(frozen=True, slots=True)
class Profile:
    """`in_vain`: how the last incarnations that got nothing done have ended, as the agent saw it.
    `scale`: `FIXED` if the operator has none. `journaled`: it keeps a journal; `was_ready`: an
    incarnation of it was, which had one; `exact`: a death loses and doubles nothing."""

    me: InstanceId
    pipeline: Pipeline
    context: RunContext
    in_vain: Sequence[Ending]
    journaled: bool
    was_ready: bool
    operator: Operator
    scale: Scale
    limits: Limits
    duties: DeliveryDuties
    exact: bool


def profile_of(
    me: InstanceId,
    pipeline: Pipeline,
    context: RunContext,
    in_vain: Sequence[Ending] = (),
    *,
    journaled: bool,
    was_ready: bool = False,
) -> Profile:
    duties = duties_of(pipeline)
    operator = pipeline.operators[me.operator]
    return Profile(
        me,
        pipeline,
        context,
        in_vain,
        journaled,
        was_ready,
        operator,
        scale=operator.scale or FIXED,
        limits=context.limits,
        duties=duties,
        exact=journaled and duties.exact,
    )
