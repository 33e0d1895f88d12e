"""What an agent refuses, by reason: counted, and written to its log now and then."""

from __future__ import annotations

from collections import Counter

from anabranch.runtime.live.hosts.agent_log import AgentLog
from anabranch.runtime.ports import clock

SAY_EVERY_S = 10.0
"""For each reason."""
REASONS_MAX = 64


class Refusals:
    def __init__(self, log: AgentLog | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._log = log
        self._said: dict[str, tuple[float, int]] = {}
        """By reason: when it was logged, and how many there were."""

    def count(self, reason: str, who: str) -> None:
        """`reason`: one of few texts, none from outside; `who`: an address or a proved name."""
        self._note(reason, who, f"refused {who or 'a connection'}: {reason}")

    def count_own(self, reason: str, who: str) -> None:
        """This agent is refused."""
        told = f"{who} refuses this host, which has shown it {reason}"
        self._note(f"refused by another one, as {reason}", who, told)

    def _note(self, reason: str, who: str, text: str) -> None:
        assert len(self.counts) < REASONS_MAX
        self.counts[reason] += 1
        now = clock.monotonic()
        said_at, before = self._said.get(reason, (now - SAY_EVERY_S, 0))
        if self._log is None or now - said_at < SAY_EVERY_S:
            return
        new = self.counts[reason] - before
        self._said[reason] = (now, self.counts[reason])
        more = f", and {new - 1:,} more since the last line" if new > 1 else ""
        self._log.say(
            "refused_peer", text + more, reason=reason, who=who, count=self.counts[reason]
        )
