"""The tiny region and the tiny operator of answers 4 to 6."""

from __future__ import annotations

import numpy as np

from anabranch.runtime.policies.hierarchical.levels import Figures
from anabranch.runtime.policies.hierarchical.tables import CostWeights, Form, Tables

THIRD = 1 / 3
REGION = Form(0, 2, 2, 2, gamma=0.9)
REGION_WEIGHTS = CostWeights(event=0.7, size=0.3)
OPERATOR = Form(1, 3, 2, gamma=0.9)
OPERATOR_WEIGHTS = CostWeights(event=THIRD, size=THIRD, change=THIRD)
REGION_VALUES = [
    [2.726451, 2.574676], [2.860785, 2.620095],
    [2.953158, 2.764849], [3.089802, 2.890280],
    [3.095583, 2.880046], [3.210080, 3.106985],
]  # fmt: skip
"""By (k, u), for f = 0 and f = 1."""
REGION_ACTIONS = [[1, 0], [1, 0], [1, 0], [1, -1], [0, -1], [0, 0]]


def region(kind: type[Tables] = Tables) -> Tables:
    """What it knows of changes and costs, before any sweep."""
    tables = kind(REGION, [REGION_WEIGHTS])
    costs = np.zeros((1, 2, 3, 2))
    costs[0, 0] = 0.7 * np.array([[1, 1], [0.25, 0.8], [0.02, 0.1]])
    levels = np.array([[[0.9, 0.1], [0.2, 0.8]]])
    hold, less, more = [[0.9, 0.1], [0.3, 0.7]], [[1, 0], [0.6, 0.4]], [[0.2, 0.8], [0, 1]]
    tables.restore(costs, levels, np.array([[hold, less, more]], dtype=float), tables.reached)
    return tables


def operator() -> Tables:
    tables = Tables(OPERATOR, [OPERATOR_WEIGHTS])
    costs = np.zeros((1, 1, 3, 2))
    costs[0, 0] = THIRD * np.array([[0, 1], [0, 0.5], [0, 0]])
    levels = np.array([[[0.8, 0.2], [0.3, 0.7]]])
    tables.restore(costs, levels, tables.flags, tables.reached)
    return tables


def swept(tables: Tables, times: int) -> Figures:
    """Q afterwards, as [action, flag, size, level]."""
    for _ in range(times):
        tables.sweep()
    found: Figures = tables.q_table()[0]
    return found
