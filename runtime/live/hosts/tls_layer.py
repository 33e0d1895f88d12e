"""TLS as a layer between a connection and a stream: bytes in, bytes out; it holds no connection.

Python's `ssl` works in memory. Its output is taken after each step, so that the other end also gets
the reason of a refusal.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from anabranch.runtime.hosts.roles import Peer, peer_of

HANDSHAKE_BYTES_MAX = 64 * 2**10
"""Of the other end until the handshake is over."""
READ_BYTES = 2**18

_VERIFY = {
    9: "a certificate that is not valid yet",
    10: "an expired certificate",
    18: "a certificate of another authority",
    19: "a certificate of another authority",
    20: "a certificate of another authority",
    21: "a certificate of another authority",
    26: "a certificate for another purpose",
    62: "a certificate for another address",
    64: "a certificate for another address",
}
_ALERTS = {
    "CERTIFICATE_REQUIRED": "no certificate",
    "UNKNOWN_CA": "a certificate of another authority",
    "CERTIFICATE_EXPIRED": "an expired certificate",
    "BAD_CERTIFICATE": "a certificate that is not valid yet",
    "UNSUPPORTED_CERTIFICATE": "a certificate for another purpose",
}
HANDSHAKE = "no proper TLS handshake"


class TlsRefused(Exception):
    """`reason`: a few words about what was wrong. `by_peer`: the other end refuses this one."""

    def __init__(self, reason: str, *, by_peer: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.by_peer = by_peer


class TlsLayer:
    """`write` sends bytes over the connection. `peer`: once the handshake is over."""

    def __init__(self, context: ssl.SSLContext, server_name: str | None) -> None:
        """`server_name`: what the certificate of the dialled end must hold for; None: this end was
        dialled."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_name is None,
            server_hostname=server_name,
        )
        self._came = 0
        self.dials = server_name is not None
        """Whether this end does."""
        self.peer: Peer | None = None

    @property
    def certificate(self) -> dict[str, Any]:
        """Of the other end, once the handshake is over."""
        return dict(self._tls.getpeercert() or {})

    def begin(self, write: Callable[[bytes], None]) -> None:
        """Of the end that dials."""
        self._shake_hands(write)

    def feed(self, data: bytes, write: Callable[[bytes], None]) -> bytes:
        """What the other end has sent within. Raises `TlsRefused`."""
        self._incoming.write(data)
        if self.peer is None:
            self._came += len(data)
            if self._came > HANDSHAKE_BYTES_MAX:
                raise TlsRefused(HANDSHAKE)
            self._shake_hands(write)
            if self.peer is None:
                return b""
        return self._read(write)

    def send(self, data: bytes, write: Callable[[bytes], None]) -> None:
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        write(self._outgoing.read())

    def end(self, write: Callable[[bytes], None]) -> None:
        """Announce that nothing follows."""
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        if self._outgoing.pending:
            write(self._outgoing.read())

    def _shake_hands(self, write: Callable[[bytes], None]) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            raise _refused(error) from None
        else:
            self.peer = peer_of(self.certificate.get("subject", ()))
            if self.peer is None:
                raise TlsRefused("a certificate without a name")
        finally:
            if self._outgoing.pending:
                write(self._outgoing.read())

    def _read(self, write: Callable[[bytes], None]) -> bytes:
        parts = []
        try:
            while part := self._tls.read(READ_BYTES):
                parts.append(part)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        except ssl.SSLError as error:
            raise _refused(error) from None
        finally:
            if self._outgoing.pending:  # as for new keys
                write(self._outgoing.read())
        return b"".join(parts)


def _refused(error: ssl.SSLError) -> TlsRefused:
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsRefused(_VERIFY.get(error.verify_code, "a certificate that proves nothing"))
    reason = error.reason or ""
    if "PEER_DID_NOT_RETURN_A_CERTIFICATE" in reason:
        return TlsRefused("no certificate")
    if "ALERT" in reason:
        for alert, told in _ALERTS.items():
            if reason.endswith(alert):
                return TlsRefused(told, by_peer=True)
        return TlsRefused(HANDSHAKE, by_peer=True)
    return TlsRefused(HANDSHAKE)
