"""`anabranch simulate` and `anabranch replay`: what they print, and what they refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from anabranch.cli import main
from anabranch.commands import replay
from anabranch.forecasting import (
    ForecastError,
    arrivals_of,
    band_of,
    costs_of,
    curves_of,
    pairs,
    seconds_of,
    variants_of,
)
from anabranch.loading import load_pipeline
from anabranch.runtime.broken_protocols.naming import variant_named
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.reporting.ledger import Ledger
from anabranch.runtime.reporting.report import OperatorReport, Report, write_report
from anabranch.spark_bridge.world.seeds import SeedsWithSpark
from anabranch.workloads.curves import Steady, Step
from tests.anabranch.files import GOOD, clean_imports, write

SWARM = Path(__file__).resolve().parents[2] / "scripts" / "swarm.py"

QUICK = ("--duration", "20", "--seeds", "2", "--jobs", "1")


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with clean_imports():
        yield


def called(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write(tmp_path, GOOD)


def loaded(path: Path) -> Pipeline:
    return load_pipeline(str(path)).pipeline


def operator(name: str, kind: str, taken: int, made: int, capacity: float | None) -> OperatorReport:
    return OperatorReport(
        name=name,
        kind=kind,
        tuples_in=taken,
        tuples_out=made,
        dead=0,
        instances_peak=1,
        instances_ever=1,
        joins=0,
        leaves=0,
        messages=0,
        capacity=capacity,
    )


def report(folder: Path) -> Path:
    ledger = Ledger(
        tuples_in=100,
        tuples_out=250,
        lost=0,
        duplicated=0,
        dead_letters=0,
        in_flight=0,
        balanced=True,
        channels=2,
        operators=[],
        faults=[],
    )
    whole = Report(
        pipeline="headlines",
        seconds=1.0,
        ended="completed",
        failure=None,
        failure_detail="",
        started_at="2026-01-01T00:00:00+00:00",
        ledger=ledger,
        operators=[
            operator("lines", "source", 100, 100, 77.0),
            operator("split", "operator", 100, 250, 120.0),
            operator("out", "sink", 250, 250, None),
        ],
        events=[],
        events_dropped=0,
        latency_ms={},
        dead_reasons={},
        sample_period_s=0.25,
        seed=0,
    )
    path = folder / "report.json"
    write_report(whole, path)
    return path


def test_the_table_shows_costs_a_summary_and_the_course(good: Path) -> None:
    result = called("simulate", good, "--load", "60", "--capacity", "split=100", *QUICK)
    assert result.exit_code == 0, result.output
    assert "headlines under 60 for 20.0 s, simulated, 2 seeds" in result.output
    assert "split     100/s     given" in result.output
    last = result.output.splitlines()[-1].split()
    assert last[:2] == ["20.0", "s"]
    assert last[2:5] == ["60/s", "1", "0.60"]


def test_json_has_a_band_of_all_seeds_for_every_figure(good: Path) -> None:
    arguments = ("--load", "35", "--capacity", "split=10", "--json")
    result = called("simulate", good, *arguments, *QUICK)
    found = json.loads(result.output)
    (settings,) = found["settings"]
    split = settings["operators"]["split"]
    assert found["seeds"] == [0, 1]
    assert found["costs"]["split"] == {"capacity": 10.0, "selectivity": 1.0, "from": "given"}
    assert found["costs"]["out"]["capacity"] is None
    for figure in ("instances", "load", "rate_in", "waiting", "messages"):
        band = split[figure]
        assert len(band["low"]) == len(band["middle"]) == len(band["high"]) == len(found["t"])
        assert all(a <= b <= c for a, b, c in zip(*band.values(), strict=True))
    assert split["p50_ms"]["middle"][0] is None


def test_settings_are_compared_side_by_side(good: Path) -> None:
    quick = ("--duration", "10", "--seeds", "1", "--jobs", "1")
    arguments = ("--load", "30", "--capacity", "split=10", "--json", *quick)
    compared = ("--compare", "split.scale.max_instances=2 split.scale.target=0.8")
    found = json.loads(called("simulate", good, *arguments, *compared).output)
    as_it_is, other = found["settings"]
    assert other["name"] == "split.scale.max_instances=2 split.scale.target=0.8"
    most = [s["operators"]["split"]["summary"]["instances_most"] for s in (as_it_is, other)]
    assert most[0] >= 4
    assert most[1] <= 3
    text = called("simulate", good, *(a for a in arguments if a != "--json"), *compared).output
    assert text.count("as it is") == 3


def test_the_seed_decides(good: Path) -> None:
    arguments = ("--load", "35", "--capacity", "split=10", "--json", "--seeds", "1")
    one, again, other = (
        called("simulate", good, *arguments, "--duration", "10", "--seed", seed).output
        for seed in ("1", "1", "2")
    )
    assert one == again != other


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs matplotlib")
def test_a_picture_is_drawn(good: Path, tmp_path: Path) -> None:
    target = tmp_path / "pictures" / "forecast.svg"
    arguments = ("--load", "35", "--capacity", "split=10", "--picture", target)
    quick = ("--duration", "5", *QUICK[2:])
    result = called("simulate", good, *arguments, "--compare", "split.scale.target=0.6", *quick)
    assert result.exit_code == 0, result.output
    drawn = target.read_text()
    assert "<svg" in drawn


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "the load of source 'lines' is not known"),
        (("--load", "350"), "the capacity of operator 'split' is not known"),
        (("--load", "stp:before=1"), "did you mean 'step'?"),
        (("--load", "line=350"), "no source 'line'; did you mean 'lines'?"),
        (("--load", "350", "--capacity", "split"), "expected OPERATOR=NUMBER above 0"),
        (("--load", "350", "--capacity", "split=-1"), "expected OPERATOR=NUMBER above 0"),
        (("--load", "350", "--capacity", "splt=9"), "--capacity: no operator 'splt'; did"),
        (("--load", "350", "--skew", "splt=9"), "--skew: no operator 'splt'; did you mean 'split'"),
        (("--load", "load.csv"), "--load load.csv: no such file"),
        (("--load", "350", "--cost", "none.json"), "--cost none.json: No such file"),
        (("--load", "3", "--capacity", "split=9", "--compare", "split.scale.x=1"), "no setting"),
        (("--load", "3", "--set", "split.scale.x=1"), "no setting"),
    ],
)
def test_what_is_missing_or_wrong_is_said_in_a_line(
    good: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = called("simulate", good, *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_costs_come_from_a_run_unless_they_are_given(good: Path, tmp_path: Path) -> None:
    made, measured = loaded(good), report(tmp_path)
    costs = costs_of(made, report=measured, capacities={}, selectivities={})
    assert (costs["split"].cost.capacity, costs["split"].cost.selectivity) == (120.0, 2.5)
    assert [c.origin for c in costs.values()] == ["taken as free", "measured", "taken as free"]
    given = costs_of(made, report=measured, capacities={"split": 9.0}, selectivities={"split": 3.0})
    assert (given["split"].cost.capacity, given["split"].cost.selectivity) == (9.0, 3.0)
    made.with_scale("split", "capacity", 50.0)
    by_scale = costs_of(made, report=None, capacities={}, selectivities={})
    assert (by_scale["split"].cost.capacity, by_scale["split"].origin) == (50.0, "its scale")


def test_an_operator_of_which_each_instance_had_little_to_do_costs_what_all_of_it_took(
    good: Path, tmp_path: Path
) -> None:
    path = report(tmp_path)
    plain = json.loads(path.read_text())
    plain["operators"][1] |= {"capacity": None, "processed": 300, "busy_s": 0.002}
    path.write_text(json.dumps(plain))
    costs = costs_of(loaded(good), report=path, capacities={}, selectivities={})
    assert (costs["split"].cost.capacity, costs["split"].origin) == (150_000.0, "measured")


def test_a_file_that_is_no_report_is_refused(good: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    with pytest.raises(ForecastError, match="not a report of a run"):
        costs_of(loaded(good), report=other, capacities={}, selectivities={})


def test_the_load_is_that_of_all_sources_or_of_one_or_a_recorded_one(tmp_path: Path) -> None:
    text = """
        import anabranch as ab

        pipeline = ab.Pipeline("two")
        a = pipeline.source("a", ab.generate(str, rate=30.0))
        b = pipeline.source("b", ab.items([1]))
        pipeline.merge(a, b).sink("out", ab.discard())
    """
    made = loaded(write(tmp_path, text, "two.py"))
    recorded = tmp_path / "load.csv"
    recorded.write_text("seconds,count\n0,5\n10,7\n")
    assert curves_of(made, ["b=40"]) == {"a": Steady(30.0), "b": Steady(40)}
    assert curves_of(made, ["7"]) == {"a": Steady(7), "b": Steady(7)}
    step = "a=step:before=1,after=2,at_s=3"
    assert curves_of(made, ["7", step]) == {"a": Step(1, 2, 3), "b": Steady(7)}
    assert set(curves_of(made, [str(recorded)])) == {"a", "b"}
    with pytest.raises(ForecastError, match="'b' is not known"):
        curves_of(made, [])


def test_a_load_is_given_finely_and_to_its_end() -> None:
    curve = Step(100.0, 200.0, 5.0)
    load = arrivals_of({"a": curve}, 10.0)
    assert load.totals["a"][-1] == 1500
    assert load.look_s == 0.01
    assert seconds_of({"a": curve}, None) == 60.0
    assert seconds_of({"a": curve}, 7.0) == 7.0


def test_a_band_leaves_out_what_no_seed_knows() -> None:
    band = band_of([[1.0, None, None], [3.0, 4.0, None]])
    assert band.middle[:2] == [2.0, 4.0]
    assert band.low[0] < band.middle[0] < band.high[0]
    assert band.high[2] != band.high[2]


def test_comparing_leaves_the_pipeline_as_it_is(good: Path) -> None:
    made = loaded(good)
    variants = variants_of(made, ["split.scale.max_instances=3", "split.scale.target=0.65"])
    scales = [
        v.pipeline.operators[o].scale for v in variants for o in made.operators if o == "split"
    ]
    assert [(s.max_instances, s.target) for s in scales if s] == [(8, 0.7), (3, 0.7), (8, 0.65)]
    assert pairs("--capacity", ["a=1", "b=2.5"]) == {"a": 1.0, "b": 2.5}


# -- replay ----------------------------------------------------------------------------------


def test_replay_tells_the_exchange_and_the_verdict() -> None:
    result = called("replay", "1")
    assert result.exit_code == 0
    assert "a.0 is a founder, the keeper" in result.output
    assert "tuple" in result.output
    assert "seed 1 is valid\n" in result.output


def test_replay_without_tuples_and_of_the_end_only_is_short() -> None:
    whole, control = called("replay", "1").output, called("replay", "1", "--control").output
    assert re.search(r"receives \d+ tuple", whole)
    assert not re.search(r"receives \d+ tuple", control)
    assert len(called("replay", "1", "--last", "3").output.splitlines()) == 6


def test_replay_as_json_holds_the_whole_world() -> None:
    found = json.loads(called("replay", "1", "--json").output)
    assert found["outcome"]["verdict"] == "valid"
    assert found["world"]["seed"] == 1
    assert {"scene", "decisions", "troubles", "limits"} <= found["world"].keys()
    received = [r for r in found["rows"] if r["cause"]]
    names = {r["name"] for r in found["rows"]}
    assert received
    assert names >= {r["cause"] for r in received}


def test_replay_of_a_broken_rule_fails_and_shows_where() -> None:
    rule = "R11: a leaver ends without"
    patch = variant_named(rule).patch
    seeds = (11, *range(100))  # the first has shown it
    seed = next(n for n in seeds if SeedsWithSpark(n, 1, patch=patch).run().failing)
    result = called("replay", str(seed), "--break", rule, "--control")
    assert result.exit_code == 1
    assert f"seed {seed} is invalid: I1: " in result.output


def test_an_unknown_or_unclear_broken_rule_is_refused() -> None:
    unclear = called("replay", "1", "--break", "R14")
    assert unclear.exit_code == 2
    assert "'R14' names 5 broken variants of:" in unclear.output
    assert called("replay", "1", "--break", "no rule").exit_code == 2


def test_reports_of_older_runs_without_capacities_can_be_read(tmp_path: Path) -> None:
    path = report(tmp_path)
    plain = json.loads(path.read_text())
    for row in plain["operators"]:
        del row["capacity"]
    old = msgspec.json.decode(json.dumps(plain), type=Report)
    assert old.operator("split").capacity is None


def test_broken_rules_in_examples_are_broken_variants() -> None:
    texts = [replay.EXAMPLES, SWARM.read_text().split('"""')[1]]
    shown = [re.findall(r"--break (\w+)", text) for text in texts]
    assert all(shown)
    for names in shown:
        for name in names:
            assert variant_named(name).patch
