"""Looks at all cores of a world at once, event by event: what no instance can see by itself.

It checks the invariants that are about two instances (I1, I6, I7, K5 of `docs/protocol.md` 2.7) and
the bounds of scales (B1, B2), and writes the exchange down if it is asked to.

An instance whose process has died is what its journal contains, which is seen when the next
incarnation begins. Until then it counts for no invariant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from anabranch.protocol import invariants
from anabranch.protocol.core import Core
from anabranch.protocol.effects import Conclude, Effect, SendMessage, Terminate, Veto
from anabranch.protocol.events import BatchReady, BatchReceived, ChildrenReady, Event
from anabranch.protocol.ids import InstanceId, Topology
from anabranch.protocol.messages import Start
from anabranch.protocol.ownership import groups_of
from anabranch.protocol.rules.leave import is_leaving
from anabranch.protocol.states import (
    Active,
    ClosingIn,
    ClosingOut,
    Draining,
    Finished,
    Gone,
    Idle,
    State,
    waiting_for,
)
from anabranch.protocol.table import describe
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.reporting.wording import condition, tell, tell_sent
from anabranch.runtime.world.credit_watch import CreditWatch
from anabranch.runtime.world.event_time import lagging
from anabranch.runtime.world.processes import WorldProcess, this_process


@dataclass(frozen=True, slots=True)
class StoryRow:
    """One event at one instance, or something that happened to the world (`actor` is empty).

    `cause`: the event, at the sender, that a message came from, as `a.1#7`; `name`: of this one.
    """

    at_s: float
    actor: str
    text: str
    sends: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    name: str = ""
    cause: str = ""
    data: bool = False

    def __str__(self) -> str:
        if not self.actor:
            return f"{self.at_s:10.5f}  ** {self.text}"
        state = self.after if self.before == self.after else f"{self.before}->{self.after}"
        sent = "".join(f"; {s}" for s in self.sends)
        return f"{self.at_s:10.5f}  {self.actor} {self.text}{sent}  [{state}]"


class Observer:
    """`faults`: what was wrong, as sentences. `rows`: the exchange, if it is `written`.
    `done`: operations that have come to their end, by their outcomes, and vetoes."""

    def __init__(
        self, operators: Mapping[str, Operator], topology: Topology, *, groups: int, written: bool
    ) -> None:
        self.faults: list[str] = []
        self.rows: list[StoryRow] = []
        self.written = written
        self.events = 0
        self.on_step: Callable[[WorldProcess], None] = lambda process: None
        """Called when an operation on the graph begins, goes on, or ends in a process."""
        self.done: Counter[str] = Counter()
        self.given_up: set[WorldProcess] = set()
        """On hosts that were given up: others take their places."""
        self._operators = operators
        self._topology = topology
        self._groups = groups
        self._states: dict[InstanceId, State] = {}
        self._processes: dict[InstanceId, WorldProcess] = {}
        self._begun: set[InstanceId] = set()
        """Those that have been active."""
        self._started: set[InstanceId] = set()
        """To which START was sent."""
        self._replaced: set[InstanceId] = set()
        """Whose place a newcomer takes."""

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Meanwhile, the cores of this process."""
        right = Core.handle

        def handle(core: Core, event: Event, now: float, cause: str = "") -> tuple[Effect, ...]:
            before = core.state
            done = right(core, event, now, cause)
            self._see(core, event, before, done, cause)
            return done

        name = "handle"
        setattr(Core, name, handle)
        try:
            with CreditWatch(self.faults).observing():
                yield
        finally:
            setattr(Core, name, right)

    def remark(self, at_s: float, text: str) -> None:
        if self.written:
            self.rows.append(StoryRow(at_s, "", text))

    def is_busy(self, process: WorldProcess) -> bool:
        """Whether the instance is in the middle of an operation."""
        found = [me for me, one in self._processes.items() if one is process]
        return any(_is_busy(self._states[me]) for me in found)

    def go_on_with(self, operators: Mapping[str, Operator]) -> None:
        """Another run begins, whose instances are others by the same names."""
        self._operators = operators
        self._states.clear()
        self._processes.clear()
        for some in (self._begun, self._started, self._replaced):
            some.clear()

    # -- while it goes on ----------------------------------------------------------------------

    def _see(
        self, core: Core, event: Event, before: State, done: tuple[Effect, ...], cause: str
    ) -> None:
        me, process = core.me, this_process()
        self.events += 1
        for effect in done:
            if isinstance(effect, Conclude | Veto):
                self.done["veto" if isinstance(effect, Veto) else effect.outcome] += 1
            if isinstance(effect, SendMessage) and isinstance(effect.message, Start):
                self._started.add(effect.to)
        if isinstance(event, ChildrenReady) and is_leaving(core.state):
            self._replaced.add(me)
            self.done["relocated"] += 1
        if self.written:
            self._write(core, process.loop.timeline.now, event, before, done, cause)
        if core.state is before and me in self._states and self._processes[me] is process:
            return
        if process in self.given_up:
            return  # what it does counts no more, or soon
        former = self._processes.get(me, process)
        if former is not process and not former.ended and former not in self.given_up:
            self.faults.append(f"two incarnations of {me} act together")
        self._states[me], self._processes[me] = core.state, process
        if isinstance(core.state, Active):
            self._begun.add(me)
        if not isinstance(event, BatchReady | BatchReceived):
            self.on_step(process)
        if self.faults:
            return
        for sentence in (*self._broken_around(me), *self._out_of_bounds(me, before)):
            self.faults.append(f"{sentence}, after {condition(before)} {tell(event)}")

    def _broken_around(self, me: InstanceId) -> Iterator[str]:
        mine = self._states[me]
        for other, state in self._known():
            if other != me:
                yield from invariants.broken_between(me, mine, other, state)
                yield from invariants.broken_between(other, state, me, mine)

    def _known(self) -> Iterator[tuple[InstanceId, State]]:
        for me, state in self._states.items():
            process = self._processes[me]
            if isinstance(state, Gone) or not (process.ended or process in self.given_up):
                yield me, state

    def _out_of_bounds(self, me: InstanceId, before: State) -> Iterator[str]:
        """B1 and B2: how many instances stay, and how many there are."""
        scale, state = self._operators[me.operator].scale, self._states[me]
        if scale is None:
            return
        siblings = {x: s for x, s in self._states.items() if x.operator == me.operator}
        active = sum(isinstance(s, Active) and x not in self._replaced for x, s in siblings.items())
        coming = {x for x in self._started - self._begun if x.operator == me.operator}
        stay = sum(stays(s, has_begun=x in self._begun) for x, s in siblings.items())
        leaves = isinstance(before, Active) and isinstance(state, ClosingIn | Draining | ClosingOut)
        ends = any(map(is_finished, siblings.values()))
        if leaves and not ends and stay + len(coming) < scale.min_instances:
            yield f"B1: {me} leaves, and only {stay + len(coming)} of {scale.min_instances} stay"
        if isinstance(state, Active) and active > scale.max_instances:
            yield f"B2: {me.operator} has {active} instances, {scale.max_instances} at most"

    def _write(
        self,
        core: Core,
        at_s: float,
        event: Event,
        before: State,
        done: tuple[Effect, ...],
        cause: str,
    ) -> None:
        is_data = isinstance(event, BatchReceived | BatchReady)
        ends = [f"ends ({e.reason})" for e in done if isinstance(e, Terminate)]
        vetoes = [f"may not: {e.reason}" for e in done if isinstance(e, Veto)]
        self.rows.append(
            StoryRow(
                at_s,
                str(core.me),
                tell(event),
                (*tell_sent(done), *ends, *vetoes),
                condition(before),
                condition(core.state),
                "" if is_data else core.last_event,
                cause,
                is_data,
            )
        )

    # -- at rest -------------------------------------------------------------------------------

    def at_rest(self, living: Iterable[InstanceId]) -> Iterator[str]:
        """What is wrong with a world in which nothing has gone wrong for long, and whose input has
        not ended. `living`: instances that have a process."""
        states = dict(self._known())
        for me in sorted({*living} - {me for me, s in states.items() if not isinstance(s, Idle)}):
            yield f"L1: {me} waits for its START for ever"
        for me, state in sorted(self._states.items()):
            if me not in states and not isinstance(state, Idle):
                yield f"L1: {me} is dead for ever"
            elif not isinstance(state, Gone | Idle) and _is_busy(state):
                awaited = ", ".join(map(str, sorted(waiting_for(state))))
                yield f"L1: {me} is {describe(state)} for ever, waiting for {{{awaited}}}"
        yield from invariants.broken_in(self._topology, states)
        active = {me: s for me, s in states.items() if isinstance(s, Active)}
        for me, state in active.items():
            below = self._topology.downstream(me.operator)
            succs = frozenset(y for y in active if y.operator in below)
            above = (y for y in active if me.operator in self._topology.downstream(y.operator))
            preds = frozenset(above)
            if (state.succs, state.preds) != (succs, preds):
                yield f"S4: the view of {me} is not that of the whole graph"
        for name, operator in self._operators.items():
            if operator.keyed is not None:
                yield from self._owners(name, active)
        yield from lagging(active, self._processes)

    def _owners(self, name: str, active: Mapping[InstanceId, Active]) -> Iterator[str]:
        """K6 and K7: every group has one owner, and all senders have it in their routes."""
        owners: dict[int, InstanceId] = {}
        for me, state in active.items():
            if me.operator == name:
                owners.update(dict.fromkeys(groups_of(state.owned), me))
        if sorted(owners) != list(range(self._groups)):
            yield f"K6: of {self._groups} key groups of {name} only {sorted(owners)} have an owner"
        for me, state in active.items():
            if name in self._topology.downstream(me.operator):
                known = {r.group: r.owner for r in state.routes if r.owner.operator == name}
                if known != owners:
                    yield f"K7: {me} knows other owners of key groups of {name}"


def _is_busy(state: State) -> bool:
    if isinstance(state, Active):
        return bool(state.own or state.expects)
    return not isinstance(state, Gone)


def stays(state: State, *, has_begun: bool) -> bool:
    """Whether it counts where the least number matters. A next incarnation that has no record of
    its START gets it again."""
    return isinstance(state, Active) or (isinstance(state, Idle) and has_begun)


def is_finished(state: State) -> bool:
    """The stream has ended for it; a sink is gone at once then."""
    return isinstance(state, Finished) or (isinstance(state, Gone) and state.reason == "finished")
