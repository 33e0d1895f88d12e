"""How far other hosts are: how long a probe takes, smoothed.

That is the time to connect, and of a question and its answer: about two round trips, and what the
other agent needs. It orders hosts; it is no measurement of a network.
"""

from __future__ import annotations

from anabranch.runtime.hosts.host import HostInfo

SHARE = 0.125
"""Of a new value in the smoothed one, as in TCP (RFC 6298)."""


class Latencies:
    def __init__(self) -> None:
        self._smoothed_s: dict[str, float] = {}

    def note(self, host: HostInfo | None, seconds: float) -> None:
        """None: a seed, of which it was not known which host it is."""
        if host is not None:
            before = self._smoothed_s.get(host.name, seconds)
            self._smoothed_s[host.name] = before + SHARE * (seconds - before)

    def forget(self, name: str) -> None:
        """It has another address now, or is gone."""
        self._smoothed_s.pop(name, None)

    def of(self, name: str) -> float | None:
        """None: it was not measured."""
        return self._smoothed_s.get(name)
