"""Random worlds in which instances leave at the same time, die, or find no new owner: never do
fewer stay than `min_instances` says, and a gate that forgets something is found out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from anabranch.protocol.events import LeaveDecided
from anabranch.runtime.policies.bounds import leaves
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.simulation.departure import Departure
from anabranch.runtime.simulation.instance import Instance
from anabranch.runtime.simulation.scene import Scene
from anabranch.runtime.simulation.scene_drawing import draw
from anabranch.runtime.simulation.trial import Trial, Verdict
from anabranch.runtime.simulation.world import World

SEEDS = 250
LEAST = 2


def bounded(scene: Scene) -> Scene:
    """Where instances are told to leave, or policies decide, so many of each operator stay."""
    usual = Scale(max_instances=8)
    models = tuple(
        replace(model, scale=replace(model.scale or usual, min_instances=LEAST))
        for model in scene.models
    )
    return replace(scene, models=models, counts={k: max(n, 3) for k, n in scene.counts.items()})


def scenes() -> list[Scene]:
    """In every other one processes die."""
    drawn = (draw(seed, crashes="all" if seed % 2 else "none") for seed in range(SEEDS))
    leaving = (s for s in drawn if s.policy or sum(d.action == "leave" for d in s.decisions) > 5)
    return [bounded(scene) for scene in leaving]


def test_never_fewer_than_min_instances_stay_whatever_is_decided_at_once() -> None:
    trials = [Trial(scene) for scene in scenes()]
    outcomes = [trial.run() for trial in trials]
    assert [o.reason for o in outcomes if o.verdict is Verdict.INVALID] == []
    assert sum(o.leaves for o in outcomes) > 50
    assert sum(trial.world.noted["veto"] for trial in trials) > 100


def _ask_nobody(self: Departure, event: LeaveDecided, why: str = "") -> None:
    self._me.decide(event, why)


def _count_those_let_go(self: World, me: Instance) -> tuple[bool, str]:
    staying = sum(x is not me and x.counted for x in self.of[me.me.operator])
    return leaves(staying, me.me.operator, me.model.scale)


def _forget_over_a_death(self: Departure) -> None:
    self._me.world.let_go(self._me, False)


NEGLECTS: list[tuple[type, str, Callable[..., object]]] = [
    (Departure, "decide", _ask_nobody),
    (World, "may_leave", _count_those_let_go),
]


@pytest.mark.parametrize(("where", "name", "broken"), NEGLECTS)
def test_a_gate_that_forgets_something_is_found_out(
    where: type, name: str, broken: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, broken)
    reasons = (Trial(scene).run().reason for scene in scenes())
    assert any(reason.startswith("B1: ") for reason in reasons)


def test_a_death_between_the_answer_and_the_leave_lets_nobody_else_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = bounded(draw(7719, crashes="all"))
    assert Trial(scene).run().verdict is Verdict.VALID
    monkeypatch.setattr(Departure, "resume", _forget_over_a_death)
    assert Trial(scene).run().reason.startswith("B1: ")
