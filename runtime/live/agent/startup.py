"""The beginning of a run, or of its next part: what instances are told, and in which order."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from anabranch.runtime.live.agent.bootstrap import bootstrap_of, waves
from anabranch.runtime.live.agent.roster import Member
from anabranch.runtime.live.agent.starter import Orders, StartError
from anabranch.runtime.live.agent.supervisor import PAUSE_FIRST_S
from anabranch.runtime.live.channel.ended import ended_dir, mark_all
from anabranch.runtime.live.journal.journal import segments
from anabranch.runtime.values.kinds import EventKind

if TYPE_CHECKING:
    from anabranch.runtime.live.agent.agent import Agent

TOKEN_BYTES = 32
FOUNDER_TRIES_MAX = 5
"""Until a founder is ready; what dies later is counted in `supervisor`."""


def orders_of(agent: Agent) -> Orders:
    """To be called when the clock of the run begins."""
    resumed = agent.journal_writer.resumed
    return Orders(
        pipeline=agent.pipeline.name,
        run_dir=agent.run_dir.path,
        started_s=agent.started_s - agent.earlier_s,
        token=secrets.token_bytes(TOKEN_BYTES) if resumed is None else resumed.token,
        transport=agent.options.transport,
        host=agent.options.host,
        seed=agent.seed,
        scaling=agent.options.decides,
        dry_run=agent.options.policy_dry_run,
        limits=agent.options.limits,
        delivery=agent.pipeline.delivery,
        state_dir=agent.journal_writer.ends,
        stays_open=agent.options.until_committed,
    )


async def found(agent: Agent) -> None:
    """From the sinks up: an instance that starts finds its successors listening.

    Raises `StartError`.
    """
    founders: dict[str, list[Member]] = {
        o.name: agent.roster.found(o) for o in agent.pipeline.operators.values()
    }
    for wave in waves(agent.pipeline):
        members = [m for operator in wave for m in founders[operator.name]]
        try:
            async with asyncio.TaskGroup() as group:
                for member in members:
                    group.create_task(_found_one(agent, member, founders), name=member.text)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
    agent.journal_writer.founded()


async def _found_one(agent: Agent, member: Member, founders: Mapping[str, list[Member]]) -> None:
    """It may die before it is ready, unless it says why. Raises `StartError`."""
    member.bootstrap = bootstrap_of(member, agent.pipeline, founders)
    journal = agent.journal_writer.journal_of(member.id.operator, member.id.number)
    deaths = 0
    while True:
        try:
            await agent.start_member(member)
            break
        except StartError:
            deaths += 1
            if not agent.supervisor.died_early(member) or deaths >= FOUNDER_TRIES_MAX:
                raise
        await asyncio.sleep(PAUSE_FIRST_S)  # by then nobody leads the dead one any more
        member.process = None
        if segments(journal):  # otherwise it died before it was anybody
            member.incarnation += 1
    agent.roster.activate(member)
    if deaths:
        agent.news.of(member, EventKind.RESUMED, f"incarnation {member.incarnation}")


async def resume(agent: Agent) -> None:
    """All that lived go on at once: they know their neighbours, and wait for them."""
    agent.journal_writer.go_on()
    for operator, below in agent.roster.next_number.items():  # marks are not synced, accounts are
        numbers = [member.id.number for member in agent.roster.living(operator)]
        mark_all(ended_dir(agent.journal_writer.ends), operator, below, numbers)
    living = agent.roster.living()
    told = f"all processes were gone; instances that go on: {len(living)}"
    agent.news.note("agent", EventKind.RUN_RESUMED, told)
    assert agent.journal_writer.resumed is not None
    for name, why in agent.journal_writer.resumed.gone.items():
        agent.say(name, f"source {name!r}: {why}")
        agent.news.note(name, EventKind.INPUT_GONE, why)
    await agent.supervisor.resume(living)
