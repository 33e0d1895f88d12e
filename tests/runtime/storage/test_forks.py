"""Processes that functions fork outlive the instance, and keep nothing of it from its next
incarnation."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

import anabranch as ab
from anabranch.runtime.live.journal import journal as journals
from anabranch.runtime.live.journal.journal import Journal
from anabranch.runtime.storage import forks
from anabranch.runtime.storage.shared_file import SharedFile
from tests.runtime.processes import LINUX, PATIENCE_S

TIMEOUT_S = PATIENCE_S
N = 20_000


def leave_a_helper_and_die(n: int, begun: Path) -> int:
    """As one that has a pool of `multiprocessing` with work that takes long."""
    if n == N // 2 and not begun.exists():
        begun.touch()
        if os.fork() == 0:
            time.sleep(10 * TIMEOUT_S)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    return n


@pytest.mark.skipif(not LINUX, reason="nobody would end the helper")
@pytest.mark.parametrize("transport", ["unix", "tcp"])
@pytest.mark.parametrize("operator", ["numbers", "same"])
def test_an_instance_is_resumed_while_a_process_that_its_function_has_forked_incarnations_on(
    tmp_path: Path, operator: str, transport: Literal["unix", "tcp"]
) -> None:
    out = tmp_path / "out.jsonl"
    fns: dict[str, Callable[[int], Any]] = {"numbers": lambda n: n, "same": lambda n: n}
    fns[operator] = lambda n: leave_a_helper_and_die(n, tmp_path / "begun")
    pipeline = ab.Pipeline("helped", dead_letters=tmp_path / "dead.jsonl")
    stream = pipeline.source("numbers", ab.generate(fns["numbers"], count=N))
    stream.map("same", fns["same"]).sink("out", ab.jsonl(out))
    report = ab.start(pipeline, transport=transport).wait(TIMEOUT_S)
    assert report.ok
    assert [e.operator for e in report.events if e.kind == "died"] == [operator]
    assert Counter(map(int, out.read_text().splitlines())) == Counter(range(N))


@contextmanager
def helper(late_s: float = 0.0) -> Iterator[None]:
    """A forked process that does nothing, and has let go of what is not its own; or does so when
    it runs at last."""
    ready, done = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if late_s:
                os.write(done, b"1")
                time.sleep(late_s)
            forks.close_copies()
            os.write(done, b"1")
            time.sleep(TIMEOUT_S)
        finally:
            os._exit(0)  # never go on as another pytest
    os.read(ready, 1)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(done)


def test_a_forked_process_does_not_keep_a_journal_from_the_next_incarnation(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    with helper():
        journal.close()
        Journal(tmp_path / "journal").close()


def test_an_incarnation_waits_for_what_was_forked_in_the_last_moment_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine it has not run at all by then."""
    monkeypatch.setattr(journals, "LOCK_TIMEOUT_S", TIMEOUT_S / 2)
    journal = Journal(tmp_path / "journal")
    with helper(late_s=0.5):
        journal.close()
        Journal(tmp_path / "journal").close()


def test_a_forked_process_does_not_keep_a_file_locked_that_others_write(tmp_path: Path) -> None:
    file = SharedFile(tmp_path / "out", tmp_path / "sides" / "out", "out.0", kind="results")
    file.open()
    file._file.lock(wait=True)  # forked in this moment, as by another thread
    with helper():
        file.close()
        with (tmp_path / "out").open() as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
