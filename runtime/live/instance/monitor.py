"""What an instance measures of itself, and what it sends to the agent."""

from __future__ import annotations

from dataclasses import replace

from anabranch.protocol.states import Active, preds_of, succs_of, waiting_for
from anabranch.runtime.live.instance import group_choices
from anabranch.runtime.live.instance.agent_client import AgentClient
from anabranch.runtime.live.instance.counts import Spent
from anabranch.runtime.live.instance.membership import Membership
from anabranch.runtime.live.instance.profile import Profile
from anabranch.runtime.live.instance.pumps import Pump
from anabranch.runtime.live.instance.siblings import Siblings
from anabranch.runtime.live.instance.tuple_path import TuplePath
from anabranch.runtime.measuring.cpu import HostUse
from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.controller import controllers_of
from anabranch.runtime.policies.load import measure
from anabranch.runtime.ports import clock
from anabranch.runtime.reporting.status import InstanceState, Status

now = clock.monotonic


class Monitor:
    """`policy`: name of the one that decides; empty if none does."""

    def __init__(
        self,
        profile: Profile,
        membership: Membership,
        path: TuplePath,
        *,
        pump: Pump,
        siblings: Siblings,
        agent_client: AgentClient,
    ) -> None:
        self.policy = ""
        self._profile = profile
        self._membership = membership
        self._path = path
        self._pump = pump
        self._siblings = siblings
        self._agent_client = agent_client
        self._is_looked_at = bool(controllers_of(profile.pipeline.operators.values()))
        """There are controllers, which want readings."""
        self._host = HostUse(now())
        self._spent_before = Spent()

    def begin(self) -> None:
        """The instance has: what was measured before does not count."""
        self._path.meter.begin(now(), self._siblings.count)
        self._spent_before = self._path.counts.spent

    def read(self) -> Reading:
        path, meter, state = self._path, self._path.meter, self._membership.state
        held: float = sum(c.held_told for c in path.senders())
        if (offered := self._pump.offered()) is not None:
            meter.demand(offered.per_s / max(1, self._siblings.count))
            held = offered.waiting
        meter.queue(path.intake.tuples, held)
        if (waited := clock.cpu_wait_s()) is not None:
            meter.cpu_wait(waited)
        keeper = isinstance(state, Active) and state.keeper
        meter.own_operation(isinstance(state, Active) and state.own is not None)
        self._host.look(now())
        received_from, sent_to = path.neighbourhood.streams
        reading = meter.reading(now(), keeper=keeper)
        return replace(
            reading,
            rank=reading.rank_told(self._siblings.rank),
            keyed=bool(self._profile.operator.edges),
            results_total=path.counts.tuples_out,
            cpu_total_s=self._host.own_s,
            host_busy=self._host.share,
            received_from=received_from,
            sent_to=sent_to,
            latency=dict(path.counts.latency.counts),
        )

    def account(self) -> None:
        """Let the counts have what was spent until now."""
        self.note_spent(self.read())

    def note_spent(self, reading: Reading) -> None:
        spent = Spent(
            reading.busy_total_s,
            reading.blocked_total_s,
            reading.cpu_total_s,
            reading.here_total_s,
        )
        self._path.counts.spent = self._spent_before + spent

    def tell_now(self) -> None:
        """Report at once what a new incarnation begins with: what the last one got done is in
        it."""
        self.tell(self.read())

    def tell(self, reading: Reading) -> None:
        self._agent_client.send(self._status(reading))

    def _status(self, reading: Reading) -> Status:
        path, me = self._path, self._profile.me
        counts, state = path.counts, self._membership.state
        owned = self._membership.owned()
        return Status(
            id=str(me),
            operator=me.operator,
            t=reading.now_s,
            keeper=reading.keeper,
            state=InstanceState(type(state).__name__),
            tuples_in=counts.tuples_in,
            tuples_out=counts.tuples_out,
            dead=counts.dead + counts.dead_beside,
            queued=path.intake.tuples,
            held=path.outbox.held,
            load=measure(reading, self._profile.scale).ratio or reading.busy,
            capacity=reading.capacity or 0.0,
            busy=reading.busy,
            starved=reading.starved,
            blocked=reading.blocked,
            blocked_by=reading.blocked_by,
            preds=len(preds_of(state)),
            succs=len(succs_of(state)),
            epoch=self._membership.core.epoch,
            latency=counts.latency_now.take(),
            messages=path.neighbourhood.messages_sent,
            groups=len(owned),
            hot=group_choices.hottest(owned, self._pump.groups.heat()) if owned else [],
            waiting_for=sorted(map(str, waiting_for(state))),
            processed=counts.processed,
            **counts.spent._asdict(),
            waiting=round(reading.waiting, 1),
            offered=reading.demand_per_s,
            sent_to=dict(reading.sent_to),
            policy=self.policy,
            reading=reading if self._is_looked_at else None,
        )
