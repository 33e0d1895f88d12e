"""The certificates of a host or a person, as contexts of Python's `ssl`.

DIR/identity.pem    key and certificate
DIR/ca.pem          the authorities that are trusted

TLS 1.3 only, both ends with a certificate, no tickets: nothing is resumed, so a certificate counts
with each connection. The folder is read again when it has changed.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from anabranch.runtime.hosts.config import host_in
from anabranch.runtime.hosts.roles import AGENT, peer_of
from anabranch.runtime.live.hosts.tls_layer import TlsLayer, TlsRefused
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store

IDENTITY, CA = "identity.pem", "ca.pem"
LOOK_EVERY_S = 10.0


class TlsError(ValueError):
    """The folder cannot be used. The message says why, and what to do."""


class Contexts(NamedTuple):
    """For connections that others dial, and for those that are dialled."""

    dialled: ssl.SSLContext
    dialling: ssl.SSLContext


class TlsFolder:
    """`changed`: is called when the folder was read again, with what is wrong with it, if
    anything; then what was read before is used on. `check`: raises `TlsError` for a certificate
    that is of no use."""

    def __init__(
        self,
        path: Path,
        changed: Callable[[str], None] = lambda wrong: None,
        check: Callable[[Path], None] = lambda path: None,
    ) -> None:
        """Raises `TlsError`."""
        self.path = path
        self._changed = changed
        self._check = check
        self._seen = self._stamps()
        self._looked_at = clock.monotonic()
        self.contexts = self._read()

    def layer(self, address: str | None) -> TlsLayer:
        """`address`: of the end that is dialled; None: this end is. Raises `TlsRefused`."""
        self._look()
        if address is None:
            return TlsLayer(self.contexts.dialled, None)
        try:
            return TlsLayer(self.contexts.dialling, host_in(address))
        except ValueError:
            raise TlsRefused("an address that cannot be") from None

    def _look(self) -> None:
        now = clock.monotonic()
        if now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        if (seen := self._stamps()) == self._seen:
            return
        self._seen = seen
        try:
            self.contexts = self._read()
        except TlsError as error:
            self._changed(str(error))
        else:
            self._changed("")

    def _read(self) -> Contexts:
        contexts = contexts_of(self.path)
        self._check(self.path)
        return contexts

    def _stamps(self) -> list[tuple[int, int, int]]:
        stamps = []
        for name in (IDENTITY, CA):
            try:
                status = store().status(self.path / name)
            except OSError:
                continue
            stamps.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return stamps


def contexts_of(folder: Path) -> Contexts:
    """Raises `TlsError`."""
    try:
        if store().status(folder / IDENTITY).st_mode & 0o077:
            raise TlsError(
                f"{folder / IDENTITY} can be read by other users, so its key is no secret any "
                "more; have another one issued"
            )
        store().status(folder / CA)
        return Contexts(
            _context(ssl.PROTOCOL_TLS_SERVER, folder), _context(ssl.PROTOCOL_TLS_CLIENT, folder)
        )
    except ssl.SSLError as error:
        raise TlsError(
            f"{folder} holds no key and certificate that belong together "
            f"({error.reason or error}); have others issued with `anabranch ca issue`"
        ) from None
    except OSError as error:
        raise TlsError(
            f"{error.filename or folder}: {error.strerror}; `anabranch ca issue` writes it"
        ) from None


def check_agent(folder: Path, name: str, advertise: str) -> str:
    """Whether others will take this for the agent of that host, at that address; the day on which
    its certificate ends. Raises `TlsError`."""
    certificate = _seen_by_itself(folder)
    peer = peer_of(certificate["subject"])
    again = f"`anabranch ca issue {name} --address {host_in(advertise)}` makes one that fits"
    if peer is None or peer.name != name:
        raise TlsError(
            f"the certificate in {folder} is for {peer and peer.name!r}, and this host is "
            f"{name!r}; {again}"
        )
    if not peer.may(AGENT):
        raise TlsError(f"the certificate in {folder} is for no agent; {again}")
    named = [value.lower() for _, value in certificate.get("subjectAltName", ())]
    if _plain(host_in(advertise)) not in map(_plain, named):
        raise TlsError(
            f"the certificate in {folder} does not hold for {host_in(advertise)}, where others "
            f"are told to reach this host (--advertise); {again}"
        )
    return str(certificate["notAfter"])


def _plain(host: str) -> str:
    import ipaddress

    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()


def _seen_by_itself(folder: Path) -> dict[str, Any]:
    """The certificate, verified as another agent verifies it: a handshake in memory."""
    contexts = contexts_of(folder)
    contexts.dialling.check_hostname = False
    one, other = TlsLayer(contexts.dialled, None), TlsLayer(contexts.dialling, "localhost")
    there: list[bytes] = []
    back: list[bytes] = []
    try:
        other.begin(there.append)
        while there or back:
            if there:
                one.feed(there.pop(0), back.append)
            if back:
                other.feed(back.pop(0), there.append)
    except TlsRefused as refused:
        raise TlsError(
            f"the certificate in {folder} is of no use for an agent: to others it is "
            f"{refused.reason}; have one issued with `anabranch ca issue`"
        ) from None
    return other.certificate


def _context(kind: int, folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder / IDENTITY, password=lambda: b"")
    try:
        context.load_verify_locations(folder / CA)
    except ssl.SSLError as error:
        raise TlsError(
            f"{folder / CA} holds no certificate of an authority ({error.reason or error}); copy "
            "it anew from the folder of the authority"
        ) from None
    if kind == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    return context
