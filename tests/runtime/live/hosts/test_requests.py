"""Requests to an agent: no command acts that has not proved that it belongs to the agent's user."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from anabranch.runtime.hosts.requests import (
    FIRST_BYTES_MAX,
    GREETING,
    NONCE_BYTES,
    AgentMessage,
    Challenge,
    Proof,
    RequestFailed,
    Welcome,
    is_proved,
    mac_of,
)
from anabranch.runtime.live.hosts import client
from anabranch.runtime.live.hosts import door as door_module
from anabranch.runtime.live.hosts import request_server as request_server_module
from anabranch.runtime.live.hosts import stream as stream_module
from anabranch.runtime.live.hosts.client import AgentError, agent_at
from anabranch.runtime.live.hosts.data_folder import TOKEN
from anabranch.runtime.live.hosts.door import Door
from anabranch.runtime.live.hosts.request_server import RequestServer, say
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.live.link.link import framed
from tests.runtime.processes import PATIENCE_S

SECRET = bytes(range(32))


class Look(AgentMessage, frozen=True, tag="look"):
    pass


class Act(AgentMessage, frozen=True, tag="act"):
    data: bytes = b""


class Done(AgentMessage, frozen=True, tag="done"):
    what: str


class Desk:
    """An agent as commands see it. `acted`: the requests that it has carried out."""

    def __init__(self, token_file: Path) -> None:
        self.acted: list[Act] = []
        self.token_file = token_file
        self.server = RequestServer(
            lambda nonce: Challenge(nonce, "press", "1", str(token_file)),
            SECRET,
            {Look: self.look},
            {Act: self.act},
            2**20,
        )
        self.door = Door({GREETING: self.server.serve})
        self.address = ""

    async def look(self, request: Look, stream: FrameStream) -> None:
        say(stream, Done("seen"))

    async def act(self, request: Act, stream: FrameStream) -> None:
        self.acted.append(request)
        say(stream, Done("acted"))


@asynccontextmanager
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    token = tmp_path / TOKEN
    token.write_text(SECRET.hex())
    token.chmod(0o600)
    made = Desk(token)
    made.address = await made.door.open("127.0.0.1:0")
    try:
        yield made
    finally:
        made.door.close()


async def done(address: str, request: AgentMessage, token_file: Path | None = None) -> str:
    async with agent_at(address, token_file, 2**20) as agent:
        agent.ask(request)
        return (await agent.reply(Done)).what


async def test_a_command_of_the_same_user_is_heard(tmp_path: Path) -> None:
    async with desk(tmp_path) as there:
        assert await done(there.address, Act(b"x" * 100_000)) == "acted"
        assert await done(there.address, Look()) == "seen"
        assert len(there.acted) == 1


async def test_a_command_that_cannot_read_the_token_may_only_look(tmp_path: Path) -> None:
    async with desk(tmp_path) as there:
        there.token_file.unlink()
        assert await done(there.address, Look()) == "seen"
        with pytest.raises(AgentError, match="needs proof that the command comes from the user"):
            await done(there.address, Act())
        assert there.acted == []
        assert there.server.refusals.counts == {"asked for what needs the token": 1}


async def test_another_token_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text(bytes(32).hex())
    other.chmod(0o600)
    async with desk(tmp_path) as there:
        with pytest.raises(AgentError, match="this is not the token of the agent"):
            await done(there.address, Act(), other)
        assert there.acted == []


async def test_what_was_said_once_proves_nothing_again(tmp_path: Path) -> None:
    """Another user may have heard a whole handshake, and says the same."""
    async with desk(tmp_path) as there:
        nonce = bytes(NONCE_BYTES)
        heard: list[bytes] = []
        for _ in range(2):
            stream = await FrameStream.dial(there.address, FIRST_BYTES_MAX)
            stream.send(GREETING)
            challenge = msgspec.msgpack.decode(await stream.receive() or b"", type=Challenge)
            heard.append(heard[0] if heard else mac_of(SECRET, "command", nonce, challenge.nonce))
            say(stream, Proof(nonce, heard[-1]))
            body = await stream.receive() or b""
            reply = msgspec.msgpack.decode(body, type=Welcome | RequestFailed)
            stream.close()
        assert reply == RequestFailed("this is not the token of the agent")


async def test_its_own_proof_does_not_let_a_command_in_that_sends_it_back(tmp_path: Path) -> None:
    """The two sides prove different things."""
    mine, its = bytes(NONCE_BYTES), bytes(range(NONCE_BYTES))
    proof = mac_of(SECRET, "command", mine, its)
    assert is_proved(SECRET, "command", proof, mine, its)
    assert not is_proved(SECRET, "agent", proof, mine, its)


async def test_a_program_that_pretends_to_be_the_agent_gets_no_request(tmp_path: Path) -> None:
    """It does not know the secret, though it names the file."""
    got: list[bytes] = []

    async def pretend(stream: FrameStream) -> None:
        say(stream, Challenge(bytes(NONCE_BYTES), "press", "1", str(tmp_path / TOKEN)))
        await stream.receive()
        say(stream, Welcome(bytes(32)))
        while (body := await stream.receive()) is not None:
            got.append(body)

    async with desk(tmp_path) as there:
        false = Door({GREETING: pretend})
        address = await false.open("127.0.0.1:0")
        with pytest.raises(AgentError, match="is not the agent whose token this is"):
            await done(address, Act())
        false.close()
        assert (got, there.acted) == ([], [])


@pytest.mark.parametrize(
    "said",
    [b"", b"\xff" * 100, GREETING[:-1], b"GET / HTTP/1.1\r\n\r\n" * 20, b"\x00" * 9_000],
)
async def test_what_is_no_frame_of_ours_is_closed_and_nothing_else_is_disturbed(
    said: bytes, tmp_path: Path
) -> None:
    async with desk(tmp_path) as there:
        host, _, port = there.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(said)
        if writer.can_write_eof():
            writer.write_eof()
        assert await reader.read() in (b"",)
        writer.close()
        assert await done(there.address, Look()) == "seen"
        assert there.acted == []


async def test_a_request_that_nobody_knows_is_told(tmp_path: Path) -> None:
    async with desk(tmp_path) as there:
        with pytest.raises(AgentError, match="the agent does not know this request"):
            await done(there.address, Done("x"))


@pytest.mark.parametrize("said", [b"", framed(GREETING)])
async def test_connections_of_this_machine_that_prove_nothing_keep_no_command_out(
    said: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than there may be, all open, and with time left. Some have spoken."""
    monkeypatch.setattr(door_module, "FIRST_S", PATIENCE_S)
    monkeypatch.setattr(request_server_module, "HANDSHAKE_S", PATIENCE_S)
    async with desk(tmp_path) as there:
        host, _, port = there.address.rpartition(":")
        held = []
        for _ in range(2 * door_module.UNPROVED_MAX):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(said)
            held.append(writer)
        assert await done(there.address, Act()) == "acted"
        gave_way = there.door.refusals.counts["proved nothing, and gave way to others"]
        assert gave_way >= door_module.UNPROVED_MAX
        for writer in held:
            writer.close()


async def test_nothing_large_is_taken_before_the_proof(tmp_path: Path) -> None:
    async with desk(tmp_path) as there:
        there.token_file.unlink()
        with pytest.raises(AgentError, match="has ended the connection"):
            await done(there.address, Act(b"x" * 10 * FIRST_BYTES_MAX))
        assert there.acted == []


async def test_nobody_there_is_told_with_the_command_that_starts_one() -> None:
    with pytest.raises(AgentError, match=r"no agent answers at 127.0.0.1:9; `anabranch agent`"):
        await done("127.0.0.1:9", Look())
    with pytest.raises(AgentError, match="other machines are reached with certificates only"):
        await done("10.0.0.1:7433", Look())


async def test_an_agent_that_goes_or_does_not_reply_is_told_with_what_may_have_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Leaver(Desk):
        async def look(self, request: Look, stream: FrameStream) -> None:
            await asyncio.sleep(seconds)

    for seconds, told in (
        (0.0, "has ended the connection; the"),
        (60.0, "not replied for 0 s; the"),
    ):
        monkeypatch.setattr(client, "REPLY_S", 10.0 if not seconds else 0.1)
        leaver = Leaver(tmp_path / TOKEN)
        leaver.address = await leaver.door.open("127.0.0.1:0")
        with pytest.raises(AgentError, match=f"{told} request may have been carried out"):
            await done(leaver.address, Look())
        leaver.door.close()


async def test_a_copy_of_the_token_that_is_none_is_told_as_wrong_usage(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.write_text("no token")
    async with desk(tmp_path) as there:
        for mode, told in ((0o644, "can be read by other users"), (0o600, "holds no token")):
            copy.chmod(mode)
            with pytest.raises(AgentError, match=f"{told}.*; copy .*token anew") as raised:
                await done(there.address, Look(), copy)
            assert raised.value.wrong


async def test_a_path_of_a_token_that_cannot_be_is_not_read(tmp_path: Path) -> None:
    async with desk(tmp_path) as there:
        there.token_file = Path("/a\0/token")
        there.server = RequestServer(
            lambda nonce: Challenge(nonce, "press", "1", "/a\0/token"),
            SECRET,
            {Look: there.look},
            {},
            2**20,
        )
        false = Door({GREETING: there.server.serve})
        assert await done(await false.open("127.0.0.1:0"), Look()) == "seen"
        false.close()


async def test_an_end_that_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "UNREAD_S", 0.1)
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def fill(stream: FrameStream) -> None:
        stream.allow(2**26)
        stream.send(bytes(2**25))
        await stream.drained()
        stream.close()
        while await stream.receive() is not None:
            pass
        ended.set_result(None)

    door = Door({GREETING: fill})
    host, _, port = (await door.open("127.0.0.1:0")).rpartition(":")
    with socket.create_connection((host, int(port))) as deaf:
        deaf.sendall(framed(GREETING))
        async with asyncio.timeout(PATIENCE_S):
            await ended
    door.close()
