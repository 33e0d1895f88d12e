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
MAJORITY_SHARE = 0.6
"""Of the worlds with two copies: a majority may give up a host."""
MORE_SHARE = 0.25
"""Of other worlds with so many hosts that a majority is there: they have two copies then."""
MORE_HOSTS = 5
LATE_S = 60.0
"""A user gives up a host that no majority has given up after so long."""


def copies_and_losses(
    seed: int, hosts: Sequence[str], until_s: float
) -> tuple[int, tuple[Loss, ...]]:
    """In most worlds no copies, and no losses. Some hosts are lost and given up, or only cut off
    from home, which is the first of `hosts`, and given up all the same. They come back, or not. In
    some worlds those with copies give up one by majority."""
    copies, losses = _by_command(seed, hosts, until_s)
    rng = random.Random(f"{seed} majority")
    share = MAJORITY_SHARE if copies == 2 else MORE_SHARE if len(hosts) >= MORE_HOSTS else 0.0
    if rng.random() >= share:
        return copies, losses
    return 2, (_by_majority(rng, hosts, until_s),)


def _by_command(seed: int, hosts: Sequence[str], until_s: float) -> tuple[int, tuple[Loss, ...]]:
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


def _by_majority(rng: random.Random, hosts: Sequence[str], until_s: float) -> Loss:
    """It is lost, or cut off for long, from all or only from home."""
    after_s = rng.choice((5.0, 8.0))
    how = rng.choice(("lost", "lost", "cut", "cut", "hidden"))
    return Loss(
        at_s=rng.uniform(0.0, until_s),
        host=rng.choice(hosts[1:]),
        after_s=LATE_S,
        seconds=rng.choice((2.0 * after_s, 6.0 * after_s, FOR_GOOD_S)),
        is_there=how == "hidden",
        is_cut=how == "cut",
        agreed_s=after_s,
    )
