"""The invariants of `docs/protocol.md` 2.7 by their numbers.

I1  No instance in succs (until Draining) or in preds (Active) has terminated.
I2  succs has a member of each downstream operator until EOS is sent.
I3  No tuple arrives in Draining or later.
I4  An acknowledgement comes only from an awaited id; at most one own operation, none while leaving.
I5  A keeper is Active; every operator has a keeper, which keeps it until the stream has ended.
I6  y in succs(x), x not past Draining  =>  y is Idle or x in preds(y).
I7  x in preds(y), y Active             =>  x is Idle or y in succs(x).
I8  The sender of a tuple is in preds (Active, ClosingIn).
I9  JOIN, LEAVE and EOS come only from an id in my views, or I am Idle.
I10 For each operator, tuples processed = tuples sent to it, at quiescence.
I11 At termination queue, awaited set and unacknowledged session frames are empty.
I12 Session sequence numbers are contiguous, over all incarnations of both ends.
K1  A tuple of a keyed operator is processed when it follows the last one of its sender and group.
K2  Its results are in the same order at each successor, until that one leaves.
K3  The owner to which a key group is routed is in succs.
K4  No instance leaves that owns a key group.
K5  A key group has at most one owner.
K6  At rest a key group has exactly one owner, and
K7  all senders to its operator know it.

All of them hold over deaths too: the next incarnation of an instance is that instance.

I3, I4, I8 and I9 are checked where the input comes in (`table`, `rules`), I12 in `session`, I10
in the ledger; K1, K2, K4, K6 and K7 by the explorer. Here are I2 and K3 for one instance, which
every instance asserts after each change of its view, and those that need an observer of all
instances at one moment: the explorer and the simulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anabranch.protocol.ids import InstanceId, Topology
from anabranch.protocol.ownership import groups_of
from anabranch.protocol.rules.context import Context
from anabranch.protocol.states import (
    Active,
    ClosingIn,
    ClosingOut,
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
        for route in state.routes:
            if route.owner not in state.succs:
                return f"K3: {ctx.me} routes key group {route.group} to {route.owner}, no successor"
    return None


def broken_in(topology: Topology, world: World) -> Iterator[str]:
    """Every invariant that does not hold in a world, as sentences."""
    for x, state in sorted(world.items()):
        if sentence := broken_at(Context(x, topology), state):
            yield sentence
        for y in sorted(succs_of(state) | preds_of(state)):
            if y not in world:
                yield f"{x} counts {y} among its neighbours, which has never existed"
        for y, other in world.items():
            yield from broken_between(x, state, y, other)
    yield from _keepers(world)


def broken_between(x: InstanceId, of_x: State, y: InstanceId, of_y: State) -> Iterator[str]:
    """What the states of two instances break together, from the side of `x`: I1, I6 and I7.

    For a finished instance nothing can break: its neighbours may have ended before it knows.
    """
    if isinstance(of_x, Active) and isinstance(of_y, Active) and x < y:
        twice = groups_of(of_x.owned) & groups_of(of_y.owned)
        if twice and x.operator == y.operator:
            yield f"K5: key groups {sorted(twice)} belong to {x} and to {y}"
    if isinstance(of_x, Active | ClosingIn | Draining) and y in of_x.succs:
        if isinstance(of_y, Gone):
            yield f"I1: {x} counts {y} among its successors, which has terminated"
        elif not isinstance(of_y, Idle) and x not in preds_of(of_y):
            yield f"I6: {x} would send to {y}, which does not count it among its predecessors"
    if isinstance(of_x, Active) and y in of_x.preds:
        if isinstance(of_y, Gone):
            yield f"I1: {x} counts {y} among its predecessors, which has terminated"
        elif not isinstance(of_y, Idle) and x not in _outputs(of_y):
            yield f"I7: {x} expects tuples of {y}, which does not count it as a successor"


def _outputs(state: State) -> frozenset[InstanceId]:
    """Successors that may not know yet that this instance ends; an EOS may be on its way."""
    return state.awaiting if isinstance(state, ClosingOut) else succs_of(state)


def keeps(state: State) -> bool:
    """Whether an instance is the keeper of its operator, or was when the stream ended."""
    return isinstance(state, Active | Finished | Gone) and state.keeper


def _keepers(world: World) -> Iterator[str]:
    for operator in sorted({x.operator for x in world}):
        if not any(keeps(s) for x, s in world.items() if x.operator == operator):
            yield f"I5: operator {operator} has no active keeper"
