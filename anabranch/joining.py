"""First contact: a new host or person gets a certificate for a token, which can be used once.

    new host                                    machine of the authority
    TLS, nothing proved yet ──────────────────▶
          ◀──────────────────────────────────── Trusted: certificates of the authority
    (one has the fingerprint that the token has, and has signed what the other end has shown)
    Join: token, request for a certificate ───▶
          ◀──────────────────────────────────── Joined, or NotJoined

The key is made where it is used, and does not travel. Its purpose is in the token, not in the
request. The new host sends the token only to a server with a certificate of the role `ca`, which
the authority makes for itself.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from anabranch.authority import (
    IDENTITY,
    AuthorityError,
    Wanted,
    check,
    csr_of,
    fingerprint,
    load,
    public_of,
    roles_in,
    save_identity,
)
from anabranch.runtime.live.hosts.allowance import Allowance
from anabranch.runtime.live.hosts.refusals import Refusals
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store
from anabranch.runtime.storage.replaced import replace_file

TOKENS, SERVICE = "tokens", "service"
THE_AUTHORITY = "ca"
"""Role of the authority itself."""
ID_BYTES, SECRET_BYTES, FINGERPRINT_BYTES = 8, 32, 32
PREFIX = "anabranch-join-"
STEP_S = 10.0
LINE_BYTES_MAX = 64 * 2**10
JOINS_MAX, JOINS_AT_ONCE, JOINS_PER_S = 32, 10, 1.0
"""Connections at a time; of one address at once, and per second."""
SERVICE_DAYS = 30
LOOK_EVERY_S = 1.0


class JoinError(Exception):
    """It could not be done. The message says why."""


@dataclass(frozen=True, repr=False)
class Token:
    id: str
    secret: bytes
    fingerprint: bytes

    def __str__(self) -> str:
        raw = bytes.fromhex(self.id) + self.secret + self.fingerprint
        return PREFIX + base64.urlsafe_b64encode(raw).decode()

    @classmethod
    def read(cls, text: str) -> Token:
        """Raises `JoinError`."""
        text = text.strip()
        with suppress(ValueError):
            raw = base64.urlsafe_b64decode(text.removeprefix(PREFIX))
            if text.startswith(PREFIX) and len(raw) == ID_BYTES + SECRET_BYTES + FINGERPRINT_BYTES:
                secret_end = ID_BYTES + SECRET_BYTES
                return cls(raw[:ID_BYTES].hex(), raw[ID_BYTES:secret_end], raw[secret_end:])
        raise JoinError("this is no token of `anabranch ca token`")


class TokenRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the authority keeps of a token: not the secret."""

    name: str
    roles: tuple[str, ...]
    addresses: tuple[str, ...]
    days: int
    expires: float
    secret_sha256: bytes


class _Said(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    pass


S = TypeVar("S", bound=_Said)


class Trusted(_Said, frozen=True, tag="trusted"):
    ca: bytes


class Join(_Said, frozen=True, tag="join"):
    id: str
    secret: bytes
    request: bytes


class Accepted(_Said, frozen=True, tag="accepted"):
    chain: bytes
    ca: bytes


class NotJoined(_Said, frozen=True, tag="refused"):
    why: str


# -- the authority's side ------------------------------------------------------------------


def new_token(folder: Path, wanted: Wanted, seconds: float) -> Token:
    """Raises `AuthorityError`, `OSError`."""
    check(wanted)
    authority = load(folder)
    authority.until(wanted)
    forget_expired(folder)
    secret = clock.secret(SECRET_BYTES)
    token = Token(clock.secret(ID_BYTES).hex(), secret, fingerprint(authority.certificate))
    digest = hashlib.sha256(secret).digest()
    record = TokenRecord(*wanted, expires=clock.wall() + seconds, secret_sha256=digest)
    store().make_folder(folder / TOKENS, 0o700, parents=True)
    replace_file(_place(folder, token.id), msgspec.json.encode(record))
    return token


def forget_expired(folder: Path) -> int:
    """How many tokens are left. Raises `OSError`."""
    left = 0
    for path in (folder / TOKENS).glob("*.json"):
        record = _record(path)
        if record is None or record.expires <= clock.wall():
            path.unlink(missing_ok=True)
        else:
            left += 1
    return left


def _place(folder: Path, token_id: str) -> Path:
    return folder / TOKENS / f"{token_id}.json"


def _record(path: Path) -> TokenRecord | None:
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(store().read(path), type=TokenRecord)
    return None


@dataclass
class JoinService:
    """Answers those that want to join, until no token is left. `told`: called with the name of each
    that has."""

    folder: Path
    told: Callable[[str], None]
    refusals: Refusals

    def __post_init__(self) -> None:
        self._at_once = Allowance(JOINS_AT_ONCE, JOINS_PER_S)
        self._open = 0

    async def serve(self, host: str, port: int, listening: Callable[[int], None]) -> None:
        """Raises `AuthorityError`, `OSError`."""
        context = self._context()
        server = await asyncio.start_server(
            self._answer,
            host,
            port,
            ssl=context,
            ssl_handshake_timeout=STEP_S,
            ssl_shutdown_timeout=STEP_S,
            limit=LINE_BYTES_MAX,
        )
        async with server:
            listening(server.sockets[0].getsockname()[1])
            while forget_expired(self.folder) or self._open:  # noqa: ASYNC110 - it sees files
                await asyncio.sleep(LOOK_EVERY_S)

    def _context(self) -> ssl.SSLContext:
        authority, key = load(self.folder), Ed25519PrivateKey.generate()
        wanted = Wanted("authority", (THE_AUTHORITY,), (), SERVICE_DAYS)
        chain = authority.issue(wanted, key.public_key(), is_server=True)
        save_identity(self.folder / SERVICE, key, chain, authority.trusted)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
        context.load_cert_chain(self.folder / SERVICE / IDENTITY)
        return context

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        who = str(writer.get_extra_info("peername")[0])
        if self._open >= JOINS_MAX or not self._at_once.take(who):
            self.refusals.count("too many that want to join", who)
            writer.transport.abort()
            return
        self._open += 1
        try:
            async with asyncio.timeout(STEP_S):
                authority = load(self.folder)
                _say(writer, Trusted(authority.trusted))
                said = await _heard(reader, Join)
                _say(writer, self._reply(said, who))
                await writer.drain()
        except (OSError, TimeoutError, JoinError, AuthorityError):
            self.refusals.count("said nothing that makes sense", who)
        finally:
            self._open -= 1
            writer.close()

    def _reply(self, said: Join, who: str) -> Accepted | NotJoined:
        record = self._claimed(said, who)
        if record is None:
            return NotJoined(
                "this token was used, has expired, or was never made here; "
                "`anabranch ca token` makes another one"
            )
        authority = load(self.folder)
        try:
            wanted = Wanted(record.name, record.roles, record.addresses, record.days)
            chain = authority.issue(wanted, public_of(said.request))
        except AuthorityError as error:
            return NotJoined(str(error))
        self.told(f"{record.name} ({', '.join(record.roles)}) has joined from {who}")
        return Accepted(chain, authority.trusted)

    def _claimed(self, said: Join, who: str) -> TokenRecord | None:
        """Of the token, which is used up by that."""
        is_id = len(said.id) == 2 * ID_BYTES and all(c in "0123456789abcdef" for c in said.id)
        path = _place(self.folder, said.id if is_id else "0" * 2 * ID_BYTES)
        record = _record(path)
        expected = bytes(32) if record is None else record.secret_sha256
        is_it = hmac.compare_digest(hashlib.sha256(said.secret).digest(), expected)
        if record is None or not is_it:
            self.refusals.count("a token that is not known", who)
            return None
        if record.expires <= clock.wall():
            self.refusals.count("a token that has expired", who)
            return None
        try:
            os.unlink(path)  # of two that come at the same time, one succeeds
        except FileNotFoundError:
            self.refusals.count("a token that was used", who)
            return None
        return record


# -- the side of the new host --------------------------------------------------------------


async def join(host: str, port: int, token: Token) -> tuple[Ed25519PrivateKey, Accepted]:
    """Raises `JoinError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the token has the key to trust: see _check
    try:
        async with asyncio.timeout(3 * STEP_S):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=context, limit=LINE_BYTES_MAX
            )
            try:
                trusted = await _heard(reader, Trusted)
                _check(writer.get_extra_info("ssl_object"), trusted.ca, token.fingerprint)
                key = Ed25519PrivateKey.generate()
                _say(writer, Join(token.id, token.secret, csr_of(key)))
                return key, await _heard(reader, Accepted)
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError) as error:
        number = getattr(error, "errno", None)
        why = os.strerror(number) if number else "it does not answer"
        raise JoinError(
            f"no authority answers at {host}:{port} ({why}); `anabranch ca serve` is where it does"
        ) from None


def _check(tls: ssl.SSLObject, trusted: bytes, wanted: bytes) -> None:
    """Whether the other end is the authority with that fingerprint. Raises `JoinError`."""
    shown = tls.getpeercert(binary_form=True)
    with suppress(ValueError, TypeError, InvalidSignature):
        mine = x509.load_der_x509_certificate(shown or b"")
        for authority in x509.load_pem_x509_certificates(trusted):
            if hmac.compare_digest(fingerprint(authority), wanted):
                mine.verify_directly_issued_by(authority)
                now = clock.wall_utc()
                in_time = mine.not_valid_before_utc <= now <= mine.not_valid_after_utc
                if in_time and roles_in(mine) == [THE_AUTHORITY]:
                    return
    raise JoinError(
        "what answers there is not the authority that made the token; nothing was sent to it"
    )


def _say(writer: asyncio.StreamWriter, said: _Said) -> None:
    writer.write(msgspec.json.encode(said) + b"\n")


async def _heard(reader: asyncio.StreamReader, kind: type[S]) -> S:
    """Raises `JoinError`, also for what the other end refuses; `OSError`."""
    union: Any = kind | NotJoined
    try:
        said = msgspec.json.decode(await reader.readline(), type=union)
    except (ValueError, msgspec.DecodeError):
        raise JoinError("the other end does not speak of joining, or has hung up") from None
    if isinstance(said, NotJoined):
        raise JoinError(said.why)
    found: S = said
    return found
