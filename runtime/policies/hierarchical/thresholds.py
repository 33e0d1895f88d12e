"""The managers that do not learn: a threshold for operators, so many idle hosts for regions."""

from __future__ import annotations

from collections.abc import Sequence

USE_OUT, SHARE_IN, IDLE_HOSTS = 0.75, 0.75, 2


def by_threshold(
    uses: Sequence[float], most: int, use_out: float = USE_OUT, share_in: float = SHARE_IN
) -> int:
    """One more, one less or none (HI4). `uses`: of each instance, 0 to 1.

    One leaves if the others would be used below `share_in` of the threshold then."""
    n = len(uses)
    if n < most and max(uses, default=1.0) > use_out:
        return 1
    return -1 if n > 1 and sum(uses) / (n - 1) < share_in * use_out else 0


def by_idle_hosts(hosts: int, idle: int, most: int, wanted: int = IDLE_HOSTS) -> int:
    """One more, one less or none, so that `wanted` hosts are idle (HI5, HI-G2)."""
    if idle < wanted:
        return 1 if hosts < most else 0
    return -1 if idle > wanted else 0
