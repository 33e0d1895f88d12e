"""What a course was worth (EL16), and how instances share the cores of a host."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

HOSTS_MAX = 4


def degradation(load: Sequence[float], throughput: Sequence[float]) -> float:
    """Of throughput, mean over bins with a load (EL-G12): above 1 while a backlog drains."""
    return fmean(abs(due - out) / due for due, out in zip(load, throughput, strict=True) if due > 0)


def nodes_saved(hosts: Sequence[int], most: int = HOSTS_MAX) -> float:
    """Of the hosts that there are, mean over assessments."""
    return 1 - fmean(hosts) / most


def fair_shares(cores: float, wanted: Sequence[float]) -> list[float]:
    """Max-min fair: none gets more than it wants, and what is left over is shared evenly."""
    found = [0.0] * len(wanted)
    left = cores
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    for done, at in enumerate(order):
        found[at] = min(wanted[at], left / (len(order) - done))
        left -= found[at]
    return found
