"""The invariants of `protocol.md` 2.7 by their numbers.

I1  Nobody in succs (until Draining) or in preds (Active) has terminated.
I2  succs has a member of each downstream operator until EOS is sent.
I3  No tuple arrives in Draining or later.
I4  An acknowledgement comes only from an awaited id; at most one own operation, none while leaving.
I5  A keeper is Active (or Finished); every operator has an Active keeper until it finishes.
I6  y in succs(x), x not past Draining  =>  y is Idle or x in preds(y).
I7  x in preds(y), y Active             =>  x is Idle or y in succs(x).
I8  The sender of a tuple is in preds (Active, ClosingIn).
I9  JOIN, LEAVE and EOS come only from an id in my views, or I am Idle.
I10 For each operator, tuples processed = tuples sent to it, at quiescence.
I11 At termination queue, awaited set and unacknowledged session frames are empty.
I12 Session sequence numbers are contiguous.

I3, I4, I8 and I9 are checked where the input comes in (`table`, `rules`), I12 in `session`, I10
in the ledger. Here are I2 for one instance, which every instance asserts after each change of its
view, and those that need an observer who sees all instances at one moment: the explorer and the
simulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anabranch.protocol.ids import InstanceId, Topology
from anabranch.protocol.rules.context import Context
from anabranch.protocol.states import (
    Active,
    ClosingIn,
    Draining,
    Finished,
    Gone,
    Idle,
    State,
    preds_of,
    succs_of,
)

World = Mapping[InstanceId, State]
"""Every instance that has ever existed, with its state now."""


def broken_at(ctx: Context, state: State) -> str | None:
    """The first local invariant that does not hold, as a sentence, or None."""
    if isinstance(state, Active | ClosingIn | Draining):
        served = {y.operator for y in state.succs}
        for operator in ctx.topology.downstream(ctx.me.operator):
            if operator not in served:
                return f"I2: {ctx.me} has no successor of operator {operator}"
    return None


def broken_in(topology: Topology, world: World) -> Iterator[str]:
    """Every invariant that does not hold in a world, as sentences."""
    for x, state in sorted(world.items()):
        if sentence := broken_at(Context(x, topology), state):
            yield sentence
        yield from _neighbours_live(x, state, world)
        yield from _views_agree(x, state, world)
    yield from _keepers(topology, world)


def _neighbours_live(x: InstanceId, state: State, world: World) -> Iterator[str]:
    known = succs_of(state) | (preds_of(state) if isinstance(state, Active) else frozenset())
    for y in sorted(known):
        if isinstance(world.get(y), Gone):
            yield f"I1: {x} counts {y} among its neighbours, which has terminated"


def _views_agree(x: InstanceId, state: State, world: World) -> Iterator[str]:
    if isinstance(state, Active | ClosingIn | Draining | Finished):
        for y in sorted(succs_of(state)):
            other = world.get(y)
            if not isinstance(other, Idle) and x not in _inputs(other):
                yield f"I6: {x} would send to {y}, which does not count it among its predecessors"
    if isinstance(state, Active):
        for p in sorted(state.preds):
            other = world.get(p)
            if not isinstance(other, Idle) and x not in _outputs(other):
                yield f"I7: {x} expects tuples of {p}, which does not count it as a successor"


def _inputs(state: State | None) -> frozenset[InstanceId]:
    return frozenset() if state is None else preds_of(state)


def _outputs(state: State | None) -> frozenset[InstanceId]:
    """Whom a predecessor has not yet told the end; after EOS that is still on its way."""
    from anabranch.protocol.states import ClosingOut

    if isinstance(state, ClosingOut):
        return state.awaiting
    return frozenset() if state is None else succs_of(state)


def _keepers(topology: Topology, world: World) -> Iterator[str]:
    operators = {o for edge in topology.edges for o in edge} | {x.operator for x in world}
    for operator in sorted(operators):
        members = [s for x, s in world.items() if x.operator == operator]
        if any(isinstance(s, Active) and s.keeper for s in members):
            continue
        if any(isinstance(s, Active) for s in members):
            yield f"I5: operator {operator} has no active keeper"
