"""What an instance keeps over its death, and how a new incarnation becomes what the last one was.

Kept: the state of the core, channels with the frames that are not acknowledged, results that are
held, the state of keys, event time as it was received, counts, how far the input is processed, and
what is on its way to a target. Not kept is what can be had again: what came in and is not worked
off, for its senders repeat it; and what the core's `Restarted` asks for anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anabranch.protocol import events
from anabranch.protocol.rules.leave import is_leaving
from anabranch.runtime.keyed.watermarks import RESTORED
from anabranch.runtime.live.commit.commits import Commits
from anabranch.runtime.live.commit.recovery import Past
from anabranch.runtime.live.instance.agent_client import AgentClient
from anabranch.runtime.live.instance.beginning import Base
from anabranch.runtime.live.instance.membership import Membership
from anabranch.runtime.live.instance.orders import Orders
from anabranch.runtime.live.instance.poison_guard import POISON
from anabranch.runtime.live.instance.profile import Profile
from anabranch.runtime.live.instance.pumps import Pump
from anabranch.runtime.live.instance.tuple_path import TuplePath
from anabranch.runtime.live.journal.journal import Entry
from anabranch.runtime.live.link.messages import Resumed
from anabranch.runtime.reporting.status import id_to_wire

SNAPSHOT_KEYS = 512
"""Keys in a piece of a snapshot: little enough that tuples do not wait for it."""


class Persistence:
    """`past`: None for a first incarnation, for one whose earlier incarnations had begun nothing,
    and when all of it is restored; `found`: that, or a base. `tell_status`: reports to the agent at
    once how far the work is."""

    def __init__(
        self,
        found: Past | Base,
        commits: Commits,
        profile: Profile,
        membership: Membership,
        path: TuplePath,
        *,
        pump: Pump,
        orders: Orders,
        agent_client: AgentClient,
        tell_status: Callable[[], None],
    ) -> None:
        self.past = found if isinstance(found, Past) else None
        self._base: Base = {} if isinstance(found, Past) else found
        self.parted = self.past is not None and self.past.parted
        """Whether an earlier incarnation had sent everything, and all of it was acknowledged."""
        self._commits = commits
        self._profile = profile
        self._membership = membership
        self._path = path
        self._pump = pump
        self._orders = orders
        self._agent_client = agent_client
        self._tell_status = tell_status

    # -- what is kept --------------------------------------------------------------------------

    def _begin(self) -> None:
        """Keep everything from now on."""
        path, part, core = self._path, self._commits.part, self._membership.core
        watermarks = path.watermarks
        part("core", lambda: (core.state, core.epoch, core.events))
        part("counts", path.counts.snapshot)
        part("gate", path.gate.state)
        part("time", watermarks.snapshot)
        part("new_owner", lambda: (watermarks.new_owner, watermarks.counted_from))
        part("marks", path.replay_order.snapshot)
        part("children", lambda: tuple(self._orders.announced))
        part(POISON, self._pump.poison_guard.snapshot)
        part("pump", self._pump.snapshot)
        self._commits.begin(
            standing=self._standing,
            snapshots=lambda: self._pump.snapshot_pieces(SNAPSHOT_KEYS),
            ending=self._tell,
            recorded=self._pump.recorded,
        )

    def _tell(self) -> None:
        """At the end of a commit: what is recorded by changes."""
        self._pump.tell(self._commits)
        if self._profile.exact:
            self._path.outbox.held_pieces.tell(self._commits)

    def _standing(self) -> Iterator[Entry]:
        neighbourhood = self._path.neighbourhood
        yield ("owner", str(self._profile.me))
        yield ("book", dict(neighbourhood.book))
        yield ("summed", neighbourhood.closed.summed)
        for totals in neighbourhood.closed.latest:
            yield ("past", totals)
        if self.parted:
            yield ("parted",)

    # -- a new incarnation -----------------------------------------------------------------------

    def restore(self) -> None:
        """Be what the last incarnation was, up to the moment at which the core goes on."""
        past, path = self.past, self._path
        if past is None:
            self._pump.begin_from(self._base)
            return
        self._restore_channels(past)
        parts = past.parts
        core, watermarks = self._membership.core, path.watermarks
        core.state, core.epoch, core.events = parts["core"]
        path.counts.restore(parts["counts"])
        path.gate.restore(parts["gate"])
        watermarks.restore(parts["time"])
        watermarks.new_owner, watermarks.counted_from = parts["new_owner"]
        path.replay_order.restore(parts["marks"])
        self._orders.announced.extend(parts["children"])
        self._pump.restore(parts["pump"], past)

    def _restore_channels(self, past: Past) -> None:
        neighbourhood = self._path.neighbourhood
        neighbourhood.book.learn(past.book)
        neighbourhood.closed.restore(past.summed, past.totals)
        for old in past.channels.values():
            if old.row is not None:
                channel = neighbourhood.remake(old.peer, dialing=old.dialing)
                channel.restore(old.row, old.kept)
        for peer in sorted({peer for mark in past.parts["marks"] for peer, _ in mark}):
            # It has sent frames, and nothing of them was done yet: the journal has no more of it.
            if neighbourhood.channel_from(peer) is None:
                neighbourhood.remake(peer, dialing=False)

    def resume(self) -> None:
        """Go on: before this the instance neither receives nor sends."""
        past, path = self.past, self._path
        if past is None:
            if self._profile.context.incarnation > 1:  # what the last one has begun is forgotten
                self._agent_client.send(Resumed(children=[]))
            self._begin()
            return
        if not self.parted:  # else neighbours have parted from it already
            path.neighbourhood.dial_again()
        path.resuming = True
        self._membership.feed(events.Restarted())
        for channel in path.neighbourhood.channels:
            channel.mind_the_gap()
        if self._profile.exact:
            path.outbox.restore(past.lasting)
        self._pump.hold_again()
        path.gate.release(RESTORED)
        path.watermarks.say_again()
        path.resuming = False
        children = [id_to_wire(c) for c in self._orders.announced]
        leaving = self._orders.departure.resume()
        goes = is_leaving(self._membership.state)
        lessons = self._pump.poison_guard.lessons
        self._agent_client.send(
            Resumed(children=children, leaving=leaving, goes=goes, lessons=lessons)
        )
        self._pump.tell_again()
        self._tell_status()
        self._begin()
        path.check_drained()
        self.past = None
