"""Meter and policy of one instance in virtual time: the sibling of the live driver's."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.ownership import groups_of
from anabranch.protocol.states import Active
from anabranch.runtime.keyed.placement import of_share
from anabranch.runtime.measuring.level import Level
from anabranch.runtime.measuring.meter import Meter
from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.concerted import Concerted
from anabranch.runtime.policies.decider import Decider
from anabranch.runtime.policies.decision import Act, Duplicate, Hold, Leave, Move
from anabranch.runtime.policies.load import measure
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.processing.flow import window_tuples
from anabranch.runtime.simulation.channel import Channel

if TYPE_CHECKING:
    from anabranch.runtime.simulation.instance import Instance

FIXED = Scale(max_instances=1)
SIBLINGS = "siblings"


class Scaling:
    def __init__(self, me: Instance, heritage: dict[str, float]) -> None:
        self.me = me
        self.scale = me.model.scale or FIXED
        decides = me.world.decides and me.model.scale is not None
        self._decider = Decider.begin(self.scale, heritage, me.clock.now) if decides else None
        self.load = 0.0
        """At the last look; 1.0 is as much as the instance can do."""
        self.reading: Reading | None = None
        """The last one."""
        founded = me.me.creator < 0
        self.siblings = int(me.world.founders[me.me.operator] if founded else heritage[SIBLINGS])
        """Active instances of this operator, this one included, as neighbours tell it."""
        self._rank: int | None = None
        self._cpu_wait_s = 0.0
        self._concerted: Concerted[Channel] = Concerted(me.neighbours.channel_to)
        self.here = Level(me.clock.now)
        """Tuples that came in and are not worked off."""
        self.meter = self._new_meter()

    def _new_meter(self) -> Meter:
        return Meter(
            period_s=self.scale.period_s,
            now_s=self.me.clock.now,
            instances=self.siblings,
            capacity=self.scale.capacity,
            is_source=not self.me.upstream,
            here=self.here,
        )

    def heritage(self, n: int) -> dict[str, float]:
        """What each of `n` newcomers should know: how many they are, and what was tried."""
        known = {SIBLINGS: float(self.siblings + n)}
        if self._decider is not None:
            known.update(self._decider.heritage(self.me.clock.now))
        return known

    # -- what the instance tells -----------------------------------------------------------

    def received(self, tuples: int) -> None:
        self.meter.received(tuples)

    def processed(self, tuples: int, busy_s: float) -> None:
        self.meter.processed(tuples, busy_s)
        share = self.me.host.waiting
        if share > 1:
            self._cpu_wait_s += busy_s * (1 - 1 / share)

    def heard(self, channel: Channel) -> None:
        """The newest word about the number of siblings holds (`docs/protocol.md` 2.5)."""
        if channel.rank_told is not None:
            self._rank = channel.rank_told
        told = channel.siblings_told
        if told and told != self.siblings:
            self.siblings = told
            self.meter.instances(told, self.me.clock.now)

    def blocked(self, is_blocked: bool) -> None:
        if is_blocked:
            self.meter.blocked(self._culprit(), self.me.clock.now)
        else:
            self.meter.unblocked(self.me.clock.now)

    def _culprit(self) -> str:
        branch = max(self.me.outbox.branches, key=lambda b: b.held)
        worst = min(branch.channels, key=lambda c: c.allowance.tuples_left, default=None)
        return str(worst.peer) if worst else str(branch.operator)

    # -- periodically ----------------------------------------------------------------------

    def begin(self) -> None:
        """The instance has become active."""
        self.meter = self._new_meter()
        if self.me.world.knobs.tick_s:
            self.me.clock.after(self.me.world.knobs.tick_s, self._tick)

    def _tick(self, _: None) -> None:
        me = self.me
        if me.ended or not me.world.ticking:
            return
        reading = self._exchange(self._read())
        self.load = measure(reading, self.scale).ratio or reading.busy
        self._adapt(reading)
        self._decide(reading)
        self.reading = reading
        me.clock.after(me.world.knobs.tick_s, self._tick)

    def _read(self) -> Reading:
        me, meter = self.me, self.meter
        held = sum([c.held_told for c in me.senders()])
        if (board := me.world.boards.get(me.me.operator)) is not None:
            meter.demand(board.offered_per_s(me.clock.now) / self.siblings)
            held = board.due(me.clock.now) - board.read
        meter.queue(me.work.queued, held)
        meter.cpu_wait(self._cpu_wait_s)
        state = me.core.state
        keeper = isinstance(state, Active) and state.keeper
        meter.own_operation(isinstance(state, Active) and state.own is not None)
        reading = meter.reading(me.clock.now, keeper=keeper).with_rank(self._rank)
        received_from: Counter[str] = Counter()
        sent_to: Counter[str] = Counter()
        for channel in me.neighbours.all:
            received_from[channel.peer.operator] += channel.tuples_received
            sent_to[channel.peer.operator] += channel.tuples_sent
        return replace(
            reading,
            keyed=me.model.keyed is not None,
            results_total=me.work.tuples_out,
            received_from=dict(+received_from),
            sent_to=dict(+sent_to),
        )

    def _exchange(self, reading: Reading) -> Reading:
        """Tell neighbours what is new; with what they have told."""
        in_concert = self._decider is not None and self.scale.policy.in_concert
        return self._concerted.exchange(
            reading, self.me.preds, self.me.succs, in_concert=in_concert
        )

    def _adapt(self, reading: Reading) -> None:
        """Let no more lie here than is worked off soon, which behind slow successors is theirs."""
        me = self.me
        if not me.world.knobs.backpressure:
            return
        me.outbox.adapt(me.world.knobs.tick_s)
        me.note_outbox()
        blocked = me.outbox.waiting
        speed = reading.processed_per_s if blocked else reading.capacity
        senders = me.senders()
        if senders and speed is not None:
            window = window_tuples(speed, len(senders), tuples_max=me.world.limits.credit_tuples)
            for channel in senders:
                grant = channel.grant
                grant.tuples_window = min(window, grant.tuples_window) if blocked else window

    def _decide(self, reading: Reading) -> None:
        me = self.me
        if self._decider is None or not isinstance(me.core.state, Active):
            return
        act = self._decider.decide(reading, me.world.rng)
        self._concerted.plan(self._decider.planned, me.preds, me.succs)
        self._carry_out(act)

    def ordered(self, act: Act) -> None:
        """By a controller; like a decision of its own."""
        if isinstance(self.me.core.state, Active):
            self._carry_out(act)

    def _carry_out(self, decision: Act) -> None:
        me = self.me
        match decision:
            case Duplicate(n=n):
                me.decide(events.DuplicateDecided(n), decision.text)
            case Leave() if me.model.keyed is not None and any(c.held_told for c in me.senders()):
                me.world.note(me, "veto", "a sibling's keys hold up the predecessors")
            case Leave(new_owner=new_owner):
                me.departure.decide(self._leave(new_owner), decision.text)
            case Move():
                self._move(decision)
            case Hold():
                pass

    def _leave(self, new_owner: int | None) -> events.LeaveDecided:
        """An instance with key groups asks some neighbour for a new owner."""
        if self.me.model.keyed is None:
            return events.LeaveDecided()
        draw = self._draw_of(new_owner)
        return events.LeaveDecided(self._somebody(), self._drawn(draw))

    def _move(self, decision: Move) -> None:
        me, draw = self.me, self._draw_of(decision.to_rank)
        state = me.core.state
        assert isinstance(state, Active)
        groups = of_share(me.world.loads_of(me, groups_of(state.owned)), decision.share)
        if draw is None or not groups:
            me.world.note(me, "veto", f"nothing to give: {decision.text}")
        else:
            moved = events.MoveDecided(frozenset(groups), self._somebody(), draw)
            me.decide(moved, decision.text)

    def _somebody(self) -> InstanceId | None:
        neighbours = sorted(self.me.succs | self.me.preds)
        return self.me.world.rng.choice(neighbours) if neighbours else None

    def _drawn(self, draw: int | None) -> int:
        return self.me.world.rng.randrange(1000) if draw is None else draw

    def _draw_of(self, rank: int | None) -> int | None:
        """The place of the sibling with this rank among all but this one; None if there is none."""
        if rank is None or self._rank is None or not 0 <= rank < self.siblings:
            return None
        return None if rank == self._rank else rank - (rank > self._rank)
