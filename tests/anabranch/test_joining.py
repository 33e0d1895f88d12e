"""First contact: a token is good once, for a while, and goes to its authority only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from anabranch import joining
from anabranch.authority import (
    AuthorityError,
    Wanted,
    facts_of,
    load,
    new_authority,
    save,
    save_identity,
)
from anabranch.cli import main
from anabranch.joining import JoinError, JoinService, Token, join, new_token
from anabranch.runtime.hosts.roles import AGENT, SUBMIT
from anabranch.runtime.live.hosts.refusals import Refusals
from anabranch.runtime.live.hosts.tls import check_agent
from anabranch.runtime.ports import clock
from tests.anabranch.agents import COMMAND

WANTED = Wanted("press-4", (AGENT,), ("10.0.0.4",), 30)


class Serving:
    """`told`: who has joined."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.told: list[str] = []
        self.refusals = Refusals()

    async def join(self, token: Token) -> dict[str, Any]:
        _, accepted = await join("127.0.0.1", self.port, token)
        return facts_of(accepted.chain, [])


@asynccontextmanager
async def serving(folder: Path, days: int = 3650) -> AsyncIterator[Serving]:
    save(folder, new_authority(days))
    new_token(folder, Wanted("nobody", (AGENT,), (), 1), 3600.0)  # so that it goes on
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    made = Serving(folder, 0)
    service = JoinService(folder, made.told.append, made.refusals)
    task = asyncio.create_task(service.serve("127.0.0.1", 0, port.set_result))
    made.port = await port
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_token_gives_the_certificate_that_it_is_for_and_that_only_once(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path / "ca") as there:
        token = new_token(there.folder, WANTED, 60.0)
        key, accepted = await join("127.0.0.1", there.port, Token.read(f" {token}\n"))
        save_identity(tmp_path / "tls", key, accepted.chain, accepted.ca)
        assert check_agent(tmp_path / "tls", "press-4", "10.0.0.4:7433")
        assert there.told == ["press-4 (agent) has joined from 127.0.0.1"]
        with pytest.raises(JoinError, match="was used, has expired, or was never made here"):
            await there.join(token)
        assert there.refusals.counts == {"a token that is not known": 1}


async def test_an_authority_that_ends_soon_serves_until_then(tmp_path: Path) -> None:
    async with serving(tmp_path / "ca", days=7) as there:
        token = new_token(there.folder, WANTED._replace(days=6), 60.0)
        assert (await there.join(token))["name"] == "press-4"
        with pytest.raises(AuthorityError, match="8 days are longer than the authority is valid"):
            new_token(there.folder, WANTED._replace(days=8), 60.0)


async def test_a_token_is_not_used_up_where_the_certificate_cannot_be_written(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path / "ca") as there:
        token = new_token(there.folder, WANTED, 60.0)
        (tmp_path / "token").write_text(str(token))
        (tmp_path / "file").touch()
        at, out = f"127.0.0.1:{there.port}", str(tmp_path / "file" / "tls")
        words = ["ca", "join", at, "--token-file", str(tmp_path / "token"), "--out", out]
        done = await asyncio.to_thread(CliRunner().invoke, main, words)
        assert (done.exit_code, "Not a directory" in done.output) == (1, True)
        assert (await there.join(token))["name"] == "press-4"


async def test_of_many_that_come_with_one_token_at_the_same_time_one_gets_it(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path / "ca") as there:
        token = new_token(there.folder, WANTED, 60.0)
        tried = [there.join(token) for _ in range(5)]
        got = await asyncio.gather(*tried, return_exceptions=True)
        assert sum(isinstance(one, dict) for one in got) == 1
        assert sum(isinstance(one, JoinError) for one in got) == 4


async def test_a_token_that_has_expired_or_is_forged_gives_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path / "ca") as there:
        token = new_token(there.folder, WANTED, 60.0)
        for forged in (replace(token, secret=bytes(32)), replace(token, id="0" * 16)):
            with pytest.raises(JoinError, match="was never made here"):
                await there.join(forged)
        real = clock.wall
        monkeypatch.setattr(clock, "wall", lambda: real() + 61.0)
        with pytest.raises(JoinError, match="has expired"):
            await there.join(token)
        assert there.told == []


async def test_a_token_is_not_told_to_another_authority(tmp_path: Path) -> None:
    """It has a certificate of its own authority, and shows the true one besides."""
    async with serving(tmp_path / "false") as there:
        save(tmp_path / "ca", new_authority())
        token = new_token(tmp_path / "ca", WANTED, 60.0)
        there_is = "is not the authority that made the token; nothing was sent"
        with pytest.raises(JoinError, match=there_is):
            await there.join(token)
        false = load(there.folder)
        true = load(tmp_path / "ca")
        save(there.folder, replace(false, before=true.certificate))
        with pytest.raises(JoinError, match=there_is):
            await there.join(token)
        assert there.told == []


async def test_an_agent_cannot_stand_for_the_authority(tmp_path: Path) -> None:
    """Its certificate is by the right authority, and not for that."""
    async with serving(tmp_path / "ca") as there:
        token = new_token(there.folder, WANTED, 60.0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(joining, "THE_AUTHORITY", AGENT)
        service = JoinService(there.folder, there.told.append, there.refusals)
        port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(service.serve("127.0.0.1", 0, port.set_result))
        there.port = await port
    with pytest.raises(JoinError, match="is not the authority that made the token"):
        await there.join(token)
    task.cancel()
    await asyncio.wait([task])
    assert there.told == []


async def test_what_makes_no_sense_is_refused_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path / "ca") as there:
        token = new_token(there.folder, WANTED, 60.0)
        with monkeypatch.context() as patched:
            patched.setattr(joining, "csr_of", lambda key: b"no request")
            with pytest.raises(JoinError, match="this is no request for a certificate"):
                await there.join(token)
        with monkeypatch.context() as patched:
            patched.setattr(joining, "_say", lambda writer, said: writer.write(b"x\n"))
            with pytest.raises(JoinError, match="does not speak of joining"):
                await there.join(token)


def test_a_token_says_no_secret_where_it_is_shown_by_mistake(tmp_path: Path) -> None:
    save(tmp_path, new_authority())
    token = new_token(tmp_path, WANTED, 60.0)
    assert Token.read(str(token)) == token
    shown = f"{token!r}"
    assert token.secret.hex() not in shown
    assert str(token) not in shown
    kept = (tmp_path / "tokens" / f"{token.id}.json").read_bytes()
    assert token.secret not in kept
    assert str(token).encode() not in kept
    for wrong in ("", "x", str(token)[:-4], f"y{token}"):
        with pytest.raises(JoinError, match="this is no token"):
            Token.read(wrong)


async def test_a_new_host_joins_by_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_CA", str(tmp_path / "ca"))
    monkeypatch.chdir(tmp_path)

    def called(*words: str, given: str = "") -> str:
        done = CliRunner().invoke(main, ["ca", *words], input=given)
        assert done.exit_code == 0, done.output
        return done.stdout

    called("init")
    token = json.loads(called("token", "sam", "--role", SUBMIT, "--json"))["token"]
    served = await asyncio.create_subprocess_exec(
        *COMMAND, "ca", "serve", "--bind", "127.0.0.1:0", stdout=asyncio.subprocess.PIPE
    )
    assert served.stdout is not None
    at = (await served.stdout.readline()).split()[4].decode().rstrip(";")
    joined = await asyncio.to_thread(called, "join", at, "--json", given=f"{token}\n")
    assert (json.loads(joined)["name"], json.loads(joined)["roles"]) == ("sam", [SUBMIT])
    assert (tmp_path / "tls" / "identity.pem").stat().st_mode & 0o777 == 0o600
    assert await served.wait() == 0  # no token is left
