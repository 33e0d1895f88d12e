"""The template process and the warm pool, at work."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib.util
import itertools
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import pytest

from anabranch.protocol.ids import OperatorName
from anabranch.runtime import sources
from anabranch.runtime.live.agent.tasks import Tasks
from anabranch.runtime.live.agent.warm_pool import WarmPool
from anabranch.runtime.live.link.messages import Assign
from anabranch.runtime.live.process import origin
from anabranch.runtime.live.process.forker import Forker
from anabranch.runtime.live.process.local_process import LocalProcess
from anabranch.runtime.live.process.process import OnOutput, Process, describe_exit
from anabranch.runtime.live.process.processes import ForkError
from anabranch.runtime.live.process.template_process import (
    choose_way,
    fork_template,
    import_template,
)
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.values.checks import PipelineError
from tests.runtime import fake_instance as fake
from tests.runtime.processes import LINUX, PATIENCE_S, ROOT, alive, eventually, private_kib

IDLE_PRIVATE_KIB_MAX = 4096


@asynccontextmanager
async def forker(
    pipeline: Pipeline | None = None, on_output: OnOutput = lambda _name, _line: None
) -> AsyncIterator[Forker]:
    lost: list[str] = []
    parent = fork_template(pipeline or fake.three_operators(), fake.ENTRY)
    made = Forker(parent, on_output, lost.append)
    try:
        await made.start(PATIENCE_S)
        yield made
    finally:
        processes = made.alive
        await made.stop()
        assert not alive(parent.pid)
        assert not any(alive(p.pid) for p in processes)


def assignment(operator: str = "work", run_dir: str = "/nowhere", number: int = 0) -> Assign:
    return Assign(
        id=[operator, number, -1],
        pipeline="fake",
        run_dir=run_dir,
        started_s=0.0,
        token=b"",
        transport="unix",
        host="",
        bootstrap=None,
        seed=0,
        scaling=True,
        limits={},
        service_address="",
    )


async def first_word(process: Process, assign: Assign) -> bytes:
    """What the process says first after it was assigned."""
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    process.on_frame = heard.put_nowait
    process.send(assign)
    return await asyncio.wait_for(heard.get(), PATIENCE_S)


async def exit_code(process: Process) -> int:
    return await asyncio.wait_for(asyncio.shield(process.exited), PATIENCE_S)


def open_sockets(pid: int) -> list[str]:
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists the folder
            found.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return [name for name in found if name.startswith("socket:")]


@pytest.fixture
def behaviour() -> Iterator[dict[str, object]]:
    yield fake.BEHAVIOUR  # type: ignore[misc]
    fake.BEHAVIOUR.clear()


async def test_a_warm_process_becomes_what_it_is_assigned() -> None:
    async with forker() as made:
        assert b"ready" in await first_word(await made.fork(), assignment())


async def test_the_end_of_a_process_is_seen_on_its_own_link_while_its_siblings_live() -> None:
    """If a sibling kept a copy of the link, it would stay open."""
    async with forker() as made:
        processes = await asyncio.gather(*(made.fork() for _ in range(6)))
        made.kill(processes[2])
        assert await exit_code(processes[2]) == -signal.SIGKILL
        await asyncio.wait_for(asyncio.shield(processes[2].link.closed), PATIENCE_S)
        assert not any(p.link.closed.done() for p in processes if p is not processes[2])


@pytest.mark.skipif(not LINUX, reason="reads /proc")
async def test_a_warm_process_holds_no_socket_but_its_link() -> None:
    async with forker() as made:
        processes = await asyncio.gather(*(made.fork() for _ in range(4)))
        for process in processes:
            await first_word(process, assignment())
        sockets: list[str] = []
        ours = set(open_sockets(os.getpid()))
        for process in processes:
            sockets += [s for s in open_sockets(process.pid) if s not in ours]
        assert len(sockets) == len(set(sockets)) == len(processes)


async def test_the_process_of_an_ended_run_leaves_no_open_file() -> None:
    before = len(os.listdir("/dev/fd"))
    async with forker() as made:
        for _ in range(5):
            process = await made.fork()
            made.kill(process)
            await exit_code(process)
            await process.last_words()
            process.close()
        await made.fork()
    await asyncio.sleep(0)
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.skipif(not LINUX, reason="reads /proc")
async def test_an_idle_process_has_little_memory_of_its_own() -> None:
    async with forker() as made:
        process = await made.fork()
        await eventually(lambda: name_of(process.pid) == "ab:idle")
        assert private_kib(process.pid) < IDLE_PRIVATE_KIB_MAX


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


async def test_ctrl_c_does_not_end_a_warm_process() -> None:
    async with forker() as made:
        process = await made.fork()
        os.kill(process.pid, signal.SIGINT)
        os.kill(made.parent_pid, signal.SIGINT)
        assert b"ready" in await first_word(process, assignment())


async def test_what_user_code_prints_arrives_line_by_line(behaviour: dict[str, object]) -> None:
    def prints(_fake: fake.Fake) -> None:
        print("to stdout")
        print("to stderr", file=sys.stderr)
        os.write(2, b"broken \xff utf-8, no newline")
        os._exit(3)

    behaviour["work"] = prints
    lines: list[tuple[str, str]] = []
    async with forker(on_output=lambda name, line: lines.append((name, line))) as made:
        process = await made.fork()
        process.name = "work.0"
        await first_word(process, assignment())
        assert await exit_code(process) == 3
        await process.last_words()
    assert lines == [
        ("work.0", "to stdout"),
        ("work.0", "to stderr"),
        ("work.0", "broken \\xff utf-8, no newline"),
    ]
    assert list(process.output.tail) == [line for _, line in lines]


async def test_a_reader_of_prints_that_fails_does_not_hurt_the_process(
    behaviour: dict[str, object],
) -> None:
    def prints(_fake: fake.Fake) -> None:
        for n in range(1000):
            print(n)
        os._exit(0)

    def closed_terminal(_name: str, _line: str) -> None:
        raise BrokenPipeError

    behaviour["work"] = prints
    async with forker(on_output=closed_terminal) as made:
        process = await made.fork()
        await first_word(process, assignment())
        assert await exit_code(process) == 0


@pytest.mark.parametrize(
    ("work", "code", "words"),
    [
        (lambda _: 1 / 0, 1, "ZeroDivisionError"),
        (lambda _: sys.exit(4), 4, ""),
        (lambda _: sys.exit("no good"), 1, "no good"),
        (lambda _: os.kill(os.getpid(), signal.SIGUSR2), -signal.SIGUSR2, ""),
    ],
)
async def test_an_exit_is_told_with_its_code_and_its_last_words(
    behaviour: dict[str, object], work: object, code: int, words: str
) -> None:
    behaviour["work"] = work
    async with forker() as made:
        process = await made.fork()
        await first_word(process, assignment())
        assert await exit_code(process) == code
        await process.last_words()
        assert words in "\n".join(process.output.tail)


def test_exits_are_described_as_a_user_knows_them() -> None:
    assert describe_exit(3) == "ended with exit code 3"
    assert describe_exit(-9) == "was killed by SIGKILL"
    assert describe_exit(-63).startswith("was killed by ")


@pytest.mark.usefixtures("unfrozen")
async def test_processes_draw_different_random_numbers(behaviour: dict[str, object]) -> None:
    """From a generator with a seed, which only a function holds, too: the parent has found it."""
    import random

    seeded = random.Random(7)

    def draws(_fake: fake.Fake) -> None:
        print(random.random(), seeded.random(), sys.modules["numpy.random"].random())
        os._exit(0)

    import numpy.random  # noqa: F401 - what an operator of the user's may have imported

    behaviour["work"] = draws
    lines: list[str] = []
    async with forker(on_output=lambda _, line: lines.append(line)) as made:
        for number in range(3):
            process = await made.fork()
            await first_word(process, assignment(number=number))
            await exit_code(process)
            await process.last_words()
    numbers = [number for line in lines for number in line.split()]
    assert len(numbers) == len(set(numbers)) == 9


# --- the pool ---------------------------------------------------------------------------------


@asynccontextmanager
async def pool(size: int) -> AsyncIterator[tuple[WarmPool, Forker]]:
    crashes: list[BaseException] = []
    tasks = Tasks(lambda _name, error: crashes.append(error))
    async with forker() as made:
        warm = WarmPool(made.fork, size, tasks)
        warm.refill()
        yield warm, made
        warm.close()
    await tasks.cancel_all()
    assert crashes == []


async def until_idle(warm: WarmPool, count: int) -> None:
    await eventually(lambda: len(warm.idle) == count)


async def test_the_pool_is_full_again_after_one_was_taken() -> None:
    async with pool(2) as (warm, _):
        await until_idle(warm, 2)
        taken = await warm.take()
        await until_idle(warm, 2)
        assert taken not in warm.idle


async def test_more_may_be_taken_at_once_than_are_ready() -> None:
    async with pool(1) as (warm, _):
        taken = await asyncio.gather(*(warm.take() for _ in range(8)))
        assert len({p.pid for p in taken}) == 8
        await until_idle(warm, 1)


async def test_without_warm_processes_one_is_made_when_wanted() -> None:
    async with pool(0) as (warm, made):
        assert made.alive == []
        assert alive((await warm.take()).pid)
        await asyncio.sleep(0)
        assert warm.idle == []


async def test_an_idle_process_that_dies_is_replaced() -> None:
    async with pool(2) as (warm, _):
        await until_idle(warm, 2)
        victim = warm.idle[0]
        os.kill(victim.pid, signal.SIGKILL)
        await exit_code(victim)
        assert victim not in warm.idle
        await until_idle(warm, 2)


async def test_a_taker_that_gives_up_takes_no_process_with_it() -> None:
    async with pool(0) as (warm, made):
        taker = asyncio.create_task(warm.take())
        await asyncio.sleep(0)
        taker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taker
        await until_idle(warm, 1)
        assert [p.pid for p in made.alive] == [p.pid for p in warm.idle]


async def test_takers_are_told_when_no_process_can_be_made() -> None:
    async with pool(0) as (warm, made):
        os.kill(made.parent_pid, signal.SIGKILL)
        with pytest.raises(ForkError, match="ended"):
            await asyncio.wait_for(warm.take(), PATIENCE_S)


async def test_a_failed_fork_is_tried_again_after_a_pause() -> None:
    attempts = 0

    async def fork() -> Process:
        nonlocal attempts
        attempts += 1
        if attempts <= 2:
            raise ForkError("out of memory")
        ours, theirs = socket.socketpair()
        output, theirs_too = os.pipe()
        process = LocalProcess(attempts, lambda _name, _line: None)
        await process.open(ours, output)
        theirs.close()
        os.close(theirs_too)
        return process

    tasks = Tasks(lambda _name, error: None)
    warm = WarmPool(fork, 1, tasks)
    warm.refill()
    await until_idle(warm, 1)
    assert attempts == 3
    warm.idle[0].close()
    await warm.idle[0].last_words()
    await tasks.cancel_all()


# --- the file read again ----------------------------------------------------------------------

SCRIPT = """
    import sys
    sys.path.insert(0, {root!r})
    from tests.runtime import fake_instance as fake

    here = fake.three_operators(max_instances=4)
"""


@pytest.fixture
def script(tmp_path: Path) -> Iterator[ModuleType]:
    """A module of the user's, imported in this process."""
    path = tmp_path / "users_pipeline.py"
    path.write_text(textwrap.dedent(SCRIPT.format(root=str(ROOT))))
    sys.path.insert(0, str(tmp_path))
    import users_pipeline  # type: ignore[import-not-found]

    yield users_pipeline
    sys.path.remove(str(tmp_path))
    del sys.modules["users_pipeline"]


async def test_a_program_with_an_event_loop_has_the_file_read_again(script: ModuleType) -> None:
    way, found = choose_way(script.here, "auto")
    assert way == "import"
    assert found == origin.Origin("users_pipeline", script.__file__ or "", "here")


async def test_a_pipeline_without_a_name_in_a_file_cannot_be_read_again() -> None:
    with pytest.raises(PipelineError, match="no global variable of a file"):
        choose_way(fake.three_operators(), "auto")


def files() -> int:
    return len(os.listdir("/dev/fd"))


def test_nothing_stays_open_of_a_parent_that_could_not_be_begun(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "too many processes")

    found = origin.find_origin(script.here)
    assert found is not None
    monkeypatch.setattr("anabranch.runtime.live.process.template_process.fork_quietly", refuse)
    monkeypatch.setattr("subprocess.Popen", refuse)
    before = files()
    with pytest.raises(BlockingIOError):
        fork_template(script.here, fake.ENTRY)
    with pytest.raises(BlockingIOError):
        import_template(script.here, found, fake.ENTRY)
    assert files() == before


async def test_nothing_stays_open_of_a_process_that_is_not_wanted_any_more() -> None:
    async with forker() as made:
        before = files()
        for commits in itertools.count():  # of the loop, until its files are all open
            forking = asyncio.create_task(made.fork())
            for _ in range(commits):
                await asyncio.sleep(0)
            if made._requests:
                break
            forking.cancel()
            await asyncio.wait([forking])
            await asyncio.sleep(0)  # transports are closed a turn later
            assert files() == before
        assert commits > 2
        await forking


PACKAGED = """
import sys
from pathlib import Path
import anabranch as ab
from .doubled import double
numbers = ab.generate(lambda n: n, count=3)
pipeline = ab.Pipeline("packaged")
pipeline.source("n", numbers).map("twice", double).sink("out", ab.jsonl("out.jsonl"))
if __name__ == "__main__":
    print(ab.run(pipeline, preload="import").ended)
"""


@pytest.mark.parametrize("name", ["package.program", "package"])
def test_a_program_of_a_package_is_read_again_as_a_part_of_it(tmp_path: Path, name: str) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "doubled.py").write_text("def double(n):\n    return 2 * n\n")
    (package / ("program.py" if "." in name else "__main__.py")).write_text(PACKAGED)
    done = subprocess.run(
        [sys.executable, "-m", name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("completed\n", 0), done.stderr
    assert (tmp_path / "out.jsonl").read_text().split() == ["0", "2", "4"]


@pytest.mark.parametrize("name", ["v1.2", "nowhere"])
def test_a_module_that_cannot_be_imported_by_its_name_is_read_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As that of `anabranch run v1.2.py`, or one that a program has loaded by its path."""
    path = tmp_path / f"{name}.py"
    path.write_text(f"from {fake.__name__} import three_operators\nhere = three_operators()\n")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    found = origin.find_origin(module.here)
    assert found is not None
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(origin, "_loading", False)
    if "." in name:
        monkeypatch.syspath_prepend(tmp_path)
    again = origin.load_preload(origin.load_request(module.here, found, fake.ENTRY))
    assert again.pipeline is sys.modules[name].here is not module.here


def test_a_program_without_a_word_of_how_it_was_started_is_a_script(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As under `python -m pdb`."""
    main = ModuleType("__main__")
    vars(main).update({"__file__": "/program.py", "here": fake.three_operators()})
    del main.__spec__
    monkeypatch.setitem(sys.modules, "__main__", main)
    found = origin.find_origin(main.here)
    assert found == origin.Origin("", "/program.py", "here", is_program=True)


async def test_instances_get_the_settings_made_after_the_file_was_read(script: ModuleType) -> None:
    script.here.with_scale("work", "max_instances", 7)
    script.here.dead_letters = "elsewhere.jsonl"
    script.here.with_input("lines", ["history/*.jsonl"])
    found = origin.find_origin(script.here)
    assert found is not None
    request = origin.load_request(script.here, found, fake.ENTRY)
    script.here.with_scale("work", "max_instances", 2)
    script.here.with_input("lines", ["others"])
    again = origin.load_preload(request)
    origin._loading = False
    assert again.pipeline.operators[OperatorName("work")].scale == Scale(max_instances=7)
    assert str(again.pipeline.dead_letters_path) == "elsewhere.jsonl"
    source = again.pipeline.operators[OperatorName("lines")].source
    assert source == sources.files("history/*.jsonl", format="jsonl")


async def test_a_parent_that_reads_the_file_again_forks_too(script: ModuleType) -> None:
    found = origin.find_origin(script.here)
    assert found is not None
    made = Forker(import_template(script.here, found, fake.ENTRY), print, print)
    await made.start(PATIENCE_S)
    assert b"ready" in await first_word(await made.fork(), assignment())
    await made.stop()


async def test_an_error_in_the_file_is_shown_from_the_users_line_on(
    script: ModuleType, tmp_path: Path
) -> None:
    found = origin.find_origin(script.here)
    assert found is not None
    path = tmp_path / "users_pipeline.py"
    path.write_text("def number():\n    return 1 / 0\n\n\nhere = number()\n")
    made = Forker(import_template(script.here, found, fake.ENTRY), print, print)
    with pytest.raises(ForkError, match="ZeroDivisionError") as error:
        await made.start(PATIENCE_S)
    lines = str(error.value).splitlines()
    assert lines[0] == f'  File "{path}", line 5, in <module>'
    assert "importlib" not in str(error.value)
    await made.stop()


async def test_a_file_that_takes_too_long_is_given_up(script: ModuleType, tmp_path: Path) -> None:
    found = origin.find_origin(script.here)
    assert found is not None
    (tmp_path / "users_pipeline.py").write_text("import time\ntime.sleep(600)\n")
    parent = import_template(script.here, found, fake.ENTRY)
    made = Forker(parent, print, print)
    with pytest.raises(ForkError, match=r"within 0\.3 s"):
        await made.start(0.3)
    await made.stop()
    assert not alive(parent.pid)
