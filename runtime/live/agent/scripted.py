"""Follows a scale script: orders instances, at the given times, to duplicate or to leave."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from anabranch.runtime.live.agent.clock import RunClock
from anabranch.runtime.live.agent.messenger import Messenger
from anabranch.runtime.live.agent.roster import Member, Roster
from anabranch.runtime.live.agent.run_events import RunEvents
from anabranch.runtime.live.link.messages import Decide
from anabranch.runtime.policies.script import Scripted
from anabranch.runtime.values.kinds import EventKind


async def follow(
    decisions: Iterable[Scripted],
    clock: RunClock,
    roster: Roster,
    messenger: Messenger,
    run_events: RunEvents,
    rng: random.Random,
) -> None:
    """Return after the last decision. Late decisions are made at once, in their order."""
    for decision in decisions:
        await asyncio.sleep(decision.at_s - clock.now_s)
        member = choose(decision, roster.active(decision.operator), rng)
        if member is None:
            skipped = f"no instance can {decision.action}"
            run_events.note(decision.operator, EventKind.SKIPPED, skipped)
            continue
        member.told_to_leave |= decision.action == "leave"
        messenger.send(member.id, Decide(action=decision.action, n=decision.n, host=decision.host))


def choose(decision: Scripted, active: list[Member], rng: random.Random) -> Member | None:
    """The member that acts: for `leave` one that is not the keeper, for `hand_over` the keeper."""
    able = [m for m in active if not m.told_to_leave]
    match decision.action:
        case "leave":
            able = [m for m in able if not m.keeper]
        case "hand_over":
            able = [m for m in able if m.keeper]
    return rng.choice(able) if able else None
