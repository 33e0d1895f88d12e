"""Up to twenty shipped cores, a fake driver around each, and channels of the worst kind.

Some of the operators may have key groups (`tests.protocol.fake_keys`).
Whatever happens is an act, a short text such as `deliver a.0>b.1`. `acts` lists those possible
now, `act` carries one out; so a failing run is a list of texts that can be played again. After
every act the invariants are checked. Tuples have numbers: `settle` lets everything come to rest
and then compares what each operator has processed with what the sources have read.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import assert_never

from anabranch.protocol import effects as fx
from anabranch.protocol import events
from anabranch.protocol.core import Core
from anabranch.protocol.ids import InstanceId, OperatorName, Topology
from anabranch.protocol.invariants import broken_in
from anabranch.protocol.messages import Ids, Message
from anabranch.protocol.ownership import (
    Group,
    Routes,
    belonging_to,
    founding,
    groups_of,
    leading_to,
)
from anabranch.protocol.states import Active, Gone, Idle
from tests.protocol.fake_keys import (
    GROUPS,
    Batch,
    GroupState,
    Keys,
    Numbered,
    held_of,
    take_out,
    those_for,
)
from tests.protocol.fake_line import Line
from tests.protocol.fake_rest import check_channels, check_rest, check_tuples

INSTANCES_MAX = 20
HELD_MAX = 6
"""Results that may wait for credit before an instance takes up no more work."""

SHARES = ("none", "one", "all")
"""How many of its key groups an instance gives to its children."""

GRAPHS = {
    "pair": "a-b",
    "chain": "a-b b-c",
    "long": "a-b b-c c-d",
    "diamond": "a-b a-c b-d c-d",
    "triangle": "a-b b-c a-c",
    "two sources": "a-c b-c c-d",
    "two sinks": "a-b b-c b-d",
}

DECISIONS = ("duplicate", "leave", "move", "relocate", "migrate", "offer", "end", "fail")
ACCIDENTS = ("cut", "clog")
ROUTINE = (
    "deliver",
    "redial",
    "state",
    "spawned",
    "read",
    "process",
    "ship",
    "frozen",
    "transfer",
    "drained",
    "unclog",
)
KINDS = (*DECISIONS, *ACCIDENTS, *ROUTINE)


@dataclass
class Instance:
    """What a driver keeps for a core. `held`: results by operator, not bound to a successor;
    `view`, `routes`: the successors that the router knows, and the owners of key groups."""

    core: Core
    queue: deque[tuple[InstanceId, Batch]] = field(default_factory=deque)
    held: dict[OperatorName, deque[Numbered]] = field(default_factory=dict)
    working: bool = False
    reading: bool = True
    asked: bool = False
    wants: int = 0
    view: Ids = frozenset()
    routes: dict[OperatorName, dict[Group, InstanceId]] = field(default_factory=dict)
    keys: Keys = field(default_factory=Keys)
    done: Counter[int] = field(default_factory=Counter)

    @property
    def me(self) -> InstanceId:
        return self.core.me

    @property
    def holds(self) -> int:
        return sum(map(len, self.held.values()))


class Network:
    """`graph`: a name of `GRAPHS`. `counts`: founders by operator. `window`: credit in tuples.
    `keyed`: names of operators with key groups; of those that are sources it says nothing."""

    def __init__(
        self, graph: str, counts: tuple[int, ...], window: int = 4, keyed: str = ""
    ) -> None:
        self.options = f"{graph}; {','.join(map(str, counts))}; {window}; {keyed}"
        self.topology = Topology.of(tuple(e.split("-")) for e in GRAPHS[graph].split())  # type: ignore[misc]
        self.window = window
        operators = map(OperatorName, keyed)
        self.keyed = tuple(o for o in operators if self.topology.upstream(o))
        self.ending = False
        self.instances: dict[str, Instance] = {}
        self.lines: dict[frozenset[InstanceId], Line] = {}
        self.history: list[str] = []
        self.read_by: dict[OperatorName, Counter[int]] = {}
        self._next = 1
        self._found(counts)

    def _found(self, counts: tuple[int, ...]) -> None:
        operators = sorted({OperatorName(o) for edge in self.topology.edges for o in edge})
        founders = [
            self._create(InstanceId(operator, number)).me
            for operator, count in zip(operators, counts, strict=False)
            for number in range(count)
        ]
        for me in founders:
            succs = frozenset(y for y in founders if self.topology.feeds(me.operator, y.operator))
            preds = frozenset(y for y in founders if self.topology.feeds(y.operator, me.operator))
            routes = tuple(r for o in self.keyed for r in founding(o, founders, GROUPS))
            there = leading_to(routes, self.topology.downstream(me.operator))
            mine = belonging_to(routes, me)
            event = events.Founded(succs, preds, me.number == 0, routes=there, owned=mine)
            self._feed(self.at(me), event)

    def _create(self, me: InstanceId) -> Instance:
        born = Instance(Core(me, self.topology, trace_rows_max=32))
        born.held = {o: deque() for o in self.topology.downstream(me.operator)}
        self.instances[str(me)] = born
        return born

    def at(self, me: InstanceId) -> Instance:
        return self.instances[str(me)]

    def line(self, x: InstanceId, y: InstanceId) -> Line:
        key = frozenset((x, y))
        if key not in self.lines:
            self.lines[key] = Line(min(key), max(key), self.window)
        return self.lines[key]

    # -- the driver of one instance ----------------------------------------------------------

    def _feed(self, one: Instance, event: events.Event, batch: Batch | None = None) -> None:
        """Perform the effects of one event. `batch`: the tuples which a batch event is about."""
        for effect in one.core.handle(event, now=float(len(self.history))):
            self._perform(one, effect, batch or [])

    def _perform(self, one: Instance, effect: fx.Effect, batch: Batch) -> None:
        match effect:
            case fx.AcceptBatch(sender, _):
                one.queue.append((sender, batch))
            case fx.SendBatch(to, tuples):
                line = self.line(one.me, to)
                line.ends[one.me].allowance.spend(tuples, tuples)
                line.send(one.me, batch)
            case fx.SendMessage(to, message):
                self.line(one.me, to).send(one.me, message)
            case fx.BeginProcessing():
                one.working = True
            case fx.AwaitDrained():
                assert not one.asked, f"{one.me} is asked twice (duty 5)"
                one.asked = True
            case fx.StopIntake():
                one.reading = False
            case fx.SpawnInstances(n):
                one.wants = n
            case fx.Terminate(reason):
                assert not one.queue, f"I11: {one.me} ends with a queue"
                assert one.keys.idle, f"I11: {one.me} ends with tuples or state of key groups"
                assert reason != "left" or not one.keys.states, f"K4: {one.me} owns key groups"
                assert not one.holds, f"I11: {one.me} ends with results"
                one.working = one.reading = False
                one.view = frozenset()
            case fx.ChangeView(succs, _, routes):
                one.view = succs
                one.routes = {o: {} for o in self.keyed}
                for owner, group, _version in routes:
                    one.routes[owner.operator][group] = owner
                for to in succs:
                    self.line(one.me, to)  # credit must come before the first batch can go
            case fx.ChangeRole() | fx.Conclude() | fx.Veto():
                pass
            case fx.OwnGroups(groups):
                one.keys.states = {g: {} for g in sorted(groups)}
            case fx.ResumeGroups(owned, frozen):
                self._done_with(one, one.keys.resume(owned, frozen))
            case fx.FreezeGroups(groups):
                one.keys.frozen |= groups
                one.keys.freezing = True
            case fx.TransferGroups(to, groups):
                one.keys.outgoing[to] = groups
            case fx.ExpectState(sender):
                one.keys.expected[sender] += 1
            case fx.StateComplete(sender, groups):
                self._done_with(one, one.keys.complete(sender, groups))
            case _ as unknown:
                assert_never(unknown)

    def _done_with(self, one: Instance, batch: Batch) -> None:
        """Tuples have been processed; what was made of them is held."""
        one.done.update(item.number for item in batch)
        if one.me.operator in self.keyed:
            results = [item._replace(path=(*item.path, one.me.operator)) for item in batch]
        else:
            results = [one.keys.place(item.number, str(one.me)) for item in batch]
        self._hold(one, results)

    def _hold(self, one: Instance, results: Batch) -> None:
        for held in one.held.values():
            held.extend(results)

    # -- acts --------------------------------------------------------------------------------

    def acts(self, kind: str) -> list[str]:
        """Everything of one kind that could happen now."""
        listed: Callable[[], Iterator[str]] = getattr(self, f"_can_{kind}")
        return list(listed())

    def act(self, text: str) -> None:
        """Let one thing happen, and look whether all is well."""
        self.history.append(text)
        kind, *words = text.split()
        getattr(self, f"_{kind}")(*words)
        broken = list(
            broken_in(self.topology, {i.me: i.core.state for i in self.instances.values()})
        )
        assert not broken, broken[0]

    def living(self) -> Iterator[Instance]:
        return (i for i in self.instances.values() if not isinstance(i.core.state, Gone))

    def active(self) -> Iterator[tuple[Instance, Active]]:
        return ((i, i.core.state) for i in self.living() if isinstance(i.core.state, Active))

    def _can_duplicate(self) -> Iterator[str]:
        for one, _ in self.active():
            yield from (f"duplicate {one.me} {n}" for n in (1, 2))

    def _duplicate(self, who: str, n: str) -> None:
        self._feed(self.instances[who], events.DuplicateDecided(int(n)))

    def _can_leave(self) -> Iterator[str]:
        for one, state in self.active():
            if state.owned:
                yield from (f"leave {one.me} {via} {draw}" for via, draw in self._asked(state))
            else:
                yield f"leave {one.me}"

    def _leave(self, who: str, via: str = "", draw: str = "0") -> None:
        asked = self.instances[via].me if via else None
        self._feed(self.instances[who], events.LeaveDecided(asked, int(draw)))

    def _asked(self, state: Active) -> Iterator[tuple[InstanceId, int]]:
        return ((via, draw) for via in sorted(state.succs | state.preds) for draw in (0, 1))

    def _can_move(self) -> Iterator[str]:
        for one, state in self.active():
            for group in sorted(groups_of(state.owned)):
                for via, draw in self._asked(state):
                    yield f"move {one.me} {group} {via} {draw}"

    def _move(self, who: str, group: str, via: str, draw: str) -> None:
        asked = self.instances[via].me
        event = events.MoveDecided(frozenset({int(group)}), asked, int(draw))
        self._feed(self.instances[who], event)

    def _can_relocate(self) -> Iterator[str]:
        return (f"relocate {one.me}" for one, _ in self.active())

    def _relocate(self, who: str) -> None:
        self._feed(self.instances[who], events.RelocateDecided("elsewhere"))

    def _can_migrate(self) -> Iterator[str]:
        return (f"migrate {one.me}" for one, state in self.active() if state.keeper)

    def _migrate(self, who: str) -> None:
        self._feed(self.instances[who], events.HandOverDecided())

    def _can_offer(self) -> Iterator[str]:
        for one, state in self.active():
            if state.keeper:
                neighbours = sorted(state.succs | state.preds)
                yield from (f"offer {one.me} {via}" for via in neighbours)

    def _offer(self, who: str, via: str) -> None:
        self._feed(self.instances[who], events.HandOverDecided(self.instances[via].me))

    def _can_end(self) -> Iterator[str]:
        for one, _ in self.active():
            if one.core.context.is_source and one.reading:
                yield f"end {one.me}"

    def _end(self, who: str) -> None:
        self.ending = True
        self.instances[who].reading = False
        self._feed(self.instances[who], events.InputEnded())

    def _can_spawned(self) -> Iterator[str]:
        for one in self.living():
            if one.wants:
                ways = SHARES if groups_of(_owned(one)) else SHARES[:1]
                yield from (f"spawned {one.me} {share}" for share in ways)

    def _spawned(self, who: str, share: str) -> None:
        """The processes asked for are there, unless there is no room for so many."""
        one = self.instances[who]
        n, one.wants = one.wants, 0
        if len(list(self.living())) + n > INSTANCES_MAX:
            self._feed(one, events.SpawnFailed("no room"))
            return
        mine = [i for i in self.instances.values() if i.me.operator == one.me.operator]
        new = [InstanceId(one.me.operator, len(mine) + i, creator=one.me.number) for i in range(n)]
        for child in new:
            self._create(child)
        groups = sorted(groups_of(_owned(one)))[: {"none": 0, "one": 1, "all": None}[share]]
        moved = tuple((g, new[i % n]) for i, g in enumerate(groups))
        self._feed(one, events.ChildrenReady(frozenset(new), moved))

    def _can_fail(self) -> Iterator[str]:
        return (f"fail {one.me}" for one in self.living() if one.wants)

    def _fail(self, who: str) -> None:
        self.instances[who].wants = 0
        self._feed(self.instances[who], events.SpawnFailed("too slow"))

    # -- acts: data --------------------------------------------------------------------------

    def _can_read(self) -> Iterator[str]:
        for one, _ in self.active():
            source = one.core.context.is_source and one.working and one.reading
            if source and one.holds < HELD_MAX:
                yield from (f"read {one.me} {n}" for n in (1, 3))

    def _read(self, who: str, n: str) -> None:
        one = self.instances[who]
        numbers = range(self._next, self._next + int(n))
        self._next += int(n)
        self.read_by.setdefault(one.me.operator, Counter()).update(numbers)
        self._hold(one, [one.keys.place(number, str(one.me)) for number in numbers])

    def _can_process(self) -> Iterator[str]:
        for one in self.living():
            if one.queue and one.working and one.holds < HELD_MAX:
                yield f"process {one.me}"

    def _process(self, who: str) -> None:
        one = self.instances[who]
        sender, batch = one.queue.popleft()
        keyed = one.me.operator in self.keyed
        self._done_with(one, one.keys.take(batch) if keyed else batch)
        self._give_back(sender, one.me, len(batch))

    def _give_back(self, sender: InstanceId, me: InstanceId, tuples: int) -> None:
        """Credit, for tuples that are out of the queue, whether or not they are processed yet."""
        end = self.line(sender, me).ends[me]
        end.grant.done(tuples, tuples)
        end.owes = end.owes or end.grant.worth_stating

    def _can_ship(self) -> Iterator[str]:
        for one in self.living():
            for to in sorted(one.view):
                if self._held_for(one, to) and self._open(one.me, to):
                    yield from (f"ship {one.me} {to} {n}" for n in (1, 2))

    def _held_for(self, one: Instance, to: InstanceId) -> Batch:
        held = one.held.get(to.operator, deque())
        if to.operator in self.keyed:
            return those_for(to, one.routes[to.operator], held)
        return list(held)

    def _open(self, me: InstanceId, to: InstanceId) -> bool:
        return self.line(me, to).ends[me].allowance.open

    def _ship(self, who: str, to_whom: str, n: str) -> None:
        one, to = self.instances[who], self.instances[to_whom].me
        batch = self._held_for(one, to)[: int(n)]
        take_out(one.held[to.operator], batch)
        self._feed(one, events.BatchReady(to, len(batch)), batch)

    def _can_drained(self) -> Iterator[str]:
        for one in self.living():
            if one.asked and not one.queue and not one.holds and one.keys.idle:
                yield f"drained {one.me}"

    def _drained(self, who: str) -> None:
        one = self.instances[who]
        one.asked = False
        self._feed(one, events.Drained())

    # -- acts: key groups --------------------------------------------------------------------

    def _can_frozen(self) -> Iterator[str]:
        for one in self.living():
            held = held_of(one.held.values(), one.keys.frozen)
            if one.keys.freezing and next(held, None) is None:
                yield f"frozen {one.me}"

    def _frozen(self, who: str) -> None:
        one = self.instances[who]
        one.keys.freezing = False
        self._feed(one, events.GroupsFrozen())

    def _can_transfer(self) -> Iterator[str]:
        for one in self.living():
            yield from (f"transfer {one.me} {to}" for to in one.keys.outgoing)

    def _transfer(self, who: str, to_whom: str) -> None:
        one, to = self.instances[who], self.instances[to_whom].me
        groups = one.keys.outgoing[to]
        self.line(one.me, to).send(one.me, one.keys.export(to, one.queue))
        for place, (sender, batch) in enumerate(one.queue):
            rest = [item for item in batch if item.group not in groups]
            one.queue[place] = (sender, rest)
            self._give_back(sender, one.me, len(batch) - len(rest))
        one.queue = deque(entry for entry in one.queue if entry[1])
        self._feed(one, events.GroupsTransferred(to))

    # -- acts: channels ----------------------------------------------------------------------

    def _can_deliver(self) -> Iterator[str]:
        for line in self.lines.values():
            if line.clogged:
                continue
            for receiver in (line.dialer, line.listener):
                for wire in line.readable(receiver):
                    yield f"deliver {line.peer_of(receiver)}>{receiver} {wire}"

    def _deliver(self, way: str, wire: str) -> None:
        sender, receiver = (self.instances[name] for name in way.split(">"))
        payload = self.line(sender.me, receiver.me).read(receiver.me, int(wire))
        if isinstance(payload, GroupState):
            receiver.keys.put_in(sender.me, payload)
        elif isinstance(payload, list):
            if self._watches(receiver):
                receiver.keys.watch(payload)
            self._feed(receiver, events.BatchReceived(sender.me, len(payload)), payload)
        elif payload is not None:
            message: Message = payload
            self._feed(receiver, events.MessageReceived(sender.me, message))

    def _watches(self, one: Instance) -> bool:
        """Whether what comes in has an order; until it leaves, for then it can be overtaken."""
        upstream = self.topology.upstream(one.me.operator)
        behind = one.me.operator not in self.keyed and set(upstream) & set(self.keyed)
        return bool(behind) and isinstance(one.core.state, Idle | Active)

    def _named(self, name: str) -> Line:
        x, y = (self.instances[n].me for n in name.split("-"))
        return self.line(x, y)

    def _can_state(self) -> Iterator[str]:
        for line in self.lines.values():
            for end in line.ends.values():
                if end.owes and end.wire:
                    yield f"state {line} {end.me}"

    def _state(self, name: str, who: str) -> None:
        self._named(name).state(self.instances[who].me)

    def _can_cut(self) -> Iterator[str]:
        for line in self.lines.values():
            if not line.cut_off:
                there, back = len(line.to_listener[line.number]), len(line.to_dialer)
                for kept in {(0, 0), (there, back), (there // 2, back), (there, back // 2)}:
                    yield f"cut {line} {kept[0]} {kept[1]}"

    def _cut(self, name: str, there: str, back: str) -> None:
        self._named(name).cut(int(there), int(back))

    def _can_redial(self) -> Iterator[str]:
        return (f"redial {line}" for line in self.lines.values() if line.cut_off)

    def _redial(self, name: str) -> None:
        self._named(name).redial()

    def _can_clog(self) -> Iterator[str]:
        return (f"clog {line}" for line in self.lines.values() if not line.clogged)

    def _clog(self, name: str) -> None:
        self._named(name).clogged = True

    def _can_unclog(self) -> Iterator[str]:
        return (f"unclog {line}" for line in self.lines.values() if line.clogged)

    def _unclog(self, name: str) -> None:
        self._named(name).clogged = False

    # -- the end of a run --------------------------------------------------------------------

    def settle(self) -> None:
        """Heal everything, let the network drain, and see that nothing is lost, doubled or
        waiting; then end the input, and see that everybody ends."""
        self._run_dry()
        check_rest(self)
        while sources := self.acts("end"):
            for text in sources:
                self.act(text)
            self._run_dry()
        stay = [str(one.me) for one in self.living()]
        assert not stay, f"L1: the stream has ended, but these have not: {stay}"
        check_tuples(self)
        check_channels(self)

    def _run_dry(self) -> None:
        """Everything that must happen, until nothing is left to do (L3: within a bound)."""
        must = [kind for kind in ROUTINE if kind != "read"]
        for _ in range(100_000):
            for kind in must:
                if texts := self.acts(kind):
                    self.act(texts[0])
                    break
            else:
                return
        raise AssertionError("L3: it does not come to rest")


def _owned(one: Instance) -> Routes:
    state = one.core.state
    return state.owned if isinstance(state, Active) else ()
