"""What must hold at the end of a world with keys: owners and tables agree, nothing is left behind,
and the state of every key is what the sequential oracle makes of the same tuples."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from anabranch.protocol.ids import OperatorName
from anabranch.protocol.ownership import groups_of
from anabranch.protocol.states import Active
from anabranch.runtime.keyed.timers import mark_of_end
from anabranch.runtime.simulation.keyed_state import Folded
from anabranch.runtime.simulation.keyed_work import KeyedWork
from anabranch.runtime.simulation.models import BASE, Keys, Timing, expand
from anabranch.runtime.simulation.world import World

SHOWN = 5


class Item(NamedTuple):
    """A numbered tuple, the one of a source that it stems from, its event time and mark."""

    value: int
    root: int
    time_s: float
    mark: float


Folds = dict[str, dict[int, list[Folded]]]
"""By keyed operator and key, the tuples in the order of their numbers, and which of them are late.
"""


class Expected(NamedTuple):
    due: dict[str, list[int]]
    """By sink."""
    folds: Folds


def oracle(world: World) -> Expected:
    """Operator by operator, as if there were one instance of each and all tuples came sorted."""
    assert world.lineage is not None
    timing = world.lineage.timing
    made: dict[str, list[Item]] = {}
    due: dict[str, list[int]] = {}
    folds: Folds = {}
    for name, model in world.models.items():
        if name in world.boards:
            made[name] = _read(world.boards[name].all_items(), timing)
            continue
        into = [item for above in world.upstream[name] for item in made[above]]
        if model.keyed is not None:
            folds[name] = _folded(into, model.keyed)
        digit = world.digits[name]
        if not world.downstream[name]:
            due[name] = [item.value for item in into]
        elif model.keyed is not None and model.keyed.window_s is not None:
            made[name] = _windowed(into, model.keyed, digit)
        else:
            made[name] = [
                i._replace(value=v) for i in into for v in expand(model.rule, digit, [i.value])
            ]
    return Expected(due, folds)


def _read(roots: list[int], timing: Timing) -> list[Item]:
    return [Item(root, root, timing.time_of(root), timing.mark_of(root)) for root in roots]


def _folded(into: list[Item], keys: Keys) -> dict[int, list[Folded]]:
    folds: defaultdict[int, list[Folded]] = defaultdict(list)
    for item in sorted(into):
        key, late = keys.key_of(item.root), keys.is_late(item.time_s, item.mark)
        folds[key].append(Folded(key, item.value, late))
    return dict(folds)


def _windowed(into: list[Item], keys: Keys, digit: int) -> list[Item]:
    windows: dict[tuple[int, int], Item] = {}
    for item in sorted(into):  # the greatest of a window stays
        if keys.is_late(item.time_s, item.mark):
            continue
        windows[keys.window_of(item.time_s), keys.key_of(item.root)] = item
    return [
        Item(item.value * BASE + digit, item.root, end_s, mark_of_end(end_s))
        for (window, _), item in windows.items()
        for end_s in [keys.end_of(window)]
    ]


def states(world: World, expected: Folds) -> Iterator[str]:
    """Whether the state of every key is in one place, and what it should be."""
    for name, want in expected.items():
        places: Counter[int] = Counter()
        found: defaultdict[int, list[Folded]] = defaultdict(list)
        for work in _works(world, name):
            places.update(list(work.states))
            for state in work.states.values():
                if state.open:
                    yield f"W: windows of {name} never close: {state.open[:SHOWN]}"
                for one in state.folded:
                    found[one.key].append(one)
        if twice := [g for g, n in places.items() if n > 1]:
            yield f"K5: the state of key groups {twice} of {name} is in several places"
        for key in sorted(want.keys() | found.keys()):
            if sorted(found[key]) != want.get(key, []):
                yield f"K1: the state of key {key} of {name} is not that of the oracle"


def order(world: World) -> Iterator[str]:
    """K2: where an operator has only ever had one instance, it got everything in order."""
    assert world.lineage is not None
    for name, sentence in world.lineage.disorder.items():
        if sum(i.me.operator == name for i in world.instances.values()) == 1:
            yield f"K2: {sentence}"


def at_rest(world: World) -> Iterator[str]:
    """K6 and K7: every group has one owner, all senders know it, and nothing is on its way."""
    for name, model in world.models.items():
        if model.keyed is not None:
            yield from _owners(world, name, model.keyed.groups)
            for work in _works(world, name):
                yield from _left_behind(work)


def _owners(world: World, name: OperatorName, groups: int) -> Iterator[str]:
    owners = {}
    for me in world.of[name]:
        state = me.core.state
        if isinstance(state, Active):
            owners.update({r.group: me.me for r in state.owned})
            if groups_of(state.owned) != frozenset(me.keyed.states):
                yield f"K6: {me.me} and its protocol disagree on what it owns"
    if sorted(owners) != list(range(groups)):
        yield f"K6: of {groups} key groups of {name} only {sorted(owners)} have an owner"
    for above in world.upstream[name]:
        for me in world.of[above]:
            state = me.core.state
            if isinstance(state, Active):
                known = {r.group: r.owner for r in state.routes if r.owner.operator == name}
                if known != owners:
                    yield f"K7: {me.me} knows other owners of key groups of {name}"


def _left_behind(work: KeyedWork) -> Iterator[str]:
    if work.frozen or work.ready or any(work.kept.values()):
        yield f"L2: {work.me.me} has frozen groups {sorted(work.frozen)}, or keeps tuples for ever"


def _works(world: World, name: str) -> Iterator[KeyedWork]:
    for me in world.instances.values():
        if me.me.operator == name:
            yield me.keyed
