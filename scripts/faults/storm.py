"""What operators are told while all this goes on: everybody duplicates, leaves, hands over, moves.

Each agent gets a script for what is left. Its times are the run's own, whose clock goes on where
that of the agent before stood.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence

from anabranch.runtime.policies.script import Action, Script, parse_script
from faults.plan import Scope

STEPS_S: dict[Action, float] = {"duplicate": 0.9, "leave": 1.1, "hand_over": 1.7, "move": 0.8}
FIRST_S = 0.5
QUIET_S = 0.5
"""Before the end of the faults."""


def script_of(seed: int, scope: Scope, seconds: float, passed_s: float = 0.0) -> str:
    """The text of a script for the `seconds` that are left, behind those that have passed.

    If there is no time, it is one for the very far future.
    """
    rng = random.Random(f"{seed}:storm")
    last_s = passed_s + seconds - QUIET_S
    lines = []
    for operator in scope.scaled:
        for action, step_s in STEPS_S.items():
            if action == "move" and operator not in scope.keyed:
                continue
            first_s = round(passed_s + FIRST_S + rng.uniform(0, step_s), 3)
            step_s = round(step_s * rng.uniform(0.8, 1.25), 3)
            if first_s <= last_s:
                lines.append(f"every {step_s} from {first_s} to {last_s:.3f}: {operator} {action}")
    return "\n".join(lines) or f"1000000000 {scope.scaled[0]} leave"


class Times:
    """When an operator is told to do something."""

    def __init__(self, script: Script | str, operators: Sequence[str]) -> None:
        script = parse_script(script) if isinstance(script, str) else script
        self._times: dict[tuple[str, str], list[float]] = {}
        for one in script.decisions(operators):
            self._times.setdefault((one.operator, one.action), []).append(one.at_s)

    def next(self, operator: str, action: str, after_s: float) -> float | None:
        """None if it will not be told so any more."""
        times = self._times.get((operator, action), [])
        at = bisect_left(times, after_s)
        return times[at] if at < len(times) else None
