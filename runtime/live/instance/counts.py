"""What an instance counts of its tuples, always: its row of the ledger.

Every tuple that came in is processed, dead or queued; every result is, for each downstream
operator, sent there once or dead on its way there with a reason. Nothing is estimated.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.measuring.latency import LatencyCounts
from anabranch.runtime.plan.ends import DeadLetter


class Spent(NamedTuple):
    """Seconds: of work, held up by successors, of the processor; `here_s`: tuple-seconds between
    arrival and result. What an incarnation had not recorded is lost with it."""

    busy_s: float = 0.0
    blocked_s: float = 0.0
    cpu_s: float = 0.0
    here_s: float = 0.0

    def __add__(self, other: object) -> Spent:
        assert isinstance(other, Spent)
        return Spent(*(a + b for a, b in zip(self, other, strict=True)))


class Counts:
    def __init__(self, me: InstanceId) -> None:
        self.me = me
        self.tuples_in = 0
        """Received from predecessors and taken up; of a source: read."""
        self.processed = 0
        self.tuples_out = 0
        """Results made; of a sink: accepted by its target."""
        self.dead = 0
        """Tuples that came in and failed for good."""
        self.dead_beside = 0
        """What was dead before it was a tuple of ours, or after: bad bytes, results that cannot
        be sent. Not part of `tuples_in`."""
        self.dead_towards: Counter[str] = Counter()
        """By downstream operator: results that could not be sent there. Part of `dead_beside`."""
        self.dead_reasons: Counter[str] = Counter()
        self.latency = LatencyCounts()
        self.latency_now = LatencyCounts()
        self.spent = Spent()
        self.joins = 0
        self.leaves = 0

    def snapshot(self) -> tuple[Any, ...]:
        """What the next incarnation needs."""
        counts = self.tuples_in, self.processed, self.tuples_out, self.dead, self.dead_beside
        reasons, towards = dict(self.dead_reasons), dict(self.dead_towards)
        latency = dict(self.latency.counts)
        return (*counts, self.joins, self.leaves, reasons, towards, latency, tuple(self.spent))

    def restore(self, snapshot: tuple[Any, ...]) -> None:
        self.tuples_in, self.processed, self.tuples_out, self.dead, self.dead_beside = snapshot[:5]
        self.joins, self.leaves = snapshot[5:7]
        self.dead_reasons = Counter(snapshot[7])
        self.dead_towards = Counter(snapshot[8])
        self.latency = LatencyCounts(snapshot[9])
        self.spent = Spent(*snapshot[10])

    def final(self) -> dict[str, Any]:
        """The fields of `FinalCount` that are counted here."""
        return {
            "tuples_in": self.tuples_in,
            "processed": self.processed,
            "tuples_out": self.tuples_out,
            "dead": self.dead,
            "dead_upstream": self.dead_beside,
            "dead_towards": dict(self.dead_towards),
            "dead_reasons": dict(self.dead_reasons),
            "joins": self.joins,
            "leaves": self.leaves,
            "latency": self.latency.counts,
            **self.spent._asdict(),
        }

    def note_dead_towards(self, operator: str, results: int) -> None:
        """So many results cannot be sent to this operator. Others may get them all the same."""
        self.dead_towards[operator] += results
        self.dead_beside += results

    def note_dead(self, letters: list[DeadLetter]) -> None:
        for letter in letters:
            self.dead_reasons[letter.reason.partition(":")[0]] += 1

    def note_latency(self, latency_ms: float, tuples: int) -> None:
        self.latency.record(latency_ms, tuples)
        self.latency_now.record(latency_ms, tuples)
