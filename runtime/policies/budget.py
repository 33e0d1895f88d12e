"""The budget of actions of an instance: so many newcomers and leaves in a minute, and no more.

`actions`: when it acted, once for each newcomer or leave of the last minute, oldest first.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.runtime.policies.decision import Act, Duplicate, Hold, Leave, Move, Why

MINUTE_S = 60.0

Actions = tuple[float, ...]


def recent(actions: Actions, now_s: float) -> Actions:
    """Those of the last minute."""
    return tuple(t for t in actions if now_s - t < MINUTE_S)


def within_budget(act: Act, actions: Actions, most: int, now_s: float) -> tuple[Act, Actions]:
    """What the budget of `most` actions leaves of an act, and the actions with it."""
    cost, left = _cost(act), most - len(actions)
    if cost > left:
        if isinstance(act, Duplicate) and left > 0:
            act, cost = replace(act, n=left), left
        else:
            wait = actions[0] + MINUTE_S - now_s if actions else MINUTE_S
            return Hold(replace(act.explanation, why=Why.BUDGET, wait_s=wait)), actions
    return act, actions + (now_s,) * cost


def _cost(act: Act) -> int:
    match act:
        case Duplicate(n=n):
            return n
        case Leave():
            return 1
        case Hold() | Move():
            return 0
