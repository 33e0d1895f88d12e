"""Policy of one instance: what it wants because of what it measures.

Nothing here changes the graph. A decision is an event for the core, which alone may veto it.
"""

from __future__ import annotations

import asyncio
import random

from anabranch.protocol import events
from anabranch.protocol.states import Active, preds_of, succs_of
from anabranch.runtime.live.instance import group_choices
from anabranch.runtime.live.instance.agent_client import AgentClient
from anabranch.runtime.live.instance.lifetime import Lifetime
from anabranch.runtime.live.instance.membership import Membership
from anabranch.runtime.live.instance.monitor import Monitor
from anabranch.runtime.live.instance.orders import Orders
from anabranch.runtime.live.instance.profile import Profile
from anabranch.runtime.live.instance.pumps import Pump
from anabranch.runtime.live.instance.siblings import Siblings
from anabranch.runtime.live.instance.tuple_path import TuplePath
from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.concerted import Concerted
from anabranch.runtime.policies.decider import Decider, PolicyError
from anabranch.runtime.policies.decision import Act, Duplicate, Hold, Leave, Move
from anabranch.runtime.ports import clock
from anabranch.runtime.values.kinds import EventKind

TICK_S = 0.1
SIBLINGS = "siblings"
WATERMARK = "watermark"
"""Event time as its creator has it: a newcomer gets nothing older (W2 of `watermarks`)."""

now = clock.monotonic


class Scaling:
    """`heritage`: what its creator sent it."""

    def __init__(
        self,
        profile: Profile,
        membership: Membership,
        path: TuplePath,
        *,
        pump: Pump,
        siblings: Siblings,
        monitor: Monitor,
        orders: Orders,
        agent_client: AgentClient,
        rng: random.Random,
        enabled: bool,
        heritage: dict[str, float],
    ) -> None:
        self._profile = profile
        self._membership = membership
        self._path = path
        self._pump = pump
        self._siblings = siblings
        self._monitor = monitor
        self._orders = orders
        self._agent_client = agent_client
        self._rng = rng
        self._decider: Decider | None = None
        if enabled and profile.operator.scale is not None:
            try:
                self._decider = Decider.begin(profile.scale, heritage, now())
                monitor.policy = profile.scale.policy.name
            except PolicyError as error:
                self._give_up(error)
        self._concerted = Concerted(lambda peer: path.neighbourhood.channel_to(peer).load_reports)
        self._cannot_give = False
        """No key group was light enough when it was to give some last."""
        self.dry_run = False
        """Decisions are reported, and not carried out."""
        self.pinned = False
        """A user has set how many instances there are, so the policy decides nothing."""

    def heritage(self, n: int) -> dict[str, float]:
        """What each of `n` newcomers gets: how many they are, what was tried."""
        known = {SIBLINGS: float(self._siblings.count + n), WATERMARK: self._path.gate.value}
        if self._decider is not None:
            try:
                known.update(self._decider.heritage(now()))
            except PolicyError as error:
                self._give_up(error)
        return known

    # -- periodically ----------------------------------------------------------------------

    async def run(self, lifetime: Lifetime) -> None:
        await lifetime.began.wait()
        self._monitor.begin()
        status_due = now()
        while True:
            await asyncio.sleep(TICK_S)
            self._pump.listen(TICK_S)
            reading = self._exchange(self._monitor.read())
            self._monitor.note_spent(reading)
            self._adapt(reading)
            self._decide(reading)
            if now() >= status_due:
                status_due = now() + self._profile.limits.status_period_s
                self._monitor.tell(reading)
                self._pump.tell_progress()

    def _adapt(self, reading: Reading) -> None:
        """Let no more lie here than is processed soon: windows and the outbox follow the speed,
        which behind slow successors is theirs."""
        path = self._path
        path.outbox.adapt(TICK_S)
        path.note_outbox()
        blocked = path.outbox.waiting
        # What fills the pipeline in front of a slow successor looks like speed for a moment.
        speed = reading.processed_per_s if blocked else reading.capacity
        if speed is not None:
            path.intake.adapt_windows(path.senders(), speed, may_grow=not blocked)

    def _exchange(self, reading: Reading) -> Reading:
        """Send neighbours what is new; returns the reading with what they have sent."""
        state = self._membership.state
        in_concert = self._decider is not None and self._profile.scale.policy.in_concert
        return self._concerted.exchange(
            reading, preds_of(state), succs_of(state), in_concert=in_concert
        )

    # -- decisions -------------------------------------------------------------------------

    def _decide(self, reading: Reading) -> None:
        if self._decider is None or self.pinned or not isinstance(self._membership.state, Active):
            return
        try:
            decision = self._decider.decide(reading, self._rng)
        except PolicyError as error:
            self._give_up(error)
            return
        state = self._membership.state
        self._concerted.plan(self._decider.planned, preds_of(state), succs_of(state))
        self._do(decision)

    def ordered(self, act: Act, *, insists: bool = False) -> None:
        """By a controller; like a decision of its own. `insists`: a user does."""
        if not isinstance(self._membership.state, Active):
            return
        if insists:
            self._carry_out(act, insists=True)
        else:
            self._do(act)

    def _do(self, decision: Act) -> None:
        if self.dry_run and not isinstance(decision, Hold):
            self._agent_client.note(EventKind.WOULD_DO, decision.text)
        else:
            self._carry_out(decision)

    def _give_up(self, error: PolicyError) -> None:
        """The stream goes on with as many instances as there are."""
        self._decider, self._monitor.policy = None, ""
        self._agent_client.note(EventKind.POLICY_FAILED, f"{error}; it decides nothing any more")

    def _carry_out(self, decision: Act, *, insists: bool = False) -> None:
        note = self._agent_client.note
        match decision:
            case Duplicate(n=n):
                note(EventKind.DECIDED, decision.text)
                self._membership.feed(events.DuplicateDecided(n))
            case Leave() if not insists and self._is_needed():
                note(
                    EventKind.VETO,
                    "its own keys need little, but a sibling's hold up the predecessors",
                )
            case Leave(new_owner=new_owner):
                note(EventKind.DECIDED, decision.text)
                self._orders.departure.decide(self._siblings.place_of(new_owner))
            case Move():
                self._move(decision)
            case Hold():
                pass

    def _move(self, decision: Move) -> None:
        place, groups = self._siblings.place_of(decision.to_rank), self._membership.owned()
        if groups:
            groups = group_choices.part(groups, self._pump.groups.heat(), decision.share)
        if place is not None and groups:
            self._agent_client.note(EventKind.DECIDED, decision.text)
            self._orders.move(groups, place)
        elif not self._cannot_give:
            self._agent_client.note(EventKind.VETO, f"nothing to give: {decision.text}")
        self._cannot_give = not groups

    def _is_needed(self) -> bool:
        """Where tuples go by key, one overloaded owner starves the others. They must not leave for
        that, and make it worse by giving their keys to a sibling."""
        owned = self._membership.owned()
        return bool(owned) and any(c.held_told for c in self._path.senders())
