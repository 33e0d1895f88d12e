"""The loads of the evaluation, tuples per second in steps of a second (4.1)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.curves import Bell, Knots
from anabranch.workloads.traces import Recording

BELL_S, DAY_S = 1300, 3720
PEAK = 1278.0
KNOTS = (
    (0, 70), (36, 193), (108, 676), (144, 835), (180, 835), (302, 246), (331, 245), (388, 420),
    (473, 914), (509, 914), (632, 311), (706, 176), (762, 415), (823, 1030), (859, 1278),
    (895, 1278), (1007, 490), (1075, 290), (1076, 204), (1133, 266), (1223, 613), (1260, 615),
    (1390, 180), (1445, 126), (1494, 225), (1584, 599), (1620, 599), (1758, 121), (1801, 70),
)  # fmt: skip
"""(second, tuples/s) of load T, after the authors' program."""
NAB_FROM, NAB_ROWS, NAB_MEAN = 5184, 2880, 29


def bell() -> FloatArray:
    """G, of Table II: one wave."""
    return Bell(peak=2391, at_s=650, width_s=185).rate(np.arange(BELL_S, dtype=float))


def tweets() -> FloatArray:
    """T, of Tables III and IV: straight lines between knots, again and again."""
    return Knots(KNOTS).rate(np.arange(DAY_S, dtype=float))


def recorded(counts: FloatArray) -> FloatArray:
    """N, from the counts of a recording (`nab_tweets_GOOG_5min`): its mean of 29 values around
    each, a part of it squeezed into steps, scaled to the peak of T."""
    smooth = np.array(Recording(tuple(counts.tolist()), 1.0).smooth(NAB_MEAN).values)
    some = smooth[NAB_FROM : NAB_FROM + NAB_ROWS]
    steps: FloatArray = some[(np.arange(DAY_S) * NAB_ROWS) // DAY_S]
    return steps * (PEAK / float(steps.max()))


def read_counts(path: Path) -> FloatArray:
    """The values of a CSV with a head and a time stamp in front."""
    import gzip

    with gzip.open(path, "rt", encoding="utf-8") as file:
        next(file)
        return np.array([float(line.rsplit(",", 1)[1]) for line in file])
