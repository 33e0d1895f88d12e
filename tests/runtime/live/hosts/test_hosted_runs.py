"""Runs that ask an agent to have instances on its host, with a small program for their worker."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.runtime.hosts.bundle import Bundle, BundleFile, encoded, version_of
from anabranch.runtime.hosts.hosting import Home, HostOffer, RunId
from anabranch.runtime.hosts.requests import GREETING, Challenge
from anabranch.runtime.hosts.roles import AGENT, OPERATE
from anabranch.runtime.live.hosts import hosted_folder, hosted_runs, pipeline_folder
from anabranch.runtime.live.hosts.agent_log import AgentLog
from anabranch.runtime.live.hosts.data_folder import TOKEN
from anabranch.runtime.live.hosts.door import Door
from anabranch.runtime.live.hosts.host_directory import HostDirectory
from anabranch.runtime.live.hosts.hosted_runs import Hosted, HostedRuns
from anabranch.runtime.live.hosts.hosted_worker import order_for
from anabranch.runtime.live.hosts.refusals import Refusals
from anabranch.runtime.live.hosts.refused import HostRefused
from anabranch.runtime.live.hosts.request_server import RequestServer
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.live.hosts.tls import TlsFolder
from tests.runtime.certificates import Certificates
from tests.runtime.processes import PATIENCE_S, alive, eventually

FAKE = Path(__file__).with_name("fake_worker.py")
SECRET = bytes(range(32))
RUN, OTHER_RUN = "1" * 32, "2" * 32


class There:
    """The agent of host b, as runs of others see it."""

    def __init__(self, folder: Path, tls: Path | None = None) -> None:
        self.folder = folder / "b"
        self.folder.mkdir(exist_ok=True)
        token = self.folder / TOKEN
        token.write_text(SECRET.hex())
        token.chmod(0o600)
        self.out = io.StringIO()
        log = AgentLog("b", as_json=False, out=self.out)
        self.refusals = Refusals(log)
        command = [sys.executable, str(FAKE)]
        self.runs = HostedRuns(
            self.folder / "hosted",
            "b",
            "1.0",
            command,
            lambda state: order_for("127.0.0.1", state, ""),
            log,
        )
        server = RequestServer(
            lambda nonce: Challenge(nonce, "b", "1.0", str(token)),
            SECRET,
            {},
            self.runs.handlers,
            2**20,
            self.refusals,
        )
        layers = None if tls is None else TlsFolder(tls)
        self.door = Door({GREETING: server.serve}, self.refusals, layers)
        self.address = ""


@asynccontextmanager
async def there(tmp_path: Path, tls: Path | None = None) -> AsyncIterator[There]:
    made = There(tmp_path, tls)
    made.runs.open()
    made.address = await made.door.open("127.0.0.1:0")
    try:
        yield made
    finally:
        await made.runs.close()
        made.door.close()


def run_process(
    tmp_path: Path,
    address: str,
    code: str = "",
    *,
    run: str = RUN,
    home: str = "a",
    anabranch: str = "1.0",
    tls: Path | None = None,
) -> HostDirectory:
    """What a process of a run at home knows; each has an epoch of its own."""
    data = encoded(Bundle("a", "a.py", "", [], [BundleFile("a.py", code.encode())]))
    bundle = tmp_path / f"bundle-{version_of(data)}"
    bundle.write_bytes(data)
    directory = HostDirectory()
    folder = "" if tls is None else str(tls)
    directory.learn(
        Home(home, run, anabranch, version_of(data), str(bundle), folder),
        [HostOffer("b", address, "", {}, 1, 1, "1.0", "alive")],
    )
    return directory


async def said(stream: FrameStream, body: bytes) -> tuple[int, bytes]:
    """By which worker it is sent back, and what."""
    async with asyncio.timeout(PATIENCE_S):
        stream.send(body)
        came = await stream.receive()
    assert came is not None
    pid, _, rest = came.partition(b" ")
    return int(pid), rest


async def ended(stream: FrameStream) -> bool:
    async with asyncio.timeout(PATIENCE_S):
        return await stream.receive() is None


def folders(at: There) -> list[str]:
    return sorted(path.name for path in (at.folder / "hosted").iterdir())


async def test_frames_go_to_a_worker_of_the_run_and_back(tmp_path: Path) -> None:
    async with there(tmp_path) as b:
        stream = await run_process(tmp_path, b.address).dial("b")
        pid, rest = await said(stream, b"x" * 90_000)
        assert rest == b"x" * 90_000
        assert pid != os.getpid()
        stream.close()
    assert not alive(pid)


async def test_a_large_bundle_comes_and_large_frames_after_it_do_not(tmp_path: Path) -> None:
    async with there(tmp_path) as b:
        stream = await run_process(tmp_path, b.address, "# much\n" * 100_000).dial("b")
        await said(stream, b"1")
        stream.allow(2**20)
        stream.send(b"x" * 200_000)
        assert await ended(stream)


async def test_a_newer_stream_reaches_the_same_worker_and_takes_the_place_of_the_older_one(
    tmp_path: Path,
) -> None:
    async with there(tmp_path) as b:
        run = run_process(tmp_path, b.address)
        first = await run.dial("b")
        pid, _ = await said(first, b"1")
        second = await run.dial("b")
        assert await ended(first)
        assert (await said(second, b"2"))[0] == pid
        second.abort()
        third = await run.dial("b")
        assert (await said(third, b"3"))[0] == pid
        third.close()


async def test_a_worker_that_was_killed_has_another_one_in_its_place(tmp_path: Path) -> None:
    async with there(tmp_path) as b:
        run = run_process(tmp_path, b.address)
        stream = await run.dial("b")
        pid, _ = await said(stream, b"1")
        os.kill(pid, signal.SIGKILL)
        assert await ended(stream)
        stream = await run.dial("b")
        assert (await said(stream, b"2"))[0] != pid
        stream.close()


async def test_the_worker_of_another_process_of_the_run_begins_when_all_of_the_first_have_ended(
    tmp_path: Path,
) -> None:
    async with there(tmp_path) as b:
        first = run_process(tmp_path, b.address, "child")
        stream = await first.dial("b")
        pid, _ = await said(stream, b"1")
        files = b.folder / "hosted" / RUN / "files"
        await eventually((files / "child").exists)
        child = int((files / "child").read_text())
        second = run_process(tmp_path, b.address, "child")
        dialling = asyncio.create_task(second.dial("b"))
        assert await ended(stream)
        await eventually(lambda: not alive(pid))
        assert alive(child)
        done, _ = await asyncio.wait([dialling], timeout=0.3)
        assert not done
        (files / "go").touch()
        stream = await dialling
        await eventually(lambda: not alive(child))  # it has let go of its files before
        assert (await said(stream, b"2"))[0] != pid
        with pytest.raises(HostRefused, match="another process goes on with the run"):
            await first.dial("b")
        stream.close()


async def test_an_agent_that_begins_anew_also_waits_for_what_its_former_one_has_left(
    tmp_path: Path,
) -> None:
    async with there(tmp_path) as b:
        run = run_process(tmp_path, b.address, "child")
        stream = await run.dial("b")
        await said(stream, b"1")
        files = b.folder / "hosted" / RUN / "files"
        await eventually((files / "child").exists)
        child = int((files / "child").read_text())
        stream.close()
    assert alive(child)
    async with there(tmp_path) as b:
        run.learn(None, [HostOffer("b", b.address, "", {}, 1, 1, "1.0", "alive")])
        dialling = asyncio.create_task(run.dial("b"))
        done, _ = await asyncio.wait([dialling], timeout=0.3)
        assert not done
        (files / "go").touch()
        await said(await dialling, b"2")
        await eventually(lambda: not alive(child))


async def test_the_folder_of_a_run_goes_with_its_worker_if_that_says_so(tmp_path: Path) -> None:
    async with there(tmp_path) as b:
        kept, over = (
            run_process(tmp_path, b.address),
            run_process(tmp_path, b.address, run=OTHER_RUN),
        )
        for run, word in ((kept, b"keep"), (over, b"done")):
            stream = await run.dial("b")
            await said(stream, b"1")
            stream.send(word)
            assert await ended(stream)
        await eventually(lambda: folders(b) == [RUN])
        assert (b.folder / "hosted" / RUN / "state").is_dir()


@pytest.mark.parametrize(
    ("code", "named", "match"),
    [
        ("", {"anabranch": "0.9"}, r"b has anabranch 1.0, and the run of a has 0.9"),
        ("import no_such_thing", {}, r"host b does not have .*'no_such_thing' \(a.py:1\)"),
        ("wrong", {}, r"on host b the pipeline cannot be read: a.py holds no pipeline"),
    ],
)
async def test_what_cannot_be_is_refused_in_words(
    code: str, named: dict[str, Any], match: str, tmp_path: Path
) -> None:
    async with there(tmp_path) as b:
        with pytest.raises(HostRefused, match=match):
            await run_process(tmp_path, b.address, code, **named).dial("b")
        assert b.runs.at_work == []


async def test_a_run_that_is_on_a_host_waits_for_it_if_that_has_another_version(
    tmp_path: Path,
) -> None:
    async with there(tmp_path) as b:
        stream = await run_process(tmp_path, b.address).dial("b")
        with pytest.raises(OSError, match=r"b has anabranch 1.0, and the run of a has 0.9"):
            await run_process(tmp_path, b.address, anabranch="0.9").dial("b")
        await said(stream, b"1")
        stream.close()


async def test_nothing_stays_in_memory_of_a_run_that_was_refused(tmp_path: Path) -> None:
    async with there(tmp_path) as b:
        with pytest.raises(HostRefused):
            await run_process(tmp_path, b.address, "import no_such_thing").dial("b")
        assert b.runs.known == []


async def test_another_host_does_not_get_the_run_of_a_host(tmp_path: Path) -> None:
    async with there(tmp_path) as b:
        stream = await run_process(tmp_path, b.address).dial("b")
        with pytest.raises(HostRefused, match="files of another run"):
            await run_process(tmp_path, b.address, home="c").dial("b")
        assert (await said(stream, b"1"))[1] == b"1"
        stream.close()


async def test_a_disk_without_room_is_told_and_the_run_may_ask_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    async with there(tmp_path) as b:
        run = run_process(tmp_path, b.address)
        with monkeypatch.context() as patched:
            patched.setattr(pipeline_folder, "_write", full)
            with pytest.raises(OSError, match="No space left on device"):
                await run.dial("b")
        assert folders(b) == []
        await said(await run.dial("b"), b"1")


async def test_a_host_has_so_many_workers_for_a_home_and_not_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted_runs, "WORKERS_PER_HOME_MAX", 1)
    async with there(tmp_path) as b:
        run = run_process(tmp_path, b.address)
        stream = await run.dial("b")
        with pytest.raises(OSError, match="instances of 1 runs of a, which is the most"):
            await run_process(tmp_path, b.address, run=OTHER_RUN).dial("b")
        again = await run.dial("b")  # itself does not count
        await said(again, b"1")
        elsewhere = run_process(tmp_path, b.address, run=OTHER_RUN, home="c")
        await said(await elsewhere.dial("b"), b"1")
        stream.close()


async def test_a_worker_that_is_not_heard_ends_and_its_files_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted_runs, "LOOK_EVERY_S", 0.02)
    async with there(tmp_path) as b:
        stream = await run_process(tmp_path, b.address).dial("b")
        pid, _ = await said(stream, b"1")
        monkeypatch.setattr(hosted_runs, "UNHEARD_S", 0.05)
        assert await ended(stream)
        await eventually(lambda: not alive(pid) and b.runs.at_work == [])
        assert folders(b) == [RUN]
        assert "has not been heard" in b.out.getvalue()


async def test_what_a_worker_prints_is_in_the_log_of_the_agent(tmp_path: Path) -> None:
    async with there(tmp_path) as b:
        stream = await run_process(tmp_path, b.address).dial("b")
        await said(stream, b"speak")
        await eventually(lambda: f"run {RUN}: it speaks" in b.out.getvalue())
        stream.close()


async def test_what_was_left_long_ago_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with there(tmp_path) as b:
        stream = await run_process(tmp_path, b.address).dial("b")
        stream.send(b"keep")
        await ended(stream)
        await eventually(lambda: b.runs.at_work == [])
        b.runs.tidy()
        assert folders(b) == [RUN]
        monkeypatch.setattr(hosted_runs, "KEPT_S", -1.0)
        b.runs.tidy()
        assert folders(b) == []


async def test_a_run_process_without_the_role_of_an_agent_is_refused(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "tls")
    mine = certificates.issue("b", AGENT, addresses=("127.0.0.1",))
    person = certificates.issue("ann", OPERATE)
    home = certificates.issue("a", AGENT, addresses=("127.0.0.1",))
    async with there(tmp_path, mine) as b:
        with pytest.raises(HostRefused, match="needs the role agent"):
            await run_process(tmp_path, b.address, home="ann", tls=person).dial("b")
        with pytest.raises(HostRefused, match="a asks in the name of c"):
            await run_process(tmp_path, b.address, home="c", tls=home).dial("b")
        stream = await run_process(tmp_path, b.address, tls=home).dial("b")
        await said(stream, b"x" * 90_000)
        assert b.refusals.counts == {"asked for what needs the role agent": 1}
        stream.close()


async def test_a_run_that_dials_while_its_folder_goes_may_ask_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with there(tmp_path) as b:
        first = run_process(tmp_path, b.address)
        stream = await first.dial("b")
        await said(stream, b"1")
        end = b.runs._end

        async def after_its_last_word(one: Hosted) -> None:
            stream.send(b"done")
            assert one.watch is not None
            await asyncio.wait([one.watch])
            await end(one)

        second = run_process(tmp_path, b.address)
        with monkeypatch.context() as patched:
            patched.setattr(b.runs, "_end", after_its_last_word)
            with pytest.raises(OSError, match="the run has just ended on b"):
                await second.dial("b")
        assert folders(b) == b.runs.known == []
        await said(await second.dial("b"), b"2")


async def test_code_that_was_not_kept_for_other_hosts_is_to_be_submitted_again(
    tmp_path: Path,
) -> None:
    async with there(tmp_path) as b:
        run = run_process(tmp_path, b.address)
        assert run.home is not None
        run.home = msgspec.structs.replace(run.home, bundle="")
        with pytest.raises(HostRefused, match="submit it again"):
            await run.dial("b")


async def test_another_user_of_the_machine_gets_no_worker(tmp_path: Path) -> None:
    async with there(tmp_path) as b:
        (b.folder / TOKEN).unlink()
        with pytest.raises(HostRefused, match="needs proof"):
            await run_process(tmp_path, b.address).dial("b")
        assert folders(b) == []


async def test_a_host_that_is_not_there_may_be_dialled_again(tmp_path: Path) -> None:
    async with there(tmp_path) as b:
        address = b.address
    with pytest.raises(OSError, match="no agent answers"):
        await run_process(tmp_path, address).dial("b")
    with pytest.raises(OSError, match="host c is not known"):
        await run_process(tmp_path, address).dial("c")


async def test_news_of_hosts_are_told_in_the_loop_of_who_has_asked(tmp_path: Path) -> None:
    directory, heard = HostDirectory(), asyncio.Event()
    directory.subscribe(asyncio.get_running_loop(), heard.set)
    home = Home("a", RUN, "1.0", "", "")
    offers = [
        HostOffer(name, "127.0.0.1:1", "", {}, 2, 3, version, state, {"a": 0.5})
        for name, version, state in (
            ("a", "1.0", "alive"),
            ("b", "1.0", "suspected"),
            ("c", "1.0", "dead"),
            ("d", "0.9", "alive"),
        )
    ]
    await asyncio.to_thread(directory.learn, home, offers)
    async with asyncio.timeout(PATIENCE_S):
        await heard.wait()
    assert (directory.me, directory.run) == ("a", RUN)
    assert [room.name for room in directory.rooms()] == ["a", "b"]
    assert [*directory.hosts] == ["a", "b", "c", "d"]


def test_a_run_that_begins_anew_is_another_one_to_hosts_and_one_that_is_resumed_is_not() -> None:
    directory = HostDirectory()
    directory.learn(Home("a", RUN, "1.0", "", ""), [])
    runs = []
    for token in (b"one", b"another", b"one"):
        directory.begins(token)
        runs.append(directory.run)
    assert runs[0] == runs[2] != runs[1]
    assert [msgspec.convert(run, RunId) for run in runs] == runs


def test_a_record_of_a_run_that_is_damaged_is_told(tmp_path: Path) -> None:
    folder = tmp_path / RUN
    folder.mkdir()
    (folder / hosted_folder.RECORD).write_bytes(b"{")
    with pytest.raises(pipeline_folder.DamagedFolder, match="this is damaged"):
        hosted_folder.hosted_at(folder)
