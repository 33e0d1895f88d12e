"""The setting of the evaluation: four operators in three regions (section 4 of the paper)."""

from __future__ import annotations

import numpy as np

from anabranch.workloads.curve_base import FloatArray

OPERATORS = ("splitter", "filter", "counter", "consumer")
REGIONS = ("dc1", "dc2", "dc3")
REGION_OF = (0, 1, 2, 2)
"""Of each operator (HI-G5)."""
FACTORS = np.array([1.0, 5.0, 2.0, 2.0])
"""What each operator is offered, of the load (HI2)."""
CAPACITY = 330.0
"""Tuples per second of an instance."""
INSTANCES_MAX, HOSTS_MAX, STATIC_HOSTS = 20, 50, 12
NETWORK_S = 0.003
RESPONSE_MAX_S, OPERATOR_MAX_S = 0.060, 0.012
RATES_MAX = 600.0 * FACTORS
"""The highest loads that the learners tell apart (HI-G17)."""
SLOT_S = 60


def response_times(rates: FloatArray, instances: FloatArray) -> FloatArray:
    """Of each operator, as M/D/1 queues; infinite where it cannot keep up (HI3, HI-G4)."""
    load = rates / (instances * CAPACITY)
    with np.errstate(divide="ignore", invalid="ignore"):
        waits = load / (2 * CAPACITY * (1 - load))
    found: FloatArray = np.where(load < 1, 1 / CAPACITY + waits, np.inf)
    return found
