"""The reactive limit: it knows an operator's whole load and orders the exact count each step.

Not a policy that anybody could run without a centre, but what reacting can reach at best, since
its orders take as long as everybody's. It is no bound for a policy that foresees.
"""

from __future__ import annotations

import numpy as np

from anabranch.workloads.belkhiria2019.setup import Outcome, Setup
from anabranch.workloads.curve_base import FloatArray


def reactive(setup: Setup, load: FloatArray) -> Outcome:
    """All runs at once; the newcomers of a step are one batch."""
    out = Outcome.empty(load)
    runs, operators, steps = load.shape
    longest = max(setup.join_steps, setup.leave_steps)
    change = np.zeros((steps + longest, runs, operators), dtype=np.int64)
    n = np.full((runs, operators), setup.instances, dtype=np.int64)
    ordered = n.copy()
    for t in range(steps):
        n += change[t]
        wanted = np.maximum(1, np.ceil(load[:, :, t] / setup.full)).astype(np.int64)
        more = np.maximum(wanted - ordered, 0)
        fewer = np.minimum(np.maximum(ordered - wanted, 0), n - 1)
        change[t + setup.join_steps] += more
        change[t + setup.leave_steps] -= fewer
        ordered += more - fewer
        out.instances[:, :, t], out.joins[:, :, t] = n, more
        out.batches[:, :, t], out.leaves[:, :, t] = more > 0, fewer
    return out
