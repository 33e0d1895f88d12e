"""What a simulated world is made with, beside its graph: pace, network, births."""

from __future__ import annotations

import math
from dataclasses import dataclass

from anabranch.runtime.processing.flow import FIRST_WINDOW_TUPLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """Times of a driver which are constants of the live one, in seconds.

    `tick_s`: between two looks of meter and policy; 0: none are taken. `read_every_s`: between two
    looks of a source at its input. `slice_s`: work between which control gets a turn. `broker`:
    a channel opens as soon as either end has something to say, as over MQTT, without dialling.
    Otherwise a newcomer is out of reach for its successors until it has been started.

    Of keyed operators: `chunk_s` between two chunks of `chunk_entries` entries of transferred
    state, `kept_tuples_max` tuples of groups that are at rest for which credit is returned.

    `backpressure`: False lets any number of tuples lie at an instance, as where there is no credit.
    `since_due`: latencies count from when a tuple was due, not from when it was read, which is
    later while the source is held back.

    `commit_s`: at most so long after something was made to be sent, it is committed and it
    goes. None: processes do not die, and nothing is committed.
    """

    tick_s: float = 0.1
    read_every_s: float = 0.01
    slice_s: float = 0.005
    ack_delay_s: float = 0.02
    first_window_tuples: int = FIRST_WINDOW_TUPLES
    broker: bool = False
    chunk_s: float = 0.001
    chunk_entries: int = 1000
    kept_tuples_max: int = 4096
    backpressure: bool = True
    since_due: bool = False
    commit_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Net:
    """Paths between hosts; see `links.Path`. `local_s`: latency within a host. `spread`: the
    latency of a pair of hosts is drawn from between so much below and above, as a factor."""

    latency_s: float = 0.0005
    local_s: float = 0.0001
    spread: float = 1.0
    jitter: float = 0.2
    straggling: float = 0.0
    tuples_per_s: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Births:
    """How processes come into being. `ready_s`: from asking to listening, doubled by chance.
    Shares of the requests: `slow` take `slow_s`, `few` bring fewer than wanted, `failing` none.
    `instances_max`: living instances of a world; beyond, every start fails."""

    ready_s: float = 0.05
    slow: float = 0.0
    slow_s: float = 1.0
    few: float = 0.0
    failing: float = 0.0
    instances_max: int = 512
