"""The work of an instance of a keyed operator in virtual time: duties 9 to 11 of a driver.

A tuple of a group that is not owned here, or frozen, is kept in its order; its credit returns as
far as a bound allows, so that other groups go on. State and kept tuples leave in chunks, between
which everything else goes on; what has come is processed before anything that came here.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.ownership import Group
from anabranch.runtime.simulation.channel import Channel
from anabranch.runtime.simulation.fault import Fault
from anabranch.runtime.simulation.keyed_state import Chunk, GroupState, Kept
from anabranch.runtime.simulation.leaving import Leaving
from anabranch.runtime.simulation.models import BASE, expand
from anabranch.runtime.simulation.progress import FREEZING
from anabranch.runtime.simulation.work import Committing, QueueWork, behind_the_watermark

if TYPE_CHECKING:
    from anabranch.runtime.simulation.instance import Instance

Groups = frozenset[Group]


class KeyedWork(QueueWork):
    """`states`: of the groups that are owned. `ready`: tuples that were kept and may be processed
    now, before anything from the queue."""

    def __init__(self, me: Instance) -> None:
        super().__init__(me)
        assert me.model.keyed is not None
        assert me.world.lineage is not None
        assert me.progress is not None
        self.keys = me.model.keyed
        self.lineage = me.world.lineage
        self.progress = me.progress
        self.states: dict[Group, GroupState] = {}
        self.frozen: set[Group] = set()
        self.ready: deque[Kept] = deque()
        self.kept: defaultdict[Group, list[Kept]] = defaultdict(list)
        self._kept_count = 0
        self._in_work: list[Kept] = []
        self._credit: Counter[Channel] = Counter()
        self._behind: set[Group] = set()
        """Groups with ready tuples: their windows stay open until those are processed."""
        self._freezing: tuple[Groups, InstanceId | None] | None = None
        """Wanted, but not frozen yet, or something of them is in work."""
        self._expected: dict[InstanceId, object] = {}
        """Whose state is to come, and what holds the watermark back until it is worked off."""
        self._complete: list[object] = []
        self._coming: dict[Group, GroupState] = {}
        self._came: defaultdict[Group, list[Kept]] = defaultdict(list)
        self._coming_from: defaultdict[InstanceId, set[Group]] = defaultdict(set)
        self._leaving: dict[InstanceId, Leaving] = {}
        self._kicking = False
        self._closing = False
        """Windows are being closed: more results follow those that are held."""

    @property
    def drained(self) -> bool:
        return super().drained and not self._queue and not self._closing

    # -- processing ----------------------------------------------------------------------------

    def kick(self) -> None:
        if self._kicking:
            return  # the call that is under way looks again
        self._kicking = True
        while self._slice is None and self.me.began and self._step():
            pass
        self._kicking = False

    def _step(self) -> bool:
        """Begin a slice, or do what takes no time; False: there is nothing to do, or no room."""
        if not (self.ready or self._batch or self._queue):
            self._rest()
            return bool(self.ready or self._queue)
        if not self.has_room():
            return False
        cost_s = self.me.model.cost_s
        most = max(1, int(self.me.world.knobs.slice_s / cost_s)) if cost_s else 1 << 30
        if self.ready:
            self._in_work = [self.ready.popleft() for _ in range(min(most, len(self.ready)))]
            self._kept_count -= len(self._in_work)
        elif self._batch is None:
            head = self._queue.popleft()
            if callable(head):
                head()
                return True
            self._begin_batch(head)
        if not self._in_work:
            self._take_from_batch(most)
        if self._in_work:
            n = len(self._in_work)
            self._slice = (n, self.me.clock.now)
            self.me.clock.after(self.me.host.begin(n * cost_s), self._slice_over)
        self._return_credit()
        return True

    def _take_from_batch(self, most: int) -> None:
        assert self._batch is not None
        channel, tuples, born_s, items = self._batch
        assert items is not None
        while self._done < tuples and len(self._in_work) < most:
            one = self._known(channel, born_s, items[self._done])
            self._done += 1
            self.tuples_in += 1
            if self.is_open(one.group):
                self._in_work.append(one)
            else:
                self._keep(one)
        if self._done == tuples:
            self._batch = None
            if self.me.journal is not None:
                channel.passed(tuples)

    def _known(self, channel: Channel, born_s: float, item: int) -> Kept:
        maker = channel.peer.operator
        birth = self.lineage.birth(maker, item)
        key = self.keys.key_of(birth.root)
        group = self.keys.group_of(key)
        if birth.mark < self.progress.value:
            raise Fault(behind_the_watermark(item, self.me.me, self.progress.value))
        return Kept(group, key, item, maker, born_s, birth.time_s, birth.root, birth.mark, channel)

    def is_open(self, group: Group) -> bool:
        """Duty 9."""
        return group in self.states and group not in self.frozen

    def _keep(self, one: Kept) -> None:
        if one.group not in self.states and not self._expected:
            raise Fault(f"K: {self.me.me} gets {one.item} of group {one.group}, which is not its")
        if self._kept_count < self.me.world.knobs.kept_tuples_max and one.channel is not None:
            self._credit[one.channel] += 1
            one = one._replace(channel=None)
        self._kept_count += 1
        self.kept[one.group].append(one)

    def _return_credit(self) -> None:
        for channel, n in list(self._credit.items()):
            channel.batch_done(n)
        self._credit.clear()

    def _slice_over(self, _: None) -> None:
        assert self._slice is not None
        n, began_s = self._slice
        me, done = self.me, self._in_work
        me.host.end()
        self._slice, self._in_work = None, []
        self.processed += n
        self.queued -= n
        me.scaling.processed(n, me.clock.now - began_s)
        results: list[int] = []
        for one in done:
            results += self._process(one)
            if one.channel is not None:
                self._credit[one.channel] += 1
        self.emit(results, min(one.born_s for one in done))
        self._return_credit()
        self._catch_up()
        self._look_at_freezing()
        self.kick()

    def _process(self, one: Kept) -> list[int]:
        me = self.me
        place = (str(me.me.operator), one.key)
        if sentence := self.lineage.take(place, one.maker, one.item, me.taken):
            raise Fault(f"K1: {sentence}")
        if one.group not in self.states:
            raise Fault(f"K: {me.me} processes {one.item} of group {one.group}, which has moved")
        self.states[one.group].fold(one, self.keys)
        return [] if self.keys.window_s is not None else self.results_of(one, place)

    def results_of(self, one: Kept, place: tuple[str, int]) -> list[int]:
        made = expand(self.me.model.rule, self.me.digit, [one.item])
        self.lineage.made(self.me.me.operator, one.maker, one.item, made, place)
        return made

    def emit(self, results: list[int], born_s: float) -> None:
        self.hold(len(results), born_s, results)

    # -- event time ----------------------------------------------------------------------------

    def advance(self, watermark: float) -> None:
        """In its turn in the queue, so nothing that was kept is left before it."""
        self._close_windows([g for g in sorted(self.states) if g not in self.frozen], watermark)

    def _close_windows(self, groups: Iterable[Group], watermark: float) -> None:
        operator = self.me.me.operator
        self._closing = True
        for group in groups:
            for over in self.states[group].close(watermark, self.keys):
                item, place = over.item * BASE + self.me.digit, (str(operator), over.key)
                self.lineage.closed(operator, over.root, item, over.end_s, place)
                self.emit([item], over.born_s)
        self._closing = False

    def _catch_up(self) -> None:
        """Kept tuples have been processed: groups without any come up to the present (W3)."""
        left = {one.group for one in (*self._in_work, *self.ready)}
        ready = [g for g in sorted(self._behind - left) if self.is_open(g)]
        self._behind &= left
        self._close_windows(ready, self.progress.value)
        if not self.ready and not self._in_work:
            complete, self._complete = self._complete, []
            for hold in complete:
                self.progress.release(hold)

    # -- groups come ---------------------------------------------------------------------------

    def own(self, groups: Groups) -> None:
        for group in sorted(groups):
            self.states[group] = GroupState(-math.inf)

    def resume(self, owned: Groups, frozen: Groups) -> None:
        """Duty 12: of groups whose state is here already, some lie still, others go on. As after
        `StateComplete`, nothing is said before what was kept of them is worked off (W3)."""
        if missing := owned - self.states.keys():
            raise Fault(f"K: {self.me.me} resumes groups {sorted(missing)} without their state")
        self.frozen = set(frozen)
        for group in sorted(owned - frozen):
            self.ready.extend(self.kept.pop(group, ()))
            self._behind.add(group)
        hold = object()
        self.progress.hold(hold)
        self._complete.append(hold)
        self._catch_up()
        self.kick()

    def expect(self, sender: InstanceId) -> None:
        self._expected[sender] = hold = object()
        self.progress.hold(hold)

    def install(self, sender: InstanceId, chunk: Chunk) -> None:
        if sender not in self._expected:
            raise Fault(f"K: {self.me.me} gets state of {sender}, which it does not expect")
        if chunk.first:
            self.forget_part(sender)
        self._coming_from[sender].add(chunk.group)
        self._coming.setdefault(chunk.group, GroupState(chunk.closed_s)).add(chunk)
        self._came[chunk.group] += chunk.kept
        self._count_kept(len(chunk.kept))

    def forget_part(self, sender: InstanceId) -> None:
        """What is sent whole takes the place of what an incarnation of the sender has sent in
        part."""
        for group in self._coming_from.pop(sender, ()):
            self._coming.pop(group)
            self._count_kept(-len(self._came.pop(group, ())))

    def _count_kept(self, came: int) -> None:
        self.handed_in += came
        self.queued += came
        self._kept_count += came

    def complete(self, sender: InstanceId, groups: Groups) -> None:
        """Duty 11."""
        self._complete.append(self._expected.pop(sender))
        self._coming_from.pop(sender, None)
        for group in sorted(groups):
            if group not in self._coming:
                raise Fault(f"K: no state of group {group} has come to {self.me.me}")
            self.states[group] = self._coming.pop(group)
            self.ready.extend(self.in_order(group))
            self._behind.add(group)
        self._catch_up()
        self.kick()

    def in_order(self, group: Group) -> list[Kept]:
        """What came along, then what was kept here."""
        return [*self._came.pop(group, ()), *self.kept.pop(group, ())]

    # -- groups go -----------------------------------------------------------------------------

    def freeze(self, groups: Groups, new_owner: InstanceId | None) -> None:
        self._freezing = (groups, new_owner)
        self.out_has_moved()

    def out_has_moved(self) -> None:
        if self._freezing is None or self._freezing[0] <= self.frozen:
            return
        groups, new_owner = self._freezing
        if new_owner is not None and not self.is_as_far_as(new_owner):
            return
        self.progress.hold(FREEZING)
        self.frozen |= groups
        for one in self.ready:
            if one.group in groups:
                self.kept[one.group].append(one)
        self.ready = deque(one for one in self.ready if one.group not in groups)
        self._behind -= groups
        self._look_at_freezing()

    def is_as_far_as(self, new_owner: InstanceId) -> bool:
        """W4."""
        return self.progress.out >= self.me.told[new_owner]

    def _look_at_freezing(self) -> None:
        """Duty 9: whether what was frozen has come to rest, and all that was made of it is sent."""
        if self._freezing is None or not self._freezing[0] <= self.frozen:
            return
        if self.is_at_work_on(self._freezing[0]):
            return
        self._freezing = None
        self.send()
        self.report_when_sent()

    def is_at_work_on(self, groups: Groups) -> bool:
        return any(one.group in groups for one in self._in_work)

    def report_when_sent(self) -> None:
        self.me.outbox.when_sent(lambda: self.me.feed(events.GroupsFrozen()))

    def transfer(self, to: InstanceId, groups: Groups) -> None:
        """Duty 10. All that will ever come of them has come, but may still lie in the queue."""
        self.put_word(lambda: self.export(to, groups))

    def export(self, to: InstanceId, groups: Groups) -> None:
        self.frozen -= groups
        leaving = {g: (self.states.pop(g), self._freed(g)) for g in sorted(groups)}
        self._leaving[to] = Leaving(leaving, self.me.world.knobs.chunk_entries)
        self._return_credit()
        self.me.clock.after(0.0, self._send_chunk, to)

    def _freed(self, group: Group) -> list[Kept]:
        """What was kept of a group that leaves; its credit returns."""
        kept = self.kept_of(group)
        for one in kept:
            if one.channel is not None:
                self._credit[one.channel] += 1
        return [one._replace(channel=None) for one in kept]

    def kept_of(self, group: Group) -> list[Kept]:
        return self.kept.pop(group, [])

    def _send_chunk(self, to: InstanceId) -> None:
        leaving = self._leaving[to]
        chunk = leaving.next()
        if chunk is None:
            del self._leaving[to]
            self.me.feed(events.GroupsTransferred(to))
            return
        n = len(chunk.kept)
        self.queued -= n
        self.handed_out += n
        self._kept_count -= n
        self.me.neighbours.channel_to(to).send_chunk(chunk)
        self.me.clock.after(self.me.world.knobs.chunk_s, self._send_chunk, to)

    # -- incarnations -----------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """What was sent of groups in part is sent whole by a next incarnation, so it is still
        here."""
        kept: defaultdict[Group, list[Kept]] = defaultdict(list)
        for one in chain(self._in_work, self.ready):
            kept[one.group].append(one)
        states = {g: state.snapshot() for g, state in self.states.items()}
        begun = 0
        for leaving in self._leaving.values():
            begun += leaving.begun
            for group, (state, waiting) in leaving.groups.items():
                states[group] = state.snapshot()
                kept[group] += waiting
        for group, many in self.kept.items():
            kept[group] += many
        snapshot = super().snapshot()
        snapshot["handed_out"] -= begun
        coming = {g: (s.snapshot(), tuple(self._came[g])) for g, s in self._coming.items()}
        came_from = {sender: set(groups) for sender, groups in self._coming_from.items()}
        return {**snapshot, "states": states, "kept": kept, "coming": coming, "from": came_from}

    def restore(self, snapshot: dict[str, Any]) -> None:
        super().restore(snapshot)
        self.states = {g: GroupState.of(p) for g, p in snapshot["states"].items()}
        accepted = self.me.neighbours.accepted
        for group, many in snapshot["kept"].items():
            self.kept[group] = [
                one if one.channel is None else one._replace(channel=accepted.get(one.channel.peer))
                for one in many
            ]
        for group, (state, came) in snapshot["coming"].items():
            self._coming[group] = GroupState.of(state)
            self._came[group] = list(came)
        self._coming_from.update({s: set(groups) for s, groups in snapshot["from"].items()})
        self._kept_count = sum(map(len, chain(self.kept.values(), self._came.values())))
        self.queued = self._kept_count


class KeyedSinkWork(KeyedWork, Committing):
    def results_of(self, one: Kept, place: tuple[str, int]) -> list[int]:
        return [one.item]

    def emit(self, results: list[int], born_s: float) -> None:
        self.deliver(len(results), born_s, results)
