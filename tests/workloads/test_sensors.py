"""Means of real sensors by device and window, with what is late, against the oracle."""

from __future__ import annotations

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.workloads import sensors
from anabranch.workloads.sensors import FORMATS, Mean, Reading
from tests.workloads.shared_data import lines_of

HOUR = 3600.0
FILES = {
    "motes": ("iot/wsn_singlehop.csv.gz", 60.0),
    "meters": ("iot/smart_meter_30min.csv.gz", 24 * HOUR),
    "machine": ("iot/nab_machine_temperature.csv.gz", HOUR / 2),
    "buttons": ("iot/coffee_buttons_day1.jsonl.gz", HOUR / 4),
    "departures": ("events/flights_2013_01.csv.gz", HOUR),
}
LINES_MAX = 4_000


def pipeline(read: sensors.Read, window_s: float, disorder_s: float) -> Pipeline:
    return sensors.pipeline(
        ab.files("readings.csv"), ab.discard(), read, window_s=window_s, disorder_s=disorder_s
    )


def csv(line: str) -> list[Reading]:
    device, time, value = line.split(",")
    return [Reading(device, float(time), float(value))]


LINES = ["a,1,10", "a,9,20", "b,5,1", "a,12,30", "b,11,3", "a,8,40", "b,12,5", "a,25,50"]


def means_in(results: list[object]) -> dict[str, list[Mean]]:
    means = [Mean(r.key, r.start, r.end, r.value) for r in results]  # type: ignore[attr-defined]
    return {device: sorted(found) for device, found in testing.by_key(means).items()}


def check(outcome: testing.Outcome, expected: sensors.Expected) -> None:
    found = means_in(outcome["results"])
    assert found.keys() == expected.means.keys()
    for device, means in expected.means.items():
        assert [m[:3] for m in found[device]] == [m[:3] for m in means]
        assert [m.mean for m in found[device]] == pytest.approx([m.mean for m in means])
    assert outcome.late.get("means", []) == expected.late
    assert outcome.dead == {}


def test_the_oracle_by_hand() -> None:
    means, late = sensors.expected(LINES, csv, window_s=10.0, disorder_s=0.0)
    assert means == {
        "a": [("a", 0, 10, 15.0), ("a", 10, 20, 30.0), ("a", 20, 30, 50.0)],
        "b": [("b", 0, 10, 1.0), ("b", 10, 20, 4.0)],
    }
    assert late == [("a", 8.0, 40.0)]
    means, late = sensors.expected(LINES, csv, window_s=10.0, disorder_s=2.0)
    assert means["a"][0].mean == pytest.approx(70 / 3)
    assert late == []


@pytest.mark.parametrize("disorder_s", [0.0, 1.0, 2.0])
def test_a_few_readings_by_hand_and_by_the_pipeline(disorder_s: float) -> None:
    outcome = testing.run(pipeline(csv, 10.0, disorder_s), {"lines": LINES})
    check(outcome, sensors.expected(LINES, csv, window_s=10.0, disorder_s=disorder_s))


def test_the_disorder_of_lines_is_how_far_they_fall_back() -> None:
    assert sensors.disorder_of(LINES, csv) == 4.0
    assert sensors.disorder_of([], csv) == 0.0


@pytest.mark.parametrize("name", FILES)
def test_headers_and_gaps_are_no_readings(name: str) -> None:
    lines = lines_of(FILES[name][0])
    readings = [one for line in lines for one in FORMATS[name](line)]
    assert len(lines) - len(readings) == {"buttons": 0, "departures": 522}.get(name, 1)


@pytest.mark.parametrize("disorder_s", [0.0, HOUR])
@pytest.mark.parametrize("name", FILES)
def test_the_means_and_the_late_readings_are_those_of_the_oracle(
    name: str, disorder_s: float
) -> None:
    file, window_s = FILES[name]
    lines, read = lines_of(file)[:LINES_MAX], FORMATS[name]
    outcome = testing.run(pipeline(read, window_s, disorder_s), {"lines": lines})
    check(outcome, sensors.expected(lines, read, window_s=window_s, disorder_s=disorder_s))


@pytest.mark.parametrize(
    ("name", "late"),
    [("departures", [3662, 873]), ("machine", [6, 0]), ("buttons", [1, 0]), ("meters", [0, 0])],
)
def test_patience_leaves_fewer_readings_late(name: str, late: list[int]) -> None:
    """Flights leave hours late; the machine told half an hour twice; a button had a slow clock."""
    file, window_s = FILES[name]
    lines, read = lines_of(file), FORMATS[name]
    found = [
        len(sensors.expected(lines, read, window_s=window_s, disorder_s=d).late)
        for d in (0.0, HOUR)
    ]
    assert found == late


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_late_under_the_bound_of_the_data_however_many_instances(name: str) -> None:
    file, window_s = FILES[name]
    lines, read = lines_of(file)[:LINES_MAX], FORMATS[name]
    disorder_s = sensors.disorder_of(lines, read)
    with testing.harness(pipeline(read, window_s, disorder_s), instances={"means": 3}) as h:
        step = len(lines) // 7
        for at in range(0, len(lines), step):
            h.send("lines", *lines[at : at + step])
            h.move("means", range(at // step, 256, 5), to=at // step % 3)
    expected = sensors.expected(lines, read, window_s=window_s, disorder_s=disorder_s)
    assert expected.late == []
    outcome = testing.Outcome({"results": h.results("results")}, h.late, h.dead, {})
    check(outcome, expected)


def test_a_device_that_falls_silent_holds_up_the_others_only_until_it_is_idle() -> None:
    made = sensors.pipeline(
        ab.files("x"), ab.discard(), csv, window_s=10.0, disorder_s=0.0, idle_s=30.0
    )
    with testing.harness(made) as h:
        h.send("lines", "a,1,10", "b,2,20")
        h.advance(20.0)
        h.send("lines", "b,19,20")
        assert h.news("results") == []
        h.advance(10.0)
        assert [r.key for r in h.news("results")] == ["a", "b"]
