"""A giver of key groups dies on the way and gives all of them again, and the receiver dies too:
each group is opened with what the last incarnation of the giver has sent."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import islice
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.protocol.session import Session
from anabranch.runtime.keyed.groups import group_of
from anabranch.runtime.live.channel.frames import Pieces
from anabranch.runtime.live.channel.incoming import Incoming
from anabranch.runtime.live.channel.row import ChannelRow
from anabranch.runtime.live.instance.key_groups import KeyGroups
from anabranch.runtime.live.instance.ports import Ports
from tests.runtime.keyed.journaled import Mortals
from tests.runtime.keyed.test_processor_moves import counting

GROUPS = 3
ALL = frozenset(range(GROUPS))
Story = list[tuple[int, set[str]]]
KEYS = [next(key for key in range(100) if group_of(key, GROUPS) == group) for group in sorted(ALL)]
"""One of each group: so an incarnation of the giver sends a chunk of each group, and then the last
one of each."""

cuts = st.lists(st.integers(0, 2 * GROUPS), max_size=2)
acts = st.sets(st.sampled_from(("attends", "draws", "commits", "dies")))
stories = st.lists(st.tuples(st.integers(0, 9), acts), max_size=8)
"""Of the receiver, turn by turn: so many frames come, and it does some of these, in this order."""


class Path:
    """What key groups need of the path of tuples."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming
        self.gate = SimpleNamespace(hold=lambda token: None, release=lambda token: None)
        self.watermarks = SimpleNamespace(pass_on=lambda: None)
        self.intake = SimpleNamespace(wake=lambda: None)
        self.neighbourhood = self
        self.progress = asyncio.Event()

    @property
    def awaits_repeats(self) -> bool:
        return self._incoming.repeats

    async def repeats_over(self) -> None:
        while self.awaits_repeats:
            self.progress.clear()
            await self.progress.wait()


class Receiver:
    """Instance 1 of the bench. What it has done since its last commit goes with it when it dies.
    `sent`: chunks, and behind them the message that all have been sent, which its core has when it
    comes, before the chunks are put in."""

    def __init__(self, bench: Mortals, sent: list[bytes]) -> None:
        self._bench = bench
        self._sent = sent
        self._tasks: list[asyncio.Task[None]] = []
        self._begin(ChannelRow(1, 1, 1, (), (0, 0), 0, 0, 0, 0, 0, 1), owned=frozenset())
        self.commit()

    def _begin(self, row: ChannelRow, owned: frozenset[int]) -> None:
        self._session: Session[Pieces] = Session("giver")
        self._session.restore(row.settled, 1, ())
        self._incoming = Incoming(self._session)
        self._incoming.restore(row)
        self._owned = owned
        lifetime = SimpleNamespace(spawn=self._spawn)
        self._path = Path(self._incoming)
        ports = SimpleNamespace(path=self._path, lifetime=lifetime, commits=None)
        self.processor = self._bench.all[1]
        self._groups = KeyGroups(
            cast(Ports, ports), self.processor, keeps=True, send=_nothing, attended=_nothing
        )

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work, name=name))

    @property
    def done(self) -> bool:
        return self._incoming.settled == len(self._sent) + 2 and not self._groups.busy

    def come(self, frames: int) -> None:
        for number in range(self._session.expected, self._session.expected + frames):
            if number > len(self._sent) + 1:
                return
            had = self._incoming.is_ahead(number)
            assert self._session.receive(number)
            if had:
                self._settle(number)
            elif number <= len(self._sent):
                chunk = self._sent[number - 1]
                self._groups.install(chunk, lambda number=number: self._settle(number))  # type: ignore[misc]
            else:
                self._owned = ALL
                self._groups.complete(ALL, _nothing)
                self._settle(number)

    def _settle(self, number: int) -> None:
        if number >= self._incoming.settled:
            self._incoming.settle(number, 0, 0)
            self._path.progress.set()

    async def attend(self) -> None:
        for _ in range(3):  # what waits for repeats has its turn
            await asyncio.sleep(0)
        await self._groups.attend()

    def commit(self) -> None:
        self.processor.tell()
        incoming = self._incoming
        row = ChannelRow(1, 1, incoming.settled, incoming.handled, (0, 0), 0, 0, 0, 0, 0, 1)
        self._committed = [*self._bench.journals[1].changes], row, self._owned

    def draw(self) -> None:
        """One more of a snapshot, in the next commit."""
        journal = self._bench.journals[1]
        if journal._snapshot is None:
            journal.begin_snapshot(self.processor, 2)
        else:
            journal.add_piece()

    async def die(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        changes, row, owned = self._committed
        journal = self._bench.journals[1]
        journal.close()
        journal.changes[:] = changes
        self._bench.all[1] = self._bench._processor(1)
        self._bench.all[1].restore(changes)
        self._begin(row, owned)
        self._groups.resume(owned, frozenset())


def _nothing() -> None: ...


async def given_again(bench: Mortals, cuts: list[int]) -> list[bytes]:
    """What a giver sends that dies behind so many chunks, again and again. To each of its
    incarnations come more tuples of the groups."""
    await bench.over(*[(key, 0) for key in KEYS])
    bench.one.freeze(ALL)
    sent: list[bytes] = []
    for incarnation, cut in enumerate(cuts, 1):
        sent += islice(bench.one.export(ALL, 10_000, incarnation), cut)
        bench.restored(0).resume(ALL, ALL)
        await bench.over(*[(key, incarnation) for key in KEYS])
    return [*sent, *bench.one.export(ALL, 10_000, len(cuts) + 1)]


async def told(cuts: list[int], story: Story) -> dict[Any, Any]:
    bench = Mortals(counting, groups=GROUPS, instances=2, tells_at_once=False)
    receiver = Receiver(bench, await given_again(bench, cuts))
    for frames, does in story:
        receiver.come(frames)
        if "attends" in does:
            await receiver.attend()
        if "draws" in does:
            receiver.draw()
        if "commits" in does:
            receiver.commit()
        if "dies" in does:
            await receiver.die()
    for _ in range(10):
        receiver.come(1000)
        await receiver.attend()
        if receiver.done:
            break
    assert receiver.done
    assert receiver.processor.owned == ALL
    receiver.commit()
    await receiver.die()
    await receiver.attend()
    assert receiver.processor.owned == ALL
    return receiver.processor.states()


# Key groups were given once more by a later incarnation; the receiver died when it knew that, and
# had put in only what the earlier one had sent.
@example([4], [(4, {"attends"}), (7, {"commits", "dies"})])
@given(cuts, stories)
def test_groups_are_opened_with_what_the_last_incarnation_of_their_giver_has_sent(
    cuts: list[int], story: Story
) -> None:
    states = asyncio.run(told(cuts, story))
    assert states == {key: tuple(range(len(cuts) + 1)) for key in KEYS}
