"""What every task of a job has to know: a value that travels to the workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.spans import within
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.plan.spec import Span
from anabranch.runtime.sources.generate import Generate
from anabranch.spark_engine.ends import SparkRows
from anabranch.spark_engine.mapping import Plan, mapped


@dataclass(frozen=True)
class Job:
    """`partitions` of each section, which its rows are dealt to by bucket. `started_s`: on the
    clock of the system, for sources with a pace."""

    pipeline: str
    operators: Mapping[OperatorName, Operator]
    plan: Plan
    groups: int
    partitions: int
    started_s: float


def job_of(
    pipeline: Pipeline, *, partitions: int, started_s: float, paced: bool, span: Span | None
) -> Job:
    """`paced`: sources keep their rate; else they give what there is as fast as it is taken.
    `span`: of the event times that are taken."""
    chosen = within(pipeline.operators, span)
    operators = {name: _bare(o, paced) for name, o in chosen.items()}
    plan = mapped(pipeline.operators)
    return Job(pipeline.name, operators, plan, pipeline.groups, partitions, started_s)


def _bare(operator: Operator, paced: bool) -> Operator:
    """Without what workers do not need, and may not be able to read."""
    source: Any = operator.source
    if isinstance(source, SparkRows):
        source = None
    elif isinstance(source, Generate):
        # The workers may be other hosts, whose monotonic clocks began at other times.
        source = replace(source, clock=_clock) if paced else replace(source, rate=None)
    return replace(operator, source=source, scale=None)


def _clock() -> float:
    import time

    return time.time()
