"""What must hold at the end: against a sequential oracle, channel by channel, view by view.

The words are jepsen's: delivered, lost, duplicated, unexpected, reordered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from anabranch.protocol import invariants
from anabranch.protocol.states import Active, Gone, State, waiting_for
from anabranch.protocol.table import describe
from anabranch.runtime.reporting.ledger import settle
from anabranch.runtime.simulation import keyed_audit
from anabranch.runtime.simulation.instance import Instance
from anabranch.runtime.simulation.models import expand
from anabranch.runtime.simulation.work import QueueWork
from anabranch.runtime.simulation.world import World

SHOWN = 5


def at_rest(world: World) -> Iterator[str]:
    """What is wrong with a healed world in which nothing happens any more, as sentences."""
    states = {i.me: i.core.state for i in world.instances.values()}
    for me, state in sorted(states.items()):
        if not isinstance(state, Gone) and (business := _unfinished(state)):
            yield f"L1: {me} for ever: {business}"
    for instance in world.instances.values():
        if instance.work.queued or instance.outbox.held:
            stuck = f"{instance.work.queued} queued, {instance.outbox.held} held"
            yield f"L2: tuples are stuck at {instance.me}: {stuck}"
        if isinstance(instance.work, QueueWork) and instance.work.repeats is not None:
            awaited = list(instance.work.repeats.due)[:SHOWN]
            yield f"L2: {instance.me} waits for ever for repeats up to {awaited}"
        if not instance.awake and not instance.exited:
            yield f"L1: {instance.me} is dead for ever"
        if isinstance(instance.core.state, Gone) and not instance.exited:
            yield f"L1: {instance.me} has ended, but waits for acknowledgements for ever"
        yield from _unsettled(world, instance)
    yield from invariants.broken_in(world.topology, states)
    yield from _views(world)
    yield from keyed_audit.at_rest(world)


def all_gone(world: World) -> Iterator[str]:
    """What is wrong with a world whose input has ended."""
    for instance in world.instances.values():
        state = instance.core.state
        if not isinstance(state, Gone):
            yield f"L1: the stream has ended, but {instance.me} is {describe(state)}"
        elif not instance.exited:
            yield f"I11: {instance.me} has ended, but its last words are not acknowledged"


def tuples(world: World) -> Iterator[str]:
    """Whether every tuple has come out as often as it should, and in order."""
    for name, board in world.boards.items():
        if board.read != board.total:
            yield f"L2: {board.total - board.read} of {board.total} tuples of {name} are not read"
    if any(board.numbered for board in world.boards.values()):
        yield from _numbered(world)
    else:
        yield from _counted(world)


def _unfinished(state: State) -> str:
    if isinstance(state, Active) and state.own is None:
        return ""
    awaited = ", ".join(map(str, sorted(waiting_for(state))))
    own = f"own {type(state.own).__name__}" if isinstance(state, Active) else describe(state)
    return f"{own}, waiting for {{{awaited}}}"


def _unsettled(world: World, instance: Instance) -> Iterator[str]:
    if not instance.exited:
        for channel in instance.neighbours.channels:
            peer = world.instances[channel.peer]
            if not channel.session.settled and not peer.exited:
                yield f"I11: {channel.peer} never acknowledges what {instance.me} has sent"


def _views(world: World) -> Iterator[str]:
    """S4: the active instances of neighbouring operators know each other completely."""
    active = [i for i in world.instances.values() if isinstance(i.core.state, Active)]
    for me in active:
        succs = frozenset(y.me for y in active if me.me.operator in y.upstream)
        preds = frozenset(y.me for y in active if y.me.operator in me.upstream)
        if (me.succs, me.preds) != (succs, preds):
            yield f"S4: the view of {me.me} is not that of the whole graph"


def _numbered(world: World) -> Iterator[str]:
    if world.lineage is None:
        expected = oracle(world)
    else:
        expected, folds = keyed_audit.oracle(world)
        yield from keyed_audit.states(world, folds)
        yield from keyed_audit.order(world)
        yield from _counted(world)
    for name, want in sorted(expected.items()):
        found = sorted(world.results[name])
        if found == sorted(want):
            continue
        left, over = Counter(want), Counter(found)
        lost, more = left - over, over - left
        doubled = {v: n for v, n in more.items() if v in left}
        strange = {v: n for v, n in more.items() if v not in left}
        if lost:
            yield f"S1: {lost.total()} tuples are lost before {name}: {_some(lost)}"
        if doubled:
            yield f"S2: {sum(doubled.values())} tuples are doubled at {name}: {_some(doubled)}"
        if strange:
            yield f"S2: {sum(strange.values())} unexpected tuples at {name}: {_some(strange)}"
    for instance in world.instances.values():
        for channel in instance.neighbours.all:
            peer = world.instances[channel.peer].neighbours.all
            sent = [v for c in peer if c.peer == instance.me for v in c.sent]
            if channel.received != sent:
                yield f"S1: {channel.peer} and {instance.me} disagree on the order of tuples"


def oracle(world: World) -> dict[str, list[int]]:
    """What each sink should get, worked out operator by operator as if there were one of each."""
    made: dict[str, list[int]] = {}
    due: dict[str, list[int]] = {}
    for name, model in world.models.items():
        if name in world.boards:
            made[name] = world.boards[name].all_items()
            continue
        into = [v for above in world.upstream[name] for v in made[above]]
        if world.downstream[name]:
            made[name] = expand(model.rule, world.digits[name], into)
        else:
            due[name] = into
    return due


def _counted(world: World) -> Iterator[str]:
    finals = [i.final_count() for i in world.instances.values()]
    ledger = settle(finals, sorted(world.topology.edges), list(world.models))
    if not ledger.balanced:
        yield f"S1: the ledger does not balance: {'; '.join(ledger.faults[:SHOWN])}"


def _some(values: dict[int, int]) -> str:
    return ", ".join(map(str, sorted(values)[:SHOWN]))
