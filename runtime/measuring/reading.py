"""What an instance has measured about itself when it decides.

A reading is a value: the meter makes it, a policy judges it, the status shows it. All rates are
of this one instance and are taken after the last change of the number of instances, since what
was measured before is of no use for the load now (`docs/protocol.md` 2.5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from anabranch.runtime.measuring.slot_sums import SlotSums

SERVICE_TIMES = 4.0
"""A rate means something only after several tuples: windows last at least so many service times.
Without that, one ten-second tuple that arrives within a one-second window is a load of 10."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Sums of `instances` siblings over slot number `slot`, which lasts a period of the clock.

    `loads`: the load offered to each of them, in seconds of work per second, by rank; empty if it
    is not known."""

    slot: int
    instances: int
    sums: SlotSums
    loads: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Planned:
    """What the keeper of an operator has planned in slot number `slot`: how many instances it
    should have. Of two plans the greater is valid: the newer one, or, in one slot in which the
    keeper changes, the one with more instances."""

    slot: int
    instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One instance's measurements at `now_s` (seconds on a monotonic clock).

    `instances` counts active instances of the operator, this one included, as its neighbours
    send it (a hint, PE8), without those that have not started yet (P14). `rank` is this one's
    place among them in the order of ids, from 0; None if neighbours do not send it.
    `covered_s` is how long the samples reach back. `capacity` is tuples per busy second, None
    while unknown. `queued` are tuples received and not yet processed. `held_upstream` is this
    instance's share of what predecessors hold for its operator for lack of credit; of a paced
    source, of what is due and not read. `arrears` is its share of what waits further up, before
    predecessors that it holds up (MM13). `busy`, `starved` and `blocked` are shares of the time
    and add up to 1; `blocked_by` names the successor that blocked longest (P40). `cpu_wait` is
    the share of the time in which it was ready to work but the host had no processor for it.
    `keyed`: the operator's state is by key. `demand_per_s` replaces arrivals where there are
    none: what this instance of a paced source should read to keep its pace, None for a source
    that reads as fast as it can. `own`: figures of this instance in the last slot that has
    ended; `operator`: sums over all siblings, of the last slot whose sums have arrived; None if
    the policy is not `in_concert`. `planned`: the last plan of the keeper that has arrived; None
    if the policy is not `at_keeper`.

    Totals since it began are exact, never fade and are never reset: compare two readings.
    `received_total`, `processed_total`, `results_total`: tuples; `received_from`, `sent_to`: by the
    operator at the other end of a stream. `busy_total_s`, `blocked_total_s`: seconds.
    `here_total_s`: integral over time of the tuples that are here and not yet processed; divided by
    the tuples received, it is their mean time from arrival to result (Little). `cpu_total_s`:
    processor time of its process. `latency`: of a sink, results by bucket of their age
    (`runtime.measuring.latency`). `host_busy`: share of the host's processors that is in use, None
    if the system does not report it. All of it is defined in `docs/measures.md`.
    """

    now_s: float
    instances: int
    instances_changed_s: float
    covered_s: float
    rank: int | None = None
    keeper: bool = False
    is_source: bool = False
    keyed: bool = False
    busy_with_operation: bool = False
    received_per_s: float = 0.0
    processed_per_s: float = 0.0
    capacity: float | None = None
    queued: int = 0
    held_upstream: float = 0.0
    busy: float = 0.0
    starved: float = 1.0
    blocked: float = 0.0
    blocked_by: str | None = None
    cpu_wait: float = 0.0
    demand_per_s: float | None = None
    own: Figures | None = None
    operator: Figures | None = None
    planned: Planned | None = None
    arrears: float = 0.0
    received_total: float = 0.0
    processed_total: float = 0.0
    results_total: float = 0.0
    busy_total_s: float = 0.0
    here_total_s: float = 0.0
    blocked_total_s: float = 0.0
    cpu_total_s: float = 0.0
    host_busy: float | None = None
    received_from: Mapping[str, int] = field(default_factory=dict)
    sent_to: Mapping[str, int] = field(default_factory=dict)
    latency: Mapping[int, int] = field(default_factory=dict)

    @property
    def waiting(self) -> float:
        """All that waits for this instance, wherever it is (MM13)."""
        return self.queued + self.held_upstream + self.arrears

    @property
    def results_per_tuple(self) -> float:
        """Since it began; 1 before the first tuple."""
        return self.results_total / self.processed_total if self.processed_total > 0 else 1.0

    @property
    def loads(self) -> tuple[float, ...]:
        """Of all siblings by rank, in the slot that has just ended (`Figures.loads`); empty if they
        have not arrived, or are not those of the siblings that there are now."""
        own, told = self.own, self.operator
        if own is None or told is None or own.slot != told.slot or self.rank is None:
            return ()
        return told.loads if len(told.loads) == self.instances else ()

    def rank_told(self, told: int | None) -> int | None:
        """The rank of an instance, from the last one that it got; one that does not fit the number
        of instances is older than that, and does not count."""
        return told if told is not None and told < self.instances else None

    def with_rank(self, told: int | None) -> Reading:
        return replace(self, rank=self.rank_told(told))
