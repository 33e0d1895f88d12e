"""Meter, policy and status of one instance: what it measures, and what it wants because of it.

Nothing here changes the graph. A decision is an event for the core, which alone may veto it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.protocol import events
from anabranch.protocol.states import Active, preds_of, succs_of, waiting_for
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.instance import group_choices
from anabranch.runtime.live.instance.counts import Spent
from anabranch.runtime.measuring.cpu import HostUse, cpu_wait_s
from anabranch.runtime.measuring.meter import Meter
from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.concerted import Concerted
from anabranch.runtime.policies.controller import controllers_of
from anabranch.runtime.policies.decider import Decider, PolicyError
from anabranch.runtime.policies.decision import Act, Duplicate, Hold, Leave, Move
from anabranch.runtime.policies.load import measure
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.reporting.status import InstanceState, Status
from anabranch.runtime.values.kinds import EventKind

if TYPE_CHECKING:
    from anabranch.runtime.live.instance.instance import Instance

TICK_S = 0.1
FIXED = Scale(max_instances=1)
SIBLINGS = "siblings"
WATERMARK = "watermark"
"""Event time as its creator knows it: a newcomer gets nothing older (`runtime.live.watermarks`)."""

now = time.monotonic


class Scaling:
    def __init__(self, instance: Instance, *, enabled: bool, heritage: dict[str, float]) -> None:
        operator = instance.operator
        self._instance = instance
        self._scale = operator.scale or FIXED
        self._decider: Decider | None = None
        if enabled and operator.scale is not None:
            try:
                self._decider = Decider.begin(self._scale, heritage, now())
            except PolicyError as error:
                self._give_up(error)
        self._concerted = Concerted(instance.neighbourhood.channel_to)
        operators = instance.pipeline.operators.values()
        self._is_looked_at = bool(controllers_of(operators))
        """There are controllers, which want readings."""
        self._cannot_give = False
        """No key group was light enough when it was to give some last."""
        self.dry_run = False
        """Decisions are told, and not carried out."""
        founded = instance.me.creator < 0
        self._instances = int(operator.instances_at_start if founded else heritage.get(SIBLINGS, 2))
        self._rank: int | None = None
        self._host = HostUse(now())
        self._spent_before = Spent()
        self.meter = self._new_meter()

    def _new_meter(self) -> Meter:
        operator = self._instance.operator
        return Meter(
            period_s=self._scale.period_s,
            now_s=now(),
            instances=self._instances,
            capacity=self._scale.capacity,
            is_source=operator.source is not None,
            here=self._instance.intake.here,
        )

    @property
    def siblings(self) -> int:
        """Active instances of this operator, this one included, as neighbours tell it."""
        return self._instances

    def heritage(self, n: int) -> dict[str, float]:
        """What each of `n` newcomers should know: how many they are, what was tried."""
        known = {SIBLINGS: float(self._instances + n), WATERMARK: self._instance.gate.value}
        if self._decider is not None:
            try:
                known.update(self._decider.heritage(now()))
            except PolicyError as error:
                self._give_up(error)
        return known

    # -- what the instance tells -----------------------------------------------------------

    def received(self, channel: Channel, tuples: int) -> None:
        self.meter.received(tuples)
        self.heard(channel)

    def heard(self, channel: Channel) -> None:
        """A neighbour has said how many instances of my operator it counts; the newest word
        holds (`docs/protocol.md` 2.5)."""
        if channel.rank_told is not None:
            self._rank = channel.rank_told
        if channel.siblings_told and channel.siblings_told != self._instances:
            self._instances = channel.siblings_told
            self.meter.instances(self._instances, now())

    def blocked(self, is_blocked: bool) -> None:
        if is_blocked:
            self.meter.blocked(self._culprit(), now())
        else:
            self.meter.unblocked(now())

    def _culprit(self) -> str:
        """The successor that leaves us least credit on the branch that is furthest behind."""
        branch = max(self._instance.outbox.branches, key=lambda b: b.held)
        worst = min(branch.channels, key=lambda c: c.allowance.tuples_left, default=None)
        return str(worst.peer) if worst else str(branch.operator)

    # -- periodically ----------------------------------------------------------------------

    async def run(self) -> None:
        await self._instance.began.wait()
        self.meter = self._new_meter()
        self._spent_before = self._instance.counts.spent
        status_due = now()
        while True:
            await asyncio.sleep(TICK_S)
            self._instance.pump.listen(TICK_S)
            reading = self._exchange(self._read())
            self._note_spent(reading)
            self._adapt(reading)
            self._decide(reading)
            if now() >= status_due:
                status_due = now() + self._instance.limits.status_period_s
                self._instance.agent_client.send(self.status(reading))
                self._instance.pump.tell_progress()

    def tell_now(self) -> None:
        """Say at once what a new incarnation begins with: what the last one got done is in it."""
        self._instance.agent_client.send(self.status(self._read()))

    def _adapt(self, reading: Reading) -> None:
        """Let no more lie here than is worked off soon: windows and the outbox follow the speed,
        which behind slow successors is theirs."""
        instance = self._instance
        instance.outbox.adapt(TICK_S)
        instance.note_outbox()
        blocked = instance.outbox.waiting
        # What fills the pipeline in front of a slow successor looks like speed for a moment.
        speed = reading.processed_per_s if blocked else reading.capacity
        if speed is not None:
            intake = instance.intake
            intake.adapt_windows(instance.senders(), speed, may_grow=not blocked)

    def _read(self) -> Reading:
        instance, meter = self._instance, self.meter
        held: float = sum(c.held_told for c in instance.senders())
        if (offered := instance.pump.offered()) is not None:
            meter.demand(offered.per_s / max(1, self._instances))
            held = offered.waiting
        meter.queue(instance.intake.tuples, held)
        if (waited := cpu_wait_s()) is not None:
            meter.cpu_wait(waited)
        state = instance.core.state
        keeper = isinstance(state, Active) and state.keeper
        meter.own_operation(isinstance(state, Active) and state.own is not None)
        self._host.look(now())
        received_from, sent_to = instance.neighbourhood.streams
        return replace(
            meter.reading(now(), keeper=keeper).with_rank(self._rank),
            keyed=bool(instance.operator.edges),
            results_total=instance.counts.tuples_out,
            cpu_total_s=self._host.own_s,
            host_busy=self._host.share,
            received_from=received_from,
            sent_to=sent_to,
            latency=dict(instance.counts.latency.counts),
        )

    def account(self) -> None:
        """Let the counts have what was spent until now."""
        self._note_spent(self._read())

    def _note_spent(self, reading: Reading) -> None:
        spent = Spent(
            reading.busy_total_s,
            reading.blocked_total_s,
            reading.cpu_total_s,
            reading.here_total_s,
        )
        self._instance.counts.spent = self._spent_before + spent

    def _exchange(self, reading: Reading) -> Reading:
        """Tell neighbours what is new; with what they have told."""
        state = self._instance.core.state
        in_concert = self._decider is not None and self._scale.policy.in_concert
        return self._concerted.exchange(
            reading, preds_of(state), succs_of(state), in_concert=in_concert
        )

    def _decide(self, reading: Reading) -> None:
        if self._decider is None or not isinstance(self._instance.core.state, Active):
            return
        try:
            decision = self._decider.decide(reading, self._instance.rng)
        except PolicyError as error:
            self._give_up(error)
            return
        state = self._instance.core.state
        self._concerted.plan(self._decider.planned, preds_of(state), succs_of(state))
        self._do(decision)

    def ordered(self, act: Act) -> None:
        """By a controller; like a decision of its own."""
        if isinstance(self._instance.core.state, Active):
            self._do(act)

    def _do(self, decision: Act) -> None:
        if self.dry_run and not isinstance(decision, Hold):
            self._instance.agent_client.note(EventKind.WOULD_DO, decision.text)
        else:
            self._carry_out(decision)

    def _give_up(self, error: PolicyError) -> None:
        """The stream goes on with as many instances as there are."""
        self._decider = None
        self._instance.agent_client.note(
            EventKind.POLICY_FAILED, f"{error}; it decides nothing any more"
        )

    def _carry_out(self, decision: Act) -> None:
        match decision:
            case Duplicate(n=n):
                self._instance.agent_client.note(EventKind.DECIDED, decision.text)
                self._instance.feed(events.DuplicateDecided(n))
            case Leave() if self._is_needed():
                self._instance.agent_client.note(
                    EventKind.VETO,
                    "its own keys need little, but a sibling's hold up the predecessors",
                )
            case Leave(new_owner=new_owner):
                self._instance.agent_client.note(EventKind.DECIDED, decision.text)
                self._instance.departure.decide(self._draw_of(new_owner))
            case Move():
                self._move(decision)
            case Hold():
                pass

    def _move(self, decision: Move) -> None:
        instance, draw = self._instance, self._draw_of(decision.to_rank)
        groups = group_choices.part(instance.owned(), instance.heat(), decision.share)
        if draw is not None and groups:
            instance.agent_client.note(EventKind.DECIDED, decision.text)
            instance.move(groups, draw)
        elif not self._cannot_give:
            instance.agent_client.note(EventKind.VETO, f"nothing to give: {decision.text}")
        self._cannot_give = not groups

    def _draw_of(self, rank: int | None) -> int | None:
        """The place of the sibling with this rank among all but this one; None if there is none."""
        if rank is None or self._rank is None or not 0 <= rank < self._instances:
            return None
        return None if rank == self._rank else rank - (rank > self._rank)

    def _is_needed(self) -> bool:
        """Where tuples go by key, one overloaded owner starves the others: that is no reason for
        them to go, and make it worse by giving their keys to somebody."""
        instance = self._instance
        return bool(instance.owned()) and any(c.held_told for c in instance.senders())

    def status(self, reading: Reading) -> Status:
        instance = self._instance
        counts, state = instance.counts, instance.core.state
        return Status(
            id=str(instance.me),
            operator=instance.me.operator,
            t=reading.now_s,
            keeper=reading.keeper,
            state=InstanceState(type(state).__name__),
            tuples_in=counts.tuples_in,
            tuples_out=counts.tuples_out,
            dead=counts.dead + counts.dead_beside,
            queued=instance.intake.tuples,
            held=instance.outbox.held,
            load=measure(reading, self._scale).ratio or reading.busy,
            capacity=reading.capacity or 0.0,
            busy=reading.busy,
            starved=reading.starved,
            blocked=reading.blocked,
            blocked_by=reading.blocked_by,
            preds=len(preds_of(state)),
            succs=len(succs_of(state)),
            epoch=instance.core.epoch,
            latency=counts.latency_now.take(),
            messages=instance.neighbourhood.messages_sent,
            groups=len(instance.owned()),
            hot=group_choices.hottest(instance.owned(), instance.heat()),
            waiting_for=sorted(map(str, waiting_for(state))),
            processed=counts.processed,
            **counts.spent._asdict(),
            waiting=round(reading.waiting, 1),
            offered=reading.demand_per_s,
            sent_to=dict(reading.sent_to),
            policy="" if self._decider is None else self._scale.policy.name,
            reading=reading if self._is_looked_at else None,
        )
