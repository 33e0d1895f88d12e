"""Forecasts against what can be worked out by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median

import pytest

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.policies.decision import Act, Decision, Duplicate, Resize
from anabranch.runtime.policies.memory import Memory
from anabranch.runtime.policies.policy import Policy, Scale
from anabranch.runtime.policies.probabilistic import Probabilistic
from anabranch.runtime.sinks.discard import discard
from anabranch.runtime.sources import items
from anabranch.runtime.world.forecast import Forecasting, forecast
from anabranch.runtime.world.forecast_values import Arrivals, Cost, Forecast, look_s_for
from anabranch.runtime.world.processes import Host

SCALE = Scale(max_instances=8)


def pipeline(scale: Scale | None = SCALE) -> Pipeline:
    made = Pipeline("made")
    made.source("lines", items([1])).map("work", str, scale=scale).sink("out", discard())
    return made


def load(due: Callable[[float], float], seconds: float, peak: float) -> Arrivals:
    look_s = look_s_for(peak)
    totals = [int(due(i * look_s) + 1e-6) for i in range(math.ceil(seconds / look_s) + 1)]
    return Arrivals(look_s, {"lines": totals})


def steady(per_s: float, seconds: float) -> Arrivals:
    return load(lambda t_s: per_s * t_s, seconds, per_s)


def foretold(
    made: Pipeline, what: Arrivals, seconds: float, *, seed: int = 0, cores: float = math.inf
) -> Forecast:
    costs = {"lines": Cost(), "work": Cost(capacity=100.0), "out": Cost()}
    return forecast(made, costs, what, seed=seed, seconds=seconds, cores=cores)


def after(found: Forecast, begin_s: float, name: str, figure: str) -> list[float]:
    values = getattr(found.courses[name], figure)
    return [v for t, v in zip(found.t, values, strict=True) if t > begin_s and v is not None]


@pytest.mark.parametrize("seed", range(2))
def test_350_per_second_at_100_each_and_a_target_of_07_need_five_or_one_in_reserve(
    seed: int,
) -> None:
    found = foretold(pipeline(), steady(350, 40), 40, seed=seed)
    late = after(found, 25, "work", "instances")
    assert median(late) in (5, 6)
    assert max(late) - min(late) <= 1
    load = median(after(found, 25, "work", "load"))
    assert load == pytest.approx(3.5 / median(late), abs=0.03)
    # One tuple takes 10 ms; with 70 % of the instances busy hardly any waits for another two.
    assert median(after(found, 25, "out", "p99_ms")) < 60
    assert found.delivered["out"] == pytest.approx(350 * 40, rel=0.01)


def test_a_step_up_and_down_is_followed() -> None:
    def due(t_s: float) -> float:
        return 50 * t_s + 300 * max(0.0, min(t_s, 40) - 10)

    found = foretold(pipeline(), load(due, 70, 350), 70)
    assert set(after(found, 5, "work", "instances")[:10]) == {1}
    high = [n for t, n in zip(found.t, found.courses["work"].instances, strict=True) if 30 < t < 40]
    assert median(high) in (5, 6)
    assert after(found, 65, "work", "instances")[-1] <= 2
    assert found.joins["work"] >= 4
    assert found.leaves["work"] >= 3


def test_what_eight_instances_cannot_do_waits() -> None:
    found = foretold(pipeline(), steady(1000, 15), 15)
    assert max(found.courses["work"].instances) == 8
    late = after(found, 10, "work", "rate_in")
    assert median(late) == pytest.approx(800, rel=0.05)
    waiting = sum(c.waiting[-1] for c in found.courses.values())
    assert waiting + found.delivered["out"] == pytest.approx(15_000, rel=0.01)


def test_without_a_scale_there_is_one_instance_and_no_message() -> None:
    found = foretold(pipeline(scale=None), steady(350, 10), 10)
    assert set(found.courses["work"].instances) == {1}
    assert found.courses["work"].messages[-1] == 0
    assert found.delivered["out"] == pytest.approx(1000, rel=0.05)


def test_without_load_nothing_happens() -> None:
    found = foretold(pipeline(), steady(0, 10), 10)
    assert set(found.courses["work"].instances) == {1}
    assert found.delivered["out"] == 0
    assert set(found.courses["out"].p99_ms) == {None}


def test_a_run_is_looked_at_in_each_step_also_if_a_step_cannot_be_written_in_binary() -> None:
    free = dict.fromkeys(("lines", "work", "out"), Cost())
    world = Forecasting(pipeline(None), free, steady(0, 60), seed=0, hosts=[Host(1.0)])
    looked_at: list[float] = []
    world.run(60.0, 0.1, lambda: looked_at.append(world.now_s))
    assert looked_at == pytest.approx([0.1 * n for n in range(1, 601)], abs=0.01)


def test_instances_share_the_processors_that_there_are() -> None:
    scale = Scale(max_instances=60)
    found = foretold(pipeline(scale), steady(1000, 20), 20, cores=2)
    assert median(after(found, 12, "work", "rate_in")) == pytest.approx(200, rel=0.1)
    # As many as the load asks for at first, and no more: instances that wait for a processor most
    # of the time do not duplicate.
    assert max(found.courses["work"].instances) < 20


def test_results_per_tuple_reach_the_next_operator() -> None:
    made = Pipeline("made")
    lines = made.source("lines", items([1]))
    words = lines.flat_map("split", str.split)
    words.map("work", str).sink("out", discard())

    def fast(selectivity: float) -> Cost:
        return Cost(capacity=1000.0, selectivity=selectivity)

    costs = {"lines": Cost(), "split": fast(2.5), "work": fast(0.5), "out": Cost()}
    found = forecast(made, costs, steady(100, 10), seed=0, seconds=10)
    rates = {name: median(after(found, 2, name, "rate_in")) for name in found.courses}
    assert rates == pytest.approx({"lines": 100, "split": 100, "work": 250, "out": 125}, rel=0.03)


def test_a_seed_foretells_the_same_and_another_one_something_else() -> None:
    one, again, other = (foretold(pipeline(), steady(350, 5), 5, seed=s) for s in (1, 1, 2))
    assert asdict(one) == asdict(again)
    assert one.courses != other.courses


def test_each_sink_gets_its_own_tuples() -> None:
    made = Pipeline("two")
    work = made.source("lines", items([1])).map("work", str)
    work.filter("few", bool).sink("rare", discard())
    work.sink("all", discard())
    costs = {name: Cost() for name in map(str, made.operators)}
    costs["few"] = Cost(capacity=1e4, selectivity=0.1)
    found = forecast(made, costs, steady(100, 20), seed=0, seconds=20)
    assert found.delivered == {"rare": pytest.approx(200, abs=5), "all": pytest.approx(2000, abs=9)}


@dataclass(frozen=True)
class Greedy(Policy[None]):
    """Whatever there is already."""

    def decide(
        self, reading: Reading, scale: Scale, memory: None, rng: random.Random
    ) -> tuple[Decision, None]:
        return Duplicate(3, "more is more"), memory


@pytest.mark.parametrize("most", [1, 2, 7])
def test_siblings_that_all_want_more_in_the_same_moment_never_exceed_the_bound(most: int) -> None:
    made = pipeline(Scale(max_instances=most, policy=Greedy()))
    found = foretold(made, steady(50, 5), 5)
    assert max(found.courses["work"].instances) == most


def test_siblings_take_turns_in_a_forecast_as_they_do_in_a_run() -> None:
    ranks: list[int | None] = []

    @dataclass(frozen=True)
    class Watched(Probabilistic):
        def decide(
            self, reading: Reading, scale: Scale, memory: Memory, rng: random.Random
        ) -> tuple[Act, Memory]:
            ranks.append(reading.rank)
            return super().decide(reading, scale, memory, rng)

    foretold(pipeline(Scale(policy=Watched())), steady(350, 20), 20)
    late = ranks[len(ranks) // 2 :]
    assert set(range(5)) <= set(late) <= set(range(6))


@dataclass(frozen=True)
class Wishes(Policy[None]):
    """As many as wished until `until_s`, one afterwards."""

    n: int = 6
    until_s: float = 10.0

    def decide(
        self, reading: Reading, scale: Scale, memory: None, rng: random.Random
    ) -> tuple[Decision, None]:
        n = self.n if reading.now_s < self.until_s else 1
        return Resize(n, "wished"), memory


@pytest.mark.parametrize("seed", range(5))
def test_siblings_that_all_wish_for_the_same_number_reach_it_and_never_pass_it(seed: int) -> None:
    found = foretold(pipeline(Scale(policy=Wishes())), steady(50, 20), 20, seed=seed)
    counts = found.courses["work"].instances
    assert max(counts) == 6
    assert counts[-1] == 1
    assert (found.joins["work"], found.leaves["work"]) == (5, 5)


def test_key_groups_of_a_keyed_operator_move_and_cost_messages_and_time() -> None:
    def pipeline_of(*, keyed: bool) -> Pipeline:
        made = Pipeline("made")
        lines = made.source("lines", items([1]))
        if keyed:
            work = lines.key_by(str).fold("work", 0, lambda n, _: n + 1, scale=SCALE)
        else:
            work = lines.map("work", str, scale=SCALE)
        work.sink("out", discard())
        return made

    plain, keyed = (foretold(pipeline_of(keyed=k), steady(250, 15), 15) for k in (False, True))
    for found in (plain, keyed):
        waiting = sum(c.waiting[-1] for c in found.courses.values())
        assert waiting + found.delivered["out"] == pytest.approx(250 * 15, abs=30)
    per_change = [
        found.courses["work"].messages[-1] / (found.joins["work"] + found.leaves["work"])
        for found in (plain, keyed)
    ]
    assert per_change[1] > per_change[0]


def test_the_more_keys_there_are_the_longer_newcomers_wait_for_their_state() -> None:
    made = Pipeline("made")
    lines = made.source("lines", items([1]))
    lines.key_by(str).fold("work", 0, lambda n, _: n + 1, scale=SCALE).sink("out", discard())

    def most_waiting(keys: int) -> int:
        costs = {"lines": Cost(), "work": Cost(capacity=100.0, keys=keys), "out": Cost()}
        found = forecast(made, costs, steady(150, 20), seed=0, seconds=20)
        return max(found.courses["work"].waiting)

    assert most_waiting(20_000_000) > most_waiting(1_000) + 300
