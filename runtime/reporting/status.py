"""What an instance reports about itself: a status now and then, a final count at its end.

Both travel over the link to the agent as MessagePack maps whose key `kind` names the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.reporting.carried import ByOperator


class InstanceState(StrEnum):
    """The states of the protocol, by their names in `anabranch.protocol.states`."""

    IDLE = "Idle"
    ACTIVE = "Active"
    CLOSING_IN = "ClosingIn"
    DRAINING = "Draining"
    CLOSING_OUT = "ClosingOut"
    FINISHED = "Finished"
    GONE = "Gone"


IDLE = InstanceState.IDLE
"""The state of an instance that listens and has not been started yet."""


class Status(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="status"):
    """A snapshot of one instance. Counts are since its start, shares are of the last period."""

    id: str
    operator: str
    t: float
    """`time.monotonic` of the instance's host."""
    keeper: bool = False
    state: InstanceState = InstanceState.ACTIVE
    tuples_in: int = 0
    tuples_out: int = 0
    dead: int = 0
    queued: int = 0
    held: int = 0
    """Results that wait for credit of a successor."""
    load: float = 0.0
    """Demand over capacity; 1.0 means fully used, more means that it cannot keep up."""
    capacity: float = 0.0
    """Tuples per second of this instance; 0 while unknown."""
    busy: float = 0.0
    starved: float = 0.0
    blocked: float = 0.0
    blocked_by: str | None = None
    preds: int = 0
    succs: int = 0
    epoch: int = 0
    latency: dict[int, int] = msgspec.field(default_factory=dict)
    """Sinks: `LatencyCounts.take()`, tuples per bucket since the last status."""
    messages: int = 0
    """Control messages sent."""
    groups: int = 0
    """Key groups owned."""
    hot: list[tuple[int, float]] = msgspec.field(default_factory=list)
    """The hottest key groups and their shares of this instance's load, hottest first."""
    reading: Reading | None = None
    """For controllers, where there are any."""
    waiting_for: list[str] = msgspec.field(default_factory=list)
    """Ids whose acknowledgement the own operation waits for."""
    processed: int = 0
    busy_s: float = 0.0
    """Seconds of work."""
    blocked_s: float = 0.0
    """Seconds held up by successors."""
    cpu_s: float = 0.0
    """Processor time of its processes."""
    here_s: float = 0.0
    """Integral over time of the tuples that are here and not processed, in tuple-seconds."""
    waiting: float = 0.0
    """Tuples that wait for it, here and further up; of a paced source: due and not read."""
    offered: float | None = None
    """Tuples per second that a paced source should read, its share; None without a pace."""
    sent_to: dict[str, int] = msgspec.field(default_factory=dict)
    """Tuples sent, by downstream operator."""
    policy: str = ""
    """The policy that decides here; empty if none does."""


class FinalCount(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="gone"):
    """What an instance did in its whole lifetime: the row of it in the ledger."""

    id: str
    operator: str
    tuples_in: int = 0
    """Received from predecessors; of a source: read."""
    processed: int = 0
    tuples_out: int = 0
    """Results made, each sent once per downstream operator, or dead on its way there; of a sink:
    accepted by its target."""
    dead: int = 0
    dead_upstream: int = 0
    """Dead before they were tuples, such as bad bytes, or as results; not part of `tuples_in`."""
    dead_towards: dict[str, int] = msgspec.field(default_factory=dict)
    """By downstream operator: results that could not be sent there; part of `dead_upstream`."""
    sent: dict[str, int] = msgspec.field(default_factory=dict)
    received: dict[str, int] = msgspec.field(default_factory=dict)
    """By the other end, while it is there and for some time after that."""
    sent_before: ByOperator = msgspec.field(default_factory=dict)
    received_before: ByOperator = msgspec.field(default_factory=dict)
    """On channels that were closed so long ago that they are summed; not part of the above."""
    queued: int = 0
    handed_out: int = 0
    """Received, and passed on unprocessed to a sibling with the key groups that they belong to."""
    handed_in: int = 0
    """Taken over unprocessed from siblings; not part of `tuples_in`."""
    messages: int = 0
    joins: int = 0
    """Instances that this one added."""
    leaves: int = 0
    """1 if it left; 0 if it ended because the stream did."""
    latency: dict[int, int] = msgspec.field(default_factory=dict)
    """Sinks: tuples per bucket over its whole lifetime."""
    dead_reasons: dict[str, int] = msgspec.field(default_factory=dict)
    late: dict[str, int] = msgspec.field(default_factory=dict)
    """Late tuples, by what became of them: bury, emit or drop."""
    ahead: int = 0
    """Event times too far ahead of the clock, which did not count."""
    left_out: dict[str, int] = msgspec.field(default_factory=dict)
    """Tuples whose event times are out of the span that the run takes, by reason."""
    busy_s: float = 0.0
    blocked_s: float = 0.0
    cpu_s: float = 0.0
    here_s: float = 0.0
    """As in `Status`."""


WireId = list[Any]
"""An `InstanceId` on the link: [operator, number, creator]."""


def id_to_wire(instance: InstanceId) -> WireId:
    return [instance.operator, instance.number, instance.creator]


def id_from_wire(wire: Sequence[Any]) -> InstanceId:
    """Raises `ValueError` unless `wire` is an id as `id_to_wire` makes it."""
    match list(wire):
        case [str(operator), int(number), int(creator)]:
            return InstanceId(OperatorName(operator), number, creator)
        case _:
            raise ValueError(f"not an instance id: {wire!r}")


def operator_of(instance: str) -> str:
    """The operator in the text of an id: `split` of `split.3`."""
    return instance.rpartition(".")[0]
