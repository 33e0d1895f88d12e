"""Worlds with keyed operators: each duty of a driver and each rule of event time that is neglected
is found out within a few hundred seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import replace

import pytest

from anabranch.protocol import events, messages
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.limits import Limits
from anabranch.protocol.messages import Message
from anabranch.protocol.rules.context import Context, Step
from anabranch.protocol.states import Active, ClosingIn
from anabranch.protocol.table import TABLE
from anabranch.runtime.simulation import keyed_audit
from anabranch.runtime.simulation.happenings import Action, Decision
from anabranch.runtime.simulation.instance import Instance
from anabranch.runtime.simulation.keyed_state import GroupState, Kept, Open
from anabranch.runtime.simulation.keyed_work import Groups, KeyedWork
from anabranch.runtime.simulation.models import Keys, Model, Timing
from anabranch.runtime.simulation.outbox import KeyedBranch
from anabranch.runtime.simulation.progress import FREEZING, Progress
from anabranch.runtime.simulation.scene import Scene
from anabranch.runtime.simulation.scene_drawing import draw
from anabranch.runtime.simulation.settings import Births, Knobs, Net
from anabranch.runtime.simulation.trial import Outcome, Trial, Verdict
from anabranch.runtime.simulation.world import World

SEEDS = 400
"""Half of them have keys."""


def keyed_scenes(seeds: int) -> list[Scene]:
    """Those among the first so many that have keys."""
    return [scene for scene in map(draw, range(seeds)) if scene.timing is not None]


def found(seeds: int = SEEDS) -> Outcome | None:
    outcomes = (Trial(scene).run() for scene in keyed_scenes(seeds))
    return next((o for o in outcomes if o.verdict is Verdict.INVALID), None)


# -- neglected duties and broken rules ---------------------------------------------------------


def _process_what_is_frozen(self: KeyedWork, group: int) -> bool:
    return group in self.states


def _think_nothing_is_in_work(self: KeyedWork, groups: Groups) -> bool:
    return False


def _report_before_all_is_sent(self: KeyedWork) -> None:
    self.me.feed(events.GroupsFrozen())


def _leave_results_with_the_old_owner(self: KeyedBranch) -> None:
    pass


def _forget_what_was_kept(self: KeyedWork, group: int) -> list[object]:
    for one in self.kept.pop(group, []):
        self.queued -= 1
        self._kept_count -= 1
        if one.channel is not None:
            self._credit[one.channel] += 1
    return []


def _export_before_the_queue_is_passed(self: KeyedWork, to: InstanceId, groups: Groups) -> None:
    self.export(to, groups)


def _begin_with_what_was_kept_here(self: KeyedWork, group: int) -> list[object]:
    return [*self.kept.pop(group, ()), *self._came.pop(group, ())]


def _do_not_hear_newcomers(self: Progress, new: frozenset[InstanceId], creator: InstanceId) -> None:
    pass


def _tell_newcomers_the_present(self: Instance, message: Message) -> float:
    """W2 at the time of START."""
    assert self.progress is not None
    match message:
        case messages.Start():
            return self.progress.value
        case messages.AdoptResponse():
            return self.progress.out
    return 0.0


def _hold_while_freezing_only(self: Progress, why: Hashable) -> None:
    if why == FREEZING:
        self._holds.add(why)


def _hold_while_state_is_to_come_only(self: Progress, why: Hashable) -> None:
    if why != FREEZING:
        self._holds.add(why)


def _freeze_at_once(self: KeyedWork, new_owner: InstanceId) -> bool:
    return True


def _state_before_all_is_sent(self: Progress, watermark: float) -> None:
    self._state(watermark)


def _judge_by_the_watermark_that_has_come(self: GroupState, one: Kept, keys: Keys) -> bool:
    return keys.is_late(one.time_s, self.closed_s)


def _take_late_tuples_in(self: GroupState, one: Kept, keys: Keys) -> bool:
    return False


def _out_of_turn(self: Instance, do: Callable[[], None], channel: object = None) -> None:
    do()


Neglect = tuple[str, type, str, Callable[..., object] | property, tuple[str, ...]]
NEGLECTS: list[Neglect] = [
    ("duty 9: tuples of frozen groups are processed", KeyedWork, "is_open",
     _process_what_is_frozen, ("K", "W", "S")),
    ("duty 9: at rest is what is not sent yet", KeyedWork, "report_when_sent",
     _report_before_all_is_sent, ("K", "W")),
    ("duty 4: held results stay with the old owner", KeyedBranch, "_rebind",
     _leave_results_with_the_old_owner, ("K", "L", "Local")),
    ("duty 10: kept tuples do not go along", KeyedWork, "kept_of",
     _forget_what_was_kept, ("K1", "S1")),
    ("duty 10: the state goes before the queue is passed", KeyedWork, "transfer",
     _export_before_the_queue_is_passed, ("K",)),
    ("duty 11: what was kept here is processed first", KeyedWork, "in_order",
     _begin_with_what_was_kept_here, ("K1",)),
    ("W1: a newcomer is not heard", Progress, "add", _do_not_hear_newcomers, ("W",)),
    ("W2: a newcomer begins with what is known at its start", Instance, "_says",
     _tell_newcomers_the_present, ("W",)),
    ("W3: who expects state holds nothing back", Progress, "hold",
     _hold_while_freezing_only, ("W",)),
    ("W4: the giver does not catch up with the new owner", KeyedWork, "is_as_far_as",
     _freeze_at_once, ("W",)),
    ("W8: a watermark overtakes held results", Progress, "when_sent",
     _state_before_all_is_sent, ("W",)),
    ("a tuple is judged by the watermark that has come", GroupState, "is_late",
     _judge_by_the_watermark_that_has_come, ("K1",)),
    ("a late tuple counts in its window", GroupState, "is_late", _take_late_tuples_in, ("K1", "W")),
    ("what is said does not wait for its turn", Instance, "_in_turn", _out_of_turn, ("W",)),
]  # fmt: skip


@pytest.mark.parametrize("neglect", NEGLECTS, ids=lambda n: n[0])
def test_what_is_neglected_is_found_out(neglect: Neglect, monkeypatch: pytest.MonkeyPatch) -> None:
    _, where, name, broken, codes = neglect
    monkeypatch.setattr(where, name, broken)
    outcome = found()
    assert outcome is not None
    assert outcome.reason.startswith(codes)


# -- three that the order of the queue and of what is held hides in nearly all seeds -------------


def made_scene(models: tuple[Model, ...], decisions: tuple[Decision, ...], per_s: int) -> Scene:
    """A source, a keyed operator with two instances and a sink, without any trouble."""
    return replace(
        draw(0),
        edges=(("S", "A"), ("A", "T")),
        models=models,
        counts={"S": 1, "A": 2, "T": 1},
        hosts=((1.0, math.inf),),
        net=Net(latency_s=0.002, local_s=0.002, jitter=0.0),
        limits=Limits(batch_tuples_max=10, outbox_tuples_max=1000, linger_s=0.0),
        knobs=Knobs(tick_s=0.0, read_every_s=0.001, slice_s=0.02, chunk_s=0.0001),
        births=Births(ready_s=0.001),
        arrivals={"S": tuple((i / per_s, i + 1) for i in range(per_s))},
        numbered=True,
        policy=False,
        ends=True,
        safety_s=4.0,
        decisions=decisions,
        troubles=(),
        timing=Timing(step_s=1 / per_s, disorder_s=0.0, allowed_s=0.0),
    )


def at_a(at_s: float, action: Action, n: int, whom: float) -> Decision:
    return Decision(at_s=at_s, operator="A", action=action, n=n, whom=whom, fit=True)


def a_new_owner_duplicates(at_s: float) -> Scene:
    """While it still works off tuples which came with the state."""
    keys = Keys(groups=4, keys=8, salt=1)
    models = (Model(name="S"), Model(name="A", keyed=keys, cost_s=0.02), Model(name="T"))
    return made_scene(models, (at_a(0.2, "move", 4, 0.0), at_a(at_s, "duplicate", 1, 0.99)), 100)


def a_busy_owner_gives(at_s: float) -> Scene:
    """Its group to its sibling, while the sink has credit for one tuple of each."""
    keys = Keys(groups=1, keys=1)
    models = (
        Model(name="S"),
        Model(name="A", keyed=keys, cost_s=0.02),
        Model(name="T", cost_s=0.025),
    )
    scene = made_scene(models, (at_a(at_s, "move", 1, 0.0),), 60)
    limits = replace(scene.limits, credit_tuples=1, batch_tuples_max=1)
    return replace(scene, limits=limits, knobs=replace(scene.knobs, first_window_tuples=1))


def a_newcomer_inherits(at_s: float) -> Scene:
    """Windows of a sibling that is behind, before it has said anything itself."""
    keys = Keys(groups=8, keys=16, salt=1, window_s=0.02)
    models = (Model(name="S"), Model(name="A", keyed=keys, cost_s=0.008), Model(name="T"))
    moves = tuple(at_a(at_s + 0.29 + 0.002 * i, "move", 4, 0.99) for i in (1, 2, 3))
    return made_scene(models, (at_a(at_s + 0.29, "duplicate", 1, 0.0), *moves), 200)


HIDDEN: list[tuple[Callable[[float], Scene], Neglect]] = [
    (a_new_owner_duplicates, ("W5: the giver holds nothing back while it freezes", Progress, "hold",
                          _hold_while_state_is_to_come_only, ("W",))),
    (a_newcomer_inherits, ("W4: a newcomer counts as what it has said itself", Progress, "counted",
                           property(lambda progress: progress.out), ("W",))),
    (a_busy_owner_gives, ("duty 9: at rest is what is still in work", KeyedWork, "is_at_work_on",
                          _think_nothing_is_in_work, ("K2",))),
]  # fmt: skip


@pytest.mark.parametrize(("scene", "neglect"), HIDDEN, ids=["W5", "W4", "duty 9: in work"])
def test_what_is_mostly_hidden_is_found_out_where_it_shows(
    scene: Callable[[float], Scene], neglect: Neglect, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, where, name, broken, codes = neglect
    scenes = [scene(0.21 + 0.002 * i) for i in range(25)]
    assert {Trial(s).run().reason for s in scenes} == {""}
    monkeypatch.setattr(where, name, broken)
    reasons = [o.reason for o in (Trial(s).run() for s in scenes) if o.verdict is Verdict.INVALID]
    assert reasons
    assert all(reason.startswith(codes) for reason in reasons)


# -- what the worlds show ----------------------------------------------------------------------


def test_worlds_with_keys_are_valid_and_groups_move_with_tuples() -> None:
    outcomes = [Trial(scene).run() for scene in keyed_scenes(300)]
    assert {o.reason for o in outcomes if o.verdict is Verdict.INVALID} == set()
    assert sum(o.verdict is Verdict.VALID for o in outcomes) > 0.9 * len(outcomes)
    assert sum(o.moves for o in outcomes) > len(outcomes)
    assert sum(o.handed for o in outcomes) > len(outcomes) / 2
    assert sum(o.leaves for o in outcomes) > len(outcomes) / 2


def test_a_large_world_with_keys_is_valid() -> None:
    outcome = Trial(draw(7, "large")).run()
    assert (outcome.verdict, outcome.reason) == (Verdict.VALID, "")
    assert outcome.leaves + outcome.moves > 10
    assert outcome.handed > 50


def test_worlds_with_keys_are_of_many_kinds() -> None:
    scenes = keyed_scenes(300)
    assert 100 < len(scenes) < 200
    keyed = [{m.name: m.keyed for m in s.models if m.keyed} for s in scenes]
    rows = [sum(a in k and b in k for a, b in s.edges) for s, k in zip(scenes, keyed, strict=True)]
    sinks = [any(n not in dict(s.edges) for n in k) for s, k in zip(scenes, keyed, strict=True)]
    windows = [any(keys.window_s for keys in k.values()) for k in keyed]
    merged = [
        any(sum(b == n for _, b in s.edges) > 1 for n in k)
        for s, k in zip(scenes, keyed, strict=True)
    ]
    for kind in (rows, sinks, windows, merged):
        assert sum(map(bool, kind)) > 20


def moving_once(at_s: float = 0.3) -> Trial:
    keys = Keys(groups=4, keys=8, salt=1)
    models = (Model(name="S"), Model(name="A", keyed=keys, cost_s=0.02), Model(name="T"))
    return Trial(made_scene(models, (at_a(at_s, "move", 4, 0.0),), 100))


def finished() -> World:
    trial = moving_once()
    assert trial.run().verdict is Verdict.VALID
    return trial.world


def owners(world: World) -> list[KeyedWork]:
    return [me.keyed for me in world.instances.values() if me.model.keyed]


@pytest.mark.parametrize("harm", ["lost", "doubled", "twice"])
def test_the_audit_misses_no_state(harm: str) -> None:
    world = finished()
    here, there = sorted(owners(world), key=lambda work: len(work.states))
    group, state = next((g, s) for g, s in sorted(there.states.items()) if s.folded)
    match harm:
        case "lost":
            state.folded.pop()
        case "doubled":
            state.folded.append(state.folded[0])
        case "twice":
            here.states[group] = GroupState(0.0)
    (sentence,) = keyed_audit.states(world, keyed_audit.oracle(world).folds)
    assert sentence.startswith("K5" if harm == "twice" else "K1")


def test_the_audit_sees_a_window_that_never_closes() -> None:
    world = finished()
    state = next(s for work in owners(world) for s in work.states.values())
    state.open.append(Open(1, 1, 1, 1, 0.0))
    found = list(keyed_audit.states(world, keyed_audit.oracle(world).folds))
    assert [sentence[:1] for sentence in found] == ["W"]


def test_the_audit_sees_owners_and_tables_that_disagree() -> None:
    trial = moving_once()
    world = trial.world
    world.found(trial.scene.counts)
    assert world.clock.run(until_s=0.1, events_max=10_000)
    assert list(keyed_audit.at_rest(world)) == []
    work = next(w for w in owners(world) if w.states)
    group = min(work.states)
    del work.states[group]
    source = world.of["S"][0]
    assert isinstance(source.core.state, Active)
    source.core.state = replace(source.core.state, routes=source.core.state.routes[1:])
    assert [s[:2] for s in keyed_audit.at_rest(world)] == ["K6", "K7"]


def test_a_keyed_operator_may_end_with_its_groups_but_not_leave_with_them() -> None:
    """K4 is watched while things happen."""

    def go_with_groups(ctx: Context, state: Active, event: object) -> Step:
        return ClosingIn(state.succs, state.preds, state.preds), ()

    table = {**TABLE, (Active, events.LeaveDecided): go_with_groups}
    scene = replace(moving_once().scene, decisions=(at_a(0.3, "leave", 1, 0.99),))
    assert Trial(scene, table=table).run().reason.startswith("K4: A.1 leaves with key groups")
