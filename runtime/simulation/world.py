"""A simulated world: hosts, paths between them, instances, and what is watched over all of them.

Everything random is drawn from one generator, so the seed and the settings are the world.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from anabranch.protocol import events, invariants
from anabranch.protocol.effects import Effect
from anabranch.protocol.events import Event
from anabranch.protocol.ids import InstanceId, OperatorName, Topology
from anabranch.protocol.limits import Limits
from anabranch.protocol.ownership import (
    Assignment,
    Group,
    Routes,
    belonging_to,
    founding,
    groups_of,
    leading_to,
)
from anabranch.protocol.states import Active, ClosingIn, Draining, Finished, State
from anabranch.protocol.table import TABLE, Cell
from anabranch.runtime.keyed.placement import balanced, flux
from anabranch.runtime.measuring.latency import LatencyCounts
from anabranch.runtime.policies.bounds import leaves, places
from anabranch.runtime.simulation.board import Board
from anabranch.runtime.simulation.channel import Channel, Items
from anabranch.runtime.simulation.clock import Clock
from anabranch.runtime.simulation.controllers import Controllers
from anabranch.runtime.simulation.fault import Fault
from anabranch.runtime.simulation.host import Host
from anabranch.runtime.simulation.instance import Instance
from anabranch.runtime.simulation.lineage import Lineage
from anabranch.runtime.simulation.links import Path
from anabranch.runtime.simulation.models import Model, Timing
from anabranch.runtime.simulation.settings import Births, Knobs, Net

Table = Mapping[tuple[type[State], type], Cell]
Watch = Callable[[Instance, Event, State, tuple[Effect, ...], str], None]
Note = Callable[[Instance, str, str], None]
Remark = Callable[[str], None]
Taken = Callable[[str, int, float], None]
"""(sink, tuples, when the oldest of them was read)"""


class Birth(NamedTuple):
    """`ready`: so many processes come up for `creator`; `reason`: why not all it has asked for."""

    creator: Instance
    ready: int
    reason: str
    heritage: dict[str, float]


class World:
    """`models` in an order in which everything upstream of an operator comes before it.

    `decides`: operators that have a scale decide by its policy. `timing`: tuples are numbered and
    have an event time, and instances state watermarks.
    `watch` is told every event of every core, `note` what instances would tell their agent, `taken`
    what sinks take.
    """

    def __init__(
        self,
        *,
        rng: random.Random,
        topology: Topology,
        models: Sequence[Model],
        hosts: Sequence[Host],
        net: Net,
        limits: Limits,
        knobs: Knobs,
        births: Births,
        boards: Mapping[str, Board],
        decides: bool = False,
        timing: Timing | None = None,
        table: Table = TABLE,
        watch: Watch | None = None,
        note: Note | None = None,
        remark: Remark | None = None,
        taken: Taken | None = None,
    ) -> None:
        self.clock = Clock()
        self.rng = rng
        self.topology = topology
        self.models = {OperatorName(m.name): m for m in models}
        self.digits = {name: 2 * i for i, name in enumerate(self.models)}
        self.upstream = {name: topology.upstream(name) for name in self.models}
        self.downstream = {name: topology.downstream(name) for name in self.models}
        self.hosts = tuple(hosts)
        self.net, self.limits, self.knobs, self.births = net, limits, knobs, births
        self.boards = boards
        self.decides = decides
        self.lineage = Lineage(self.models, timing) if timing is not None else None
        """Of worlds with event time; without it a keyed operator counts its tuples."""
        self.table = table
        self.tracing = watch is not None
        self.trace_rows = 0
        self.deadly = knobs.commit_s is not None
        """Whether processes may die, so that instances keep journals."""
        self.ticking = True
        """Whether meters and policies are looked at."""
        self.instances: dict[InstanceId, Instance] = {}
        self.of: dict[str, list[Instance]] = {name: [] for name in self.models}
        """Instances by operator, without those that have exited."""
        self.founders: Counter[str] = Counter()
        self.active: Counter[str] = Counter()
        self.living = 0
        self.messages = 0
        self.unacknowledged = 0
        """Instances that ended without knowing that their last words were heard."""
        self.noted: Counter[str] = Counter()
        self.results: dict[str, list[int]] = defaultdict(list)
        """Numbered tuples by sink."""
        self.tuples_delivered: Counter[str] = Counter()
        self.latency: dict[str, LatencyCounts] = defaultdict(LatencyCounts)
        self._numbers: Counter[str] = Counter()
        self._births: list[Birth] = []
        self._let_go: set[InstanceId] = set()
        self._paths: dict[tuple[int, int], Path] = {}
        self.controllers = Controllers(self)
        self._watch = watch
        self._note = note
        self._remark = remark
        self._taken = taken

    # -- instances -------------------------------------------------------------------------

    def found(self, counts: Mapping[str, int]) -> None:
        """Begin with so many instances of each operator; number 0 is the keeper."""
        self.founders.update(counts)
        for name in self.models:
            for _ in range(counts[name]):
                self._make(name, -1, {})
        self.controllers.begin()
        routes = [r for name in self.models for r in self._first_owners(name)]
        for me in list(self.instances.values()):
            below = self.downstream[me.me.operator]
            succs = frozenset(y.me for d in below for y in self.of[d])
            preds = frozenset(y.me for u in me.upstream for y in self.of[u])
            keeper = me.me.number == 0
            if me.progress is not None:
                me.progress.begin(preds, -math.inf)
            downward, owned = leading_to(routes, below), belonging_to(routes, me.me)
            me.feed(events.Founded(succs, preds, keeper, downward, owned))
        for me in self.instances.values():
            if me.journal is not None:
                me.journal.commit()

    def _first_owners(self, name: OperatorName) -> Routes:
        keys = self.models[name].keyed
        return founding(name, [y.me for y in self.of[name]], keys.groups) if keys else ()

    def _make(self, operator: OperatorName, creator: int, heritage: dict[str, float]) -> Instance:
        number = self._numbers[operator]
        self._numbers[operator] += 1
        host = self.hosts[int(self.rng.random() * len(self.hosts))]
        me = InstanceId(operator, number, creator)
        made = self.instances[me] = Instance(self, me, host, heritage)
        self.of[operator].append(made)
        self.living += 1
        return made

    def spawn(self, creator: Instance, n: int) -> None:
        """`createNode()`: processes that come up in a while, all of them, fewer, or none."""
        births, chance = self.births, self.rng.random()
        operator = creator.me.operator
        scale = self.models[operator].scale
        granted, bound = n, ""
        if scale is not None:
            granted, bound = places(n, self.living_of(operator), operator, scale)
        delay_s = births.ready_s * (1 + self.rng.random())
        if self.rng.random() < births.slow:
            delay_s = births.slow_s
        ready, reason = granted, bound
        if chance < births.failing:
            ready, reason = 0, "not ready within the deadline"
        elif chance < births.failing + births.few:
            ready, reason = granted // 2, "not all were ready within the deadline"
        if not granted:
            delay_s = 0.0  # refused at once
        if bound:
            self.note(creator, "limited", bound)
        birth = Birth(creator, ready, reason, creator.scaling.heritage(n))
        self._births.append(birth)
        creator.clock.after(delay_s, self._born, birth)

    def may_leave(self, me: Instance) -> tuple[bool, str]:
        """What the agent answers: whether enough siblings stay of those it has not let go."""
        operator = me.me.operator
        others = (x for x in self.of[operator] if x is not me and x.counted)
        staying = sum(x.me not in self._let_go for x in others)
        granted, reason = leaves(staying, operator, me.model.scale)
        self.let_go(me, granted)
        return granted, reason

    def let_go(self, me: Instance, leaving: bool) -> None:
        self._let_go = self._let_go | {me.me} if leaving else self._let_go - {me.me}

    def living_of(self, operator: OperatorName) -> int:
        """Those that have not left yet and those under way. What an incarnation that has died has
        asked for will not come."""
        self._births = [b for b in self._births if b.creator is self.instances.get(b.creator.me)]
        coming = (b.ready for b in self._births if b.creator.me.operator == operator)
        return len(self.of[operator]) + sum(coming)

    def _born(self, birth: Birth) -> None:
        creator, n, reason, heritage = birth
        self._births.remove(birth)
        n = min(n, self.births.instances_max - self.living)
        if n <= 0:
            creator.feed(events.SpawnFailed(reason or "no room"))
            return
        operator, number = creator.me.operator, creator.me.number
        new = [self._make(operator, number, heritage).me for _ in range(n)]
        creator.feed(events.ChildrenReady(frozenset(new), self._share(creator, new)))

    def _share(self, creator: Instance, new: list[InstanceId]) -> Assignment:
        """Key groups for newcomers."""
        state = creator.core.state
        if creator.model.keyed is None or not isinstance(state, Active):
            return ()
        shares = self._shares(creator, groups_of(state.owned), len(new))
        return tuple((g, x) for x, share in zip(new, shares, strict=True) for g in sorted(share))

    def _shares(
        self, creator: Instance, groups: frozenset[Group], receivers: int
    ) -> list[set[Group]]:
        """By what the groups have seen, in one of two ways; some world moves the most it can."""
        loads = self.loads_of(creator, groups)
        if self.lineage is None:
            return balanced(loads, receivers)
        match self.rng.randrange(3):
            case 0:
                return balanced(loads, receivers)
            case 1:
                return flux(loads, receivers, 0.2)
            case _:
                return [set(sorted(groups)[i::receivers]) for i in range(receivers)]

    def loads_of(self, me: Instance, groups: frozenset[Group]) -> dict[Group, float]:
        """What an owner knows of the load of its groups."""
        keys = me.model.keyed
        if keys is None:
            return {}
        if self.lineage is None:
            return {g: keys.weight_of(g) for g in sorted(groups)}
        states = me.keyed.states
        return {g: float(len(states[g].folded)) if g in states else 0.0 for g in sorted(groups)}

    def path(self, a: Instance, b: Instance) -> Path:
        key = (a.host.number, b.host.number)
        path = self._paths.get(key)
        if path is None:
            net = self.net
            factor = net.spread ** (2 * self.rng.random() - 1)
            latency_s = net.local_s if a.host is b.host else net.latency_s * factor
            path = self._paths[key] = Path(
                self.rng, latency_s, net.jitter, net.straggling, net.tuples_per_s
            )
        return path

    @property
    def paths(self) -> list[Path]:
        return list(self._paths.values())

    def knock(self, knock: tuple[Channel, int]) -> None:
        """An instance dials another one, whose present incarnation gets it."""
        self.instances[knock[0].peer].neighbours.knocked(knock)

    # -- incarnations -----------------------------------------------------------------------------

    def replace(self, old: Instance, new: Instance) -> None:
        """A new incarnation of an instance takes the place of the last one."""
        self.instances[new.me] = new
        of = self.of[new.me.operator]
        of[of.index(old)] = new
        self.active[new.me.operator] += new.counted - old.counted

    def discard(self, child: Instance) -> None:
        """A process that no instance knows of."""
        del self.instances[child.me]
        self.of[child.me.operator].remove(child)
        self.living -= 1

    # -- what instances tell ---------------------------------------------------------------

    def began(self, me: Instance) -> None:
        self.active[me.me.operator] += 1
        me.counted = True
        self.note(me, "began")

    def exited(self, me: Instance) -> None:
        self.of[me.me.operator].remove(me)
        self.living -= 1
        self.note(me, "exited")

    def note(self, me: Instance, kind: str, detail: str = "") -> None:
        self.noted[kind] += 1
        if kind in ("leaving", "finished") and me.counted:
            self.active[me.me.operator] -= 1
            me.counted = False
        if self._note is not None:
            self._note(me, kind, detail)

    def remark(self, text: str) -> None:
        """Something that happens to the world, for readers of its story."""
        self.noted["remark"] += 1
        if self._remark is not None:
            self._remark(text)

    def delivered(self, me: Instance, tuples: int, born_s: float, items: Items) -> None:
        """A sink has taken tuples."""
        operator = me.me.operator
        self.tuples_delivered[operator] += tuples
        if self._taken is not None:
            self._taken(operator, tuples, born_s)
        if items is None:
            self.latency[operator].record(1000 * (self.clock.now - born_s), tuples)
        else:
            self.results[operator] += items

    def end_input(self) -> None:
        """Nothing is added to any source's input any more."""
        for name, board in self.boards.items():
            board.closed = True
            for me in list(self.of[name]):
                if me.awake:
                    me.clock.after(0.0, me.kick) if self.deadly else me.work.kick()

    # -- what is watched -------------------------------------------------------------------

    def observe(
        self, me: Instance, event: Event, before: State, done: tuple[Effect, ...], cause: str
    ) -> None:
        """An event has been handled; its effects have not been performed yet."""
        if self._watch is not None:
            self._watch(me, event, before, done, cause)
        after = me.core.state
        if after is not before:
            self.check_views(me)
            if isinstance(before, Active) and isinstance(after, ClosingIn | Draining):
                self._check_who_stays(me)
            if me.model.keyed is not None:
                self._check_owners(me, before, after)
            if invariants.keeps(before) and not invariants.keeps(after):
                self._check_keeper(me.me.operator)

    def check_views(self, x: Instance) -> None:
        """I1, I6, I7 between `x`, which has changed, and all others.

        Two that count each other break none of them, so only the other pairs go to the judge.
        """
        me = x.me
        for y in x.succs:
            if me not in self.instances[y].preds:
                self._judge(x, self.instances[y])
        for y in x.preds:
            if me not in self.instances[y].succs:
                self._judge(x, self.instances[y])
        for name in x.upstream:
            for z in self.of[name]:
                if me in z.succs and z.me not in x.preds:
                    self._judge(z, x)
        for name in self.downstream[me.operator]:
            for z in self.of[name]:
                if me in z.preds and z.me not in x.succs:
                    self._judge(z, x)

    def _check_who_stays(self, me: Instance) -> None:
        """At least `min_instances`, those included that have gone at the end of the stream."""
        scale, operator = me.model.scale, me.me.operator
        siblings = (x for x in self.instances.values() if x.me.operator == operator)
        stay = sum(isinstance(x.core.state, Active | Finished) or x.finished for x in siblings)
        if scale is not None and stay < scale.min_instances:
            raise Fault(
                f"B1: {me.me} leaves, and {stay} of {operator} stay, not {scale.min_instances}"
            )

    def _check_owners(self, me: Instance, before: State, after: State) -> None:
        """K4 and K5."""
        if isinstance(after, ClosingIn | Draining) and isinstance(before, Active) and before.owned:
            raise Fault(f"K4: {me.me} leaves with key groups {sorted(groups_of(before.owned))}")
        if isinstance(after, Active) and after.owned != getattr(before, "owned", ()):
            for sibling in self.of[me.me.operator]:
                if sibling is not me:
                    self._judge(min(me, sibling, key=_id), max(me, sibling, key=_id))

    def _judge(self, x: Instance, y: Instance) -> None:
        for sentence in invariants.broken_between(x.me, x.core.state, y.me, y.core.state):
            raise Fault(sentence)

    def _check_keeper(self, operator: str) -> None:
        all_ = self.instances.values()
        if not any(invariants.keeps(i.core.state) for i in all_ if i.me.operator == operator):
            raise Fault(f"I5: operator {operator} has no active keeper")


def _id(me: Instance) -> InstanceId:
    return me.me
