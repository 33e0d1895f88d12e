"""The path of tuples in an instance: channel ▶ intake ▶ (pump) ▶ outbox ▶ channel, or dead letters.

It connects these parts: it finds when the path is blocked, when an input may be acknowledged, and
when no tuple is left on the path.
"""

from __future__ import annotations

import asyncio
import random
from typing import Protocol

from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.ownership import Routes
from anabranch.runtime.keyed.watermarks import Gate
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.channel.neighbourhood import Neighbourhood
from anabranch.runtime.live.channel.replay_order import ChannelReplayOrder
from anabranch.runtime.live.commit.commits import Commits
from anabranch.runtime.live.instance.ack_tracker import AckTracker
from anabranch.runtime.live.instance.branch import Branch, SharedBranch
from anabranch.runtime.live.instance.counts import Counts
from anabranch.runtime.live.instance.intake import Intake
from anabranch.runtime.live.instance.letter_writer import DeadLetterWriter
from anabranch.runtime.live.instance.lifetime import Lifetime
from anabranch.runtime.live.instance.membership import Membership
from anabranch.runtime.live.instance.outbox import Outbox
from anabranch.runtime.live.instance.profile import Profile
from anabranch.runtime.live.instance.siblings import Siblings
from anabranch.runtime.live.instance.watermarks import Watermarks
from anabranch.runtime.measuring.meter import Meter
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.ports import clock
from anabranch.runtime.processing.marks import marked_ways
from anabranch.runtime.storage.dead_letters import DeadLetterFile
from anabranch.runtime.storage.patience import Patience

now = clock.monotonic


class PathWorker(Protocol):
    """What the path needs of the pump."""

    @property
    def drained(self) -> bool:
        """Whether the pump has no tuple queued or in work."""


class TuplePath:
    """`worker`: set after it is made. `watermark`: that of the instance's creator."""

    worker: PathWorker

    def __init__(
        self,
        profile: Profile,
        membership: Membership,
        lifetime: Lifetime,
        neighbourhood: Neighbourhood,
        *,
        siblings: Siblings,
        counts: Counts,
        commits: Commits | None,
        patience: Patience,
        rng: random.Random,
        watermark: float,
    ) -> None:
        self.neighbourhood = neighbourhood
        self.counts = counts
        self.replay_order = ChannelReplayOrder(neighbourhood.channel_from)
        self.intake = Intake(profile.limits, self.replay_order)
        self.meter = _meter(profile, siblings, self.intake)
        downstream = profile.pipeline.topology.downstream(profile.me.operator)
        self.outbox = Outbox(
            [_branch(profile, operator) for operator in downstream],
            limits=profile.limits,
            rng=rng,
            send=self._send_batch,
            dead=self._dead_results,
        )
        self.gate = Gate(watermark)
        stamps = profile.operator.timing is not None
        self.watermarks = Watermarks(
            self.gate, self.outbox, stamps=stamps, period_s=profile.limits.watermark_period_s
        )
        self.letter_writer = DeadLetterWriter(
            _dead_letters(profile),
            commits if profile.exact else None,
            patience,
            received=commits.committed if commits is not None and profile.duties.loses else None,
            written=lambda: self.ack_tracker.look(),
            fail=lifetime.fail,
        )
        self.ack_tracker = AckTracker(
            self.outbox, self.letter_writer, lambda: neighbourhood.channels, self.check_drained
        )
        self.room = asyncio.Event()
        self.room.set()
        self.awaits_drained = False
        self.resuming = False
        """Whether the instance is being restored from its journal, so nothing is drained yet."""
        self._profile = profile
        self._membership = membership
        self._core = membership.core
        self._lifetime = lifetime
        self._commits = commits
        self._progress = asyncio.Event()

    # -- neighbours ------------------------------------------------------------------------

    def change_view(
        self, succs: frozenset[InstanceId], preds: frozenset[InstanceId], routes: Routes
    ) -> None:
        """Route to these from now on. Channels to successors are dialled at once, so that the
        first tuple finds one open."""
        self.outbox.change_view([self.neighbourhood.channel_to(s) for s in sorted(succs)], routes)
        self.watermarks.change_view(succs, preds)
        if self._lifetime.began.is_set() and not self.outbox.empty:
            self.outbox.send()  # what is held may have another owner now, which has credit
            self.note_outbox()

    def senders(self) -> list[Channel]:
        """Channels of the present predecessors."""
        return [self.neighbourhood.channel_to(p) for p in self._membership.preds]

    # -- acknowledgements ------------------------------------------------------------------

    def settle(self, channel: Channel, number: int, tuples: int, size_bytes: int) -> None:
        """A batch is processed. `delivery` decides when its sender may forget it."""
        if self._profile.exact:
            channel.settle(number, tuples, size_bytes)
        elif self._commits is not None and not self._profile.duties.loses:
            self.ack_tracker.after(lambda: channel.settle(number, tuples, size_bytes))

    def note_settled(self) -> None:
        """A repeated frame is processed."""
        self._progress.set()
        self.intake.wake()
        self.check_drained()

    def note_credit(self) -> None:
        """A neighbour has acknowledged frames, or has given credit."""
        self._progress.set()
        self.ack_tracker.look()
        if self.outbox.waiting:
            self.outbox.send()
            self.note_outbox()
        self.neighbourhood.note_progress()

    async def next_progress(self) -> None:
        """Return when a neighbour has acknowledged frames."""
        self._progress.clear()
        await self._progress.wait()

    async def repeats_over(self) -> None:
        """Return when all frames that an earlier incarnation has not settled are repeated and
        processed."""
        while self.neighbourhood.awaits_repeats:
            await self.next_progress()

    # -- room, and the end -----------------------------------------------------------------

    def note_outbox(self) -> None:
        """The outbox has changed: it may be full, have room again, or be empty."""
        if self.outbox.full:
            self.room.clear()
            self.meter.blocked(self.outbox.held_up_by, now())
            if self._commits is not None:
                self._commits.end_if_awaited()
        elif not self.room.is_set():
            self.room.set()
            self.meter.unblocked(now())
        self.check_drained()

    def await_drained(self) -> None:
        self.awaits_drained = True
        self.intake.wake()
        self.check_drained()

    def check_drained(self) -> None:
        """Duty 5: report `Drained` once no tuple is queued, in work, held or to be repeated. With
        at least once, all results must be acknowledged, too: an instance that has left cannot
        repeat them."""
        if self.resuming or not self.awaits_drained or not self.ack_tracker.is_over:
            return
        if self.worker.drained and self.outbox.empty and not self.neighbourhood.awaits_repeats:
            self.awaits_drained = False
            self.watermarks.conclude()
            self._membership.feed(events.Drained())

    # -- what leaves -----------------------------------------------------------------------

    def _send_batch(
        self, channel: Channel, tuples: int, siblings: int, held: int, born: float, payload: bytes
    ) -> None:
        self._core.handle(events.BatchReady(channel.peer, tuples), 0.0)
        channel.send_batch(tuples, siblings, held, born, payload)

    def _dead_results(self, operator: OperatorName, letters: list[DeadLetter]) -> None:
        """Results that cannot travel to this operator."""
        self.counts.note_dead_towards(operator, len(letters))
        self.bury(letters)

    def bury(self, letters: list[DeadLetter]) -> None:
        """Count tuples as dead letters, and write them to their file with their reasons."""
        self.counts.note_dead(letters)
        self.letter_writer.bury(letters)


def _branch(profile: Profile, downstream: OperatorName) -> Branch:
    pipeline, limits, operator = profile.pipeline, profile.limits, profile.me.operator
    edge = pipeline.operators[downstream].edges.get(operator)
    marked = (operator, downstream) in marked_ways(pipeline.operators)
    if edge is None:
        return SharedBranch(downstream, limits, marked=marked)
    # Imported here: most instances send nothing by key, and must start fast.
    from anabranch.runtime.live.instance.keyed_branch import KeyedBranch

    return KeyedBranch(downstream, edge.key, pipeline.groups, limits, marked=marked)


def _meter(profile: Profile, siblings: Siblings, intake: Intake) -> Meter:
    return Meter(
        period_s=profile.scale.period_s,
        now_s=now(),
        instances=siblings.count,
        capacity=profile.scale.capacity,
        is_source=profile.operator.source is not None,
        here=intake.here,
    )


def _dead_letters(profile: Profile) -> DeadLetterFile:
    context = profile.context
    return profile.pipeline.letters_of(
        profile.me.operator,
        str(profile.me),
        context.lasting_dir if profile.journaled else None,
        durable=context.durable == "power",
    )
