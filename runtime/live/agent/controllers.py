"""Runs the controllers of a run: shows them what instances have told, and passes on their orders.

A controller that fails is told, and decides nothing any more; operators stay as they are. What it
would leave to another incarnation is in the journal of the agent, and a resumed run begins with
that.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from anabranch.runtime.live.agent.journal_writer import CannotWrite
from anabranch.runtime.live.agent.roster import Member, Phase
from anabranch.runtime.live.agent.run_journal import Planned
from anabranch.runtime.live.link.messages import Order
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.policies.control import Control, Sight, unread
from anabranch.runtime.policies.controller import controllers_of
from anabranch.runtime.policies.decider import PolicyError
from anabranch.runtime.policies.look import Look, OperatorLook, Seen
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.reporting.status import InstanceState
from anabranch.runtime.values.kinds import EventKind

if TYPE_CHECKING:
    from anabranch.runtime.live.agent.agent import Agent
    from anabranch.runtime.policies import reconcile


class Controllers:
    """All of a run. `left`: by the text of a controller, what its earlier incarnation has left."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.left: dict[str, dict[str, float]] = {}
        self._sight = Sight(_blank_looks(agent.pipeline))
        self._controls: list[Control] = []

    async def run(self) -> None:
        """For as long as the run lasts, if there are any."""
        self._begin()
        while self._controls:
            await asyncio.sleep(self._agent.options.limits.status_period_s)
            look = self._look()
            for control in list(self._controls):
                try:
                    self._step(control, look)
                except PolicyError as error:
                    self._give_up(control, error)

    def _begin(self) -> None:
        is_resumed = self._agent.journal_writer.resumed is not None
        operators = self._agent.pipeline.operators.values()
        for policy, names in controllers_of(operators).items():
            left = self.left.get(policy.text, {}) if is_resumed else None
            rng = random.Random(f"{self._agent.seed} controller {policy.text}")
            try:
                control = Control.begin(policy, names, rng, time.monotonic(), left)
            except PolicyError as error:
                self._note(names[0], EventKind.POLICY_FAILED, _told(error))
            else:
                self._controls.append(control)

    def _step(self, control: Control, look: Look) -> None:
        orders, is_new = control.step(look)
        for order in orders:
            self._pass_on(order, control)
        if is_new:
            left = control.heritage(look.now_s)
            if left != self.left.get(control.policy.text, {}):
                self.left[control.policy.text] = left
                with suppress(CannotWrite):  # then the run has failed
                    self._agent.log(Planned(controller=control.policy.text, left=left))

    def _pass_on(self, order: reconcile.Order, control: Control) -> None:
        for member in self._agent.roster.living():
            if member.text == order.instance:
                self._agent.send(member.id, Order.of(order.act, control.policy.name))

    def _give_up(self, control: Control, error: PolicyError) -> None:
        self._controls.remove(control)
        self._note(control.operators[0], EventKind.POLICY_FAILED, _told(error))

    def _note(self, operator: str, kind: EventKind, detail: str) -> None:
        self._agent.news.note(operator, kind, detail)

    def _look(self) -> Look:
        now_s, roster = time.monotonic(), self._agent.roster
        told, coming = {}, {}
        for name in self._agent.pipeline.operators:
            told[str(name)] = self._seen(roster.active(name), now_s)
            coming[str(name)] = sum(m.phase is not Phase.ACTIVE for m in roster.living(name))
        return self._sight.look(now_s, told, coming)

    def _seen(self, members: list[Member], now_s: float) -> list[Seen]:
        """Those that are not about to leave."""
        found = []
        for member in sorted(members, key=lambda m: m.id):
            status = self._agent.recorder.statuses.get(member.text)
            if status is None or status.reading is None:
                found.append(Seen(member.text, unread(now_s, len(members))))
            elif status.state == InstanceState.ACTIVE:
                found.append(Seen(member.text, status.reading))
        return found


def _told(error: PolicyError) -> str:
    return f"{error}; it decides nothing any more"


def _blank_looks(pipeline: Pipeline) -> list[OperatorLook]:
    operators = pipeline.operators.values()
    return [_blank(operator, list(operators)) for operator in operators]


def _blank(operator: Operator, operators: list[Operator]) -> OperatorLook:
    return OperatorLook(
        name=str(operator.name),
        scale=operator.scale or Scale(max_instances=1),
        keyed=operator.keyed is not None,
        upstream=tuple(map(str, operator.upstream)),
        downstream=tuple(str(o.name) for o in operators if operator.name in o.upstream),
    )
