"""The driver of one instance: events into the core, effects out of it, and nothing decided here.

    link ──decisions, splits──▶ ┌──────┐ ──effects──▶ neighbourhood (messages)
    channels ──messages───────▶ │ core │             ▶ outbox (view) ▶ pump (begin, stop, drained)
    pump ──drained────────────▶ └──────┘             ▶ link (spawn, notes)

Tuples pass beside the core: channel ▶ intake ▶ pump ▶ outbox ▶ channel.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import Coroutine
from typing import Any, assert_never

from anabranch.protocol import effects, events
from anabranch.protocol.core import Core
from anabranch.protocol.effects import Effect
from anabranch.protocol.events import Event
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.messages import Message
from anabranch.protocol.states import preds_of, succs_of, waiting_for
from anabranch.runtime.dead_letters import DeadLetterFile
from anabranch.runtime.ends import DeadLetter, RunContext
from anabranch.runtime.graph import Operator, Pipeline
from anabranch.runtime.live.channel import Channel
from anabranch.runtime.live.counts import Counts
from anabranch.runtime.live.frames import Addresses
from anabranch.runtime.live.home import Home
from anabranch.runtime.live.intake import Intake
from anabranch.runtime.live.neighbourhood import Neighbourhood
from anabranch.runtime.live.outbox import Outbox
from anabranch.runtime.live.pumps import Pump, SourcePump, make_pump
from anabranch.runtime.live.scaling import Scaling
from anabranch.runtime.status import FinalCount

now = time.monotonic


class Instance:
    """One running instance. `home` speaks to the agent on its behalf."""

    def __init__(
        self,
        me: InstanceId,
        pipeline: Pipeline,
        *,
        home: Home,
        context: RunContext,
        seed: int,
        scaling: bool,
        heritage: dict[str, float] | None = None,
    ) -> None:
        self.me = me
        self.pipeline = pipeline
        self.operator: Operator = pipeline.operators[me.operator]
        self.limits = limits = context.limits
        self.home = home
        self.context = context
        self.rng = random.Random(f"{seed}:{me}")
        topology = pipeline.topology
        self.core = Core(me, topology, trace_rows_max=limits.trace_rows_max)
        self.counts = Counts(me)
        self.neighbourhood = Neighbourhood(
            me,
            topology=topology,
            pipeline=pipeline.name,
            token=context.token,
            limits=limits,
            user=self,
            related=self._related,
            fail=self.fail,
        )
        self.dead_letters = DeadLetterFile(
            pipeline.dead_letters_path,
            pipeline=pipeline.name,
            operator=me.operator,
            instance=str(me),
        )
        self.intake = Intake(limits)
        self.outbox = Outbox(
            topology.downstream(me.operator),
            limits=limits,
            rng=self.rng,
            send=self._send_batch,
            dead=self._dead_results,
        )
        self.scaling = Scaling(self, enabled=scaling, heritage=heritage or {})
        self.began = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()
        self._inbox: deque[tuple[Event, str]] = deque()
        self._performing = False
        self._counted: Counter[OperatorName] = Counter()
        self._awaits_drained = False
        self._late_error: Exception | None = None
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self.pump: Pump = make_pump(self)
        self.spawn_task(self.pump.run(), "pump")
        self.spawn_task(self.scaling.run(), "scaling")

    # -- life ------------------------------------------------------------------------------

    async def run(self) -> str:
        """Until the protocol lets this instance go; returns why. Raises what made it fail."""
        reason = await self._ended
        await self.pump.close()
        self.dead_letters.close()
        for task in self._tasks:
            task.cancel()
        await self.neighbourhood.part(reason)
        if self._late_error is not None:
            raise self._late_error
        return reason

    def fail(self, error: Exception) -> None:
        """The instance cannot go on: an error of the core, of its work, or of its sink."""
        if self._ended.done():
            self._late_error = self._late_error or error
        else:
            self._ended.set_exception(error)

    def spawn_task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"{self.me} {name}")
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    # -- the core --------------------------------------------------------------------------

    def feed(self, event: Event, cause: str = "") -> None:
        """Let an event into the core and perform its effects; one after the other, never nested."""
        self._inbox.append((event, cause))
        if self._performing:
            return
        self._performing = True
        try:
            while self._inbox:
                event, cause = self._inbox.popleft()
                for effect in self.core.handle(event, now(), cause):
                    self._perform(effect)
        finally:
            self._performing = False

    def _perform(self, effect: Effect) -> None:
        match effect:
            case effects.SendMessage(to=to, message=message):
                channel = self.neighbourhood.channel_to(to)
                channel.send_message(message, self.core.last_event, self.neighbourhood.book)
            case effects.ChangeView(succs=succs, preds=preds):
                self._change_view(succs, preds)
            case effects.BeginProcessing():
                self.began.set()
                self.home.note("started")
            case effects.AwaitDrained():
                self._awaits_drained = True
                self.intake.wake()
                self.check_drained()
            case effects.StopIntake():
                self.pump.stop()
            case effects.SpawnInstances(n=n):
                self.scaling.operation_began()
                self.home.ask_for_children(n, self.scaling.heritage(n))
            case effects.ChangeRole(keeper=keeper):
                self.home.note("keeper" if keeper else "no_keeper")
            case effects.Conclude(outcome=outcome, new=new):
                self._conclude(outcome, new)
            case effects.Veto(reason=reason):
                self.home.note("veto", reason)
            case effects.Terminate(reason=reason):
                self.counts.leaves = int(reason == "left")
                self.home.note(reason)
                if not self._ended.done():
                    self._ended.set_result(reason)
            case effects.AcceptBatch() | effects.SendBatch():
                pass  # performed where the payload is: batch_came, _send_batch
            case (
                effects.FreezeGroups()
                | effects.TransferGroups()
                | effects.OwnGroups()
                | effects.ExpectState()
                | effects.StateComplete()
            ):
                raise AssertionError("no operator here has key groups")
            case _:
                assert_never(effect)

    def _change_view(self, succs: frozenset[InstanceId], preds: frozenset[InstanceId]) -> None:
        """Route to these from now on. Channels to successors are dialled at once, so that the
        first tuple finds one open."""
        self.outbox.change_view(self.neighbourhood.channel_to(s) for s in sorted(succs))
        for pred in preds:
            self.neighbourhood.channel_to(pred)
        counts = Counter(x.operator for x in succs | preds)
        for neighbour in succs | preds:
            if counts[neighbour.operator] != self._counted[neighbour.operator]:
                self.neighbourhood.channel_to(neighbour).state_soon()
        self._counted = counts

    def _conclude(self, outcome: str, new: frozenset[InstanceId]) -> None:
        self.scaling.operation_ended()
        if outcome == "joined":
            self.counts.joins += len(new)
        names = " ".join(str(x) for x in sorted(new))
        self.home.note(outcome, names)

    def _related(self, peer: InstanceId) -> bool:
        state = self.core.state
        return peer in succs_of(state) | preds_of(state) | waiting_for(state)

    # -- what the agent says ---------------------------------------------------------------

    def decide(self, action: str, n: int) -> None:
        """A scripted decision."""
        self.home.note("decided", f"told to {action}")
        match action:
            case "duplicate":
                self.feed(events.DuplicateDecided(n))
            case "leave":
                self.feed(events.LeaveDecided())
            case "hand_over":
                self.feed(events.HandOverDecided(self._any_neighbour()))
            case _:
                raise ValueError(f"an unknown decision: {action!r}")

    def _any_neighbour(self) -> InstanceId | None:
        """Who may know a sibling; None: hand over to a fresh instance."""
        state = self.core.state
        neighbours = sorted(succs_of(state) | preds_of(state))
        return self.rng.choice(neighbours) if neighbours and self.scaling.siblings > 1 else None

    def end_input(self) -> None:
        if isinstance(self.pump, SourcePump):
            self.pump.end_input()

    # -- what channels say -----------------------------------------------------------------

    def batch_came(self, channel: Channel, tuples: int, born: float, payload: bytes) -> None:
        self.core.handle(events.BatchReceived(channel.peer, tuples), 0.0)
        if not self.intake.total and self.me.creator >= 0:
            self.home.note("first_batch")  # how long a decision takes to be of use
        self.intake.put(channel, tuples, born, payload)
        self.scaling.received(channel, tuples)

    def message_came(
        self, channel: Channel, message: Message, addresses: Addresses, cause: str
    ) -> None:
        self.neighbourhood.book.update(addresses)
        self.feed(events.MessageReceived(channel.peer, message), cause)

    def credit_came(self, channel: Channel) -> None:
        self.scaling.heard(channel)
        if self.outbox.waiting:
            self.outbox.send()
            self.note_outbox()
        self.neighbourhood.note_progress()

    def channel_ended(self, channel: Channel) -> None:
        self.neighbourhood.close_channel(channel)

    def siblings_seen_by(self, channel: Channel) -> tuple[int, int]:
        """How many instances of the peer's operator I count, and the peer's place among them."""
        state, peer = self.core.state, channel.peer
        all_of_it = [x for x in succs_of(state) | preds_of(state) if x.operator == peer.operator]
        return len(all_of_it), sum(x < peer for x in all_of_it)

    # -- tuples ----------------------------------------------------------------------------

    def note_outbox(self) -> None:
        """The outbox has changed: there may be room again, or nothing left in it."""
        if self.outbox.full:
            self.room.clear()
            self.scaling.blocked(True)
        elif not self.room.is_set():
            self.room.set()
            self.scaling.blocked(False)
        self.check_drained()

    def check_drained(self) -> None:
        """Duty 5: report `Drained` once nothing is queued, in work or held."""
        if self._awaits_drained and self.pump.drained and self.outbox.empty:
            self._awaits_drained = False
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

    def _dead_results(self, letters: list[DeadLetter]) -> None:
        """Results that cannot travel."""
        self.counts.tuples_out -= len(letters)
        self.counts.dead_beside += len(letters)
        self.bury(letters)

    def bury(self, letters: list[DeadLetter]) -> None:
        """Tuples leave the stream: write them down, with their reasons."""
        self.counts.note_dead(letters)
        self.dead_letters.write(letters)

    def final_count(self) -> FinalCount:
        counts, neighbourhood = self.counts, self.neighbourhood
        return FinalCount(
            id=str(self.me),
            operator=self.me.operator,
            tuples_in=counts.tuples_in,
            processed=counts.processed,
            tuples_out=counts.tuples_out,
            dead=counts.dead,
            dead_upstream=counts.dead_beside,
            sent=neighbourhood.sent,
            received=neighbourhood.received,
            queued=self.intake.tuples,
            messages=neighbourhood.messages_sent,
            joins=counts.joins,
            leaves=counts.leaves,
            latency=counts.latency.counts,
            dead_reasons=dict(counts.dead_reasons),
        )
