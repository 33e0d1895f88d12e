"""What happens in a run goes into its report, over resumptions too; the urgent to the user."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.live.agent import recorder as recorder_module
from anabranch.runtime.live.agent import run_journal as log
from anabranch.runtime.live.agent import watchdog
from anabranch.runtime.live.agent.recorder import Recorder
from anabranch.runtime.live.agent.recovery import _of_report, _to_recorder
from anabranch.runtime.live.agent.run_events import QUIET_S, URGENT, Alerts, RunEvents
from anabranch.runtime.reporting.report import Event
from anabranch.runtime.reporting.status import FinalCount, Status
from anabranch.runtime.values.kinds import Cause, EventKind
from tests.runtime import fake_instance as fake
from tests.runtime.agent_runs import finish, start, until
from tests.runtime.fake_instance import Endless, three_operators
from tests.runtime.processes import LINUX

HANGS = EventKind.HANGS


def event(t: float, kind: EventKind, instance: str = "work.0", detail: str = "so") -> Event:
    return Event(t=t, operator="work", kind=kind, instances=1, instance=instance, detail=detail)


def alerts() -> tuple[Alerts, list[str]]:
    said: list[str] = []
    return Alerts(said.append), said


@pytest.mark.parametrize("kind", EventKind)
def test_what_a_user_should_act_on_is_told_at_once(kind: EventKind) -> None:
    one, said = alerts()
    one.hear(event(1.0, kind, detail="no word; py-spy dump --pid 7"))
    words = f"work.0 {kind.replace('_', ' ')}: no word; py-spy dump --pid 7"
    assert said == ([words] if kind in URGENT else [])


def test_the_same_again_and_again_is_told_now_and_then_with_how_often_it_came() -> None:
    one, said = alerts()
    for n in range(100):
        one.hear(event(n * QUIET_S / 50, EventKind.BURIED))
    assert len(said) == 2
    assert said[1].endswith("(and 49 times more since the last time)")


def test_each_instance_that_hangs_is_told() -> None:
    one, said = alerts()
    for n in range(3):
        one.hear(event(1.0, HANGS, f"work.{n}"))
    assert len(said) == 3


@pytest.mark.usefixtures("usual_behaviour")
@pytest.mark.skipif(not LINUX, reason="the states of processes are read from /proc")
def test_that_an_instance_hangs_is_said_while_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "LOOK_PERIOD_S", 0.02)
    monkeypatch.setattr(watchdog, "SUSPECT_S", 0.1)
    monkeypatch.setattr(watchdog, "HANG_S", 0.3)
    enough = tmp_path / "enough"
    fake.BEHAVIOUR["work"] = lambda me: until(enough.exists)
    said: list[str] = []
    run = start(three_operators(Endless()), on_alert=said.append)
    pid = run.snapshot().operator("work").members[0].pid
    until(lambda: any("work.0 hangs: " in one and f"--pid {pid}" in one for one in said))
    enough.touch()
    run.end_input()
    assert finish(run).ok


@pytest.mark.usefixtures("usual_behaviour")
@pytest.mark.skipif(not LINUX, reason="the states of processes are read from /proc")
def test_that_an_instance_works_for_long_without_a_word_is_said_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "LOOK_PERIOD_S", 0.02)
    monkeypatch.setattr(watchdog, "SUSPECT_S", 0.1)
    monkeypatch.setattr(watchdog, "HANG_S", 0.5)
    enough = tmp_path / "enough"

    def compute(_me: fake.Fake) -> None:
        while not enough.exists():
            sum(range(10_000))

    fake.BEHAVIOUR["work"] = compute
    said: list[str] = []
    run = start(three_operators(Endless()), on_alert=said.append)
    pid = run.snapshot().operator("work").members[0].pid
    until(lambda: any("work.0 busy long: " in one and f"--pid {pid}" in one for one in said))
    enough.touch()
    run.end_input()
    assert finish(run).ok


# -- over resumptions ---------------------------------------------------------------------------

happenings = st.lists(
    st.one_of(
        st.builds(
            event,
            st.floats(0, 100),
            st.sampled_from([EventKind.JOINED, EventKind.DIED, EventKind.RUN_RESUMED]),
        ),
        st.integers(0, 50),  # a sample, with so many tuples more
    ),
    max_size=40,
)


@given(happenings, st.integers(0, 40))
def test_a_shortened_journal_says_the_same_of_the_report(
    what: list[Event | int], short_at: int
) -> None:
    """`short_at`: when the journal is shortened; what comes later is in it one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder_module, "EVENTS_FIRST", 3)
        patch.setattr(recorder_module, "EVENTS_LAST", 4)
        patch.setattr(recorder_module, "ROWS_MAX", 8)
        recorder, journal, total = Recorder(["work"], 0.25), list[log.RunRecord](), 0
        for n, one in enumerate(what):
            if n == short_at:
                journal = [*_of_report(recorder)]
            if isinstance(one, Event):
                recorder.note(one)
                journal.append(log.Happened(event=one))
                continue
            total += one
            recorder.note_status(Status(id="work.0", operator="work", t=0.0, tuples_in=total))
            if (tick := recorder.sample(0.25 * n, {"work": 1})) is not None:
                journal.append(log.Sampled(t=tick[0], rows=tick[1]))
        later = Recorder(["work"], 0.25)
        for record in _read_back(journal):
            _to_recorder(later, record)
    assert later.events == recorder.events
    assert later.events_dropped == recorder.events_dropped
    assert later.resumed == recorder.resumed
    assert later.samples("work") == recorder.samples("work")
    assert later.period_s == recorder.period_s


def _read_back(records: list[log.RunRecord]) -> list[Any]:
    decode = msgspec.msgpack.Decoder(log.AnyRecord).decode
    return [decode(msgspec.msgpack.encode(record)) for record in records]


def test_totals_over_time_do_not_fall_while_resumed_instances_have_not_spoken() -> None:
    recorder = Recorder(["work"], 0.25)
    recorder.note_status(Status(id="work.0", operator="work", t=0.0, tuples_in=100))
    recorder.note_final(FinalCount(id="work.1", operator="work", tuples_in=50))
    tick = recorder.sample(1.0, {"work": 1})
    assert tick is not None
    later = Recorder(["work"], 0.25)
    later.restore_sample(*tick)
    later.sample(1.25, {"work": 1})
    later.note_status(Status(id="work.0", operator="work", t=0.0, tuples_in=101))
    later.note_final(FinalCount(id="work.1", operator="work", tuples_in=50))
    later.sample(1.5, {"work": 1})
    assert later.samples("work").rate_in == [0.0, 0.0, 4.0]


# -- kinds --------------------------------------------------------------------------------------


def test_a_kind_of_event_that_is_not_known_is_a_note() -> None:
    """So that reports of other versions can be read."""
    told = {"t": 1, "operator": "work", "kind": "from the future", "instances": 2}
    assert msgspec.json.decode(json.dumps(told), type=Event).kind is EventKind.NOTE
    cause = {**told, "kind": "died", "cause": "cosmic rays"}
    assert msgspec.json.decode(json.dumps(cause), type=Event).cause is Cause.UNKNOWN


@pytest.mark.usefixtures("usual_behaviour")
def test_what_a_source_tells_by_a_name_of_its_own_is_a_note_with_that_name() -> None:
    def tell(me: fake.Fake) -> None:
        me.note("calibrated", "by 0.3")

    fake.BEHAVIOUR["work"] = tell
    run = start(three_operators(Endless()))
    run.end_input()
    told = [(e.kind, e.label, e.detail) for e in finish(run).events if e.label]
    assert told == [(EventKind.NOTE, "calibrated", "by 0.3")]


def test_what_is_noted_to_be_told_at_once_is_told_whatever_its_kind() -> None:
    said: list[str] = []
    logged: list[Any] = []
    quiet: Any = SimpleNamespace(
        active=lambda operator: [], note=lambda event: None, now_s=1.0, started_s=0.0
    )
    events = RunEvents(quiet, quiet, quiet, logged.append, said.append)
    events.note("agent", EventKind.WAITS, "host 'north' cannot be reached")
    assert said == []
    events.note("agent", EventKind.WAITS, "host 'north' cannot be reached", at_once=True)
    assert said == ["host 'north' cannot be reached"]
    assert len(logged) == 2
