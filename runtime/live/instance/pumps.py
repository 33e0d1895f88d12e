"""The work of an instance, one tuple source for each kind of operator.

    SourcePump    board ▶ reader ▶ outbox             (source_pump)
    OperatorPump  intake ▶ processor ▶ outbox         (by key: keyed_pump.KeyedPump)
    SinkPump      intake ▶ writer                     (sink_pump; by key: KeyedSinkPump)

A pump stops for lack of room in the outbox, and so backpressure travels up. It gives the loop a
turn at least every `slice_s`, so that control messages never wait for long, whatever the load.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from anabranch.runtime.keyed.watermarks import Stamper
from anabranch.runtime.live.instance.intake import Queued, Said
from anabranch.runtime.live.instance.letter_writer import LETTERS
from anabranch.runtime.live.instance.poison_guard import DEATHS, PoisonGuard, place_of
from anabranch.runtime.plan.ends import DeadLetter, Offered
from anabranch.runtime.ports import clock
from anabranch.runtime.processing.marks import opened
from anabranch.runtime.processing.operators import Part, make_processor
from anabranch.runtime.processing.plain_calls import NoLoop
from anabranch.runtime.processing.salvage import decode_batch
from anabranch.runtime.values.kinds import EventKind

if TYPE_CHECKING:
    from anabranch.runtime.keyed.processor import KeyedProcessor
    from anabranch.runtime.live.commit.commits import Commits
    from anabranch.runtime.live.commit.recovery import Past
    from anabranch.runtime.live.instance.key_groups import KeyGroups
    from anabranch.runtime.live.instance.ports import Ports

now = clock.monotonic

ADVANCING = "advancing"
"""The token that holds the gate while due timers fire, which may take many slices."""

STAMPS = "stamps"
"""Kind of the pieces of a journal that contain event time as it was read."""


class Pump(ABC):
    def __init__(self, ports: Ports) -> None:
        self.ports = ports
        self.profile, self.path, self.commits = ports.profile, ports.path, ports.commits
        self._sent_at = now()
        self._turn_at = now()
        self._linger: asyncio.TimerHandle | None = None
        timing = self.profile.operator.timing
        # A newcomer begins with no time of its own: successors have what its creator had stated.
        self.stamper = Stamper(timing, journaled=self.commits is not None) if timing else None
        self.follows = not self.profile.operator.edges
        """Whether the watermark here follows the marks of what goes out: while all have come from
        one predecessor for which that is so, or are read here. Tuples of keys may be held up."""
        self.path.outbox.follow(self.follows)
        self._listened_s = 0.0
        """For how long tuples could have come: silence for lack of room does not count."""
        self._noted = False
        self.poison_guard = PoisonGuard(self.profile, self.commits, self._buried)

    @property
    @abstractmethod
    def drained(self) -> bool:
        """Whether nothing is queued or in work here, and a sink has committed."""

    @abstractmethod
    async def work(self) -> None:
        """Until cancelled, or a source's input has ended."""

    async def run(self) -> None:
        await self.ports.lifetime.began.wait()
        try:
            await self.work()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # At once: before the end of this task is seen, what is half done would be recorded.
            self.ports.lifetime.fail(error)
        except BaseException:  # the end of the process
            if self.commits is not None:
                self.commits.stop()
            raise

    def _buried(self, reason: str) -> None:
        self.ports.agent_client.note(EventKind.BURIED, f"a tuple that {reason}")
        # Soon, when it is counted: the agent sees that something got done before the next death.
        asyncio.get_running_loop().call_soon(self.ports.tell_status)

    @property
    def keyed(self) -> KeyedProcessor | None:
        """What works by key, if anything does."""
        return None

    @property
    def groups(self) -> KeyGroups:
        """The key groups of this instance."""
        raise TypeError(f"{self.profile.me} has no key groups")

    def must_end(self) -> None:  # noqa: B027 - only where keys are
        """The input ends, and unless it goes on in another run the stream does: what waits for more
        is to be made of what there is."""

    def stop(self) -> None:  # noqa: B027 - only sources have an intake of their own
        """Duty 6: read no more."""

    def end_input(self) -> None:  # noqa: B027 - only sources have one
        """Act as if the input had ended."""

    async def close(self) -> None:  # noqa: B027 - optional
        """Give back what is open."""

    def snapshot(self) -> dict[str, Any]:
        """What the next incarnation needs beside what the instance keeps; new values each
        time."""
        return {"letters": self.path.letter_writer.number, "follows": self.follows}

    def restore(self, snapshot: dict[str, Any], past: Past) -> None:
        self.path.letter_writer.restore(snapshot["letters"], past.lasting.get(LETTERS, {}))
        if not snapshot["follows"]:
            self.follow_no_more()
        if self.stamper is not None:
            self._listened_s = self.stamper.restore(past.added.get(STAMPS, []))

    def begin_from(self, base: Mapping[str, list[bytes]]) -> None:
        """In a first incarnation, what a savepoint has for it: changes by kind."""
        if self.stamper is not None:
            self.stamper.restore(base.get(STAMPS, []))

    def tell_progress(self) -> None:  # noqa: B027 - optional
        """Some times per second: report to the agent how much of the input is read."""

    def offered(self) -> Offered | None:
        """Of a paced source."""
        return None

    def follow_no_more(self) -> None:
        self.follows = False
        self.path.outbox.follow(False)

    def hold_again(self) -> None:  # noqa: B027 - optional
        """In a new incarnation, once the successors are known: hold results that no sender can
        repeat."""

    def tell_again(self) -> None:  # noqa: B027 - only sources have reported something
        """In a new incarnation, which may have nothing left to do: what an earlier one has reported
        to the agent, and a loss of power may have taken from it."""

    def tell(self, commits: Commits) -> None:
        """What is recorded only now, at the end of a commit."""
        if self.stamper is not None and (changes := self.stamper.changes()):
            commits.change(STAMPS, changes)

    def recorded(self) -> None:  # noqa: B027 - only sources act on it
        """The last snapshot is in the journal."""

    def snapshot_pieces(self, pieces: int) -> Iterator[tuple[str, bytes]]:
        """All that is recorded by changes, some `pieces` of it (keys, devices) at a time."""
        if self.stamper is not None:
            for piece in self.stamper.snapshot(pieces):
                yield STAMPS, piece

    def hold(self, results: list[Any], born: float, marks: list[float] | None = None) -> None:
        """Hold results for the successors; send them now if that is worth it, or soon."""
        if not results:
            return
        path = self.path
        if self.stamper is not None:
            results, marks = self._stamp(self.stamper, results)
        path.outbox.hold(results, born, marks)
        path.counts.tuples_out += len(results)
        if self.stamper is not None:  # only now: it is stated behind them
            path.watermarks.ask(self._state_time)
        if path.outbox.worth_sending() or now() - self._sent_at > self.profile.limits.linger_s:
            self.send()
        elif self._linger is None:
            loop = asyncio.get_running_loop()
            self._linger = loop.call_later(self.profile.limits.linger_s, self.send)

    def _stamp(self, stamper: Stamper, results: list[Any]) -> tuple[list[Any], list[float]]:
        """Results that have an event time, and their marks; the others are dead letters."""
        with NoLoop():
            stamped = stamper.note(results, self._listened_s, clock.wall())
        if stamped.letters:
            self.path.counts.dead_beside += len(stamped.letters)
            self.path.bury(stamped.letters)
        self._noted = True
        return stamped.tuples, stamped.marks

    def listen(self, seconds: float) -> None:
        """So much time has passed. Devices that were silent for long are not waited for."""
        if self.stamper is None:
            return
        if self._noted or self.hears:
            self._listened_s += seconds
        self._noted = False
        self.path.watermarks.ask(self._state_time)

    @property
    def hears(self) -> bool:
        """Whether it would take new tuples now: it has room for them, and works on no others."""
        return self.path.room.is_set()

    def _state_time(self) -> None:
        """Event time as it is known from my own results. While state is on its way to me, so are
        older tuples (W3)."""
        stamper, path = self.stamper, self.path
        if stamper is not None and not path.gate.held:
            watermark, idle = stamper.watermark(self._listened_s), stamper.idle(self._listened_s)
            path.watermarks.state(watermark, idle=idle)

    async def wait_for_room(self) -> None:
        """Backpressure: go on when successors have taken enough of what is held."""
        if self.path.outbox.full:
            self.send()
            await self.path.room.wait()
        if not self.path.letter_writer.has_room:
            if self.commits is not None:
                self.commits.end_if_awaited()
            await self.path.letter_writer.room()

    def send(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        self._sent_at = now()
        self.path.outbox.send()
        self.path.note_outbox()

    async def give_turn(self) -> None:
        """Let the loop do other things when this pump has had its slice."""
        if now() - self._turn_at > self.profile.limits.slice_s:
            await asyncio.sleep(0)
            self._turn_at = now()
        await self.wait_for_room()


class QueuePump(Pump):
    """Processes the intake, batch by batch."""

    def __init__(self, ports: Ports) -> None:
        super().__init__(ports)
        self._working = False
        self._gives_up_first = self.profile.duties.loses and len(self.profile.in_vain) >= DEATHS
        """Whether it is recorded that a batch may be lost before anything is done with it. What
        ends the process at once would come again and again otherwise, for a commit takes longer."""

    @property
    def drained(self) -> bool:
        """The queue may be empty while calls of its last tuples are open, and hold what is stated
        of event time while there are no tuples."""
        intake = self.path.intake
        return not self._working and not len(intake) and not intake.tuples

    @property
    def hears(self) -> bool:
        return super().hears and not self._working and not self.path.intake.tuples

    async def work(self) -> None:
        intake = self.path.intake
        if self.poison_guard.on:
            self.be_wary()
        while True:
            await self.before_next()
            item = intake.pop()
            if item is None:
                await self.rest()
                continue
            self._working = True
            if isinstance(item, Said):
                await self._hear(item)
                item.settle()
            elif isinstance(item, Queued):
                if self._gives_up_first and self.commits is not None:
                    await self.commits.committed()
                await self.process(item)
            else:
                item()
            self._working = False
            await self.give_turn()

    async def process(self, item: Queued) -> None:
        """Do everything that is to be done with one batch, or is left of it."""
        batch = opened(item.payload, item.tuples)
        tuples, unreadable = decode_batch(batch.data, item.tuples)
        self._begin(item, unreadable)
        item.marks = marks = batch.marks_of(len(tuples))
        if marks is not None:
            item.marks = marks[item.done :]
            if self.follows and not (batch.follows and self.path.gate.has_one_way):
                self.follow_no_more()
        await self.take(item, tuples[item.done :])

    def _begin(self, item: Queued, unreadable: list[DeadLetter]) -> None:
        done = item.channel.incoming.done_of(item.number)
        item.done = done or 0
        item.letters = unreadable if done is None else []

    def _advance(self, item: Queued, tuples: int, *, last: bool) -> None:
        """So many more tuples of a batch are processed, and what became of them is accounted."""
        if item.letters:
            self._bury_unreadable(item.letters)
            item.letters = []
        item.done += tuples
        self.path.intake.worked_off(item, tuples, last=last)
        self.poison_guard.done()
        channel = item.channel
        if last:
            self.path.settle(channel, item.number, item.tuples, len(item.payload))
        elif self.profile.exact:
            channel.settle_part(item.number, item.done)

    async def _hear(self, said: Said) -> None:
        """A predecessor has spoken of event time. What came before, and what is made of it, goes
        out before it; till then it does not count, or a later incarnation would pass it on at
        once."""
        gate, watermarks = self.path.gate, self.path.watermarks
        if gate.would_rise(said.peer, said.watermark, said.idle or said.left):
            await self.catch_up()
        before = gate.value
        gate.hold(ADVANCING)
        watermarks.heard(said)
        if gate.value > before:
            await self.advance(gate.value)
        gate.release(ADVANCING)
        watermarks.pass_on()
        if self.stamper is not None:
            watermarks.ask(self._state_time)  # it must not before

    def restore(self, snapshot: dict[str, Any], past: Past) -> None:
        super().restore(snapshot, past)
        self.poison_guard.restore(past, self.gathered)

    @property
    def gathered(self) -> int:
        """How many tuples may be in work whose credit has gone back already."""
        return 0

    def be_wary(self) -> None:
        """Ask before each tuple."""

    async def before_next(self) -> None:
        """Between two batches."""

    async def catch_up(self) -> None:
        """Return when nothing is open of what was taken before."""

    async def advance(self, watermark: float) -> None:
        """No tuple with an earlier event time will come."""

    def _bury_unreadable(self, letters: list[DeadLetter]) -> None:
        """Tuples that came in and cannot be unpacked here."""
        counts = self.path.counts
        counts.tuples_in += len(letters)
        counts.dead += len(letters)
        self.path.bury(letters)

    async def rest(self) -> None:
        """The queue is empty: send what is held, commit if the end waits for it, and wait."""
        self.send()
        if self.path.awaits_drained and not self.path.neighbourhood.awaits_repeats:
            await self.commit()
            self.path.check_drained()
        self.before_rest()
        await self.wait()
        self._turn_at = now()

    async def wait(self) -> None:
        await self.path.intake.wait()

    def before_rest(self) -> None:
        """The queue is empty, and everything is sent."""

    def _account(self, part: Part) -> None:
        """Count what became of tuples, and write down those that died."""
        counts = self.path.counts
        counts.processed += part.taken - part.dead
        counts.dead += part.dead
        counts.dead_beside += len(part.letters) - part.dead
        self.path.meter.processed(part.taken, part.busy_s)
        if part.letters:
            self.path.bury(part.letters)

    async def commit(self) -> None:
        """Before the end of an instance: make safe what was taken."""

    @abstractmethod
    async def take(self, item: Queued, tuples: list[Any]) -> None:
        """Process the tuples of one batch."""


class OperatorPump(QueuePump):
    def __init__(self, ports: Ports) -> None:
        super().__init__(ports)
        self._processor = make_processor(
            self.profile.operator,
            slice_s=self.profile.limits.slice_s,
            emit=self._emit,
            turn=self._turn,
        )

    def be_wary(self) -> None:
        self._processor.before = self._before

    async def _before(self, item: Queued) -> str:
        """About the next tuple of this batch."""
        refused = await self.poison_guard.before(place_of(item, item.done))
        if not self.poison_guard.on:
            self._processor.before = None
        return refused

    async def take(self, item: Queued, tuples: list[Any]) -> None:
        def read() -> list[Any]:
            return decode_batch(opened(item.payload, item.tuples).data, item.tuples)[0]

        await self._processor.run(tuples, item, read, marks=item.marks)

    async def catch_up(self) -> None:
        await self._processor.drain()

    async def _turn(self) -> None:
        await asyncio.sleep(0)
        await self.wait_for_room()

    def _emit(self, part: Part) -> None:
        path, item = self.path, part.tag
        path.counts.tuples_in += part.taken
        self._account(part)
        self.hold(part.results, item.born, part.marks)
        self._advance(item, part.taken, last=part.last)
        if part.last:
            path.intake.done(item)
            if path.awaits_drained:
                path.intake.wake()

    async def close(self) -> None:
        await self._processor.close()
