"""Tuples that end their process, in real ones: each becomes a dead letter, and the others go on."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.live.agent import deaths
from anabranch.runtime.live.instance import poison_guard
from anabranch.runtime.live.instance.agent_client import AgentClient
from anabranch.runtime.live.link.messages import EventNote
from anabranch.runtime.plan.ends import DeadLetter, ExactWriter, RunContext, Sink, Writer
from anabranch.runtime.policies.script import parse_script
from anabranch.runtime.reporting.failure import RunFailed
from anabranch.runtime.reporting.report import Report
from anabranch.runtime.reporting.status import Status
from anabranch.runtime.values.kinds import EventKind
from anabranch.runtime.world.drawing import drawn
from anabranch.runtime.world.trial import world_of
from tests.runtime.processes import LINUX, PATIENCE_S

N = 3_000
BAD = (700, 1_900)
GOOD = [n for n in range(N) if n not in BAD]
ENDINGS: dict[str, Callable[[], Any]] = {
    "ended with exit code 3": lambda: os._exit(3),
    "ended with exit code 0": lambda: os._exit(0),
    "was killed by SIGSEGV": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "was killed by SIGABRT": os.abort,
    "ended with exit code 1": lambda: interrupt(),
}
SEGFAULT = "was killed by SIGSEGV"


def interrupt() -> None:
    raise KeyboardInterrupt


def deadly(n: int, how: str = SEGFAULT) -> int:
    if n in BAD:
        faulthandler.disable()  # that of pytest, which would print the stack of each death
        ENDINGS[how]()
    return n


async def deadly_later(n: int) -> int:
    return deadly(n)


def deadly_together(ns: list[int]) -> list[int]:
    return [deadly(n) for n in ns]


def number(n: int) -> float:
    return float(n)


def seventh(n: int) -> int:
    return n % 7


class Case:
    """A pipeline over the numbers below `N`, its run, and what is left of that."""

    def __init__(self, folder: Path, rate: float | None = None, **settings: Any) -> None:
        self.out, self._dead = folder / "out.jsonl", folder / "dead.jsonl"
        self.pipeline = ab.Pipeline("deadly", dead_letters=self._dead, **settings)
        self.numbers = self.pipeline.source("numbers", ab.generate(int, count=N, rate=rate))

    def run(self, **options: Any) -> Report:
        with ab.start(self.pipeline, **options) as run:
            return run.wait(PATIENCE_S)

    @property
    def letters(self) -> list[dict[str, Any]]:
        text = self._dead.read_text() if self._dead.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    @property
    def results(self) -> list[Any]:
        return [json.loads(line) for line in self.out.read_text().splitlines()]


def check(case: Case, report: Report, operator: str = "work", how: str = SEGFAULT) -> None:
    """The bad tuples, and they alone, are dead letters of the operator, once; all balances."""
    assert report.ok
    assert report.ledger.balanced
    assert report.dead_reasons == {"ended its process": len(BAD)}
    assert sorted(x["tuple"] for x in case.letters) == [*BAD]
    assert {x["reason"] for x in case.letters} == {f"ended its process: {how}"}
    assert {x["operator"] for x in case.letters} == {operator}
    assert report.operator(operator).dead == len(BAD)
    told = [e.detail for e in report.events if e.kind == "buried"]
    assert told == [f"a tuple that ended its process: {how}"] * len(BAD)


@pytest.fixture
def one_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is about one death, another one is another five processes."""
    monkeypatch.setitem(globals(), "BAD", BAD[:1])
    monkeypatch.setitem(globals(), "GOOD", [n for n in range(N) if n != BAD[0]])


@pytest.mark.usefixtures("one_bad")
@pytest.mark.parametrize("how", ENDINGS)
def test_a_tuple_that_ends_its_process_becomes_a_dead_letter(tmp_path: Path, how: str) -> None:
    case = Case(tmp_path)
    case.numbers.map("work", lambda n: deadly(n, how)).sink("out", ab.jsonl(case.out))
    report = case.run()
    check(case, report, how=how)
    assert sorted(case.results) == GOOD
    assert case.letters[0]["step"] == "work"
    assert "test_poison_guard.py" in case.letters[0]["where"]
    assert report.operator("work").deaths >= len(BAD) * poison_guard.TRIES


@pytest.mark.usefixtures("one_bad")
@pytest.mark.parametrize("kind", ["async", "batch", "fused", "filter"])
def test_so_it_does_in_any_kind_of_operator(tmp_path: Path, kind: str) -> None:
    case = Case(tmp_path)
    numbers = case.numbers
    match kind:
        case "async":
            work = numbers.map("work", deadly_later, in_flight=8)
        case "batch":
            work = numbers.map("work", deadly_together, batch=True)
        case "filter":
            work = numbers.filter("work", lambda n: deadly(n) >= 0)
        case _:
            work = numbers.fuse("work", ab.map(abs), ab.map(deadly))
    work.sink("out", ab.jsonl(case.out))
    check(case, case.run())
    assert sorted(case.results) == GOOD


def totals() -> Counter[int]:
    found: Counter[int] = Counter()
    for n in GOOD:
        found[seventh(n)] += n
    return found


def test_the_state_of_keys_is_what_it_is_without_such_tuples(tmp_path: Path) -> None:
    case = Case(tmp_path)
    by_key = case.numbers.key_by(seventh)
    by_key.fold("work", 0, lambda total, n: total + deadly(n)).sink("out", ab.jsonl(case.out))
    check(case, case.run())
    assert len(case.results) == len(GOOD)
    last = {key: max(total for k, total in case.results if k == key) for key in range(7)}
    assert last == totals()
    assert case.letters[0]["where"] == f"key {seventh(BAD[0])}"


@pytest.mark.usefixtures("one_bad")
def test_so_are_windows(tmp_path: Path) -> None:
    case = Case(tmp_path)
    keys = case.numbers.event_time(number).key_by(seventh)
    sums = keys.window(ab.tumbling(500)).fold("work", 0, lambda total, n: total + deadly(n))
    sums.map("plain", lambda w: [w.key, w.start, w.value]).sink("out", ab.jsonl(case.out))
    check(case, case.run())
    expected: Counter[tuple[int, float]] = Counter()
    for n in GOOD:
        expected[seventh(n), n // 500 * 500.0] += n
    assert {(key, start): total for key, start, total in case.results} == expected


@pytest.mark.usefixtures("one_bad")
@pytest.mark.parametrize("by_key", [False, True], ids=["plain", "by key"])
def test_a_function_at_the_end_gets_all_others(tmp_path: Path, by_key: bool) -> None:
    case, done = Case(tmp_path), tmp_path / "done"

    def write(n: int) -> None:
        with done.open("a") as file:
            file.write(f"{deadly(n)}\n")

    stream = case.numbers.key_by(seventh) if by_key else case.numbers
    stream.sink("work", ab.foreach(write, idempotent=True))
    report = case.run()
    check(case, report)
    assert {*map(int, done.read_text().split())} == {*GOOD}
    assert report.ledger.tuples_out == len(GOOD)


class Deadly(Sink):
    """Writes numbers to a file, and dies while it makes them bytes. `many`: of them at once."""

    def __init__(self, path: Path, many: int | None) -> None:
        self.path, self.many = path, many

    @property
    def exact(self) -> bool:
        return True

    def open(self, context: RunContext) -> Writer:
        return DeadlyWriter(self, context)


class DeadlyWriter(ExactWriter):
    def __init__(self, sink: Deadly, context: RunContext) -> None:
        self._writer = ab.jsonl(sink.path).open(context)
        self.gather = None if sink.many is None else (sink.many, 0.05)

    def stage(self, tuples: list[Any]) -> tuple[bytes, list[DeadLetter]]:
        assert isinstance(self._writer, ExactWriter)
        return self._writer.stage([*map(deadly, tuples)])

    async def put(self, number: int, data: bytes) -> None:
        assert isinstance(self._writer, ExactWriter)
        await self._writer.put(number, data)

    def last_put(self) -> int:
        assert isinstance(self._writer, ExactWriter)
        return self._writer.last_put()


@pytest.mark.parametrize("many", [None, 400, 100_000])
def test_a_writer_that_cannot_survive_a_tuple_gets_all_others_once(
    tmp_path: Path, many: int | None
) -> None:
    case = Case(tmp_path)
    case.numbers.sink("work", Deadly(case.out, many))
    check(case, case.run())
    assert sorted(case.results) == GOOD


@pytest.mark.parametrize("where", ["work", "fold"])
def test_so_it_is_while_operators_duplicate_and_leave(tmp_path: Path, where: str) -> None:
    case = Case(tmp_path, rate=1_500)
    scale = ab.Scale(max_instances=3)
    work = case.numbers.map("work", deadly if where == "work" else abs, scale=scale)
    folding = work.key_by(seventh).fold(
        "fold", 0, lambda total, n: total + (deadly(n) if where == "fold" else n), scale=scale
    )
    folding.sink("out", ab.jsonl(case.out))
    script = "every 0.3 from 0.1 to 60: * duplicate; every 0.5 from 0.5 to 60: * leave"
    report = case.run(script=parse_script(script))
    check(case, report, where)
    assert any(operator.joins for operator in report.operators)
    last = {key: max(total for k, total in case.results if k == key) for key in range(7)}
    assert last == totals()


@pytest.mark.usefixtures("one_bad")
def test_at_least_once_loses_nothing_else(tmp_path: Path) -> None:
    case = Case(tmp_path, delivery="at-least-once")
    case.numbers.map("work", deadly).sink("out", ab.jsonl(case.out))
    report = case.run()
    assert report.ok
    assert {*case.results} == {*GOOD}
    assert {x["tuple"] for x in case.letters} == {*BAD}


def test_at_most_once_what_ends_its_process_at_once_does_not_come_again_and_again(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, rate=1_500, delivery="at-most-once")
    case.numbers.map("work", lambda n: n or os._exit(3)).sink("out", ab.jsonl(case.out))
    report = case.run()
    assert report.ok
    assert {N - 1} <= {*case.results} < {*range(N)}
    assert case.letters == []


def test_a_death_from_outside_buries_no_innocent_tuple(tmp_path: Path) -> None:
    """The first tuple that is ever tried alone is interrupted by a `kill -9`."""
    case, killed = Case(tmp_path), tmp_path / "killed"

    def work(ns: list[int]) -> list[int]:
        if len(ns) == 1 and not killed.exists():
            killed.write_text(str(ns[0]))
            os.kill(os.getpid(), signal.SIGKILL)
        return deadly_together(ns)

    case.numbers.map("work", work, batch=True).sink("out", ab.jsonl(case.out))
    check(case, case.run())
    assert sorted(case.results) == GOOD
    assert killed.exists()


def test_the_agent_hears_of_each_burial_when_it_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or the next death would come with nothing done in between, and might be the last one."""
    told: list[Any] = []

    def send(client: AgentClient, message: Any) -> None:
        if isinstance(message, EventNote | Status):
            told.append(message)
        right(client, message)

    right = AgentClient.send
    monkeypatch.setattr(AgentClient, "send", send)
    report = world_of(replace(drawn(1, "poison", crashes="none"), decisions=())).run()
    dead = [
        next(later.dead for later in told[at:] if isinstance(later, Status))
        for at, note in enumerate(told)
        if isinstance(note, EventNote) and note.event is EventKind.BURIED
    ]
    assert dead == [*range(1, report.ledger.dead_letters + 1)] != []


def test_a_function_that_ends_its_process_with_every_tuple_fails_the_run(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.numbers.map("work", lambda n: os._exit(3)).sink("out", ab.jsonl(case.out))
    with pytest.raises(RunFailed) as failed:
        case.run()
    message = failed.value.failure.message
    assert f"more than {poison_guard.IN_A_ROW_MAX} tuples one after the other" in message
    assert "ended its process: ended with exit code 3" in message
    assert len(case.letters) == poison_guard.IN_A_ROW_MAX


def test_a_source_that_ends_its_process_fails_the_run_as_before(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.numbers.map("same", int).sink("out", ab.jsonl(case.out))
    bad = case.pipeline.source("bad", ab.generate(deadly, count=N))
    bad.sink("other", ab.discard())
    with pytest.raises(RunFailed, match=f"'bad'.* died {deaths.RESUMES_MAX + 1} times"):
        case.run()
    assert case.letters == []


@pytest.mark.skipif(not LINUX, reason="what hangs is told from what works by /proc")
def test_a_tuple_that_hangs_is_a_dead_letter_where_the_user_has_set_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch.runtime.live.agent import watchdog

    monkeypatch.setattr(watchdog, "SUSPECT_S", 0.4)
    monkeypatch.setattr(watchdog, "LOOK_PERIOD_S", 0.1)
    case = Case(tmp_path)

    def work(n: int) -> int:
        if n == BAD[0]:
            signal.pause()
        return n

    case.numbers.map("work", work).sink("out", ab.jsonl(case.out))
    report = case.run(hang_s=0.8)
    assert report.ok
    assert [x["tuple"] for x in case.letters] == [BAD[0]]
    assert "hung for" in case.letters[0]["reason"]
    assert sorted(case.results) == [n for n in range(N) if n != BAD[0]]
