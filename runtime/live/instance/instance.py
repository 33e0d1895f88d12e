"""One running instance: its parts, put together, and its end.

    link ──decisions, splits──▶ ┌──────┐ ──effects──▶ neighbourhood (messages)
    channels ──messages───────▶ │ core │             ▶ outbox (view) ▶ pump (begin, stop, drained)
    pump ──drained────────────▶ └──────┘             ▶ link (spawn, notes)

`Orders` and `Reception` have events for the core (`Membership`); `Performer` does what it asks for;
`KeyGroups` does what concerns state by key. Tuples pass beside the core on the `TuplePath`. None of
them holds this class: each gets the parts that it works with.
"""

from __future__ import annotations

import asyncio
import math
import random

from anabranch.protocol.core import Core
from anabranch.runtime.live.channel.connection import Identity
from anabranch.runtime.live.channel.ended import ended_dir
from anabranch.runtime.live.channel.neighbourhood import Neighbourhood
from anabranch.runtime.live.commit.commits import Commits
from anabranch.runtime.live.commit.recovery import Past
from anabranch.runtime.live.instance.agent_client import AgentClient
from anabranch.runtime.live.instance.beginning import Base, Beginning
from anabranch.runtime.live.instance.counts import Counts
from anabranch.runtime.live.instance.final_count import final_count
from anabranch.runtime.live.instance.heartbeat import Heartbeat
from anabranch.runtime.live.instance.lifetime import Lifetime
from anabranch.runtime.live.instance.make_pump import make_pump
from anabranch.runtime.live.instance.membership import Membership
from anabranch.runtime.live.instance.monitor import Monitor
from anabranch.runtime.live.instance.orders import Orders
from anabranch.runtime.live.instance.performer import Performer
from anabranch.runtime.live.instance.persistence import Persistence
from anabranch.runtime.live.instance.ports import Ports
from anabranch.runtime.live.instance.profile import Profile
from anabranch.runtime.live.instance.reception import Reception
from anabranch.runtime.live.instance.scaling import SIBLINGS, WATERMARK, Scaling
from anabranch.runtime.live.instance.siblings import Siblings
from anabranch.runtime.live.instance.tuple_path import TuplePath
from anabranch.runtime.reporting.status import FinalCount
from anabranch.runtime.storage.patience import Patience


class Instance:
    """`agent_client` speaks to the agent on its behalf."""

    def __init__(
        self,
        profile: Profile,
        beginning: Beginning,
        *,
        agent_client: AgentClient,
        patience: Patience,
        seed: int,
        scaling: bool,
        heritage: dict[str, float] | None = None,
    ) -> None:
        me = self.me = profile.me
        heritage = heritage or {}
        self.profile = profile
        self.agent_client = agent_client
        self.lifetime = Lifetime(me)
        self.core = Core(
            me, profile.pipeline.topology, trace_rows_max=profile.limits.trace_rows_max
        )
        self.membership = Membership(self.core)
        self.patience = patience
        self.siblings = Siblings(_siblings_at_first(self.profile, heritage))
        self.commits: Commits | None = None
        if beginning.journal is not None:
            self.commits = Commits(
                beginning.journal,
                self.lifetime.fail,
                patience=patience,
                keeps_batches=profile.duties.exact,
            )
            self.lifetime.before_failing = self.commits.stop
        rng = random.Random(f"{seed}:{me}")
        self._make_way(rng, heritage.get(WATERMARK, -math.inf), beginning)
        self._make_will(rng, heritage, enabled=scaling)
        self.persistence = self._persistence(beginning.found)
        if self.persistence is not None:
            self.persistence.restore()
        self._heartbeat = Heartbeat(
            self.membership,
            self.neighbourhood,
            agent_client.send,
            has_begun=self.lifetime.began.is_set,
        )
        self.lifetime.spawn(self.pump.run(), "pump")
        self.lifetime.spawn(self.scaling.run(self.lifetime), "scaling", periodic=True)
        self.lifetime.spawn(self._heartbeat.run(), "heartbeat", periodic=True)

    def _make_way(self, rng: random.Random, watermark: float, beginning: Beginning) -> None:
        """What tuples pass."""
        reception = Reception(self.profile, self.membership, self.siblings, self.agent_client)
        self.neighbourhood = self._neighbourhood(reception)
        self.path = TuplePath(
            self.profile,
            self.membership,
            self.lifetime,
            self.neighbourhood,
            siblings=self.siblings,
            counts=Counts(self.me),
            commits=self.commits,
            patience=self.patience,
            rng=rng,
            watermark=watermark,
        )
        self.pump = make_pump(
            Ports(
                self.profile,
                self.lifetime,
                self.membership,
                self.path,
                beginning,
                self.commits,
                self.patience,
                self.agent_client,
                tell_status=lambda: self.monitor.tell_now(),
            )
        )
        reception.path, reception.pump, self.path.worker = self.path, self.pump, self.pump

    def _make_will(self, rng: random.Random, heritage: dict[str, float], *, enabled: bool) -> None:
        """What gives the core events of its own accord, and does what it asks for."""
        self.orders = Orders(
            self.profile,
            self.membership,
            self.lifetime,
            self.agent_client,
            pump=self.pump,
            siblings=self.siblings,
            commits=self.commits,
            rng=rng,
        )
        self.monitor = Monitor(
            self.profile,
            self.membership,
            self.path,
            pump=self.pump,
            siblings=self.siblings,
            agent_client=self.agent_client,
        )
        self.scaling = Scaling(
            self.profile,
            self.membership,
            self.path,
            pump=self.pump,
            siblings=self.siblings,
            monitor=self.monitor,
            orders=self.orders,
            agent_client=self.agent_client,
            rng=rng,
            enabled=enabled,
            heritage=heritage,
        )
        performer = Performer(
            self.core,
            self.lifetime,
            self.path,
            self.pump,
            self.agent_client,
            heritage=self.scaling.heritage,
            concluded=self.orders.departure.look,
        )
        self.membership.perform = performer.perform

    def _persistence(self, found: Past | Base) -> Persistence | None:
        if self.commits is None:
            return None
        return Persistence(
            found,
            self.commits,
            self.profile,
            self.membership,
            self.path,
            pump=self.pump,
            orders=self.orders,
            agent_client=self.agent_client,
            tell_status=self.monitor.tell_now,
        )

    def _neighbourhood(self, reception: Reception) -> Neighbourhood:
        context, pipeline = self.profile.context, self.profile.pipeline
        return Neighbourhood(
            Identity(
                self.me, pipeline.name, context.token, self.profile.limits, context.incarnation
            ),
            topology=pipeline.topology,
            user=reception,
            related=self.membership.is_related,
            fail=self.lifetime.fail,
            keeper=self.commits,
            ended_dir=ended_dir(context.lasting_dir) if self.commits is not None else None,
        )

    @property
    def is_new(self) -> bool:
        """Whether no earlier incarnation of it has begun."""
        return self.persistence is None or self.persistence.past is None

    def resume(self) -> None:
        """Neighbours can reach it now: a later incarnation goes on."""
        if self.persistence is not None:
            self.persistence.resume()

    async def run(self) -> str:
        """Until the protocol lets this instance go; returns why. Raises what made it fail."""
        reason, broken = await self.lifetime.ended, self.lifetime.broken
        parting = asyncio.ensure_future(self._part(reason))
        try:
            await asyncio.wait([parting, broken], return_when=asyncio.FIRST_COMPLETED)
        finally:
            parting.cancel()
        return broken.result() if broken.done() else parting.result()

    async def _part(self, reason: str) -> str:
        await self.pump.close()
        self.path.watermarks.close()
        await self.path.letter_writer.close()
        self.lifetime.cancel_tasks()
        self.lifetime.spawn(self._heartbeat.while_it_parts(), "end", periodic=True)
        if self.persistence is None or not self.persistence.parted:
            await self.neighbourhood.all_settled()
            if self.commits is not None:
                await self.commits.close()  # first, or the next incarnation would send it again
            await self.neighbourhood.part(reason)
        await self.patience.outlast(self.neighbourhood.note_ended)
        self.lifetime.cancel_tasks()
        return reason

    def final_count(self) -> FinalCount:
        """The account of its tuples, when it has ended."""
        self.monitor.account()
        return final_count(self.me, self.path, self.pump)


def _siblings_at_first(profile: Profile, heritage: dict[str, float]) -> int:
    founded = profile.me.creator < 0
    return int(profile.operator.instances_at_start if founded else heritage.get(SIBLINGS, 2))
