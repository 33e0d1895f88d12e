"""The lower bound for all managers: the load of each slot is known, and changes cost nothing."""

from __future__ import annotations

from itertools import product

import numpy as np

from anabranch.runtime.policies.hierarchical.levels import SLOTS
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.russorusso2018.setup import (
    CAPACITY,
    FACTORS,
    NETWORK_S,
    OPERATOR_MAX_S,
    OPERATORS,
    REGION_OF,
    REGIONS,
    RESPONSE_MAX_S,
    response_times,
)

MORE = 4
"""So many instances more than an operator needs to keep up are tried."""


def fewest(load: FloatArray, of_operators: bool = False) -> tuple[float, float]:
    """Mean instances and mean hosts that keep the bound of the response time in every slot; or,
    `of_operators`, that of each operator, as their learners are asked to."""
    rates, counts = np.unique(load, return_counts=True)
    more = np.array(list(product(range(MORE + 1), repeat=len(OPERATORS))))
    found = np.array([_of_rate(rate, more, of_operators) for rate in rates])
    instances, hosts = (found * counts[:, None]).sum(axis=0) / len(load)
    return float(instances), float(hosts)


def _of_rate(rate: float, more: FloatArray, of_operators: bool) -> tuple[float, float]:
    instances = np.floor(rate * FACTORS / CAPACITY) + 1 + more
    times = response_times(rate * FACTORS, instances)
    if of_operators:
        kept = instances[(times <= OPERATOR_MAX_S).all(axis=1)]
    else:
        kept = instances[times.sum(axis=1) + NETWORK_S <= RESPONSE_MAX_S]
    hosts = sum(
        np.ceil(kept[:, [o for o, of in enumerate(REGION_OF) if of == region]].sum(axis=1) / SLOTS)
        for region in range(len(REGIONS))
    )
    return float(kept.sum(axis=1).min()), float(np.min(hosts))
