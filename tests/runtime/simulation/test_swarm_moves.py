"""Worlds whose policies move key groups, join and leave all the time, while processes die: nothing
is lost, doubled or reordered, and a driver that neglects the hand-over of state is found out."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.decision import Decision, Hold, Leave, Move, Resize
from anabranch.runtime.policies.policy import Policy, Scale
from anabranch.runtime.simulation.keyed_work import KeyedWork
from anabranch.runtime.simulation.scene import Scene
from anabranch.runtime.simulation.scene_drawing import draw
from anabranch.runtime.simulation.trial import Trial, Verdict

SEEDS = 45


@dataclass(frozen=True)
class Restless(Policy[None]):
    """For tests: any decision at any time, with any share, and any rank, now and then of none."""

    def decide(
        self, reading: Reading, scale: Scale, memory: None, rng: random.Random
    ) -> tuple[Decision, None]:
        match rng.randrange(8):
            case 0 | 1 | 2:
                share, rank = rng.choice((0.1, 0.5, 1.0)), rng.randrange(reading.instances + 1)
                return Move(share, rank, "restless"), memory
            case 3:
                return Resize(rng.randint(1, scale.max_instances), "restless"), memory
            case 4 if not reading.keeper:
                new_owner = rng.choice((None, *range(reading.instances)))
                return Leave("restless", new_owner), memory
            case _:
                return Hold("restless"), memory


def restless(seed: int) -> Scene | None:
    """None where no operator is keyed."""
    scene = draw(seed, crashes="all")
    if not any(m.keyed for m in scene.models):
        return None
    rng = random.Random(f"restless {seed}")
    policy = Restless()
    models = tuple(
        replace(m, scale=Scale(max_instances=5, period_s=rng.uniform(0.05, 0.3), policy=policy))
        if m.keyed
        else replace(m, scale=None)
        for m in scene.models
    )
    knobs = replace(scene.knobs, tick_s=rng.uniform(0.02, 0.08))
    return replace(scene, models=models, knobs=knobs, policy=True)


def test_moves_by_policies_deaths_and_scaling_at_once_lose_and_double_nothing() -> None:
    scenes = [scene for scene in map(restless, range(SEEDS)) if scene is not None]
    found = [Trial(scene).run() for scene in scenes]
    assert [o for o in found if o.verdict is Verdict.INVALID] == []
    assert sum(o.verdict is Verdict.VALID for o in found) > 0.8 * len(found)
    assert sum(o.moves for o in found) > 2 * len(found)
    assert sum(o.joins for o in found) > len(found)
    assert sum(o.leaves for o in found) > len(found)
    assert sum(o.deaths for o in found) > 5 * len(found)


def _leave_what_was_kept(self: KeyedWork, group: int) -> list[object]:
    return []


NEGLECTS = [
    ("kept tuples do not go along", "kept_of", _leave_what_was_kept, 5, "L1: "),
    ("the state goes before the queue is passed", "transfer", KeyedWork.export, 55, "K: "),
]
"""With the first seed that shows each."""


@pytest.mark.parametrize("neglect", NEGLECTS, ids=lambda n: n[0])
def test_a_move_without_its_whole_hand_over_is_found_out(
    neglect: tuple[str, str, object, int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, where, broken, seed, code = neglect
    scene = restless(seed)
    assert scene is not None
    assert Trial(scene).run().verdict is Verdict.VALID
    monkeypatch.setattr(KeyedWork, where, broken)
    assert Trial(scene).run().reason.startswith(code)
