"""No process stays, however a run ends. Every case is real, and checked by pid."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.runtime.processes import (
    LINUX,
    PATIENCE_S,
    alive,
    kill_template_and_standby,
    program,
    still_alive_after,
)

ENDLESS = """
    pipeline = fake.three_operators(fake.Endless(), min_instances=2, max_instances=4)

    def work_without_end(instance):
        while True:
            pass

    fake.BEHAVIOUR["work"] = {behaviour}
    if not {death_signal}:
        orphans._prctl = None  # as on a system without it

    def main():
        run = launch.start(pipeline, Options(preload={way!r}), entry=fake.ENTRY)
        tell(run)
        {then}

    if __name__ == "__main__":
        main()
"""


def endless(
    *,
    way: str = "fork",
    then: str = "run.wait()",
    behaviour: str = "fake.nothing",
    death_signal: bool = True,
) -> str:
    return ENDLESS.format(way=way, then=then, behaviour=behaviour, death_signal=death_signal)


@pytest.mark.parametrize("way", ["fork", "import"])
def test_nothing_stays_when_the_agent_is_killed(tmp_path: Path, way: str) -> None:
    with program(tmp_path, endless(way=way)) as (popen, pids):
        assert len(pids) >= 7
        popen.kill()
        assert still_alive_after(pids) == []


@pytest.mark.parametrize("way", ["fork", "import"])
def test_the_lifeline_alone_ends_everything_even_in_the_middle_of_user_code(
    tmp_path: Path, way: str
) -> None:
    text = endless(way=way, behaviour="work_without_end", death_signal=False)
    with program(tmp_path, text) as (popen, pids):
        popen.kill()
        assert still_alive_after(pids) == []


@pytest.mark.skipif(not LINUX, reason="needs the death signal of Linux")
def test_an_instance_that_was_stopped_ends_with_its_agent(tmp_path: Path) -> None:
    with program(tmp_path, endless()) as (popen, pids):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        popen.kill()
        assert still_alive_after(pids) == []


WITH_A_HELPER = """
    pipeline = fake.three_operators(fake.Endless())

    def start_helper(instance):
        # As a pool of multiprocessing does, or a program that is left running.
        helper = os.fork()
        if helper == 0:
            time.sleep(600)
            os._exit(0)
        (instance.run_dir / "half").write_text(str(helper))
        (instance.run_dir / "half").rename(instance.run_dir / "helper")  # never seen half written

    fake.BEHAVIOUR["work"] = start_helper

    if __name__ == "__main__":
        run = launch.start(pipeline, Options(), entry=fake.ENTRY)
        folder = run._agent.run_dir.path
        while not (folder / "helper").exists() or run.snapshot().idle < 2:
            time.sleep(0.01)
        print(json.dumps([*run.snapshot().pids, int((folder / "helper").read_text())]), flush=True)
        print(folder, flush=True)
        sys.stdin.readline()
        run.end_input()
        print(run.wait().ended)
"""


@pytest.mark.skipif(not LINUX, reason="needs adoption as Linux has it")
def test_what_user_functions_have_started_ends_with_the_run(tmp_path: Path) -> None:
    with program(tmp_path, WITH_A_HELPER) as (popen, pids):
        output, errors = popen.communicate("\n", timeout=PATIENCE_S)
        assert (output.split()[-1], errors) == ("completed", "")
        assert not any(alive(pid) for pid in pids)


@pytest.mark.skipif(not LINUX, reason="needs adoption as Linux has it")
def test_what_user_functions_have_started_ends_when_the_agent_is_killed(tmp_path: Path) -> None:
    with program(tmp_path, WITH_A_HELPER) as (popen, pids):
        popen.kill()
        assert still_alive_after(pids) == []


def test_the_folder_of_a_run_is_removed_even_if_the_agent_is_killed(tmp_path: Path) -> None:
    with program(tmp_path, WITH_A_HELPER) as (popen, pids):
        assert popen.stdout is not None
        folder = Path(popen.stdout.readline().strip())
        assert folder.is_dir()
        popen.kill()
        assert still_alive_after(pids) == []
        deadline = time.monotonic() + PATIENCE_S
        while folder.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not folder.exists()


def test_nothing_stays_when_the_template_process_is_killed_and_its_standby(tmp_path: Path) -> None:
    """And no other may follow, which would run the program a second time."""
    with program(tmp_path, endless(way="fork")) as (popen, pids):
        kill_template_and_standby(pids)
        _, errors = popen.communicate(timeout=PATIENCE_S)
        assert "the process that all others are forked from is gone" in errors
        assert popen.returncode == 1
        assert still_alive_after(pids) == []


def test_a_parent_that_hangs_does_not_keep_the_run_from_ending(tmp_path: Path) -> None:
    with program(tmp_path, endless(then="input(); run.stop()")) as (popen, pids):
        os.kill(pids[0], signal.SIGSTOP)
        popen.communicate("\n", timeout=PATIENCE_S)
        assert still_alive_after(pids) == []


def test_nothing_stays_when_the_program_ends_by_an_exception(tmp_path: Path) -> None:
    with program(tmp_path, endless(then="1 / 0")) as (popen, pids):
        _, errors = popen.communicate(timeout=PATIENCE_S)
        assert "ZeroDivisionError" in errors
        assert not any(alive(pid) for pid in pids)


def test_nothing_stays_when_the_program_ends_without_waiting(tmp_path: Path) -> None:
    with program(tmp_path, endless(then="pass")) as (popen, pids):
        popen.communicate(timeout=PATIENCE_S)
        assert popen.returncode == 0
        assert not any(alive(pid) for pid in pids)


def test_leaving_the_block_by_an_exception_stops_the_run(tmp_path: Path) -> None:
    then = """
        try:
            with run:
                raise KeyError("mine")
        except KeyError:
            print(run.snapshot().phase, flush=True)
    """
    with program(tmp_path, endless(then=then)) as (popen, pids):
        output, errors = popen.communicate(timeout=PATIENCE_S)
        assert (output.strip(), errors) == ("ended", "")
        assert not any(alive(pid) for pid in pids)


IN_MAIN_THREAD = """
    pipeline = fake.three_operators(fake.Endless())
    told = []

    def look(snapshot):
        if snapshot.phase == "running" and not told:
            told.append(True)
            print(json.dumps(snapshot.pids), flush=True)

    {before}

    if __name__ == "__main__":
        report = launch.run(pipeline, Options(), view=look, entry=fake.ENTRY)
        print(report.ended)
"""


def test_ctrl_c_ends_the_input_and_the_stream_is_finished(tmp_path: Path) -> None:
    with program(tmp_path, IN_MAIN_THREAD.format(before="")) as (popen, pids):
        os.killpg(popen.pid, signal.SIGINT)  # what a terminal does: the whole group gets it
        output, errors = popen.communicate(timeout=PATIENCE_S)
        assert (output.strip(), errors, popen.returncode) == ("ended early", "", 0)
        assert not any(alive(pid) for pid in pids)


STUCK = 'fake.BEHAVIOUR["work"] = lambda instance: time.sleep(600)'


def test_a_second_ctrl_c_stops_what_does_not_finish(tmp_path: Path) -> None:
    text = IN_MAIN_THREAD.format(before=STUCK)
    with program(tmp_path, text) as (popen, pids):
        os.killpg(popen.pid, signal.SIGINT)
        os.killpg(popen.pid, signal.SIGINT)
        while popen.poll() is None:
            # Two signals that arrive together are one; a user presses again.
            os.killpg(popen.pid, signal.SIGINT)
            still_alive_after([popen.pid], 0.1)
        output, errors = popen.communicate(timeout=PATIENCE_S)
        assert (output.strip(), errors) == ("stopped", "")
        assert not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_terminate_stops_the_run(tmp_path: Path, number: signal.Signals) -> None:
    with program(tmp_path, IN_MAIN_THREAD.format(before=STUCK)) as (popen, pids):
        popen.send_signal(number)
        output, errors = popen.communicate(timeout=PATIENCE_S)
        assert (output.strip(), errors) == ("stopped", "")
        assert not any(alive(pid) for pid in pids)


NEVER_READY = """
    pipeline = fake.three_operators(fake.Endless())

    def announce(instance):
        os.write(results_fd(), json.dumps([os.getpid(), os.getppid()]).encode() + b"\\n")
        time.sleep(600)

    fake.BEFORE_READY["out"] = announce

    if __name__ == "__main__":
        try:
            launch.start(pipeline, Options(), entry=fake.ENTRY)
        except KeyboardInterrupt:
            print("interrupted")
"""


def test_ctrl_c_while_instances_start_leaves_nothing(tmp_path: Path) -> None:
    with program(tmp_path, NEVER_READY) as (popen, pids):
        os.killpg(popen.pid, signal.SIGINT)
        output, errors = popen.communicate(timeout=PATIENCE_S)
        assert (output.strip(), errors) == ("interrupted", "")
        assert not any(alive(pid) for pid in pids)
