"""The model: a fluid of tweets, restarts (EL14), windows, and nothing lost on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from anabranch.runtime.policies.elysium.assessing import Target
from anabranch.workloads.curves import Steady, Step
from anabranch.workloads.lombardi2018.announced import Agents, Announced
from anabranch.workloads.lombardi2018.contestants import (
    FIRST_FIT,
    RULES,
    Elysium,
    Foreseen,
    Joint,
    Planner,
    Static,
    View,
    begun,
    dealt,
    widest,
)
from anabranch.workloads.lombardi2018.courses import Course, latencies, run
from anabranch.workloads.lombardi2018.fluid import INSIDE_MAX, STEP_S, Fluid, used_shares
from anabranch.workloads.lombardi2018.loads import Scene
from anabranch.workloads.lombardi2018.pools import Pool
from anabranch.workloads.lombardi2018.scores import degradation, nodes_saved

POOL = Pool(("T1",))
BOTH = Pool(("T1", "T2"))
KNOWN = POOL.known()
READER = "tweetReader"
STEP = Scene("step", {"T1": Step(200, 1300, 60, 200)}, 300)


def steady(tweets: float, seconds: float = 120) -> Scene:
    return Scene("steady", {"T1": Steady(tweets)}, seconds, noise=0.0)


def fed(fluid: Fluid, tweets: float, seconds: float) -> np.ndarray:
    due = np.full_like(fluid.backlog, tweets * STEP_S)
    return np.array([fluid.step(due) for _ in range(round(seconds / STEP_S))])


def of(course: Course) -> tuple[float, float]:
    return (
        degradation(course.offered.sum(axis=1), course.acked.sum(axis=1)),
        nodes_saved(course.host_periods),
    )


def test_what_comes_is_done_or_waits() -> None:
    """F: offered = acked + waiting, also over restarts and changes of size."""
    fluid = Fluid(BOTH, 3)
    wide = widest(BOTH.known())
    narrow = dealt(dict.fromkeys(BOTH.operators, 1), 2)
    done = np.zeros((3, 2))
    for at, target in enumerate((narrow, wide, dealt(wide.sizes, 1), narrow)):
        for seed in range(3):
            fluid.configure(seed, target, None if at == 0 else 5.0 + seed)
        done += fed(fluid, 800, 40).sum(axis=0)
        offered = 800 * 40 * (at + 1)
        assert done + fluid.waiting() == pytest.approx(offered * np.ones((3, 2)), rel=1e-6)
    assert fluid.inside.max() < INSIDE_MAX + 100


def test_a_chain_that_is_not_full_does_what_comes_at_the_cost_of_its_profile() -> None:
    fluid = Fluid(POOL, 1)
    target = begun(KNOWN, {READER: 400.0})
    fluid.configure(0, target, first=True)
    done = fed(fluid, 400, 60)
    assert done[100:].mean() / STEP_S == pytest.approx(400, rel=1e-3)
    used = used_shares([*fluid.windows][2:], 0, target, POOL, 0.0)
    assert used is not None
    rates = KNOWN.rates({READER: 400.0})
    for name, share in used[0].items():
        assert share == pytest.approx(KNOWN.cores[name](rates[name]), abs=0.01)
    assert used[1] == pytest.approx([0.717], abs=0.005)


def test_a_full_operator_does_what_its_core_can() -> None:
    """One filter: (1 - 0.03) / 81.5 us tuples/s, of 17.86 for each tweet."""
    fluid = Fluid(POOL, 1)
    fluid.configure(0, dealt(dict.fromkeys(POOL.operators, 1), 4), first=True)
    done = fed(fluid, 900, 60)
    assert done[300:].mean() / STEP_S == pytest.approx(0.97 / 81.5e-6 / 17.86, rel=0.01)


def test_a_full_host_shares_its_cores_and_background_takes_some() -> None:
    """1.84 cores of instances on one host (answer 5's)."""
    found = []
    for background in (0.0, 0.6):
        fluid = Fluid(POOL, 1, background)
        fluid.configure(0, dealt(dict.fromkeys(POOL.operators, 4), 1), first=True)
        fed(fluid, 1300, 60)
        found.append(float(fluid.windows[-1].cores.sum()))
    assert found == pytest.approx([(4 - 0.11) / 2.11, (4 - 0.6 - 0.11) / 2.11], rel=1e-3)


def test_el14_a_restart_stops_all_and_the_source_then_reads_at_full_speed() -> None:
    fluid = Fluid(POOL, 1)
    fluid.configure(0, widest(KNOWN), first=True)
    fed(fluid, 300, 20)
    fluid.configure(0, dealt(widest(KNOWN).sizes, 3), 6.0)
    stopped = fed(fluid, 300, 6)
    assert stopped.sum() == 0
    assert fluid.backlog.sum() == pytest.approx(1800)
    after = fed(fluid, 300, 4) / STEP_S
    assert after.max() > 900
    assert not fluid.windows[-1].whole[0]


def test_without_a_restart_only_newcomers_wait() -> None:
    fluid = Fluid(POOL, 1)
    fluid.configure(0, dealt(dict.fromkeys(POOL.operators, 1), 4), first=True)
    fed(fluid, 300, 10)
    fluid.configure(0, widest(KNOWN))
    after = fed(fluid, 300, 2)
    # For as many steps as an operator is away from the source, what waited is spread anew.
    assert after[: len(POOL.operators)].min() > 0
    assert after[len(POOL.operators) :].min() > 25


def test_windows_of_before_a_change_do_not_count() -> None:
    fluid = Fluid(POOL, 1)
    target = begun(KNOWN, {READER: 400.0})
    fluid.configure(0, target, first=True)
    fed(fluid, 400, 30)
    assert used_shares(fluid.windows, 0, target, POOL, 0.0) is not None
    assert used_shares(fluid.windows, 0, target, POOL, 20.0) is not None
    assert used_shares(fluid.windows, 0, target, POOL, 25.0) is None


def test_a_load_that_stays_changes_nothing() -> None:
    (course,) = run(POOL, steady(700, 240), [1], [Elysium(KNOWN)], begun(KNOWN, {READER: 700.0}))
    assert course.changes == []
    assert of(course)[0] < 0.05


@cache
def courses(name: str) -> list[Course]:
    """Of two seeds, when the load rises to more than six times as much, and falls again."""
    knows = {READER: Foreseen(STEP.curves["T1"], 1)}
    make: dict[str, Callable[[], Planner]] = {
        "joint": Joint,
        "R": lambda: Elysium(KNOWN),
        "P": lambda: Elysium(KNOWN, forecasts=knows),
        "no controller": lambda: Announced(KNOWN),
    }
    rules = FIRST_FIT if name == "no controller" else RULES
    begin = begun(KNOWN, {READER: 200.0}, rules)
    return run(POOL, STEP, [3, 4], [make[name](), make[name]()], begin)


def test_elysium_reconfigures_once_per_edge_and_sooner_than_the_baseline() -> None:
    fast, slow = courses("R")[0], courses("joint")[0]
    assert len([at for at in fast.changes if 60 < at < 240]) <= 2
    assert fast.sizes["stopWordFilter"].max() >= 3
    assert of(fast)[0] < of(slow)[0]
    assert np.mean(latencies(fast)[0]) < np.mean(latencies(slow)[0])
    for before, after in pairwise(slow.host_periods):
        assert abs(after - before) <= 1


def test_who_knows_what_comes_is_there_before() -> None:
    early, late = courses("P")[0], courses("R")[0]
    assert of(early)[0] < of(late)[0]
    assert early.changes[0] == 60


def test_the_same_seed_gives_the_same_course_whatever_runs_beside_it() -> None:
    begin = begun(KNOWN, {READER: 200.0})
    (alone,) = run(POOL, STEP, [4], [Elysium(KNOWN)], begin)
    _, beside = courses("R")
    assert np.array_equal(alone.acked, beside.acked)
    assert alone.changes == beside.changes


def test_hosts_only_and_operators_only_leave_the_other() -> None:
    wide = widest(KNOWN, 2, 4)
    short = replace(STEP, seconds=130)
    (hosts,) = run(POOL, short, [1], [Elysium(KNOWN, scope="hosts")], wide)
    assert {name: set(p) for name, p in hosts.sizes.items()} == {
        name: {float(p)} for name, p in wide.sizes.items()
    }
    assert set(hosts.hosts) != {4.0}
    (operators,) = run(POOL, short, [1], [Elysium(KNOWN, scope="operators")], wide)
    assert set(operators.hosts) == {4.0}
    assert operators.sizes["stopWordFilter"].max() > 2


def test_without_a_controller_the_model_has_less_degradation_and_fewer_hosts() -> None:
    reactive, ours = courses("R")[0], courses("no controller")[0]
    assert of(ours)[0] < of(reactive)[0]
    assert of(ours)[1] >= of(reactive)[1]


def test_without_a_controller_the_model_comes_to_rest_with_every_instance_once() -> None:
    present = widest(KNOWN)
    loads = {READER: [500.0]}
    planner = Announced(KNOWN)
    first = planner.plan(View(60, present, loads, loads, None))
    assert first is not None
    assert sorted(first.placement) == sorted((n, i) for n, p in first.sizes.items()
                                             for i in range(p))  # fmt: skip
    assert planner.plan(View(120, first, loads, loads, None)) is None
    assert first.hosts == len({*first.placement.values()}) < present.hosts


@dataclass
class Once:
    """Changes to a target at its first look."""

    target: Target
    every_s: float = 60.0
    restarts: bool = True
    seen: list[View] = field(default_factory=list)

    def plan(self, view: View) -> Target | None:
        self.seen.append(view)
        return self.target if len(self.seen) == 1 else None


def test_what_is_noted_of_a_course() -> None:
    sizes: Mapping[str, int] = dict.fromkeys(POOL.operators, 1)
    planner = Once(dealt(sizes, 2))
    (course,) = run(POOL, steady(300, 180), [1], [planner], dealt(sizes, 3))
    assert course.changes == [60]
    assert course.host_periods == [3, 2, 2]
    assert list(course.hosts) == [3.0] * 6 + [2.0] * 12
    assert len(planner.seen) == 2
    assert planner.seen[0].offered[READER][-1] == pytest.approx(
        float(course.offered[:6].mean()), rel=1e-6
    )
    assert planner.seen[1].used is not None
    assert course.waiting < 300
    (still,) = run(POOL, steady(300, 180), [1], [Static()], dealt(sizes, 3))
    assert still.changes == []


def test_a_host_drains_into_two_that_have_room_for_one_each() -> None:
    shares = dict.fromkeys(POOL.operators, 0.6)
    where = {("counter", 0): 0, ("counter", 1): 1, ("counter", 2): 2, ("counter", 3): 2}
    agents = Agents(KNOWN, FIRST_FIT, shares, where)
    agents.settle()
    assert sorted(agents.where) == sorted(where)
    assert agents.on == [0, 1]


def test_el_g19_latency_counts_from_due_and_from_read() -> None:
    due, read = latencies(courses("joint")[0])
    assert due.mean() > read.mean() > 0
