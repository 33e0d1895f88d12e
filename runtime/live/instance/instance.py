"""The driver of one instance: events into the core, effects out of it, and nothing decided here.

    link ──decisions, splits──▶ ┌──────┐ ──effects──▶ neighbourhood (messages)
    channels ──messages───────▶ │ core │             ▶ outbox (view) ▶ pump (begin, stop, drained)
    pump ──drained────────────▶ └──────┘             ▶ link (spawn, notes)

Tuples pass beside the core: channel ▶ intake ▶ pump ▶ outbox ▶ channel.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import assert_never

from anabranch.protocol import effects, events, messages
from anabranch.protocol.core import Core
from anabranch.protocol.effects import Effect
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.messages import Message
from anabranch.protocol.ownership import Assignment, Group, Routes
from anabranch.protocol.states import preds_of
from anabranch.runtime.keyed.watermarks import Gate
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.channel.ended import ended_dir
from anabranch.runtime.live.channel.frames import Addresses
from anabranch.runtime.live.channel.neighbourhood import Neighbourhood
from anabranch.runtime.live.channel.replay_order import ReplayOrder
from anabranch.runtime.live.channel.totals import Totals
from anabranch.runtime.live.instance import group_choices
from anabranch.runtime.live.instance.ack_tracker import AckTracker
from anabranch.runtime.live.instance.agent_client import AgentClient
from anabranch.runtime.live.instance.branch import Branch, SharedBranch
from anabranch.runtime.live.instance.counts import Counts
from anabranch.runtime.live.instance.departure import Departure
from anabranch.runtime.live.instance.expected import ExpectedState
from anabranch.runtime.live.instance.heartbeat import Heartbeat
from anabranch.runtime.live.instance.intake import Intake, Said
from anabranch.runtime.live.instance.keyed_pump import KeyedPump
from anabranch.runtime.live.instance.letter_writer import DeadLetterWriter
from anabranch.runtime.live.instance.lifetime import Lifetime
from anabranch.runtime.live.instance.membership import Membership
from anabranch.runtime.live.instance.outbox import Outbox
from anabranch.runtime.live.instance.persistence import Persistence
from anabranch.runtime.live.instance.profile import profile_of
from anabranch.runtime.live.instance.pumps import Pump, make_pump
from anabranch.runtime.live.instance.scaling import WATERMARK, Scaling
from anabranch.runtime.live.instance.watermarks import Watermarks
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import DeadLetter, RunContext
from anabranch.runtime.processing.marks import marked_ways
from anabranch.runtime.storage.dead_letters import DeadLetterFile
from anabranch.runtime.storage.patience import Patience
from anabranch.runtime.values.kinds import Ending, EventKind

ANNOUNCED_MAX = 256
"""More than one request may bring, so that the latest ones are known after a death."""


class Instance:
    """One running instance. `agent_client` speaks to the agent on its behalf."""

    def __init__(
        self,
        me: InstanceId,
        pipeline: Pipeline,
        *,
        agent_client: AgentClient,
        context: RunContext,
        seed: int,
        scaling: bool,
        heritage: dict[str, float] | None = None,
        journal: Path | None = None,
        in_vain: Sequence[Ending] = (),
    ) -> None:
        """`in_vain`: how the last incarnations ended that got nothing done, as the agent saw it."""
        self.me = me
        self.in_vain = in_vain
        self.pipeline = pipeline
        self.profile = profile_of(me, pipeline, context, in_vain, journaled=journal is not None)
        self.operator, self.limits = self.profile.operator, self.profile.limits
        self.duties, self.exact = self.profile.duties, self.profile.exact
        self.agent_client, self.context = agent_client, context
        self.rng = random.Random(f"{seed}:{me}")
        self.core = Core(me, pipeline.topology, trace_rows_max=self.limits.trace_rows_max)
        self.membership = Membership(self.core)
        self.membership.perform = self._perform
        self.feed = self.membership.feed
        self.lifetime = Lifetime(me)
        self.began, self.fail = self.lifetime.began, self.lifetime.fail
        self.spawn_task = self.lifetime.spawn
        self.counts = Counts(me)
        self.patience = Patience(str(me), agent_client.note)
        self._begin_states()
        power = context.durable == "power"
        self.persistence = Persistence(self, journal, power=power) if journal else None
        self.commits = self.persistence.commits if self.persistence else None
        if self.commits is not None:
            self.lifetime.before_failing = self.commits.stop
        self.departure = Departure(
            self.operator.scale,
            self.membership,
            self.lifetime,
            agent_client,
            self.commits,
            self.leave,
        )
        self._make_way(heritage or {})
        self.scaling = Scaling(self, enabled=scaling, heritage=heritage or {})
        self.pump: Pump = make_pump(self)
        if self.persistence is not None:
            self.persistence.restore()
        self.spawn_task(self.pump.run(), "pump")
        self.spawn_task(self.scaling.run(), "scaling")
        heartbeat = Heartbeat(self.membership, self.neighbourhood, agent_client.send)
        self.spawn_task(heartbeat.run(), "heartbeat")

    def _begin_states(self) -> None:
        """What is true at the beginning, and changes."""
        self.room = asyncio.Event()
        self.room.set()
        self._progress = asyncio.Event()
        self.new_owner_watermark = self.counted_from = -math.inf
        self.announced: deque[InstanceId] = deque(maxlen=ANNOUNCED_MAX)
        """Children that neighbours have been told of; those which have not begun are among them."""
        self.resuming = False
        """Whether it becomes what an earlier incarnation was: nothing is over yet."""
        self._counted: Counter[OperatorName] = Counter()
        self._awaits_drained = False

    def _make_way(self, heritage: dict[str, float]) -> None:
        """What tuples pass: channel ▶ intake ▶ (pump) ▶ outbox ▶ channel, or dead letters."""
        self.neighbourhood = self._neighbourhood()
        self.replay_order = ReplayOrder(self.neighbourhood.channel_from)
        self.intake = Intake(self.limits, self.replay_order)
        self.outbox = Outbox(
            [self._branch(o) for o in self.pipeline.topology.downstream(self.me.operator)],
            limits=self.limits,
            rng=self.rng,
            send=self._send_batch,
            dead=self._dead_results,
        )
        self.gate = Gate(heritage.get(WATERMARK, -math.inf))
        stamps = self.operator.timing is not None
        self.watermarks = Watermarks(self.gate, self.outbox, stamps=stamps)
        self.dead_letters = self._dead_letters()
        self._expected = ExpectedState(self.gate, self._complete_groups, self._state_is_in)
        self.letter_writer = DeadLetterWriter(
            self.dead_letters,
            self.commits if self.exact else None,
            self.patience,
            written=lambda: self.ack_tracker.look(),
            fail=self.fail,
        )
        self.ack_tracker = AckTracker(
            self.outbox, self.letter_writer, lambda: self.neighbourhood.channels, self.check_drained
        )

    def _neighbourhood(self) -> Neighbourhood:
        context = self.context
        return Neighbourhood(
            self.me,
            topology=self.pipeline.topology,
            pipeline=self.pipeline.name,
            token=context.token,
            limits=self.limits,
            user=self,
            related=self.membership.is_related,
            fail=self.fail,
            incarnation=context.incarnation,
            keeper=self.commits,
            ended_dir=ended_dir(context.lasting_dir) if self.persistence else None,
        )

    def _dead_letters(self) -> DeadLetterFile:
        context = self.context
        return DeadLetterFile(
            self.pipeline.dead_letters_path,
            pipeline=self.pipeline.name,
            operator=self.me.operator,
            instance=str(self.me),
            lasting_dir=context.lasting_dir if self.persistence else None,
            durable=context.durable == "power",
        )

    # -- incarnation ------------------------------------------------------------------------------

    async def run(self) -> str:
        """Until the protocol lets this instance go; returns why. Raises what made it fail."""
        reason = await self.lifetime.ended
        parting = asyncio.ensure_future(self._part(reason))
        try:
            either = [parting, self.lifetime.broken]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            parting.cancel()
        broken = self.lifetime.broken
        return broken.result() if broken.done() else parting.result()

    async def _part(self, reason: str) -> str:
        await self.pump.close()
        self.watermarks.close()
        await self.letter_writer.close()
        self.lifetime.cancel_tasks()
        if self.persistence is None or not self.persistence.parted:
            await self.neighbourhood.all_settled()
            if self.commits is not None:
                await self.commits.close()  # first, or the next incarnation would say it again
            await self.neighbourhood.part(reason)
        await self.patience.outlast(self.neighbourhood.note_ended)
        return reason

    # -- the core --------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        match effect:
            case effects.SendMessage(to=to, message=message):
                channel = self.neighbourhood.channel_to(to)
                book, how_far = self.neighbourhood.book, max(self.gate.output, self.counted_from)
                channel.send_message(message, self.core.last_event, book, how_far)
            case effects.ChangeView(succs=succs, preds=preds, routes=routes):
                self._change_view(succs, preds, routes)
            case effects.BeginProcessing():
                self.began.set()
                self.agent_client.note(EventKind.STARTED)
            case effects.AwaitDrained(stream_ends=stream_ends):
                self._awaits_drained = True
                if stream_ends and isinstance(self.pump, KeyedPump):
                    self.pump.must_end()
                self.intake.wake()
                self.check_drained()
            case effects.StopIntake():
                self.pump.stop()
            case effects.SpawnInstances(n=n):
                self.agent_client.ask_for_children(n, self.scaling.heritage(n))
            case effects.ChangeRole(keeper=keeper):
                self.agent_client.note(EventKind.KEEPER if keeper else EventKind.NO_KEEPER)
            case effects.Conclude(outcome=outcome, new=new):
                self._conclude(outcome, new)
            case effects.Veto(reason=reason):
                self.agent_client.note(EventKind.VETO, reason)
            case effects.Terminate(reason=reason):
                self.counts.leaves = int(reason == "left")
                self.agent_client.note(EventKind(reason))
                self.lifetime.end(reason)
            case effects.AcceptBatch() | effects.SendBatch():
                pass  # performed where the payload is: batch_came, _send_batch
            case effects.OwnGroups(groups=groups):
                self.groups.own(groups)
            case effects.ResumeGroups(owned=owned, frozen=frozen):
                self.groups.resume(owned, frozen)
            case effects.FreezeGroups(groups=groups, new_owner=new_owner):
                catch_up = self.new_owner_watermark if new_owner is not None else -math.inf
                self.groups.freeze(groups, catch_up)
            case effects.TransferGroups(to=to, groups=groups):
                self.groups.transfer(to, groups)
            case effects.ExpectState(sender=sender):
                self._expected.expect(sender)
            case effects.StateComplete(sender=sender, groups=groups):
                self._expected.complete(sender, groups)
            case _:
                assert_never(effect)

    @property
    def groups(self) -> KeyedPump:
        """Who has the key groups of this instance."""
        if not isinstance(self.pump, KeyedPump):
            raise TypeError(f"{self.me} has no key groups")
        return self.pump

    def groups_at_rest(self) -> None:
        """Groups that are to move are frozen: report it once their results are sent (duty 9); at
        least once, when they are safe, for what they are made of would come again to me."""
        self.gate.hold("freezing")  # W5
        repeats = self.commits is not None and self.duties.repeats
        when = self.ack_tracker.after if repeats else self.outbox.after_all_held
        when(self._announce_owners_soon)
        self.pump.send()

    def _announce_owners_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._announce_owners)

    def _announce_owners(self) -> None:
        self.feed(events.GroupsFrozen())
        self.gate.release("freezing")
        self.watermarks.pass_on()

    @property
    def is_new(self) -> bool:
        """Whether no earlier incarnation of it has begun."""
        return self.persistence is None or self.persistence.past is None

    def resume(self) -> None:
        """Neighbours can reach it now: a later incarnation goes on."""
        if self.persistence is not None:
            self.persistence.resume()

    def learn(self, addresses: Addresses) -> None:
        """Where others listen."""
        if addresses and self.commits is not None:
            self.commits.note("book", addresses)
        self.neighbourhood.book.update(addresses)

    def _branch(self, downstream: OperatorName) -> Branch:
        edge = self.pipeline.operators[downstream].edges.get(self.me.operator)
        marked = (self.me.operator, downstream) in marked_ways(self.pipeline.operators)
        if edge is None:
            return SharedBranch(downstream, self.limits, marked=marked)
        from anabranch.runtime.live.instance.keyed_branch import KeyedBranch

        groups = self.pipeline.groups
        return KeyedBranch(downstream, edge.key, groups, self.limits, marked=marked)

    def _change_view(
        self, succs: frozenset[InstanceId], preds: frozenset[InstanceId], routes: Routes
    ) -> None:
        """Route to these from now on. Channels to successors are dialled at once, so that the
        first tuple finds one open."""
        self.outbox.change_view([self.neighbourhood.channel_to(s) for s in sorted(succs)], routes)
        self.watermarks.change_view(succs, preds)
        if self.began.is_set() and not self.outbox.empty:
            self.outbox.send()  # what is held may have another owner now, who has credit
            self.note_outbox()
        for pred in preds:
            self.neighbourhood.channel_to(pred)
        counts = Counter(x.operator for x in succs | preds)
        for neighbour in succs | preds:
            if counts[neighbour.operator] != self._counted[neighbour.operator]:
                self.neighbourhood.channel_to(neighbour).state_soon()
        self._counted = counts

    def _conclude(self, outcome: effects.Outcome, new: frozenset[InstanceId]) -> None:
        if outcome == "joined":
            self.counts.joins += len(new)
        self.agent_client.note(EventKind(outcome), " ".join(map(str, sorted(new))))
        self.departure.look()

    def _complete_groups(self, groups: frozenset[Group], then: Callable[[], None]) -> None:
        self.groups.complete(groups, then)

    def _state_is_in(self) -> None:
        self.watermarks.pass_on()
        self.check_drained()

    # -- what the agent says ---------------------------------------------------------------

    def decide(self, action: str, n: int) -> None:
        """A scripted decision."""
        self.agent_client.note(EventKind.DECIDED, f"told to {action}")
        match action:
            case "duplicate":
                self.feed(events.DuplicateDecided(n))
            case "leave":
                self.departure.decide()
            case "move":
                self.move()
            case "hand_over":
                self.feed(events.HandOverDecided(self._any_neighbour()))
            case _:
                raise ValueError(f"an unknown decision: {action!r}")

    def leave(self, new_owner: int | None = None) -> None:
        """`new_owner`: its place among the siblings; None: any."""
        self.feed(events.LeaveDecided(self._somebody(), self._drawn(new_owner)))

    def move(self, groups: frozenset[int] | None = None, new_owner: int | None = None) -> None:
        """Give key groups to a sibling; half of the load unless they are named."""
        given = group_choices.half(self.owned(), self.heat()) if groups is None else groups
        if given:
            self.feed(events.MoveDecided(given, self._somebody(), self._drawn(new_owner)))
        else:
            self.agent_client.note(EventKind.VETO, "it has no key groups to give away")

    def _drawn(self, new_owner: int | None) -> int:
        return self.rng.randrange(2**16) if new_owner is None else new_owner

    def _somebody(self) -> InstanceId | None:
        """A neighbour who may know a new owner."""
        neighbours = sorted(self.membership.neighbours)
        return self.rng.choice(neighbours) if neighbours else None

    def owned(self) -> frozenset[int]:
        """Its key groups."""
        return self.membership.owned()

    def heat(self) -> list[float]:
        """Tuples of late per key group; empty if it has none."""
        return self.groups.processor.heat() if self.owned() else []

    def found(
        self,
        succs: frozenset[InstanceId],
        preds: frozenset[InstanceId],
        siblings: Iterable[InstanceId],
        *,
        keeper: bool,
    ) -> None:
        """Begin among the first instances; `siblings`: this one included."""
        routes = group_choices.founding_routes(self.pipeline, succs)
        owned = group_choices.founding_groups(self.pipeline, self.me, siblings)
        self.feed(events.Founded(succs, preds, keeper, routes, owned))

    def children_ready(self, children: frozenset[InstanceId]) -> None:
        """The processes asked for are there; each gets its share of the key groups."""
        self.announced.extend(sorted(children))
        moved: Assignment = ()
        if owned := self.owned():
            moved = group_choices.dealt(owned, self.heat(), children, self.operator.scale)
        self.feed(events.ChildrenReady(children, moved))

    def _any_neighbour(self) -> InstanceId | None:
        """Who may know a sibling; None: hand over to a fresh instance."""
        neighbours = sorted(self.membership.neighbours)
        return self.rng.choice(neighbours) if neighbours and self.scaling.siblings > 1 else None

    def end_input(self) -> None:
        self.pump.end_input()

    # -- what channels say -----------------------------------------------------------------

    def batch_came(self, channel: Channel, tuples: int, born: float, payload: bytes) -> None:
        if not channel.repeats:  # an earlier incarnation has accepted it, whatever has come since
            self.core.handle(events.BatchReceived(channel.peer, tuples), 0.0)
        if not self.intake.total and (self.me.creator >= 0 or self.context.incarnation > 1):
            self.agent_client.note(EventKind.FIRST_BATCH)  # how long a decision takes to be of use
        self.intake.put(channel, tuples, born, payload)
        if self.duties.loses:
            channel.settle(channel.number, tuples, len(payload))
        self.scaling.received(channel, tuples)

    def message_came(
        self,
        channel: Channel,
        message: Message,
        addresses: Addresses,
        cause: str,
        watermark: float,
    ) -> None:
        self.learn(addresses)
        if isinstance(message, messages.AdoptResponse):
            self.new_owner_watermark = watermark  # W4
        elif isinstance(message, messages.Start):
            self.counted_from = watermark  # by successors, before I have said anything (W1)
        if self.commits is not None:
            self.replay_order.note(self.neighbourhood.from_predecessors, channel)
        said = self._say_in_turn(channel, message)
        number = channel.number
        self.feed(events.MessageReceived(channel.peer, message), cause)
        if not said:
            channel.settle(number)

    def message_again(self, channel: Channel, message: Message) -> None:
        """The core has had it in an earlier incarnation; what follows behind the batches before it
        has not been done."""
        if not self._say_in_turn(channel, message):
            channel.settle(channel.number)

    def _say_in_turn(self, channel: Channel, message: Message) -> bool:
        """Put what a message means for event time behind the batches before it, if anything."""
        match message:
            case messages.Eos() | messages.LeaveAck():
                said = self.watermarks.leaving(channel)
            case messages.Fin() if not self.context.stays_open:
                said = Said(channel, channel.number, math.inf)
            case _:
                return False
        self.intake.put_said(said)
        return True

    def watermark_came(self, channel: Channel, watermark: float, idle: bool) -> None:
        self.intake.put_said(Said(channel, channel.number, watermark, idle))

    def state_came(self, channel: Channel, chunk: bytes) -> None:
        number = channel.number
        self.groups.install(chunk, lambda: channel.settle(number))

    async def next_progress(self) -> None:
        """Until a neighbour has acknowledged something."""
        self._progress.clear()
        await self._progress.wait()

    async def repeats_over(self) -> None:
        """Until all that an earlier incarnation had left has come again and is worked off."""
        while self.neighbourhood.awaits_repeats:
            self._progress.clear()
            await self._progress.wait()

    def note_settled(self) -> None:
        """Something that was repeated is worked off."""
        self._progress.set()
        self.intake.wake()
        self.check_drained()

    def settle(self, channel: Channel, number: int, tuples: int, size_bytes: int) -> None:
        """A batch is worked off: when it may be forgotten depends on what delivery promises."""
        if self.exact:
            channel.settle(number, tuples, size_bytes)
        elif self.commits is not None and not self.duties.loses:
            self.ack_tracker.after(lambda: channel.settle(number, tuples, size_bytes))

    def credit_came(self, channel: Channel) -> None:
        self._progress.set()
        self.ack_tracker.look()
        self.scaling.heard(channel)
        if self.outbox.waiting:
            self.outbox.send()
            self.note_outbox()
        self.neighbourhood.note_progress()

    def channel_ended(self, channel: Channel) -> None:
        self.neighbourhood.close_channel(channel)

    def channel_closed(self, channel: Channel, totals: Totals) -> None:
        self.ack_tracker.look()
        if self.commits is not None:
            self.commits.note("past", totals)
            self.commits.forget(channel)

    def siblings_seen_by(self, channel: Channel) -> tuple[int, int]:
        return self.membership.siblings_of(channel.peer)

    # -- tuples ----------------------------------------------------------------------------

    def note_outbox(self) -> None:
        """The outbox has changed: there may be room again, or nothing left in it."""
        if self.outbox.full:
            self.room.clear()
            self.scaling.blocked(True)
            if self.commits is not None:
                self.commits.end_if_awaited()
        elif not self.room.is_set():
            self.room.set()
            self.scaling.blocked(False)
        self.check_drained()

    def check_drained(self) -> None:
        """Duty 5: report `Drained` once nothing is queued, in work, held or to come again, and, at
        least once, all is safe: who has left cannot make it again."""
        if self.resuming or not self._awaits_drained or not self.ack_tracker.is_over:
            return
        if self.pump.drained and self.outbox.empty and not self.neighbourhood.awaits_repeats:
            self._awaits_drained = False
            self.watermarks.conclude()
            self.feed(events.Drained())

    def senders(self) -> list[Channel]:
        """Channels of the present predecessors."""
        return [self.neighbourhood.channel_to(p) for p in preds_of(self.core.state)]

    @property
    def awaits_drained(self) -> bool:
        return self._awaits_drained

    def _send_batch(
        self, channel: Channel, tuples: int, siblings: int, held: int, born: float, payload: bytes
    ) -> None:
        self.core.handle(events.BatchReady(channel.peer, tuples), 0.0)
        channel.send_batch(tuples, siblings, held, born, payload)

    def _dead_results(self, operator: OperatorName, letters: list[DeadLetter]) -> None:
        """Results that cannot travel to this operator."""
        self.counts.note_dead_towards(operator, len(letters))
        self.bury(letters)

    def bury(self, letters: list[DeadLetter]) -> None:
        """Tuples leave the stream: write them down, with their reasons."""
        self.counts.note_dead(letters)
        self.letter_writer.bury(letters)
