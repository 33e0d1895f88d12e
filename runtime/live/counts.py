"""What an instance counts of its tuples, always: its row of the ledger.

Every tuple that came in is processed, dead or queued; every result is sent once to each
downstream operator or dead with a reason. Nothing is estimated.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.ends import DeadLetter
from anabranch.runtime.latency import LatencyCounts


class Counts:
    def __init__(self, me: InstanceId) -> None:
        self.me = me
        self.tuples_in = 0
        """Received from predecessors and taken up; of a source: read."""
        self.processed = 0
        self.tuples_out = 0
        self.dead = 0
        """Tuples that came in and failed for good."""
        self.dead_beside = 0
        """What was dead before it was a tuple of ours, or after: bad bytes, results that cannot
        be sent. Not part of `tuples_in`."""
        self.dead_reasons: Counter[str] = Counter()
        self.latency = LatencyCounts()
        self.latency_now = LatencyCounts()
        self.joins = 0
        self.leaves = 0

    def memory(self) -> tuple[Any, ...]:
        """What the next life must know."""
        counts = self.tuples_in, self.processed, self.tuples_out, self.dead, self.dead_beside
        return (*counts, self.joins, self.leaves, dict(self.dead_reasons))

    def remember(self, memory: tuple[Any, ...]) -> None:
        self.tuples_in, self.processed, self.tuples_out, self.dead, self.dead_beside = memory[:5]
        self.joins, self.leaves = memory[5:7]
        self.dead_reasons = Counter(memory[7])

    def note_dead(self, letters: list[DeadLetter]) -> None:
        for letter in letters:
            self.dead_reasons[letter.reason.partition(":")[0]] += 1

    def note_latency(self, latency_ms: float, tuples: int) -> None:
        self.latency.record(latency_ms, tuples)
        self.latency_now.record(latency_ms, tuples)
