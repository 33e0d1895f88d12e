"""How many bytes a host may send: so many per second, and what it has saved up."""

from __future__ import annotations

BYTES_PER_S = 700.0
BURST_BYTES = 6_000.0


class Budget:
    """What must be sent is sent, and counted; what may wait has to fit in. So a host sends at most
    `BYTES_PER_S` over time, as long as what must be sent is less."""

    def __init__(self, now: float) -> None:
        self._saved = BURST_BYTES
        self._at = now

    def room(self, now: float) -> int:
        """Bytes that may be sent now: half of what is saved, so that the next one that asks gets
        something as well."""
        self._saved = min(BURST_BYTES, self._saved + (now - self._at) * BYTES_PER_S)
        self._at = now
        return max(0, int(self._saved / 2))

    def spend(self, count: int) -> None:
        self._saved -= count
