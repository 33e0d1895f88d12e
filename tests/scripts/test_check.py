"""`scripts/check.py`: what pytest gets, and what Ctrl-C means."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.scripts import script

check = script("check")
Calls = list[tuple[str, ...]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Of the tools, which say that all is well; on two cores."""
    made = Calls()

    def run(*words: str) -> bool:
        made.append(words)
        return True

    monkeypatch.setattr(check, "run", run)
    monkeypatch.setattr(check.os, "sched_getaffinity", lambda _: {4, 5}, raising=False)
    return made


def called(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["check.py", *arguments])
    code: int = check.main()
    return code


def test_all_tests_run_in_one_process_more_than_there_are_cores(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert called(monkeypatch, "lint", "tests") == 0
    assert calls == [("ruff", "check", "."), ("pytest", "--durations=10", "-n", "3")]


def test_on_many_cores_there_are_not_more_processes_than_are_of_use(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check.os, "sched_getaffinity", lambda _: {*range(64)}, raising=False)
    assert called(monkeypatch, "tests") == 0
    assert calls == [("pytest", "--durations=10", "-n", str(check.PROCESSES_MAX))]


@pytest.mark.parametrize(("alone", "code"), [(True, 0), (False, 1)])
def test_what_fails_beside_others_counts_if_it_fails_alone_too(
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    alone: bool,
    code: int,
) -> None:
    def run(*words: str) -> bool:
        calls.append(words)
        return alone and "--last-failed" in words

    monkeypatch.setattr(check, "run", run)
    assert called(monkeypatch, "tests") == code
    assert calls[1:] == [("pytest", "--last-failed", "--last-failed-no-failures=none")]
    assert "once more and alone" in capsys.readouterr().out


def test_chosen_tests_that_fail_have_failed(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "run", lambda *words: calls.append(words))
    assert called(monkeypatch, "tests", "--", "tests/protocol") == 1
    assert len(calls) == 1


def test_chosen_tests_run_in_one_process(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    assert called(monkeypatch, "tests", "--", "tests/protocol", "-k", "leave") == 0
    assert calls == [("pytest", "--durations=10", "tests/protocol", "-k", "leave")]


def test_an_interrupt_ends_all_stages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(check, "run", run)
    assert called(monkeypatch, "lint", "tests") == check.INTERRUPTED
    assert capsys.readouterr().out.splitlines() == ["== lint", "interrupted"]


def test_what_runs_is_waited_for_when_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test process ends what it has started."""

    class Interrupted(subprocess.Popen[bytes]):
        waits = 0

        def wait(self, timeout: float | None = None) -> int:
            Interrupted.waits += 1
            if Interrupted.waits == 1:
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        check.run("timeit", "-n", "1", "-r", "1", "pass")
    assert Interrupted.waits > 1
