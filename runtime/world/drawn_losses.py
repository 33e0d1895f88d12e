"""Hosts of a world that are lost and given up, and the copies that journals have on others."""

from __future__ import annotations

import random
from collections.abc import Sequence

from anabranch.runtime.world.world import Loss

COPIED_SHARE = 0.4
"""Of the worlds with three hosts or more that have files of their own, and in which processes may
die: journals have copies on other hosts, and hosts are given up."""
FOR_GOOD_S = 1_000.0
"""No world lasts so long."""


def copies_and_losses(
    seed: int, hosts: Sequence[str], until_s: float
) -> tuple[int, tuple[Loss, ...]]:
    """In most worlds no copies, and no losses. Some hosts are lost and given up, or only cut off
    from home, which is the first of `hosts`, and given up all the same. They come back, or not."""
    rng = random.Random(f"{seed} copies")
    if rng.random() >= COPIED_SHARE or len(hosts) < 3:
        return 0, ()
    copies = rng.choice((1, 1, 2))
    most = min(len(hosts) - 2, copies)  # a writer may be among them, with all but one of its copies
    losses = [
        Loss(
            at_s=rng.uniform(0.0, until_s),
            host=host,
            after_s=rng.choice((0.0, 0.5, 3.0)),
            seconds=rng.choice((1.0, 10.0, FOR_GOOD_S)),
            is_there=rng.random() < 0.5,
        )
        for host in rng.sample(hosts[1:], rng.randint(1, most))
    ]
    return copies, tuple(losses)
