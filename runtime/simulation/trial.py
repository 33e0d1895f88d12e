"""One seed: a world in trouble, then healed, then ended; and what is to be said of it.

Safety first: decisions, load and faults, with invariants watched all the time. Then all faults
end, no instance decides, and everything must come to rest within a bound. Then the input ends, and
all instances must end. (In some worlds the input ends amid the faults.)
"""

from __future__ import annotations

import random
import traceback
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import chain

from anabranch.protocol import events
from anabranch.protocol.errors import AnabranchProtocolError
from anabranch.protocol.ids import InstanceId, Topology
from anabranch.protocol.states import Active
from anabranch.protocol.table import TABLE
from anabranch.runtime.simulation import audit
from anabranch.runtime.simulation.board import Board
from anabranch.runtime.simulation.fault import Fault
from anabranch.runtime.simulation.happenings import Decision
from anabranch.runtime.simulation.host import Host
from anabranch.runtime.simulation.instance import Instance
from anabranch.runtime.simulation.keyed_work import KeyedWork
from anabranch.runtime.simulation.models import BASE
from anabranch.runtime.simulation.scene import Scene
from anabranch.runtime.simulation.troubles import Troubles, picked
from anabranch.runtime.simulation.world import Remark, Table, Watch, World

EVENTS_MAX = {"small": 60_000, "large": 6_000_000}
"""More than that is a world that never comes to rest."""
CONVERGENCE_S = {"small": 120.0, "large": 3600.0}
"""Within so much virtual time a healed world is at rest; large ones may have much to catch up."""


class Verdict(Enum):
    """`UNKNOWN`: nothing moved, or nothing scaled, so nothing is proved."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a seed. `reason`: why it is not valid. `events`: things that happened.
    `moves`: key groups given to a new owner. `handed`: tuples that went from sibling to sibling.
    `deaths`: of processes, each of which is resumed. `fingerprint`: equal for equal runs, in every
    process."""

    seed: int
    verdict: Verdict
    reason: str
    at_s: float
    events: int
    messages: int
    tuples: int
    joins: int
    leaves: int
    hand_overs: int
    moves: int
    handed: int
    troubles: int
    deaths: int
    fingerprint: int


class Trial:
    def __init__(
        self,
        scene: Scene,
        *,
        table: Table = TABLE,
        watch: Watch | None = None,
        remark: Remark | None = None,
    ) -> None:
        self.scene = scene
        self.world = world_of(scene, table, watch, remark)
        self.troubles = Troubles(self.world)
        self._events_left = EVENTS_MAX[scene.size]

    def run(self) -> Outcome:
        try:
            found = next(self._faults(), "")
        except Fault as fault:
            found = str(fault)
        except AnabranchProtocolError as error:
            found = f"{type(error).__name__}: {error.what}"
        except Exception as error:  # whatever crashes a driver is a finding too
            where = traceback.extract_tb(error.__traceback__)[-1]
            found = f"crash: {error!r} in {where.name}, line {where.lineno} of {where.filename}"
        return self._outcome(found)

    def _faults(self) -> Iterator[str]:
        world, scene = self.world, self.scene
        world.found(scene.counts)
        for decision in scene.decisions:
            world.clock.at(decision.at_s, self._decide, decision)
        for trouble in scene.troubles:
            world.clock.at(trouble.at_s, self.troubles.make, trouble)
        yield from self._go_on(scene.safety_s)
        world.remark("healed: no trouble and no decisions from now on")
        self.troubles.heal()
        world.ticking = False
        yield from self._rest()
        if not scene.ends:
            yield from audit.at_rest(world)
            world.remark("the input ends")
            world.end_input()
            yield from self._rest()
        yield from chain(audit.all_gone(world), audit.tuples(world))

    def _go_on(self, until_s: float) -> Iterator[str]:
        clock, done = self.world.clock, self.world.clock.done
        if not clock.run(until_s=until_s, events_max=self._events_left):
            yield "L3: it goes on and on"
        self._events_left -= clock.done - done

    def _rest(self) -> Iterator[str]:
        bound_s = CONVERGENCE_S[self.scene.size]
        yield from self._go_on(self.world.clock.now + bound_s)
        if not self.world.clock.idle:
            yield f"L3: not at rest after {bound_s:.0f} s without trouble"

    def _decide(self, decision: Decision) -> None:
        able = [i for i in self.world.of[decision.operator] if _may_decide(i)]
        if decision.fit and decision.action == "move":
            able = [i for i in able if isinstance(i.work, KeyedWork) and i.work.states]
        elif decision.fit and decision.action != "duplicate":
            able = [i for i in able if _is_keeper(i) == (decision.action == "hand_over")]
        me = picked(able, decision.whom)
        if me is None:
            return
        match decision.action:
            case "duplicate":
                me.decide(events.DuplicateDecided(decision.n))
            case "leave":
                me.departure.decide(_leave(me, decision))
            case "move":
                owned = sorted(work.states) if isinstance(work := me.work, KeyedWork) else []
                via, draw = _asked(me, decision)
                me.decide(events.MoveDecided(frozenset(owned[: decision.n]), via, draw))
            case "hand_over":
                around = sorted(me.succs | me.preds) if decision.n == 1 else []
                me.decide(events.HandOverDecided(picked(around, decision.whom)))

    def _outcome(self, found: str) -> Outcome:
        world, noted = self.world, self.world.noted
        joins = sum(i.joins for i in world.instances.values())
        leaves, hand_overs, moves = noted["left"], noted["handed_over"], noted["moved"]
        tuples = world.tuples_delivered.total()
        verdict, reason = Verdict.VALID, found
        if found:
            verdict = Verdict.INVALID
        elif not tuples:
            verdict, reason = Verdict.UNKNOWN, "no tuple was delivered"
        elif not joins + leaves + hand_overs + moves:
            verdict, reason = Verdict.UNKNOWN, "nothing scaled"
        figures = (world.clock.now, world.clock.done, world.messages, sorted(noted.items()))
        return Outcome(
            seed=self.scene.seed,
            verdict=verdict,
            reason=reason,
            at_s=world.clock.now,
            events=world.clock.done,
            messages=world.messages,
            tuples=tuples,
            joins=joins,
            leaves=leaves,
            hand_overs=hand_overs,
            moves=moves,
            handed=sum(i.work.handed_in for i in world.instances.values()),
            troubles=self.troubles.made,
            deaths=self.troubles.deaths.died,
            fingerprint=zlib.crc32(repr((figures, sorted(world.results.items()))).encode()),
        )


def _leave(me: Instance, decision: Decision) -> events.LeaveDecided:
    return events.LeaveDecided(*_asked(me, decision)) if me.model.keyed else events.LeaveDecided()


def _asked(me: Instance, decision: Decision) -> tuple[InstanceId | None, int]:
    """The neighbour that is to name a new owner, and which of those that it sees."""
    share = 7919 * decision.whom % 1
    return picked(sorted(me.succs | me.preds), share), int(1000 * share)


def _may_decide(me: Instance) -> bool:
    alive = me.awake and me.stopped_until_s <= me.clock.now
    return alive and isinstance(me.core.state, Active)


def _is_keeper(me: Instance) -> bool:
    state = me.core.state
    return isinstance(state, Active) and state.keeper


def world_of(scene: Scene, table: Table, watch: Watch | None, remark: Remark | None) -> World:
    sources = scene.sources
    first = BASE**3 if scene.timing else 0
    """Where keys are drawn of tuples, no number of a long way may be that of a short one."""
    boards = {
        name: Board(
            [t for t, _ in arrivals],
            [n for _, n in arrivals],
            (first + sources.index(name), len(sources)) if scene.numbered else None,
            closed=scene.ends,
        )
        for name, arrivals in scene.arrivals.items()
    }
    return World(
        rng=random.Random(f"world {scene.seed}"),
        topology=Topology.of(scene.edges),
        models=scene.models,
        hosts=[Host(i, speed, cores) for i, (speed, cores) in enumerate(scene.hosts)],
        net=scene.net,
        limits=scene.limits,
        knobs=scene.knobs,
        births=scene.births,
        boards=boards,
        decides=scene.policy,
        timing=scene.timing,
        table=table,
        watch=watch,
        remark=remark,
    )
