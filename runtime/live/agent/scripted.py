"""Follows a scale script: tells instances, at the times written, to duplicate or to leave."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

from anabranch.runtime.live.agent.roster import Member
from anabranch.runtime.live.link.messages import Decide
from anabranch.runtime.pipeline.order import bound
from anabranch.runtime.policies.script import Script, Scripted
from anabranch.runtime.values.kinds import EventKind

if TYPE_CHECKING:
    from anabranch.runtime.live.agent.agent import Agent


async def follow(script: Script, agent: Agent, rng: random.Random) -> None:
    """Return after the last decision. Late decisions are made at once, in their order; not those
    from before a run was resumed, which had their time."""
    operators = agent.pipeline.operators
    scalable = [o.name for o in operators.values() if o.can_scale]
    begins_s = 0.0 if agent.journal_writer.resumed is None else time.monotonic() - agent.started_s
    for decision in script.decisions(scalable, bound(operators)):
        if decision.at_s < begins_s:
            continue
        await asyncio.sleep(agent.started_s + decision.at_s - time.monotonic())
        member = choose(decision, agent.roster.active(decision.operator), rng)
        if member is None:
            skipped = f"nobody can {decision.action}"
            agent.news.note(decision.operator, EventKind.SKIPPED, skipped)
            continue
        member.told_to_leave |= decision.action == "leave"
        agent.send(member.id, Decide(action=decision.action, n=decision.n))


def choose(decision: Scripted, active: list[Member], rng: random.Random) -> Member | None:
    """Who acts: for `leave` one that is not the keeper, for `hand_over` the keeper."""
    able = [m for m in active if not m.told_to_leave]
    match decision.action:
        case "leave":
            able = [m for m in able if not m.keeper]
        case "hand_over":
            able = [m for m in able if m.keeper]
    return rng.choice(able) if able else None
