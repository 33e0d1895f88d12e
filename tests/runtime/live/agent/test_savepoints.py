"""A run that stops with a savepoint, and another one that goes on from it, are one stream: their
results together are those of a run that was not interrupted."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.protocol.ids import OperatorName
from anabranch.runtime.keyed.holdings import Holdings
from anabranch.runtime.keyed.journaling import restore
from anabranch.runtime.keyed.watermarks import Stamper
from anabranch.runtime.live.agent import launch
from anabranch.runtime.live.agent.run_files import RunFiles
from anabranch.runtime.live.agent.savepoints import lay_bases
from anabranch.runtime.live.agent.starter import Starter
from anabranch.runtime.live.agent.state_dir import open_state
from anabranch.runtime.live.commit.recovery import read_base, write_base
from anabranch.runtime.live.instance.keyed_pump import KEYED
from anabranch.runtime.live.instance.pumps import STAMPS
from anabranch.runtime.live.journal.journal import remove_journal
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.policies.script import parse_script
from anabranch.runtime.reporting.failure import RunFailed
from anabranch.runtime.reporting.report import Report
from anabranch.runtime.savepoint import folder
from anabranch.runtime.savepoint.folder import SavepointError, SavepointHead, read
from anabranch.runtime.savepoint.state_rows import row_of_watermark, rows_of_devices
from anabranch.runtime.savepoint.versions import STATE_FORMAT
from anabranch.runtime.storage.state_folder import StateError
from anabranch.setting import apply_settings
from tests.runtime.agent_runs import until
from tests.runtime.processes import PATIENCE_S
from tests.spark_engine.phases import Phases, let_have

pytest.importorskip("pyarrow")

KEEPING = [
    "fold, reduce",
    "process, timers",
    "tumbling",
    "sessions",
    "late emitted",
    "count windows",
    "windows of windows",
    "devices",
    "join",
]
ON_AND_ON = {"process, timers", "late emitted", "join"}
"""What begins from a savepoint leaves one, too: the same code for all that keep something."""
IN_ORDER = {"sessions"}
"""What several instances retract, where they meet tuples in another order, is not the same."""


@pytest.mark.parametrize("name", KEEPING)
def test_runs_from_one_savepoint_to_the_next_give_what_one_run_gives(
    name: str, tmp_path: Path
) -> None:
    """With other numbers of instances and of key groups each time."""
    many = int(name not in IN_ORDER)
    bench = Phases(name, tmp_path, 3 if name in ON_AND_ON else 2)
    one, two = tmp_path / "one", tmp_path / "two"
    _run(bench.next_run(groups=64, instances=1), state=one, until_committed=True)
    assert bench.found("run") != bench.in_testing(), "the first run has it all: proves nothing"
    last = one
    if name in ON_AND_ON:
        second = bench.next_run(groups=100, instances=1 + many)
        _run(second, begin_from=one / "savepoint", state=two, until_committed=True)
        last = two
    _run(bench.next_run(groups=7, instances=1 + 2 * many), begin_from=last / "savepoint")
    (tmp_path / "testing").rename(tmp_path / "tested")
    bench.check()


# -- what is refused -----------------------------------------------------------------------------


def _saved(path: Path) -> Path:
    """A savepoint of a small run; `in/0` was read."""
    (path / "in").mkdir()
    (path / "in/0").write_text("1\n2\n3\n")
    _run(_small(path), state=path / "one", until_committed=True)
    return path / "one" / "savepoint"


def _small(path: Path, fold: str = "sum", name: str = "small", **settings: Any) -> ab.Pipeline:
    pipeline = ab.Pipeline(name, **settings)
    numbers = pipeline.source("lines", ab.files(path / "in")).map("number", int)
    sums = numbers.key_by(_key).fold(fold, 0, lambda total, n: total + n)
    sums.sink("out", ab.jsonl(path / "out.jsonl"))
    return pipeline


def test_a_savepoint_of_another_pipeline_is_refused_by_the_names_of_operators(
    tmp_path: Path,
) -> None:
    saved = _saved(tmp_path)
    results = (tmp_path / "out.jsonl").read_text()
    with pytest.raises(
        SavepointError, match="operator 'sum' was fold by key after number and is not"
    ):
        _run(_small(tmp_path, "added"), begin_from=saved)
    with pytest.raises(SavepointError, match="it was 'small' and is 'other'"):
        _run(_small(tmp_path, name="other"), begin_from=saved)
    with pytest.raises(SavepointError, match="at-most-once"):
        _run(_small(tmp_path, delivery="at-most-once"), begin_from=saved)
    assert (tmp_path / "out.jsonl").read_text() == results, "results were given up"


def test_a_savepoint_that_is_damaged_or_of_another_version_is_refused(tmp_path: Path) -> None:
    saved = _saved(tmp_path)
    pipeline = _small(tmp_path)
    head, keys = saved / folder.HEAD, saved / "keys.parquet"
    text, data = head.read_text(), keys.read_bytes()
    for damaged in (data[:-1], data.replace(b"sum", b"sun"), b""):
        keys.write_bytes(damaged)
        with pytest.raises(SavepointError, match=r"keys\.parquet is damaged"):
            _run(pipeline, begin_from=saved)
    keys.unlink()
    with pytest.raises(SavepointError, match=r"keys\.parquet is damaged: it is gone"):
        _run(pipeline, begin_from=saved)
    keys.write_bytes(data)
    for broken in (text.replace('"groups": 256', '"groups": 255'), text[:50], "{}"):
        head.write_text(broken)
        with pytest.raises(SavepointError, match=r"savepoint\.json is damaged"):
            _run(pipeline, begin_from=saved)
    head.write_text(text.replace('"format": 2,', '"format": 1,'))
    with pytest.raises(SavepointError, match="written by another version"):
        _run(pipeline, begin_from=saved)
    head.unlink()
    with pytest.raises(SavepointError, match="there is none"):
        _run(pipeline, begin_from=saved)


def test_an_input_that_has_changed_or_is_gone_is_refused(tmp_path: Path) -> None:
    saved = _saved(tmp_path)
    (tmp_path / "in/0").write_text("1\n2\n4\n")
    with pytest.raises(RunFailed, match=r"source 'lines': .* file '.*in/0'.* another content"):
        _run(_small(tmp_path), begin_from=saved)
    (tmp_path / "in/0").rename(tmp_path / "in/1")
    with pytest.raises(RunFailed, match=r"has read file '.*in/0', and there is none of that name"):
        _run(_small(tmp_path), begin_from=saved)
    (tmp_path / "in/1").unlink()
    with pytest.raises(OSError, match="in"):
        _run(_small(tmp_path), begin_from=saved)


def test_what_cannot_leave_a_savepoint_is_refused_before_anything_starts(tmp_path: Path) -> None:
    _saved(tmp_path)
    stops = {"state": tmp_path / "one", "until_committed": True}
    with pytest.raises(SavepointError, match="holds 'savepoint' already"):
        _run(_small(tmp_path), **stops)
    stops["state"] = tmp_path / "two"
    with pytest.raises(SavepointError, match="keeps no state of keys"):
        _run(_small(tmp_path, delivery="at-most-once"), **stops)
    pipeline = ab.Pipeline("stdin")
    pipeline.source("lines", ab.stdin()).sink("out", ab.discard())
    with pytest.raises(SavepointError, match="'lines' cannot be read again from a position"):
        _run(pipeline, **stops)
    with pytest.raises(ab.PipelineError, match="until_committed needs state"):
        Options(until_committed=True)
    with pytest.raises(ab.PipelineError, match="either begin_from or resume"):
        Options(begin_from=tmp_path, state=tmp_path, resume=True)


def test_the_page_describes_each_column_of_each_file() -> None:
    page = (Path(__file__).parents[4] / "docs" / "savepoints.md").read_text()
    files = re.findall(r"^`(\w+)\.parquet`(.*?)(?=^[`#])", page, re.MULTILINE | re.DOTALL)
    columns = re.compile(r"^\| `(\w+)` \| (\w+) \|", re.MULTILINE)
    assert {name: dict(columns.findall(rows)) for name, rows in files} == folder.TABLES


# -- when it cannot be written, or is wanted late ------------------------------------------------


def test_a_savepoint_that_could_not_be_written_is_written_by_the_next_one_to_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "in").mkdir()
    (tmp_path / "in/0").write_text("1\n2\n3\n")
    stops = {"state": tmp_path / "one", "until_committed": True}
    with monkeypatch.context() as patched:
        patched.setattr(folder, "_write_tables", full)
        with pytest.raises(RunFailed, match="No space left"):
            _run(_small(tmp_path), **stops)
    with pytest.raises(StateError, match="holds a run that has not been completed"):
        _run(_small(tmp_path), **stops)
    _run(_small(tmp_path), state=tmp_path / "one", resume=True)
    assert (
        read(tmp_path / "one" / "savepoint", state_format=STATE_FORMAT).head.files["keys"].rows == 3
    )
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["savepoint"]


def test_a_run_that_was_stopped_at_once_leaves_a_savepoint_when_it_is_resumed_for_that(
    tmp_path: Path,
) -> None:
    def add(total: int, n: int) -> int:
        return total + n

    run = launch.start(_endless(tmp_path, add), Options(state=tmp_path / "one"))
    until(lambda: (tmp_path / "totals.jsonl").read_bytes().count(b"\n") >= 2000)
    assert run.stop().ended == "stopped"
    again: dict[str, Any] = {"state": tmp_path / "one", "resume": True, "until_committed": True}
    first = _stopped(_endless(tmp_path, add), tmp_path / "totals.jsonl", 4000, **again)
    begun: dict[str, Any] = {"begin_from": tmp_path / "one" / "savepoint"}
    second = _stopped(_endless(tmp_path, add), tmp_path / "totals.jsonl", 8000, **begun)
    _check_endless(tmp_path, first.ledger.tuples_in + second.ledger.tuples_in)


def test_after_the_end_of_an_input_it_is_too_late_for_a_savepoint(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0").write_text("1\n2\n")

    def waits(total: int, n: int) -> int:
        while not (tmp_path / "works").exists():
            time.sleep(0.01)
        return total + n

    def pipeline() -> ab.Pipeline:
        made = ab.Pipeline("late")
        numbers = made.source("lines", ab.files(tmp_path / "in"))
        numbers.key_by(len).fold("sum", 0, waits).sink("out", ab.discard())
        return made

    run = launch.start(pipeline(), Options(state=tmp_path / "one"))
    until(lambda: run._agent is not None and run._agent.boards._boards["lines"].ended)
    run.stop()
    (tmp_path / "works").touch()
    with pytest.raises(RunFailed, match="the input of source 'lines' had ended before"):
        _run(pipeline(), state=tmp_path / "one", resume=True, until_committed=True)


def test_a_run_that_was_killed_before_it_had_begun_from_a_savepoint_does_not_begin_without_it(
    tmp_path: Path,
) -> None:
    saved, state = _saved(tmp_path), tmp_path / "two"
    (tmp_path / "in/1").write_text("4\n" * 100_000)
    run = launch.start(_small(tmp_path), Options(state=state, begin_from=saved))
    agent = run._agent
    assert agent is not None
    passed_s = read(saved, state_format=STATE_FORMAT).head.passed_s
    assert (
        agent._assignments.orders.started_s
        == agent.clock.started_s - passed_s
        < agent.clock.started_s
    )
    run.stop()
    (state / "agent.journal").unlink()
    for folder_of in ("extents", "journals"):
        shutil.rmtree(state / folder_of)
    with pytest.raises(StateError, match=r"before it had begun from the savepoint .* say --from"):
        launch.start(_small(tmp_path), Options(state=state, resume=True))
    report = _run(_small(tmp_path), state=state, resume_or_begin=True, begin_from=saved)
    assert report.ledger.tuples_in == 100_000


def test_a_run_that_was_killed_where_it_had_only_laid_its_bases_has_not_begun(
    tmp_path: Path,
) -> None:
    state = open_state(_small(tmp_path), Options(state=tmp_path / "two"))
    assert state is not None
    journals = tmp_path / "two/journals"
    journals.mkdir()
    for name in ("1.0.journal.base", "1.1.journal.base.new"):
        (journals / name).write_bytes(b"of a savepoint")
    assert not state.is_resumable(power=True)
    (journals / "1.0.journal.1").write_bytes(b"of an instance")
    with pytest.raises(StateError, match="gone or empty, and journals is not"):
        state.is_resumable(power=True)
    state.close()


def test_an_instance_that_reads_its_part_of_a_savepoint_may_take_longer_to_be_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, longer = Starter.wait, dict[str, float]()

    async def wait(self: Starter, key: str, *rest: Any, **more: Any) -> str:
        longer[key] = rest[-1]
        return await real(self, key, *rest, **more)

    monkeypatch.setattr(Starter, "wait", wait)
    _run(_small(tmp_path), begin_from=_saved(tmp_path))
    assert longer.pop("sum.0") > 0
    assert set(longer) == {"lines.0", "number.0", "out.0"}
    assert not any(longer.values())


def test_a_base_counts_until_the_first_segment_of_a_journal_is_gone(tmp_path: Path) -> None:
    journal = tmp_path / "0.0.journal"
    assert read_base(journal) == {}
    write_base(journal, {"keyed": [b"told"]})
    assert read_base(journal) == {"keyed": [b"told"]}
    for number in (1, 2):
        (tmp_path / f"0.0.journal.{number}").touch()
        assert read_base(journal) == {"keyed": [b"told"]}
    (tmp_path / "0.0.journal.1").unlink()
    assert read_base(journal) == {}
    remove_journal(journal)
    assert [*tmp_path.iterdir()] == []


def test_first_instances_begin_with_the_least_time_and_the_latest_of_each_device(
    tmp_path: Path,
) -> None:
    """Of two instances that read event time, and two that have heard of it."""
    pipeline = _endless(tmp_path, _and_die(tmp_path), groups=8)
    let_have(pipeline, 2)
    rows = [
        *(row_of_watermark("same", "", at, reads_time=True) for at in (5.0, 3.0)),
        *(row_of_watermark("sum", "", at, reads_time=False) for at in (2.5, 4.5)),
        *rows_of_devices("same", {"a": 7.0, "b": 4.0}),
        *rows_of_devices("same", {"a": 9.0}),
    ]
    head = SavepointHead(
        format=folder.FORMAT,
        state_format=STATE_FORMAT,
        version="",
        pipeline="endless",
        operators={},
        groups=8,
        passed_s=1.0,
        written_at="",
    )
    folder.write(tmp_path / "saved", head, rows)
    files = RunFiles(tmp_path / "state", pipeline.operators, keep_finished=False)
    files.make()
    lay_bases(pipeline, files, read(tmp_path / "saved", state_format=STATE_FORMAT))
    for name, number, watermark in (("sum", 0, 2.5), ("sum", 1, 2.5), ("total", 1, -math.inf)):
        held = Holdings("sum", 8)
        restore(held, read_base(files.journal_of(name, number))[KEYED])
        assert held.watermark == watermark
    timing = pipeline.operators[OperatorName("same")].timing
    assert timing is not None
    stamper = Stamper(replace(timing, disorder_s=100.0))
    stamper.restore(read_base(files.journal_of("same", 0))[STAMPS])
    assert stamper.latest == {"a": 9.0, "b": 4.0}
    assert stamper.watermark(0.0) == 3.0


# -- in the middle, and with deaths --------------------------------------------------------------

SPAN_S = 0.25
"""Of a window, in event time: a thousand numbers."""


def _number(n: int) -> int:
    return n


def _time(n: int) -> float:
    return n / 4000


def _key(n: int) -> int:
    return n % 50


def _and_die(folder: Path, *numbers: int) -> Any:
    """A function that kills its process at each of these numbers, once."""

    def add(total: int, n: int) -> int:
        if n in numbers:
            flag = folder / f"died-at-{n}"
            if not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return total + n

    return add


def _endless(path: Path, add: Any, **settings: Any) -> ab.Pipeline:
    pipeline = ab.Pipeline("endless", **settings)
    numbers = pipeline.source("numbers", ab.generate(_number, rate=4000.0))
    timed = numbers.map("same", _number).event_time(_time)
    sums = timed.key_by(_key).window(ab.tumbling(SPAN_S)).fold("sum", 0, add)
    sums.sink("out", ab.jsonl(path / "out.jsonl"))
    timed.key_by(_key).fold("total", 0, add).sink("totals", ab.jsonl(path / "totals.jsonl"))
    return pipeline


def _stopped(
    pipeline: ab.Pipeline,
    file: Path,
    lines: int,
    grown: Mapping[str, int] | None = None,
    **options: Any,
) -> Report:
    """Its input ends when there are so many lines in the file, and so many instances of these
    operators have joined."""
    run = launch.start(pipeline, Options(**options))
    until(lambda: file.read_bytes().count(b"\n") >= lines)
    wanted = {} if grown is None else grown
    until(lambda: all(run.snapshot().operator(o).joins >= n for o, n in wanted.items()))
    run.end_input()
    report = run.wait(PATIENCE_S)
    assert report.ok, report.failure
    return report


def _check_endless(path: Path, total: int) -> None:
    """As if one run had read the first `total` numbers."""
    windows: Counter[tuple[int, int]] = Counter()
    for n in range(total):
        windows[_key(n), int(_time(n) // SPAN_S)] += n
    found = [json.loads(line) for line in (path / "out.jsonl").read_text().splitlines()]
    assert len(found) == len(windows)
    assert {(one[0], round(one[1] / SPAN_S)): one[3] for one in found} == windows
    running, wanted = Counter[int](), list[list[int]]()
    for n in range(total):
        running[_key(n)] += n
        wanted.append([_key(n), running[_key(n)]])
    totals = [json.loads(line) for line in (path / "totals.jsonl").read_text().splitlines()]
    assert sorted(totals) == sorted(wanted)


def test_a_run_stops_in_the_middle_of_a_split_and_instances_die_in_both_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All of the input is one split.
    monkeypatch.setattr(sys.modules["anabranch.runtime.sources.generate"], "SLICE_S", 1e6)
    add, file = _and_die(tmp_path, 900, 5000, 8000), tmp_path / "totals.jsonl"
    state: dict[str, Any] = {"state": tmp_path / "one", "until_committed": True}
    first = _stopped(_endless(tmp_path, add), file, 5000, **state)
    split = next(read(tmp_path / "one" / "savepoint", state_format=STATE_FORMAT).each("splits"))
    assert "'next': " in split["split_text"]
    begun: dict[str, Any] = {"begin_from": tmp_path / "one" / "savepoint"}
    second = _stopped(
        _endless(tmp_path, add, groups=9), file, first.ledger.tuples_in + 5000, **begun
    )
    assert {path.name for path in tmp_path.glob("died-at-*")} >= {"died-at-900", "died-at-8000"}
    total = first.ledger.tuples_in + second.ledger.tuples_in
    assert min(first.ledger.tuples_in, second.ledger.tuples_in) > 3000
    _check_endless(tmp_path, total)


def _plus(total: int, n: int) -> int:
    return total + n


GRAPH_CHANGES = """
    0.1 sum duplicate 2
    every 0.2 from 0.3 to 600: sum move
    every 0.5 from 0.4 to 600: sum leave
    every 0.5 from 0.6 to 600: sum duplicate
    0.2 total duplicate
"""


def test_instances_that_join_leave_and_give_groups_away_leave_one_state(tmp_path: Path) -> None:
    first = _endless(tmp_path, _plus)
    second = _endless(tmp_path, _plus, groups=100)
    for pipeline in (first, second):
        for name in ("sum", "total"):
            bounds = [f"{name}.scale.max_instances=4", f"{name}.scale.min_instances=1"]
            apply_settings(pipeline, bounds)
    script = parse_script(GRAPH_CHANGES)
    state: dict[str, Any] = {"state": tmp_path / "one", "until_committed": True}
    grown = {"sum": 2, "total": 1}
    one = _stopped(first, tmp_path / "totals.jsonl", 6000, grown, script=script, **state)
    saved = read(tmp_path / "one" / "savepoint", state_format=STATE_FORMAT)
    assert {row["instance"] for row in saved.each("watermarks")} > {"total.0", "total.1"}
    begun: dict[str, Any] = {"begin_from": tmp_path / "one" / "savepoint"}
    two = _stopped(second, tmp_path / "totals.jsonl", 12_000, grown, script=script, **begun)
    _check_endless(tmp_path, one.ledger.tuples_in + two.ledger.tuples_in)


def test_a_run_that_delivers_at_least_once_leaves_all_that_it_has_counted(tmp_path: Path) -> None:
    def pipeline() -> ab.Pipeline:
        made = ab.Pipeline("least", delivery="at-least-once")
        numbers = made.source("numbers", ab.generate(_number, rate=4000.0))
        totals = numbers.key_by(_key).fold("total", 0, _plus)
        totals.sink("out", ab.jsonl(tmp_path / "out.jsonl"))
        return made

    state: dict[str, Any] = {"state": tmp_path / "one", "until_committed": True}
    first = _stopped(pipeline(), tmp_path / "out.jsonl", 2000, **state)
    second = _stopped(
        pipeline(), tmp_path / "out.jsonl", 4000, begin_from=tmp_path / "one" / "savepoint"
    )
    running, wanted = Counter[int](), list[list[int]]()
    for n in range(first.ledger.tuples_in + second.ledger.tuples_in):
        running[_key(n)] += n
        wanted.append([_key(n), running[_key(n)]])
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(found) == sorted(wanted)


MANY = 100_000


def test_100_000_keys_are_all_there_whoever_dies_before_they_are_in_a_journal(
    tmp_path: Path,
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0").write_text("".join(f"{n}\n" for n in range(MANY)))
    add = _and_die(tmp_path, MANY, 2 * MANY - 1)
    state: dict[str, Any] = {"state": tmp_path / "one", "until_committed": True}
    first = _run(_many(tmp_path, _and_die(tmp_path), 1), **state)
    assert (
        read(tmp_path / "one" / "savepoint", state_format=STATE_FORMAT).head.files["keys"].rows
        == MANY
    )
    (tmp_path / "in/1").write_text("".join(f"{n}\n" for n in range(MANY, 2 * MANY)))
    second = _run(_many(tmp_path, add, 3), begin_from=tmp_path / "one" / "savepoint")
    assert len([*tmp_path.glob("died-at-*")]) == 2
    assert first.ledger.tuples_in == second.ledger.tuples_in == MANY
    found = Counter(map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines()))
    assert found == Counter([*range(MANY), *(2 * n + MANY for n in range(MANY))])


def _many(path: Path, add: Any, instances: int) -> ab.Pipeline:
    """The sum of two numbers for each key."""
    pipeline = ab.Pipeline("many")
    numbers = pipeline.source("lines", ab.files(path / "in")).map("number", int)
    sums = numbers.key_by(lambda n: n % MANY).fold("sum", 0, add)
    sums.map("value", lambda one: one[1]).sink("out", ab.jsonl(path / "out.jsonl"))
    let_have(pipeline, instances)
    return pipeline


def _run(pipeline: ab.Pipeline, **options: Any) -> Report:
    report = launch.start(pipeline, Options(**options)).wait(PATIENCE_S)
    assert report.ok, report.failure
    return report
