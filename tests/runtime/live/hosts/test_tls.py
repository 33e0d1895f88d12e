"""An agent with certificates: who is refused, why, and that others do not notice."""

from __future__ import annotations

import asyncio
import io
import random
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import ClassVar

import pytest

from anabranch.runtime.hosts.config import AgentConfig
from anabranch.runtime.hosts.requests import (
    FIRST_BYTES_MAX,
    GREETING,
    AgentMessage,
    Challenge,
)
from anabranch.runtime.hosts.roles import AGENT, OPERATE, SUBMIT, VIEW, Peer
from anabranch.runtime.live.hosts import door as door_module
from anabranch.runtime.live.hosts import refusals as refusals_module
from anabranch.runtime.live.hosts import tls as tls_module
from anabranch.runtime.live.hosts.agent_log import AgentLog
from anabranch.runtime.live.hosts.client import AgentError, agent_at
from anabranch.runtime.live.hosts.door import Door
from anabranch.runtime.live.hosts.host_agent import HostAgent
from anabranch.runtime.live.hosts.refusals import Refusals
from anabranch.runtime.live.hosts.request_server import RequestServer, say
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.live.hosts.tls import TlsError, TlsFolder, check_agent
from anabranch.runtime.live.hosts.tls_layer import TlsRefused
from tests.runtime.certificates import Certificates
from tests.runtime.processes import PATIENCE_S


class See(AgentMessage, frozen=True, tag="see"):
    role: ClassVar[str] = VIEW


class Change(AgentMessage, frozen=True, tag="change"):
    role: ClassVar[str] = SUBMIT


class Rule(AgentMessage, frozen=True, tag="rule"):
    """Says nothing of a role."""


class Large(AgentMessage, frozen=True, tag="large"):
    data: bytes


class Told(AgentMessage, frozen=True, tag="told"):
    by: str


class Guarded:
    """An agent as others see it. `acted`: who has asked for what."""

    def __init__(self, certificates: Certificates) -> None:
        self.certificates = certificates
        self.acted: list[tuple[str, str]] = []
        self.refusals = Refusals()
        kinds: list[type[AgentMessage]] = [Change, Rule]
        self.server = RequestServer(
            lambda nonce: Challenge(nonce, "press", "1", "/none/token"),
            bytes(32),
            {See: self.act},
            dict.fromkeys(kinds, self.act),
            2**20,
            self.refusals,
        )
        folder = TlsFolder(certificates.issue("press", AGENT))
        self.door = Door({GREETING: self.server.serve}, self.refusals, folder)
        self.address = ""

    async def act(self, request: AgentMessage, stream: FrameStream) -> None:
        assert stream.peer is not None
        self.acted.append((stream.peer.name, type(request).__name__))
        say(stream, Told(stream.peer.name))

    async def refused(self, reason: str) -> None:
        """Return when that was counted, and nothing else was."""
        await until(lambda: bool(self.refusals.counts))
        assert self.refusals.counts == {reason: 1}
        assert self.acted == []


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - it is seen from outside
            await asyncio.sleep(0.001)


@asynccontextmanager
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    made = Guarded(Certificates(tmp_path))
    made.address = await made.door.open("127.0.0.1:0")
    try:
        yield made
    finally:
        made.door.close()


async def asked(address: str, tls: Path, request: AgentMessage | None = None) -> str:
    async with agent_at(address, None, 2**20, tls) as agent:
        agent.ask(request or See())
        return (await agent.reply(Told)).by


async def test_whoever_has_a_certificate_is_heard_by_its_name(tmp_path: Path) -> None:
    async with guarded(tmp_path) as there:
        ann = there.certificates.issue("ann", SUBMIT)
        assert await asked(there.address, ann) == "ann"
        assert await asked(there.address, ann, Change()) == "ann"
        assert there.refusals.counts == {}


async def test_a_role_that_does_not_allow_a_request_is_told_and_counted(tmp_path: Path) -> None:
    async with guarded(tmp_path) as there:
        cases: list[tuple[str, str, set[type[AgentMessage]]]] = [
            ("vic", VIEW, {See}),
            ("sam", SUBMIT, {See, Change}),
            ("ann", OPERATE, {See, Change, Rule}),
            ("press-2", AGENT, set()),
        ]
        for name, role, may in cases:
            folder = there.certificates.issue(name, role)
            for request in (See(), Change(), Rule()):
                if type(request) in may:
                    assert await asked(there.address, folder, request) == name
                    continue
                needed = f"this needs the role {request.role}, .* {name} has: {role}; `anabranch ca"
                with pytest.raises(AgentError, match=needed):
                    await asked(there.address, folder, request)
        assert len(there.acted) == 6
        assert sum(there.refusals.counts.values()) == 6
        assert there.refusals.counts["asked for what needs the role operate"] == 3


async def test_no_certificate(tmp_path: Path) -> None:
    async with guarded(tmp_path) as there:
        context = ssl.create_default_context(cafile=tmp_path / "press" / "ca.pem")
        host, _, port = there.address.rpartition(":")
        with suppress(OSError):  # an alert, or the end of the connection
            reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
            writer.write(GREETING)
            assert await reader.read() == b""
        await there.refused("no certificate")


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("other", "a certificate of another authority"),
        ("expired", "an expired certificate"),
        ("early", "a certificate that is not valid yet"),
    ],
)
async def test_a_certificate_that_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, reason: str
) -> None:
    async with guarded(tmp_path) as there:
        mine = there.certificates
        match what:
            case "other":
                eve = Certificates(tmp_path / "other").issue("eve", OPERATE)
                (eve / "ca.pem").write_bytes(mine.authority.trusted)
            case "expired":
                eve = mine.issue_at(monkeypatch, -400, "eve", OPERATE)
            case _:
                eve = mine.issue_at(monkeypatch, 10, "eve", OPERATE)
        with pytest.raises(AgentError):
            await asked(there.address, eve, Rule())
        await there.refused(reason)
        assert await asked(there.address, mine.issue("ann", VIEW)) == "ann"


async def test_a_command_says_nothing_to_an_agent_of_another_authority(tmp_path: Path) -> None:
    async with guarded(tmp_path) as there:
        ann = Certificates(tmp_path / "other").issue("ann", OPERATE)
        with pytest.raises(AgentError, match="has shown a certificate of another authority; noth"):
            await asked(there.address, ann, Rule())
        assert there.acted == []
        folder = TlsFolder(there.certificates.issue("ann", OPERATE))
        with pytest.raises(TlsRefused, match="a certificate for another address") as raised:
            await FrameStream.dial(there.address, FIRST_BYTES_MAX, folder.layer("127.0.0.9:7433"))
        assert not raised.value.by_peer


async def test_a_command_without_tls_is_not_understood(tmp_path: Path) -> None:
    async with guarded(tmp_path) as there:
        with pytest.raises(AgentError, match=r"asks for a certificate \(--tls DIR\)"):
            async with agent_at(there.address, None):
                raise AssertionError
        await there.refused("no proper TLS handshake")


async def test_an_older_tls_is_refused(tmp_path: Path) -> None:
    async with guarded(tmp_path) as there:
        ann = there.certificates.issue("ann", OPERATE)
        context = ssl.create_default_context(cafile=ann / "ca.pem")
        context.load_cert_chain(ann / "identity.pem")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        host, _, port = there.address.rpartition(":")
        with pytest.raises(OSError, match=r"(?i)protocol|reset"):
            await asyncio.open_connection(host, int(port), ssl=context)
        await there.refused("no proper TLS handshake")


async def test_only_who_may_submit_says_large_things(tmp_path: Path) -> None:
    async with guarded(tmp_path) as there:
        for name, role, told in [
            ("vic", VIEW, "has ended the connection"),
            ("sam", SUBMIT, "the agent does not know this request"),
        ]:
            with pytest.raises(AgentError, match=told):
                await asked(
                    there.address, there.certificates.issue(name, role), Large(bytes(2**16))
                )
        assert there.acted == []


async def test_what_one_said_in_a_handshake_proves_nothing_when_another_repeats_it(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as there:
        host, _, port = there.address.rpartition(":")
        heard = bytearray()

        async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            back, there_ = await asyncio.open_connection(host, int(port))
            copying = asyncio.create_task(copy(back, writer))
            while data := await reader.read(2**16):
                heard.extend(data)
                there_.write(data)
            there_.close()
            await copying

        async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(2**16):
                writer.write(data)
            writer.close()

        proxy = await asyncio.start_server(between, "127.0.0.1", 0)
        ann = there.certificates.issue("ann", OPERATE)
        through = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        assert await asked(through, ann, Rule()) == "ann"
        assert there.acted == [("ann", "Rule")]
        there.acted.clear()
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(heard)
        with_alert = await reader.read()
        assert with_alert
        writer.close()
        await there.refused("no proper TLS handshake")
        proxy.close()


async def test_whoever_says_nothing_in_time_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "FIRST_S", 0.05)
    async with guarded(tmp_path) as there:
        host, _, port = there.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await reader.read() == b""
        writer.close()
        await there.refused("said nothing in time")


@pytest.mark.skipif(sys.platform != "linux", reason="it needs a second loopback address")
async def test_a_flood_from_one_address_leaves_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections that say nothing, more than there may be; and more a second than may be."""
    monkeypatch.setattr(door_module, "FIRST_S", PATIENCE_S)
    monkeypatch.setattr(door_module, "HANDSHAKES_AT_ONCE", 200)
    monkeypatch.setattr(door_module, "HANDSHAKES_PER_S", 0.0)
    async with guarded(tmp_path) as there:
        host, _, port = there.address.rpartition(":")
        ann = there.certificates.issue("ann", VIEW)
        with held() as writers:
            for _ in range(300):
                _, writer = await asyncio.open_connection(
                    host, int(port), local_addr=("127.0.0.7", 0)
                )
                writers.append(writer)
            assert await asked(there.address, ann) == "ann"
        assert there.refusals.counts == {
            "proved nothing, and gave way to others": 73,
            "too many connections a second": 100,
        }


@contextmanager
def held() -> Iterator[list[asyncio.StreamWriter]]:
    writers: list[asyncio.StreamWriter] = []
    try:
        yield writers
    finally:
        for writer in writers:
            writer.close()


async def test_a_certificate_has_so_many_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "REQUESTS_AT_ONCE", 2)
    monkeypatch.setattr(door_module, "REQUESTS_PER_S", 0.0)
    async with guarded(tmp_path) as there:
        ann, bob = there.certificates.issue("ann", VIEW), there.certificates.issue("bob", VIEW)
        for _ in range(2):
            assert await asked(there.address, ann) == "ann"
        with pytest.raises(AgentError, match=r"the agent press at .* has ended the connection"):
            await asked(there.address, ann)
        assert await asked(there.address, bob) == "bob"
        assert there.refusals.counts == {"too many requests a second": 1}


@pytest.mark.parametrize(
    ("handshakes", "frames"),
    [
        (1_500, 5_000),
        pytest.param(20_000, 100_000, marks=[pytest.mark.nightly, pytest.mark.timeout(900)]),
    ],
)
async def test_fuzzed_handshakes_and_frames_are_refused_and_nothing_is_disturbed(
    tmp_path: Path, handshakes: int, frames: int
) -> None:
    rng = random.Random(16)
    certificates = Certificates(tmp_path)
    folder = TlsFolder(certificates.issue("press", AGENT))
    first: list[bytes] = []
    folder.layer("127.0.0.1:1").begin(first.append)
    hello = b"".join(first)
    said: list[bytes] = []
    for _ in range(handshakes):
        layer = folder.layer(None)
        data = rng.randbytes(rng.randrange(1, 400)) if rng.random() < 0.5 else changed(hello, rng)
        try:
            plain = layer.feed(data + bytes(rng.randrange(0, 20)), said.append)
        except TlsRefused as refused:
            assert refused.reason  # noqa: PT017 - if it is refused
        else:
            assert (plain, layer.peer) == (b"", None)
    made = Guarded(certificates)
    request = b"\x81\xa4kind\xa3see"
    for _ in range(frames):
        await made.server.serve(
            as_stream(Heard(changed(request, rng), Peer("eve", frozenset({VIEW}))))
        )
    assert sum(made.refusals.counts.values()) + len(made.acted) == frames
    assert {asked_for for _, asked_for in made.acted} <= {"See"}
    address = await made.door.open("127.0.0.1:0")
    assert await asked(address, certificates.issue("ann", VIEW)) == "ann"
    made.door.close()


class Heard:
    """A stream on which one frame has come."""

    has_spoken = True

    def __init__(self, body: bytes, peer: Peer) -> None:
        self.peer, self.who = peer, peer.name
        self.is_proved = True
        self._bodies = [body]

    async def receive(self) -> bytes | None:
        return self._bodies.pop() if self._bodies else None

    def allow(self, frame_bytes_max: int) -> None:
        pass

    def send(self, body: bytes) -> None:
        pass


def as_stream(heard: Heard) -> FrameStream:
    return heard  # type: ignore[return-value]


def changed(data: bytes, rng: random.Random) -> bytes:
    """Some bytes of it changed, left out or put in."""
    new = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(new)) if new else 0
        match rng.randrange(3):
            case 0 if new:
                new[at] = rng.randrange(256)
            case 1 if new:
                del new[at : at + rng.randint(1, 8)]
            case _:
                new[at:at] = rng.randbytes(rng.randint(1, 8))
    return bytes(new)


def test_more_bytes_than_a_handshake_has_are_refused(tmp_path: Path) -> None:
    layer = TlsFolder(Certificates(tmp_path).issue("press", AGENT)).layer(None)
    said: list[bytes] = []
    with pytest.raises(TlsRefused):
        layer.feed(b"\x16\x03\x01\x40\x00" + bytes(2**17), said.append)


@pytest.mark.parametrize(
    ("name", "advertise", "told"),
    [
        (
            "press-2",
            "127.0.0.1:7433",
            "is for 'press-1', and this host is 'press-2'; `anabranch ca",
        ),
        ("press-1", "10.0.0.9:7433", "does not hold for 10.0.0.9, where others are told"),
        ("ann", "127.0.0.1:7433", "to others it is a certificate for another purpose"),
        ("old", "127.0.0.1:7433", "to others it is an expired certificate"),
    ],
)
def test_an_agent_whose_certificate_others_would_refuse_is_told_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, advertise: str, told: str
) -> None:
    mine = Certificates(tmp_path)
    fits = mine.issue("press-1", AGENT, addresses=("10.0.0.1",))
    folder = {
        "ann": mine.issue("ann", OPERATE),
        "old": mine.issue_at(monkeypatch, -400, "old", AGENT),
    }
    assert check_agent(fits, "press-1", "10.0.0.1:7433").endswith("GMT")
    assert check_agent(fits, "press-1", "[::1]:7433").endswith("GMT")
    with pytest.raises(TlsError, match=told):
        check_agent(folder.get(name, fits), name, advertise)


def test_a_folder_without_what_it_needs_is_told(tmp_path: Path) -> None:
    with pytest.raises(TlsError, match=r"identity.pem: No such file.*`anabranch ca issue` writes"):
        TlsFolder(tmp_path / "none")
    folder = Certificates(tmp_path).issue("press", AGENT)
    (folder / "identity.pem").chmod(0o640)
    with pytest.raises(TlsError, match="can be read by other users"):
        TlsFolder(folder)
    (folder / "identity.pem").chmod(0o600)
    (folder / "identity.pem").write_text("x")
    with pytest.raises(TlsError, match="holds no key and certificate that belong together"):
        TlsFolder(folder)
    Certificates(tmp_path).issue("press", AGENT)
    (folder / "ca.pem").write_text("x")
    with pytest.raises(TlsError, match=r"ca\.pem holds no certificate of an authority .* copy it"):
        TlsFolder(folder)
    (folder / "ca.pem").unlink()
    with pytest.raises(TlsError, match=r"ca\.pem: No such file"):
        TlsFolder(folder)


def test_a_folder_is_read_again_when_it_has_changed_and_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_module, "LOOK_EVERY_S", 0.0)
    told: list[str] = []
    certificates = Certificates(tmp_path)
    folder = TlsFolder(certificates.issue("press", AGENT), told.append)
    before = folder.contexts
    folder.layer(None)
    assert (folder.contexts, told) == (before, [])
    (folder.path / "identity.pem").write_text("x")
    folder.layer(None)
    assert folder.contexts is before
    assert "belong together" in told.pop()
    certificates.issue("press", AGENT)
    folder.layer(None)
    assert folder.contexts is not before
    assert told == [""]


async def test_the_certificate_of_another_host_does_not_take_the_place_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_module, "LOOK_EVERY_S", 0.0)
    certificates, out = Certificates(tmp_path), io.StringIO()
    own, other = (certificates.issue(name, AGENT) for name in ("press-1", "press-2"))
    config = AgentConfig(
        name="press-1",
        region="",
        labels={},
        cores=1,
        memory_mb=1,
        bind="127.0.0.1:0",
        advertise="127.0.0.1:0",
        seeds=[],
        data=str(tmp_path / "data"),
        warm=0,
        log="plain",
        tls=str(own),
    )
    agent = HostAgent(config, "1", AgentLog("press-1", as_json=False, out=out), [])
    agent._take_certificate(own)
    folder = agent._tls
    assert folder is not None
    before = folder.contexts
    (own / "identity.pem").write_bytes((other / "identity.pem").read_bytes())
    folder.layer(None)
    assert folder.contexts is before
    told = out.getvalue().splitlines()[-1]
    assert "is for 'press-2', and this host is 'press-1'" in told
    assert told.endswith("; the one before counts on")
    certificates.issue("press-1", AGENT)
    folder.layer(None)
    assert folder.contexts is not before
    assert out.getvalue().endswith("has changed: it counts from now on\n")


def test_an_address_that_cannot_be_is_no_fault_of_the_program(tmp_path: Path) -> None:
    folder = TlsFolder(Certificates(tmp_path).issue("press", AGENT))
    for address in (".:1", f"{'a' * 250}:1"):
        with pytest.raises(TlsRefused, match="an address that cannot be"):
            folder.layer(address)


def test_refusals_are_told_now_and_then_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    told = Refusals(AgentLog("press", as_json=False, out=out))
    for _ in range(100):
        told.count("no certificate", "10.0.0.7")
    told.count("an expired certificate", "eve")
    monkeypatch.setattr(refusals_module, "SAY_EVERY_S", 0.0)
    told.count("no certificate", "10.0.0.8")
    assert out.getvalue().splitlines() == [
        "press: refused 10.0.0.7: no certificate",
        "press: refused eve: an expired certificate",
        "press: refused 10.0.0.8: no certificate, and 99 more since the last line",
    ]
