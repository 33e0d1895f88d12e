"""What the paper says: degradation of throughput, and nodes saved in %."""

from __future__ import annotations

Pair = tuple[float, float]

FIGURE_9: dict[str, dict[str, Pair]] = {
    "T1 stair": {"joint": (0.97, 32), "R": (0.81, 43), "P": (0.81, 43)},
    "T1 step": {"joint": (0.78, 50), "R": (0.59, 58)},
    "T1 square": {"joint": (1.49, 25), "R": (1.7, 35), "P": (1.2, 35)},
    "T1 sine": {"joint": (1.25, 25), "R": (1.01, 47)},
    "T1 Twitter": {"joint": (1.25, 24), "R": (0.86, 45), "P": (0.90, 45)},
    "T2 square": {"joint": (0.99, 13), "R": (1.03, 33)},
    "T2 sine": {"joint": (0.63, 30), "R": (0.17, 22)},
    "T2 Twitter": {"joint": (0.49, 48), "R": (0.48, 50)},
    "T1 step + T2 stair": {"R": (0.80, 17)},
    "both sine": {"R": (0.46, 21)},
}
"""EL-G15: the figure counts, where the text has other numbers."""
ONE_DIMENSION: dict[str, Pair] = {
    "static, 4 hosts": (0.05, 0),
    "operators only, 2 hosts": (1.47, 50),
    "operators only, 4 hosts": (0.98, 0),
    "hosts only, p 2": (1.43, 19),
    "hosts only, p 4": (0.97, 33),
}
TABLE_1: dict[float, float] = {
    0.60: 0.53, 0.65: 0.57, 0.70: 0.62, 0.75: 0.66, 0.80: 0.71, 0.85: 0.65, 0.90: 0.43,
}  # fmt: skip
"""The reward of each share."""
FIGURE_6C: dict[float, float] = {60.0: 0.64, 120.0: 0.43}
"""Degradation by the seconds between reconfigurations."""
SUSTAINS_S = {"joint": 150.0, "R": 85.0}
"""Figure 10b, c: from the edge until the peak is sustained."""


def of(scene: str, contestant: str) -> Pair | None:
    """Recordings stand for the months of Twitter."""
    application, _, load = scene.partition(" ")
    name = f"{application} Twitter" if load in ("AMZN", "worldcup") else scene
    return FIGURE_9.get(name, {}).get(contestant)
