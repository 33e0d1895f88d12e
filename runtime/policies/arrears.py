"""Arrears: tuples that wait further up and will come. An instance that is held up sends their
number to the successors that hold it up (MM13).

Credit bounds queues, so only few tuples wait right before a bottleneck; the others wait further up,
as far as the source. An instance x, one of r of its operator, counts as waiting for it

    W_x = queued_x + (1/r) * sum of sent_y over its predecessors y
    sent_y = what y holds for this operator + (results per tuple * W_y if it holds y up)

The first term travels with each batch; this module computes the second one.
"""

from __future__ import annotations

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.load import BLOCKED
from anabranch.runtime.reporting.status import operator_of

NEWS = 0.1
"""Changes by a smaller share are not sent."""


def passed_on(reading: Reading) -> tuple[str, float]:
    """The operator that holds this instance up, empty if none does, and how many results it will
    get from the tuples that wait here and further up."""
    if reading.blocked < BLOCKED or reading.blocked_by is None:
        return "", 0.0
    operator = operator_of(reading.blocked_by) or reading.blocked_by
    return operator, reading.results_per_tuple * reading.waiting


def is_news(tuples: float, told: float) -> bool:
    """Whether to send it to neighbours, which were sent another number last."""
    if not tuples or not told:
        return tuples != told
    return abs(tuples - told) > max(1.0, NEWS * max(tuples, told))
