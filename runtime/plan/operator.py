"""An operator of a pipeline, as a value: what it does, and how."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.plan.ends import Sink, Source
from anabranch.runtime.plan.place import ANYWHERE, Location
from anabranch.runtime.plan.spec import EventTime, Keyed, KeyedEdge
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.values.checks import PipelineError, check_number

StepKind = Literal["map", "flat_map", "filter"]

PAUSE_MAX_S = 60.0
"""The longest pause between two attempts of a retry."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a tuple is tried again after an exception before it becomes a dead letter.

    `backoff_s`: the pause before the first new attempt. Each further pause is twice as long, up to
    60 s, or always `backoff_s` if that is more. Raises `PipelineError` unless `attempts` is a whole
    number and both are 0 or more.
    """

    attempts: int = 0
    backoff_s: float = 0.0

    def __post_init__(self) -> None:
        check_number("retry: attempts", self.attempts, whole=True)
        check_number("retry: backoff_s", self.backoff_s)
        if self.attempts < 0 or self.backoff_s < 0:
            raise PipelineError("retry: attempts and backoff_s must be 0 or more")

    def pause_s(self, attempt: int) -> float:
        """Seconds before new attempt number `attempt`, the first of which is 0."""
        most_s = max(PAUSE_MAX_S, self.backoff_s)
        try:
            return min(most_s, math.ldexp(self.backoff_s, attempt))
        except OverflowError:
            return most_s


@dataclass(frozen=True, slots=True)
class Step:
    """One function of a user applied to a stream; several make a fused operator."""

    kind: StepKind
    fn: Callable[..., Any]
    name: str
    batch: bool = False

    @property
    def is_async(self) -> bool:
        target = self.fn if not isinstance(self.fn, type) else self.fn.__call__
        call = getattr(target, "__call__", None)  # noqa: B004 - an object may have an async call
        return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(call)


def step(kind: StepKind, fn: Callable[..., Any], name: str | None, batch: bool) -> Step:
    if not callable(fn):
        raise PipelineError(f"{kind} {name or ''}: expected a function, got {fn!r}")
    return Step(kind, fn, name or str(getattr(fn, "__name__", type(fn).__name__)), batch)


@dataclass(frozen=True, slots=True)
class Operator:
    """A node of the graph. Exactly one of `source`, `steps`, `keyed`, `sink` determines what it
    does; only a sink whose tuples come by key has both, and its `keyed` passes them on as they
    are."""

    name: OperatorName
    upstream: tuple[OperatorName, ...]
    source: Source | None = None
    steps: tuple[Step, ...] = ()
    sink: Sink | None = None
    scale: Scale | None = None
    """None: the number of instances stays as it started."""
    place: Location = ANYWHERE
    """On which hosts its instances may be."""
    retry: Retry = Retry()
    in_flight: int = 16
    """Calls of an async operator that may be open at the same time."""
    keyed: Keyed | None = None
    edges: Mapping[OperatorName, KeyedEdge] = field(default_factory=dict, hash=False)
    """How tuples get their keys, by upstream operator; empty unless `keyed`."""
    timing: EventTime | None = None
    """How its instances read event time from the results that they emit, if they do."""

    @property
    def can_scale(self) -> bool:
        end = self.source or self.sink
        return end is None or end.scalable

    @property
    def instances_at_start(self) -> int:
        if self.scale is None:
            return 1
        least, most = self.scale.min_instances, self.scale.max_instances
        return min(max(least, self._at_start(self.scale)), most)

    def _at_start(self, scale: Scale) -> int:
        what = f"operator {self.name!r}: policy {scale.policy.name}: at_start"
        try:
            wanted: Any = scale.policy.at_start(scale)
        except (Exception, SystemExit) as error:
            raise PipelineError(f"{what}: {type(error).__name__}: {error}") from error
        if type(wanted) is not int:
            raise PipelineError(f"{what} must return a whole number of instances, got {wanted!r}")
        return wanted


def as_retry(retry: Retry | int) -> Retry:
    return retry if isinstance(retry, Retry) else Retry(retry)
