"""The loads of the evaluation, in tweets per second.

The paper names their shapes only: levels and times are ours. Its months of Twitter are not
published; recordings stand for them, sped up 60 times (EL-G9: the history before is for learning).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from anabranch.runtime.policies.elysium.forecasting import Calendar
from anabranch.workloads.curve_base import Curve
from anabranch.workloads.curves import Noisy, Sine, Square, Stair, Steady, Step, Trace
from anabranch.workloads.traces import Recording, read_recording

NOISE, NOISE_S = 0.15, 10.0
PERIOD_S = 60.0
SPEED = 60
DAY_S, HOUR_S = 86_400, 3_600
LEARNT_FROM = 0.7
"""This share of a recording is history."""
DAYS = 2
"""Of it are replayed: 48 minutes of a run."""
PEAKS = {"T1": 1300.0, "T2": 1000.0}


@dataclass(frozen=True, slots=True)
class Scene:
    """`curves`: of each application, without noise. `history`: minutes of a run before it, by
    application, for forecasts; their calendar, and that of the scene itself, if it has one."""

    name: str
    curves: Mapping[str, Curve]
    seconds: float
    period_s: float = PERIOD_S
    history: Mapping[str, Sequence[float]] | None = None
    calendar: Sequence[Calendar] | None = None
    days: Sequence[Calendar] | None = None
    noise: float = NOISE

    def offered(self, application: str, seed: int) -> Curve:
        at = [*self.curves].index(application)
        return Noisy(self.curves[application], self.noise, NOISE_S, seed * 10 + at)


T1_STAIR = Stair(200, 1400, 5, 120)
T2_STAIR = Stair(150, 1000, 5, 120)
SCENES = (
    Scene("T1 stair", {"T1": T1_STAIR}, 960),
    Scene("T1 step", {"T1": Step(200, 1300, 120, 360)}, 600),
    Scene("T1 square", {"T1": Square(200, 1300, 480)}, 1440),
    Scene("T1 sine", {"T1": Sine(100, 1300, 600)}, 1200),
    Scene("T2 square", {"T2": Square(150, 1000, 480)}, 1440),
    Scene("T2 sine", {"T2": Sine(100, 1000, 600)}, 1200),
    Scene("T1 step + T2 stair", {"T1": Step(200, 1300, 120, 360), "T2": T2_STAIR}, 960),
    Scene("both sine", {"T1": Sine(100, 1300, 600), "T2": Sine(100, 1000, 600)}, 1200),
)
FILTER_STEP = Scene("T1 300, 750", {"T1": Step(300, 750, 180, 600)}, 840)
"""Figure 10a."""
STEADY = Scene("T1 200/s + T2 stair", {"T1": Steady(200), "T2": T2_STAIR}, 960)
"""Figure 12: T1 at the only rate that the paper gives."""
LONG_SINE = Sine(100, 1300, 540)
"""Figure 6c."""
TRACES = {
    "AMZN": "nab_tweets_AMZN_5min.csv.gz",
    "worldcup": "worldcup98_0430_0614_per_minute.csv.gz",
}
TAXI = "nyc_taxi_30min.csv.gz"
BEGINS = {
    "AMZN": datetime(2015, 2, 26, 21, 42),
    "worldcup": datetime(1998, 4, 30),
    "taxi": datetime(2014, 7, 1),
}
"""Of the recordings, for the calendar."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A load by recorded hours, which are minutes of a run, and the calendar of each."""

    name: str
    recording: Recording
    hours: Sequence[float]
    calendar: Sequence[Calendar]

    @property
    def split(self) -> int:
        """The first hour that was not learnt from."""
        return int(len(self.hours) * LEARNT_FROM)


def recorded(name: str, path: Path) -> Recorded:
    """Raises `CurveError` or `OSError` for another file."""
    found = read_recording(path)
    hours = found.rebin(max(HOUR_S, found.interval_s)).values
    return Recorded(name, found, hours, calendar_from(BEGINS[name], len(hours)))


def calendar_from(begin: datetime, hours: int) -> list[Calendar]:
    """Of each recorded hour; days count from Sunday on."""
    times = (begin + timedelta(hours=at) for at in range(hours))
    return [(time.isoweekday() % 7, time.hour, time.minute) for time in times]


def replay(load: Recorded, application: str) -> Scene:
    """The first days that were not learnt from, with the history in tweets per second."""
    first = load.split
    part = load.recording.cut(first * HOUR_S, DAYS * DAY_S)
    curve = Trace(part.values, part.interval_s, compress=SPEED, peak=PEAKS[application])
    per_tweet = PEAKS[application] / max(part.values) * load.recording.interval_s / HOUR_S
    return Scene(
        f"{application} {load.name}",
        {application: curve},
        DAYS * DAY_S / SPEED,
        history={application: [count * per_tweet for count in load.hours[:first]]},
        calendar=load.calendar[:first],
        days=load.calendar[first : first + DAYS * DAY_S // HOUR_S],
    )
