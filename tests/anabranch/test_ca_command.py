"""`anabranch ca`: what it writes, and what it does not overwrite."""

from __future__ import annotations

import builtins
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from anabranch.cli import main
from anabranch.runtime.hosts.roles import AGENT, OPERATE, SUBMIT, VIEW, Peer, peer_of
from tests.test_architecture import PACKAGE


@pytest.fixture
def ca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANABRANCH_CA", str(tmp_path / "ca"))
    return tmp_path / "ca"


def called(*words: str) -> Result:
    return CliRunner().invoke(main, ["ca", *words])


def made(*words: str) -> Any:
    done = called(*words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def agree(one: Path, other: Path, reached_as: str) -> tuple[Any, Any]:
    """Certificates as each of the two ends sees the other one's, after a handshake in memory."""
    server = context(ssl.PROTOCOL_TLS_SERVER, one)
    client = context(ssl.PROTOCOL_TLS_CLIENT, other)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    asking = client.wrap_bio(to_client, to_server, server_hostname=reached_as)
    for _ in range(4):
        for end in (asking, answering):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return answering.getpeercert(), asking.getpeercert()


def context(kind: int, folder: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(kind)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.load_cert_chain(folder / "identity.pem")
    made.load_verify_locations(folder / "ca.pem")
    made.verify_mode = ssl.CERT_REQUIRED
    return made


def test_a_certificate_has_name_addresses_and_roles_and_its_key_is_private(ca: Path) -> None:
    assert made("init")["ca"] == str(ca / "ca.pem")
    told = made("issue", "press-1", "--address", "10.0.0.1", "--days", "30")
    assert (told["name"], told["roles"], told["addresses"]) == ("press-1", [AGENT], ["10.0.0.1"])
    told = made("issue", "ann", "--role", SUBMIT, "--role", VIEW, "--role", SUBMIT)
    assert told["roles"] == [SUBMIT, VIEW]
    for path in (ca / "authority.pem", Path("press-1/identity.pem"), Path("ann/identity.pem")):
        assert path.stat().st_mode & 0o777 == 0o600
    for reached_as in ("10.0.0.1", "127.0.0.1", "press-1"):
        hers, its = agree(Path("press-1"), Path("ann"), reached_as)
        assert peer_of(hers["subject"]) == Peer("ann", frozenset({SUBMIT, VIEW}))
        assert peer_of(its["subject"]) == Peer("press-1", frozenset({AGENT}))
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        agree(Path("press-1"), Path("ann"), "10.0.0.2")


def test_a_person_cannot_stand_for_an_agent(ca: Path) -> None:
    made("init")
    made("issue", "ann", "--role", OPERATE)
    with pytest.raises(ssl.SSLCertVerificationError, match="unsuitable certificate purpose"):
        agree(Path("ann"), Path("ann"), "ann")


def test_what_is_there_is_not_overwritten_without_a_word(ca: Path) -> None:
    made("init")
    made("issue", "press-1")
    before = {path: path.read_bytes() for path in [*ca.iterdir(), *Path("press-1").iterdir()]}
    refused = called("init")
    assert (refused.exit_code, "has an authority already" in refused.output) == (2, True)
    refused = called("issue", "press-1")
    assert (refused.exit_code, "--replace replaces it" in refused.output) == (2, True)
    assert {path: path.read_bytes() for path in before} == before
    made("issue", "press-1", "--replace")
    assert Path("press-1/identity.pem").read_bytes() != before[Path("press-1/identity.pem")]


def test_while_authorities_overlap_old_and_new_certificates_know_each_other(ca: Path) -> None:
    """In any order, also where only the old authority is known."""
    made("init")
    made("issue", "old")
    assert len(made("rotate")["trusted"]) == 2
    made("issue", "new")
    for one, other in (("old", "new"), ("new", "old"), ("new", "new"), ("old", "old")):
        agree(Path(one), Path(other), "127.0.0.1")
    refused = called("rotate")
    assert (refused.exit_code, "--end-overlap" in refused.output) == (2, True)
    assert len(made("rotate", "--end-overlap")["trusted"]) == 1
    made("issue", "last")
    agree(Path("last"), Path("last"), "127.0.0.1")
    for one, other in (("old", "last"), ("last", "old")):
        with pytest.raises(ssl.SSLError):
            agree(Path(one), Path(other), "127.0.0.1")
    assert called("rotate", "--end-overlap").exit_code == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["a b"], "name 'a b': expected letters, digits"),
        (["a", "--role", "view", "--role", "sumbit"], "no role 'sumbit'; did you mean 'submit'?"),
        (["a", "--address", "10.0.0.1:7433"], "expected a name or an IP address, without a port"),
        (["a", "--role", "view", "--address", "10.0.0.1"], "addresses are of agents only, and a"),
        (["a", "--days", "30000"], "30000 days are longer than the authority is valid, until 2"),
        (["a", "--ca", "none"], "none has no certificate authority; `anabranch ca init` makes"),
    ],
)
def test_what_cannot_be_issued_is_told(ca: Path, words: list[str], told: str) -> None:
    made("init")
    refused = called("issue", *words)
    assert refused.exit_code == 2
    assert told in refused.output
    assert not Path("a").exists()


def test_an_authority_that_others_can_read_or_that_is_damaged_signs_nothing(ca: Path) -> None:
    made("init")
    (ca / "authority.pem").chmod(0o644)
    refused = called("issue", "a")
    assert (refused.exit_code, "can be read by other users" in refused.output) == (2, True)
    (ca / "authority.pem").chmod(0o600)
    (ca / "authority.pem").write_bytes((ca / "authority.pem").read_bytes()[:200])
    refused = called("issue", "a")
    assert (refused.exit_code, "is damaged" in refused.output) == (2, True)


def test_a_missing_package_is_named(ca: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "cryptography":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    refused = called("init")
    assert refused.exit_code == 2
    assert "pip install 'anabranch[hosts]'" in refused.output


def test_a_role_allows_what_is_below_it_and_an_agent_nothing_that_people_do() -> None:
    def allowed(role: str) -> set[str]:
        return {
            wanted
            for wanted in (VIEW, SUBMIT, OPERATE, AGENT)
            if Peer("x", frozenset({role})).may(wanted)
        }

    assert allowed(VIEW) == {VIEW}
    assert allowed(SUBMIT) == {VIEW, SUBMIT}
    assert allowed(OPERATE) == {VIEW, SUBMIT, OPERATE}
    assert allowed(AGENT) == {AGENT}
    assert allowed("root") == set()


def test_only_what_makes_certificates_needs_the_package_for_it() -> None:
    """Agents, and commands that ask them, do with Python's `ssl`."""
    needs = {s.name for s in PACKAGE for i in s.imports if i.top == "cryptography"}
    places = ("authority", "joining", "commands.ca", "commands.certifying")
    assert needs == {f"anabranch.{place}" for place in places}
