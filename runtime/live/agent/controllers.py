"""Runs the controllers of a run: gives them the readings of instances, and passes on their orders.

A controller that fails is reported, and decides nothing any more; operators stay as they are. What
it would leave to another incarnation is in the journal of the agent, and a resumed run begins with
that."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Container, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from anabranch.runtime.live.agent.journal_writer import CannotWrite
from anabranch.runtime.live.agent.messenger import Messenger
from anabranch.runtime.live.agent.recorder import Recorder
from anabranch.runtime.live.agent.roster import Member, Phase, Roster
from anabranch.runtime.live.agent.run_events import RunEvents
from anabranch.runtime.live.agent.run_journal import PlanNoted, RunRecord
from anabranch.runtime.live.link.messages import Order
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.policies.control import Control, Sight, unread
from anabranch.runtime.policies.controller import Controller, controllers_of
from anabranch.runtime.policies.decider import PolicyError
from anabranch.runtime.policies.learnt_file import LearntFile
from anabranch.runtime.policies.look_and_plan import (
    Look,
    OperatorLook,
    PoolLook,
    Seen,
    operator_of,
)
from anabranch.runtime.policies.policy import Heritage, Scale
from anabranch.runtime.ports import clock
from anabranch.runtime.reporting.snapshot import ControllerSnapshot
from anabranch.runtime.reporting.status import InstanceState
from anabranch.runtime.values.kinds import EventKind


class Looks:
    """What controllers are shown of the run."""

    def __init__(
        self,
        operators: Collection[Operator],
        roster: Roster,
        recorder: Recorder,
        pool: Callable[[], PoolLook | None] = lambda: None,
    ) -> None:
        self._names = [operator.name for operator in operators]
        self._roster = roster
        self.recorder = recorder
        self._pool = pool
        self.shown = recorder.controllers
        """What controllers have planned last, for others to look at."""
        self._sight = Sight([_blank(operator, operators) for operator in operators])

    def look(self) -> Look:
        now_s, roster = clock.monotonic(), self._roster
        told, coming = {}, {}
        for name in self._names:
            told[str(name)] = self._seen(roster.active(name), now_s)
            coming[str(name)] = sum(m.phase is not Phase.ACTIVE for m in roster.living(name))
        return replace(self._sight.look(now_s, told, coming), pool=self._pool())

    def _seen(self, members: list[Member], now_s: float) -> list[Seen]:
        """Instances that are not about to leave. One that relocates is about to: its newcomer takes
        its place."""
        found = []
        for member in sorted((m for m in members if not m.relocates), key=lambda m: m.id):
            status = self.recorder.statuses.get(member.text)
            if status is not None and status.state != InstanceState.ACTIVE:
                continue
            if status is None or status.reading is None:
                reading = replace(unread(now_s, len(members)), keeper=member.keeper)
            else:
                reading = status.reading
            found.append(Seen(member.text, reading))
        return found


class Controllers:
    """All of a run. `log`: into the journal; `left`: by the text of a controller, what its earlier
    incarnation has left; `pinned`: operators that are none of its business just now (`Pins`);
    `learnt`: by those of another run, with which those of a new one begin."""

    def __init__(
        self,
        looks: Looks,
        messenger: Messenger,
        run_events: RunEvents,
        log: Callable[[RunRecord], None],
        left: dict[str, dict[str, float]],
        pinned: Container[str],
        learnt: LearntFile | None = None,
    ) -> None:
        self._learnt = learnt
        looks.recorder.learnt = self.learnt
        self._pinned = pinned
        self._looks = looks
        self._messenger = messenger
        self._run_events = run_events
        self._log = log
        self._left = left
        self._controls: list[Control] = []
        self._began: list[Control] = []

    async def run(
        self, operators: Iterable[Operator], seed: int, period_s: float, *, is_resumed: bool
    ) -> None:
        """For as long as the run lasts, if there are any."""
        if self._learnt is not None and not is_resumed:
            self._begin_with(self._learnt, operators)
        self._begin(operators, seed, is_resumed)
        while self._controls:
            await asyncio.sleep(period_s)
            look = self._looks.look()
            for control in list(self._controls):
                try:
                    self._step(control, look)
                except PolicyError as error:
                    self._give_up(control, error)

    def _begin(self, operators: Iterable[Operator], seed: int, is_resumed: bool) -> None:
        for policy, names in controllers_of(operators).items():
            left = self._left_by(policy) if is_resumed or self._left else None
            self._looks.shown[policy.text] = ControllerSnapshot(policy.text, names)
            rng = random.Random(f"{seed} controller {policy.text}")
            try:
                now_s = clock.monotonic()
                control = Control.begin(policy, names, rng, now_s, left, is_resumed=is_resumed)
            except PolicyError as error:
                self._tell_failure(policy.text, names, error)
            else:
                self._controls.append(control)
                self._began.append(control)

    def _begin_with(self, learnt: LearntFile, operators: Iterable[Operator]) -> None:
        """In the journal as well, for a run that is resumed before its first plan."""
        for policy in controllers_of(operators):
            self._leave(policy, learnt.of(policy) or {})

    def learnt(self, now_s: float) -> dict[Controller[Any], Heritage]:
        """What they leave now; of one that has failed what it has left last."""
        found = {control.policy: self._left_by(control.policy) for control in self._began}
        for control in self._controls:
            with suppress(PolicyError):
                found[control.policy] = control.heritage(now_s)
        return found

    def _leave(self, policy: Controller[Any], left: Heritage) -> None:
        if left != self._left.get(policy.text, {}):
            self._left[policy.text] = left
            with suppress(CannotWrite):  # then the run has failed
                self._log(PlanNoted(controller=policy.text, left=left))

    def _left_by(self, policy: Controller[Any]) -> Heritage:
        """By the same one, or by one of its kind whose settings were others."""
        of_its_kind = [text for text in self._left if text.partition("(")[0] == policy.name]
        text = policy.text if policy.text in self._left else "".join(of_its_kind[-1:])
        return self._left.get(text, {})

    def _step(self, control: Control, look: Look) -> None:
        orders, is_new = control.step(look)
        for order in orders:
            if operator_of(order.instance) in self._pinned:
                continue
            said = Order.of(order.act, control.policy.name)
            self._messenger.send_by_name(order.instance, said)
        if is_new:
            self._show(control, look.now_s)
            self._leave(control.policy, control.heritage(look.now_s))

    def _show(self, control: Control, now_s: float) -> None:
        plan, name = control.plan, control.policy.text
        self._looks.shown[name] = ControllerSnapshot(
            name, control.operators, dict(plan.wanted), plan.hosts, plan.why, now_s
        )

    def _give_up(self, control: Control, error: PolicyError) -> None:
        self._controls.remove(control)
        self._tell_failure(control.policy.text, control.operators, error)

    def _tell_failure(self, name: str, operators: tuple[str, ...], error: PolicyError) -> None:
        shown = self._looks.shown
        shown[name] = replace(shown[name], failed=str(error))
        self._run_events.note(operators[0], EventKind.POLICY_FAILED, _told(error))


def _told(error: PolicyError) -> str:
    return f"{error}; it decides nothing any more"


def _blank(operator: Operator, operators: Iterable[Operator]) -> OperatorLook:
    return OperatorLook(
        name=str(operator.name),
        scale=operator.scale or Scale(max_instances=1),
        keyed=operator.keyed is not None,
        upstream=tuple(map(str, operator.upstream)),
        downstream=tuple(str(o.name) for o in operators if operator.name in o.upstream),
    )
