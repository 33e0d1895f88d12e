"""The pipeline `sensors`: the mean of each device's readings in each window of time.

    lines -> readings -> means -> results

Event time is that of the readings, with a bound on their disorder, and each device has its own
latest time: the slowest counts. A reading whose window has ended by then is late: it becomes a
dead letter, and is counted. `FORMATS` has readers for sensor data of several kinds, with gaps,
repeats and readings that come late.

Which readings are late depends on how streams interleave. It is certain in two cases, and the
oracle is for these: one instance reads event time (`readings` does not scale), so its order is
that of the lines; or the bound on disorder is that of the data (`disorder_of`), under which
nothing is late for any number of instances that each get their share in the order of the lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from anabranch.runtime.keyed.aggregations import mean
from anabranch.runtime.keyed.windows import tumbling
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Sink, Source
from anabranch.runtime.policies.policy import Scale
from anabranch.workloads.stamps import seconds_of


class Reading(NamedTuple):
    device: str
    time: float
    value: float


Read = Callable[[str], Sequence[Reading]]
"""The readings of a line: none of a header, or of a line without a value."""


class Mean(NamedTuple):
    """Of the `readings` of a device in the window [start, end) that were not late."""

    device: str
    start: float
    end: float
    mean: float


class Expected(NamedTuple):
    """`late`: in the order in which they come."""

    means: dict[str, list[Mean]]
    late: list[Reading]


def pipeline(
    source: Source,
    sink: Sink,
    read: Read,
    *,
    window_s: float,
    disorder_s: float,
    idle_s: float | None = None,
    name: str = "sensors",
    scale: Scale | None = None,
    scale_readings: Scale | None = None,
) -> Pipeline:
    """The pipeline from `source` (lines) to `sink` (`WindowResult`: the value is the mean).

    `idle_s`: a device that has been silent for so long is not waited for (default: each is).
    `scale`: of `means` (default `Scale()`). `scale_readings`: of `readings`, which reads event
    time; see the module.
    """
    pipeline = Pipeline(name)
    (
        pipeline.source("lines", source)
        .flat_map("readings", read, scale=scale_readings)
        .event_time(time_of, disorder_s=disorder_s, device=device_of, idle_s=idle_s)
        .key_by(device_of)
        .window(tumbling(window_s), time=time_of, late="bury")
        .aggregate("means", mean(value_of), scale=scale or Scale())
        .sink("results", sink)
    )
    return pipeline


def time_of(reading: Reading) -> float:
    return reading.time


def device_of(reading: Reading) -> str:
    return reading.device


def value_of(reading: Reading) -> float:
    return reading.value


# -- formats -----------------------------------------------------------------------------------


def motes(line: str) -> list[Reading]:
    """`reading,mote_id,indoor,humidity,temperature,label`: temperatures, each 5 s."""
    number, mote, _, _, temperature, _ = line.rstrip().split(",")
    if number == "reading":
        return []
    return [Reading(f"mote{mote}", 5.0 * int(number), float(temperature))]


def meters(line: str) -> list[Reading]:
    """`reading_datetime,meter,general_supply_kwh`."""
    stamp, meter, kwh = line.rstrip().split(",")
    if stamp == "reading_datetime":
        return []
    return [Reading(meter, seconds_of(stamp), float(kwh))]


def machine(line: str) -> list[Reading]:
    """`timestamp,value` of a single machine."""
    stamp, value = line.rstrip().split(",")
    if stamp == "timestamp":
        return []
    return [Reading("machine", seconds_of(stamp), float(value))]


def buttons(line: str) -> list[Reading]:
    """JSON lines of button presses: how many cups were ordered at once."""
    press = json.loads(line)
    return [Reading(press["entityID"], seconds_of(press["@timestamp"]), float(press["quantity"]))]


def departures(line: str) -> list[Reading]:
    """Flights by airport, in the order in which they took off: the delay of each in minutes, at
    the time for which it was planned; nothing of a cancelled one."""
    fields = line.rstrip().split(",")
    planned, delay = fields[0], fields[6]
    if planned == "event_time" or not delay:
        return []
    return [Reading(fields[4], seconds_of(planned), float(delay))]


FORMATS: dict[str, Read] = {
    "motes": motes,
    "meters": meters,
    "machine": machine,
    "buttons": buttons,
    "departures": departures,
}


# -- oracle ------------------------------------------------------------------------------------


def expected(lines: Iterable[str], read: Read, *, window_s: float, disorder_s: float) -> Expected:
    """What must come out for each device, in order, and what must be late, if one instance reads
    event time and waits for each device: a reading is judged by those before it."""
    latest: dict[str, float] = {}
    watermark = float("-inf")
    windows: dict[tuple[str, float], list[float]] = {}
    late = []
    for reading in (one for line in lines for one in read(line)):
        start = reading.time // window_s * window_s
        if start + window_s <= watermark:
            late.append(reading)
        else:
            windows.setdefault((reading.device, start), []).append(reading.value)
        latest[reading.device] = max(reading.time, latest.get(reading.device, reading.time))
        watermark = max(watermark, min(latest.values()) - disorder_s)
    means: dict[str, list[Mean]] = {}
    for (device, start), values in sorted(windows.items()):
        one = Mean(device, start, start + window_s, sum(values) / len(values))
        means.setdefault(device, []).append(one)
    return Expected(means, late)


def disorder_of(lines: Iterable[str], read: Read) -> float:
    """By how much a reading is behind an earlier one, of whatever device, at most: under this
    bound none is late."""
    latest = float("-inf")
    most = 0.0
    for reading in (one for line in lines for one in read(line)):
        most = max(most, latest - reading.time)
        latest = max(latest, reading.time)
    return most
