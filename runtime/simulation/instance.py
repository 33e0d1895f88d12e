"""The driver of one instance in virtual time: events into the core, effects out of it.

Its duties are those of `anabranch.protocol.effects`, done as the live driver does them: whatever
is an `await` there is something that becomes due here.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, assert_never

from anabranch.protocol import effects, events, messages
from anabranch.protocol.core import Core
from anabranch.protocol.effects import Effect
from anabranch.protocol.events import Event
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import NONE, Ids, Message
from anabranch.protocol.ownership import Routes
from anabranch.protocol.states import Active, waiting_for
from anabranch.runtime.reporting.status import FinalCount
from anabranch.runtime.simulation.channel import Channel, Items
from anabranch.runtime.simulation.counted_keys import CountedKeyedSinkWork, CountedKeyedWork
from anabranch.runtime.simulation.departure import Departure
from anabranch.runtime.simulation.host import Host
from anabranch.runtime.simulation.incarnation import IncarnationClock
from anabranch.runtime.simulation.journal import Journal
from anabranch.runtime.simulation.keyed_state import Chunk
from anabranch.runtime.simulation.keyed_work import KeyedSinkWork, KeyedWork
from anabranch.runtime.simulation.lineage import Taken
from anabranch.runtime.simulation.neighbours import Neighbours
from anabranch.runtime.simulation.outbox import Outbox
from anabranch.runtime.simulation.progress import FREEZING, Progress
from anabranch.runtime.simulation.scaling import Scaling
from anabranch.runtime.simulation.work import QueueWork, SinkWork, SourceWork, Work

if TYPE_CHECKING:
    from anabranch.runtime.simulation.world import World


class Instance:
    """One incarnation of an instance. `began`: it processes; `ended`: the protocol has let it go;
    `exited`: all is acknowledged, and its process is no more. `awake`: it is not dead."""

    def __init__(
        self,
        world: World,
        me: InstanceId,
        host: Host,
        heritage: dict[str, float],
        incarnation: int = 1,
    ) -> None:
        self.world = world
        self.me = me
        self.host = host
        self.incarnation = incarnation
        self.heritage = heritage
        self.clock = IncarnationClock(world.clock) if world.deadly else world.clock
        self.journal = Journal(self) if world.deadly else None
        self.awake = True
        self.model = world.models[me.operator]
        self.digit = world.digits[me.operator]
        self.upstream = world.upstream[me.operator]
        downstream = world.downstream[me.operator]
        self.core = Core(me, world.topology, trace_rows_max=world.trace_rows, table=world.table)
        self.succs: Ids = NONE
        self.preds: Ids = NONE
        self._known_of: dict[str, list[InstanceId]] = {}
        """Neighbours by operator, in order: what each of them is told about its siblings."""
        self.began = self.ended = self.exited = False
        self.counted = False
        """Among the active ones of its operator."""
        self.taken: list[Taken] | None = [] if world.deadly else None
        """Since the last commit: what the lineage is to forget if it dies."""
        self.deaf_until_s = 0.0
        """A fault: nothing is read before."""
        self.awaits_drained = False
        self.joins = self.leaves = 0
        self.neighbours = Neighbours(self)
        self.outbox = Outbox(self, downstream)
        self._was_full = False
        self.scaling = Scaling(self, heritage)
        self.departure = Departure(self)
        self.progress = Progress(self) if world.lineage is not None else None
        self.announced = -math.inf
        """The watermark when this instance last announced children."""
        self.told: dict[InstanceId, float] = {}
        """New owners, and how far they were when they accepted."""
        self.work: Work = self._kind(bool(downstream))(self)
        self._inbox: deque[tuple[Event, str]] = deque()
        self._performing = False

    # -- the core --------------------------------------------------------------------------

    def feed(self, event: Event, cause: str = "") -> None:
        """Let an event into the core and perform its effects; never nested."""
        self._inbox.append((event, cause))
        if self._performing:
            return
        self._performing = True
        while self._inbox:
            event, cause = self._inbox.popleft()
            before = self.core.state
            done = self.core.handle(event, self.clock.now, cause)
            after = self.core.state
            if after is not before:
                self.succs = getattr(after, "succs", NONE)
                self.preds = getattr(after, "preds", NONE)
            self.world.observe(self, event, before, done, cause)
            for effect in done:
                self._perform(effect)
            if isinstance(event, events.GroupsFrozen) and self.progress is not None:
                self.progress.release(FREEZING)  # the new owners are announced
        self._performing = False

    def _perform(self, effect: Effect) -> None:
        match effect:
            case effects.SendMessage(to=to, message=message):
                self.world.messages += 1
                cause = self.core.last_event if self.world.tracing else ""
                self.neighbours.channel_to(to).send_message(message, cause, self._says(message))
            case effects.ChangeView(succs=succs, preds=preds, routes=routes):
                self._change_view(succs, preds, routes)
            case effects.BeginProcessing():
                self._begin()
            case effects.AwaitDrained():
                self.awaits_drained = True
                self.clock.after(0.0, self._look_at_end)
            case effects.StopIntake():
                self.work.stop()
            case effects.SpawnInstances(n=n):
                self.world.spawn(self, n)
            case effects.ChangeRole(keeper=keeper):
                self.world.note(self, "keeper" if keeper else "no_keeper")
            case effects.Conclude(outcome=outcome, new=new):
                self.joins += len(new) if outcome == "joined" else 0
                self.world.note(self, outcome, " ".join(map(str, sorted(new))))
                self.departure.look()
            case effects.Veto(reason=reason):
                self.world.note(self, "veto", reason)
            case effects.Terminate(reason=reason):
                self._terminate(reason)
            case effects.AcceptBatch() | effects.SendBatch():
                pass  # performed where the tuples are: batch_came, send_batch
            case effects.FreezeGroups(groups=groups, new_owner=new_owner):
                self.by_key.freeze(groups, new_owner)
            case effects.TransferGroups(to=to, groups=groups):
                self.by_key.transfer(to, groups)
            case effects.OwnGroups(groups=groups):
                self.by_key.own(groups)
            case effects.ResumeGroups(owned=owned, frozen=frozen):
                self.by_key.resume(owned, frozen)
            case effects.ExpectState(sender=sender):
                self.by_key.expect(sender)
            case effects.StateComplete(sender=sender, groups=groups):
                self.by_key.complete(sender, groups)
            case _:
                assert_never(effect)

    @property
    def by_key(self) -> KeyedWork | CountedKeyedWork:
        assert isinstance(self.work, KeyedWork | CountedKeyedWork), f"{self.me} has no key groups"
        return self.work

    @property
    def keyed(self) -> KeyedWork:
        """Where tuples are numbered."""
        assert isinstance(self.work, KeyedWork), f"{self.me} has no key groups"
        return self.work

    def _begin(self) -> None:
        self.began = True
        if not self.counted and isinstance(self.core.state, Active):
            self.world.began(self)
        self.scaling.begin()
        if self.progress is not None:
            self.progress.look()
        self.work.kick()

    def _change_view(self, succs: Ids, preds: Ids, routes: Routes) -> None:
        channel_to = self.neighbours.channel_to
        present = {c.peer for b in self.outbox.branches for c in b.channels}
        self.outbox.change_view([channel_to(s) for s in sorted(succs)], routes)
        if self.progress is not None:
            for new in sorted(succs - present):
                self.progress.state_to(channel_to(new))
        if routes and self.outbox.held:
            # The owner of a group may have credit already, so no news of it will come.
            self.clock.after(0.0, self._send_again)
        for pred in sorted(preds):
            channel_to(pred)
        before, neighbours = self._known_of, sorted(succs | preds)
        self._known_of = {o: [*same] for o, same in groupby(neighbours, lambda x: x.operator)}
        for neighbour in neighbours:
            known = self._known_of[neighbour.operator]
            if len(known) != len(before.get(neighbour.operator, ())):
                channel_to(neighbour).state_soon()

    def _send_again(self, _: None) -> None:
        if self.outbox.held:
            self.work.send()

    def _terminate(self, reason: str) -> None:
        self.ended = True
        self.leaves = int(reason == "left")
        self.world.note(self, reason)
        self.neighbours.begin_to_part()

    def _look_at_end(self, _: None) -> None:
        self.work.kick()
        self.check_drained()

    def exit(self) -> None:
        self.exited = True
        self.world.exited(self)

    def is_related(self, peer: InstanceId) -> bool:
        """Whether the core still has business with a peer."""
        return peer in self.succs or peer in self.preds or peer in waiting_for(self.core.state)

    @property
    def finished(self) -> bool:
        """At the end of the stream, not by a leave of its own."""
        return self.ended and not self.leaves

    @property
    def stopped_until_s(self) -> float:
        return self.clock.stopped_until_s if isinstance(self.clock, IncarnationClock) else 0.0

    def kick(self, _: None) -> None:
        self.work.kick()

    # -- decisions -------------------------------------------------------------------------

    def decide(self, event: Event, why: str = "") -> None:
        self.world.note(self, "decided", why)
        self.feed(event)

    # -- what channels say -----------------------------------------------------------------

    def batch_came(self, channel: Channel, tuples: int, born_s: float, items: Items) -> None:
        assert isinstance(self.work, QueueWork)
        if (
            channel.session.expected > channel.handled
        ):  # else an earlier incarnation has accepted it
            event = events.BatchReceived(channel.peer, tuples)
            done = self.core.handle(event, self.clock.now)
            if self.world.tracing:
                self.world.observe(self, event, self.core.state, done, "")
            if not done:
                return
            (effect,) = done
            assert isinstance(effect, effects.AcceptBatch)
        self.scaling.received(tuples)
        self.scaling.heard(channel)
        self.work.put(channel, tuples, born_s, items)

    def message_came(
        self, channel: Channel, message: Message, cause: str, watermark: float
    ) -> None:
        do, is_new = None, channel.session.expected > channel.handled
        if self.progress is not None:
            do = self._hear(channel.peer, message, watermark, self.progress, is_new)
        if self.journal is not None:
            self._settle_in_turn(channel, do, is_message=True, is_new=is_new)
        elif do is not None:
            self._in_turn(do)
        if is_new:
            self.feed(events.MessageReceived(channel.peer, message), cause)

    def watermark_came(self, channel: Channel, watermark: float) -> None:
        assert self.progress is not None
        do = partial(self.progress.say, channel.peer, watermark)
        if self.journal is not None:
            self._settle_in_turn(channel, do)
        else:
            self._in_turn(do)

    def chunk_came(self, channel: Channel, chunk: Chunk) -> None:
        if self.journal is None:
            self.keyed.install(channel.peer, chunk)
            return
        self._settle_in_turn(channel, None)
        if channel.session.expected > channel.handled:
            self.keyed.install(channel.peer, chunk)

    def _hear(
        self,
        sender: InstanceId,
        message: Message,
        watermark: float,
        progress: Progress,
        is_new: bool,
    ) -> Callable[[], None] | None:
        """What a message means for event time; what that is in its turn behind the batches before
        it is returned."""
        match message:
            case messages.Start(preds=preds) if is_new:
                progress.begin(preds, watermark)
            case messages.AdoptResponse() if is_new:
                self.told[sender] = watermark
            case messages.Join(new=new) if new and sender.operator in self.upstream:
                return partial(progress.add, new, sender)
            case messages.Eos() | messages.LeaveAck():
                return partial(progress.remove, sender)
            case messages.Fin():
                return partial(progress.say, sender, math.inf)
        return None

    def _in_turn(self, do: Callable[[], None], channel: Channel | None = None) -> None:
        if isinstance(self.work, QueueWork):
            self.work.put_word(do, channel)

    def _settle_in_turn(
        self,
        channel: Channel,
        do: Callable[[], None] | None,
        *,
        is_message: bool = False,
        is_new: bool = False,
    ) -> None:
        """A frame that is no batch is worked off when all before it on its channel is."""
        if channel.peer.operator not in self.upstream:
            channel.passed()
            return
        assert isinstance(self.work, QueueWork)
        if is_message and is_new:
            self.work.mark(channel)
        self._in_turn(partial(self._pass, channel, do, is_message), channel)

    def _pass(self, channel: Channel, do: Callable[[], None] | None, is_message: bool) -> None:
        if is_message:
            assert isinstance(self.work, QueueWork)
            self.work.pass_mark(channel)
        channel.passed()
        if do is not None:
            do()

    def _says(self, message: Message) -> float:
        """The watermark that goes with a message, if any does."""
        progress = self.progress
        if progress is None:
            return -math.inf
        match message:
            case messages.Join():
                self.announced = progress.value
            case messages.Start():
                return self.announced
            case messages.AdoptResponse():
                return progress.counted
        return -math.inf

    def credit_came(self, channel: Channel) -> None:
        self.scaling.heard(channel)
        if self.outbox.waiting:
            self.outbox.send()
            self.note_outbox()
        self.neighbours.note_progress()

    # -- tuples ----------------------------------------------------------------------------

    def send_batch(
        self, channel: Channel, tuples: int, siblings: int, held: int, born_s: float, items: Items
    ) -> None:
        event = events.BatchReady(channel.peer, tuples)
        done = self.core.handle(event, self.clock.now)
        if self.world.tracing:
            self.world.observe(self, event, self.core.state, done, "")
        for effect in done:
            assert isinstance(effect, effects.SendBatch)
            channel.send_batch(tuples, siblings, held, born_s, items)

    def note_outbox(self) -> None:
        """The outbox has changed: there may be room again, or nothing left in it."""
        full = self.outbox.full
        if full != self._was_full:
            self._was_full = full
            self.scaling.blocked(full)
            if not full:
                self.work.kick()
        if self.awaits_drained:
            self.check_drained()

    def check_drained(self) -> None:
        """Duty 5: report `Drained` once nothing is queued, in work or held."""
        if self.awaits_drained and self.work.drained and not self.outbox.held:
            self.awaits_drained = False
            self.feed(events.Drained())

    def siblings_seen_by(self, peer: InstanceId) -> tuple[int, int]:
        """How many instances of the peer's operator I count, and the peer's place among them."""
        known = self._known_of.get(peer.operator, [])
        return len(known), bisect_left(known, peer)

    def senders(self) -> list[Channel]:
        """Channels of the present predecessors, as far as they have dialled."""
        accepted = self.neighbours.accepted
        return [accepted[p] for p in self.preds if p in accepted]

    def final_count(self) -> FinalCount:
        channels = self.neighbours.all
        sent = {str(c.peer): c.tuples_sent for c in channels if c.tuples_sent}
        received = {str(c.peer): c.tuples_received for c in channels if c.tuples_received}
        return FinalCount(
            id=str(self.me),
            operator=self.me.operator,
            tuples_in=self.work.tuples_in,
            processed=self.work.processed,
            tuples_out=self.work.tuples_out,
            sent=sent,
            received=received,
            queued=self.work.queued,
            handed_out=self.work.handed_out,
            handed_in=self.work.handed_in,
            messages=sum(c.messages_sent for c in channels),
            joins=self.joins,
            leaves=self.leaves,
        )

    def _kind(self, gives: bool) -> type[Work]:
        if not self.upstream:
            return SourceWork
        if self.model.keyed is None:
            return QueueWork if gives else SinkWork
        if self.world.lineage is None:
            return CountedKeyedWork if gives else CountedKeyedSinkWork
        return KeyedWork if gives else KeyedSinkWork
