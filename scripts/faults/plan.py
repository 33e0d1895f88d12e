"""Which faults happen when: a list that follows from the seed alone, so that it can be looked at.

The roll of a fault is drawn now, and picks one of the processes that are there when it is due.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

GAP_S = 1.2
"""Mean time between two faults."""
FIRST_S = 1.5
STOP_S_MAX = 30.0
STOP_S_USUAL = 2.0
SLOW_S_MAX = 8.0
AFTER_S_MAX = {"creator": 0.01, "child": 0.03}
AFTER_DECISION_S_MAX = 0.1
"""Scripts are followed a little late on a busy host."""

KINDS = {
    "keeper": "kill the keeper of an operator, of each in turn",
    "instance": "kill an instance",
    "neighbours": "kill two neighbours at once",
    "operator": "kill all instances of an operator at once",
    "everyone": "kill all instances of the run at once",
    "creator": "kill an older instance as soon as there is a newcomer's process",
    "child": "kill a newcomer as soon as its process is there",
    "leaver": "kill an instance of an operator right after one was told to leave",
    "mover": "kill an owner of key groups right after one was told to give some away",
    "stop": "stop an instance and let it go on later",
    "slow": "let an instance work only part of the time",
    "cut": "cut one connection of an instance",
    "cut_all": "cut all connections of an instance at once",
    "idle": "kill a process that is kept ready",
    "agent": "kill the agent, and resume the run when nothing of it is left",
    "standby": "kill the process that waits to take the template process's place",
    "parent": "kill the template process, with which all others die",
    "parents": "kill the template process and its standby, so that another parent has to be begun",
}
COPIES = {"keeper": 3, "instance": 3, "neighbours": 2, "creator": 2, "child": 2, "leaver": 2,
          "mover": 2, "stop": 3, "slow": 2, "cut": 3}  # fmt: skip
"""How often a kind is in the deck from which they are drawn; once if it is not here."""


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """`operator`: at which one; of `neighbours`, the first of the two. `for_s`: how long a stop
    lasts, or until an agent is followed by another. `after_s`: behind what the fault waits for."""

    at_s: float
    kind: str
    operator: str
    other: str
    roll: float
    for_s: float
    after_s: float

    @property
    def text(self) -> str:
        where = "-".join(filter(None, (self.operator, self.other)))
        lasting = f"for {self.for_s:.2f} s" if self.for_s else ""
        return " ".join(filter(None, (f"{self.at_s:.2f}", self.kind, where, lasting)))


@dataclass(frozen=True, slots=True)
class Scope:
    """What there is to be hit."""

    operators: Sequence[str]
    scaled: Sequence[str]
    keyed: Sequence[str]
    edges: Sequence[tuple[str, str]]


def plan(seed: int, seconds: float, scope: Scope, only: Sequence[str] | None = None) -> list[Fault]:
    """Every kind once in the beginning, in any order; then as often as the deck has it."""
    rng = random.Random(f"{seed}:faults")
    kinds = [kind for kind in KINDS if only is None or kind in only]
    keepers = rng.sample(scope.operators, len(scope.operators))
    deck: list[str] = []
    found: list[Fault] = []
    at_s = FIRST_S
    while kinds and at_s < seconds:
        if not deck:
            copies = 1 if not found else None
            deck = [kind for kind in kinds for _ in range(copies or COPIES.get(kind, 1))]
            rng.shuffle(deck)
        found.append(_fault(round(at_s, 3), deck.pop(), rng, scope, keepers, seconds))
        at_s += rng.expovariate(1 / GAP_S)
    return found


def _fault(
    at_s: float, kind: str, rng: random.Random, scope: Scope, keepers: list[str], seconds: float
) -> Fault:
    operator, other = "", ""
    match kind:
        case "keeper":
            operator = keepers.pop(0)
            keepers.append(operator)
        case "neighbours":
            operator, other = rng.choice(scope.edges)
        case "creator" | "child" | "leaver":
            operator = rng.choice(scope.scaled)
        case "mover":
            operator = rng.choice(scope.keyed)
        case "everyone" | "idle" | "standby" | "parent" | "agent" | "parents":
            pass
        case _:
            operator = rng.choice(scope.operators)
    for_s = {"stop": _stop_s(rng, seconds), "slow": rng.uniform(1, SLOW_S_MAX),
             "agent": rng.uniform(0, 2)}.get(kind, 0.0)  # fmt: skip
    return Fault(
        at_s,
        kind,
        operator,
        other,
        roll=round(rng.random(), 6),
        for_s=round(for_s, 3),
        after_s=round(rng.uniform(0, AFTER_S_MAX.get(kind, AFTER_DECISION_S_MAX)), 4),
    )


def _stop_s(rng: random.Random, seconds: float) -> float:
    """Mostly short, seldom up to half a minute."""
    longest = min(STOP_S_MAX, seconds / 3)
    if rng.random() < 0.2:
        return rng.uniform(min(STOP_S_USUAL, longest), longest)
    return rng.uniform(0.05, min(STOP_S_USUAL, longest))
