"""What waits far up and will come: told down the graph, from one that is held up to those that hold
it up (MM13).

Credit bounds queues, so before a bottleneck only little waits; the rest waits at its predecessors'
predecessors, up to the source. Each instance x of an operator, one of r, counts as its own

    W_x = queued_x + (1/r) * sum of told_y over its predecessors y
    told_y = what y holds for this operator + (results per tuple * W_y if it holds y up)

What is held travels with each batch; the other term is what is told here.
"""

from __future__ import annotations

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.load import BLOCKED
from anabranch.runtime.reporting.status import operator_of

NEWS = 0.1
"""A change by so small a share is not told."""


def passed_on(reading: Reading) -> tuple[str, float]:
    """The successor that holds this instance up, empty if none does, and how many tuples will come
    to it of what waits here and further up."""
    if reading.blocked < BLOCKED or reading.blocked_by is None:
        return "", 0.0
    operator = operator_of(reading.blocked_by) or reading.blocked_by
    return operator, reading.results_per_tuple * reading.waiting


def is_news(tuples: float, told: float) -> bool:
    """Whether to send it to neighbours, which were sent another number last."""
    if not tuples or not told:
        return tuples != told
    return abs(tuples - told) > max(1.0, NEWS * max(tuples, told))
