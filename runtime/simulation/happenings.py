"""What happens in a scene: decisions and faults, written down before they happen.

Each chooses its target by a number from 0 to 1: its place among those that are there then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Action = Literal["duplicate", "leave", "hand_over", "move"]
Damage = Literal["cut", "hang_up", "clog", "deafen", "slow", "crash", "host", "power", "stop"]
Aim = Literal["any", "busy", "ahead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """At `at_s` one instance of `operator` decides. `n`: children, or groups that move; a
    keeper hands over through a neighbour if 1, to a fresh instance if 2. `fit`: the instance is
    one that may do so."""

    at_s: float
    operator: str
    action: Action
    n: int
    whom: float
    fit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """`cut`: a connection is lost with all that is on it; `hang_up`: its dialer drops it, and what
    it had written still arrives; `clog`: nothing arrives on a path; `deafen`: an instance reads
    nothing; `slow`: a host takes `factor` times as long. For `last_s` seconds.

    `crash`: a process dies, `host`: all of a host, `power`: all there are; each is resumed after
    about `last_s`. `stop`: a process is stopped for `factor` seconds, and when it is killed for
    that, resumed after `last_s`. `aim`: at one that is `busy` with something of its own, or has
    handled messages that are `ahead` of its queue, if there is one."""

    at_s: float
    damage: Damage
    whom: float
    last_s: float
    factor: float
    aim: Aim = "any"
