"""The key groups of an instance: what the core wants done with them, in its order.

The processor keeps the state; the core determines which groups are this instance's. What is asked
of key groups is done by the pump's own task, between two slices, so that it never meets a tuple
half way. Only sending state is a task of its own: frozen groups lie still, and other keys go on
meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.ownership import Group
from anabranch.runtime.keyed.processor import KeyedProcessor
from anabranch.runtime.live.instance.expected import ExpectedState
from anabranch.runtime.live.instance.ports import Ports

CHUNKS_UNDER_WAY_MAX = 64
"""Pieces of state that are sent and not acknowledged yet."""

RESUMING = "resuming"
FREEZING = "freezing"

Errand = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Freeze:
    """Groups to bring to rest once my watermark has reached that of their new owner."""

    groups: frozenset[Group]
    watermark: float


class KeyGroups:
    """`keeps`: their state outlives a death. `send`: sends what is held; `attended`: called when
    errands are done, and when state is sent."""

    def __init__(
        self,
        ports: Ports,
        processor: KeyedProcessor,
        *,
        keeps: bool,
        send: Callable[[], None],
        attended: Callable[[], None],
    ) -> None:
        self.expected = ExpectedState(ports.path.gate, self.complete, self._state_is_in)
        self._ports = ports
        self._path = ports.path
        self._processor = processor
        self._keeps = keeps
        self._send = send
        self._tell_attended = attended
        self._errands: deque[Errand] = deque()
        self._missing: frozenset[Group] = frozenset()
        """Groups of mine whose state is still to come again."""
        self._deferred: deque[Errand] = deque()
        self._attending = False
        self._freeze: Freeze | None = None

    @property
    def waiting(self) -> bool:
        """Whether there are errands."""
        return bool(self._errands)

    @property
    def busy(self) -> bool:
        return bool(self._errands or self._missing or self._attending)

    def heat(self) -> list[float]:
        """Tuples of late per key group."""
        return self._processor.heat()

    def own(self, groups: frozenset[Group]) -> None:
        self._processor.own(groups)

    def resume(self, owned: frozenset[Group], frozen: frozenset[Group]) -> None:
        """Duty 12: the state of these groups has been restored. Some of it may have been received,
        and been called mine by the core, but not been put in: it comes again, and all else that
        is to be done with groups waits for it (W3 holds meanwhile). What lies here of a group that
        is not open may be of an earlier incarnation of its giver, even if it is whole, so only
        what comes again tells that all of it is here."""
        if not self._keeps:
            self._processor.own(owned | frozen)
            self._processor.freeze(frozen)
            return
        gate = self._path.gate
        self._missing = missing = owned - self._processor.here
        self._processor.resume(owned - missing, frozen - missing)
        gate.hold(RESUMING)

        def go_on() -> None:
            gate.release(RESUMING)
            self._path.watermarks.pass_on()

        async def catch_up() -> None:
            await self._processor.catch_up()
            if not missing:
                go_on()

        async def open_missing() -> None:
            await self._processor.open(missing)
            self._go_on_with_groups()
            go_on()

        self._errands.append(catch_up)
        if missing:
            self._when_all_came_again(open_missing)

    def _when_all_came_again(self, errand: Errand) -> None:
        then = functools.partial(self._errands.append, errand)
        self._ports.lifetime.spawn(self._after_repeats(then), "missing groups")

    def _go_on_with_groups(self) -> None:
        self._missing = frozenset()
        self._errands += self._deferred
        self._deferred.clear()

    async def _after_repeats(self, then: Callable[[], None]) -> None:
        await self._path.repeats_over()
        then()
        self._path.intake.wake()

    def freeze(self, groups: frozenset[Group], watermark: float) -> None:
        """Duty 9; `watermark`: that of the new owner, behind which I may not stay."""

        async def errand() -> None:
            self._freeze = Freeze(groups, watermark)
            self.freeze_if_due()

        self._add(errand)

    def transfer(self, to: InstanceId, groups: frozenset[Group]) -> None:
        """Duty 10. What came before the last acknowledgement may still be in the intake: its
        tuples of these groups are to be kept first, so this takes its turn behind them."""
        spawn = self._ports.lifetime.spawn
        self._path.intake.put_errand(lambda: spawn(self._transfer(to, groups), f"state to {to}"))

    def install(self, chunk: bytes, then: Callable[[], None]) -> None:
        """Duty 11: a piece of state has come; call `then` when it is in. Where keys do not outlive
        a death, those that came before it are lost, and the others mean nothing without them."""

        async def errand() -> None:
            if self._keeps or self._processor.awaits(chunk):
                await self._processor.install(chunk, opens=False)
            then()
            self._end_turn()  # the giver waits for its acknowledgement

        self._errands.append(errand)
        self._path.intake.wake()

    def complete(self, groups: frozenset[Group], then: Callable[[], None]) -> None:
        """All pieces have come, and the core calls the groups mine: process what was kept of them,
        then call `then`."""

        async def errand() -> None:
            # Of what had come before a death there is nothing left if keys do not outlive it.
            await self._processor.open(groups, in_any_case=not self._keeps)
            then()

        self._wait_for_pieces(groups)
        self._add(errand)

    def _wait_for_pieces(self, groups: frozenset[Group]) -> None:
        """An earlier incarnation may have learnt that all pieces had come, and not have put them
        in: they come again, and until then nothing is done with groups."""
        if not self._keeps or self._missing or not self._path.neighbourhood.awaits_repeats:
            return
        self._missing = groups

        async def go_on() -> None:
            self._go_on_with_groups()

        self._when_all_came_again(go_on)

    def _add(self, errand: Errand) -> None:
        (self._deferred if self._missing else self._errands).append(errand)
        self._path.intake.wake()

    async def attend(self) -> None:
        """Do the errands; within one, others wait."""
        if self._attending:
            return
        self._attending = True
        try:
            while self._errands:
                errand = self._errands.popleft()
                await errand()
        finally:
            self._attending = False
        self._tell_attended()

    def freeze_if_due(self) -> None:
        """What was due before the new owner's watermark must have been emitted, so not while timers
        are called (W4)."""
        freeze = self._freeze
        if freeze is None or self._processor.lags:
            return
        if self._path.gate.value < freeze.watermark:
            return
        self._freeze = None
        self._processor.freeze(freeze.groups)
        self._at_rest()

    async def _transfer(self, to: InstanceId, groups: frozenset[Group]) -> None:
        await self._path.repeats_over()  # some of them may be of these groups
        channel = self._path.neighbourhood.channel_to(to)
        profile = self._ports.profile
        chunks: Iterator[bytes] = self._processor.export(
            groups, profile.limits.state_chunk_bytes, profile.context.incarnation
        )
        for chunk in chunks:
            channel.send_state(chunk)
            await asyncio.sleep(0)
            if channel.session.under_way > CHUNKS_UNDER_WAY_MAX:
                self._end_turn()
            while channel.session.under_way > CHUNKS_UNDER_WAY_MAX:
                await self._path.next_progress()
        self._tell_attended()
        self._ports.membership.feed(events.GroupsTransferred(to))

    def _at_rest(self) -> None:
        """Groups that are to move are frozen: report it once their results are sent (duty 9); at
        least once, when they are safe, for what they are made of would come again to me."""
        path, profile = self._path, self._ports.profile
        path.gate.hold(FREEZING)  # W5
        repeats = profile.journaled and profile.duties.repeats
        when = path.ack_tracker.after if repeats else path.outbox.after_all_held
        when(self._announce_owners_soon)
        self._send()

    def _announce_owners_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._announce_owners)

    def _announce_owners(self) -> None:
        self._ports.membership.feed(events.GroupsFrozen())
        self._path.gate.release(FREEZING)
        self._path.watermarks.pass_on()

    def _state_is_in(self) -> None:
        self._path.watermarks.pass_on()
        self._path.check_drained()

    def _end_turn(self) -> None:
        if self._ports.commits is not None:
            self._ports.commits.end()
