"""What every view can do. The command line drives one; which one depends on the terminal."""

from __future__ import annotations

from typing import Protocol

from anabranch.runtime.reporting.snapshot import RunSnapshot


class View(Protocol):
    def show(self, snapshot: RunSnapshot) -> None:
        """Called a few times per second."""

    def say(self, line: str) -> None:
        """A line that stays, such as what an operator printed."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def held_up(snapshot: RunSnapshot) -> dict[str, str]:
    """Operators that wait for the credit of another one, and which (P40): the cause is the
    operator at the end of such a chain, which waits for none itself."""
    found = {}
    for operator in snapshot.operators:
        blockers = [m.blocked_by for m in operator.members if m.blocked_by]
        if blockers:
            found[operator.name] = blockers[0].rpartition(".")[0] or blockers[0]
    return found


def culprits(snapshot: RunSnapshot) -> set[str]:
    waiting = held_up(snapshot)
    return {name for name in waiting.values() if name not in waiting}
