"""Frames between Spark's side and the gateway, and the proof of membership. No sockets here.

    frame = header length (4 bytes, big-endian) | body length (4 bytes) | header | body

The header is a MessagePack map (`anabranch.spark_bridge.messages`), the body Arrow bytes. Never
pickle: what Spark's side sends must not run in the gateway, nor the other way round.
"""

from __future__ import annotations

import hashlib
import hmac
import struct

import msgspec

from anabranch.spark_bridge.messages import Reply, Request

PREFIX = struct.Struct(">II")
HEADER_BYTES_MAX = 2**20
HELLO_BYTES_MAX = 1024
"""Bound on a header before the sender has proved that it belongs to the run."""
BODY_BYTES_MAX = 64 * 2**20

_encoder = msgspec.msgpack.Encoder()
_request_decoder: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_reply_decoder: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


class WireError(ValueError):
    """The other side broke the framing or sent what no message is: the connection is closed."""


class Refused(RuntimeError):
    """The gateway understood and said no. `code` is for programs, the message for people."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason

    def __reduce__(self) -> tuple[type[Refused], tuple[str, str]]:
        return Refused, (self.code, self.reason)


def pack(message: Request | Reply, body_bytes: int = 0) -> bytes:
    """Prefix and header of a frame; the body follows as it is, uncopied."""
    header = _encoder.encode(message)
    if len(header) > HEADER_BYTES_MAX or body_bytes > BODY_BYTES_MAX:
        raise WireError(f"frame too large: header {len(header)} bytes, body {body_bytes} bytes")
    return PREFIX.pack(len(header), body_bytes) + header


def sizes(
    prefix: bytes, header_bytes_max: int = HEADER_BYTES_MAX, body_bytes_max: int = BODY_BYTES_MAX
) -> tuple[int, int]:
    """Lengths of header and body. Raises `WireError` before anything that long is allocated."""
    header, body = PREFIX.unpack(prefix)
    if not 0 < header <= header_bytes_max:
        raise WireError(f"a header of {header} bytes; at most {header_bytes_max} are taken")
    if body > body_bytes_max:
        raise WireError(f"a body of {body} bytes; at most {body_bytes_max} are taken")
    return header, body


def request_of(header: bytes) -> Request:
    try:
        return _request_decoder.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"not a request: {error}") from None


def reply_of(header: bytes) -> Reply:
    try:
        return _reply_decoder.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"not a reply of a gateway: {error}") from None


def proof(token: str, side: str, nonce: bytes) -> bytes:
    """Shows that `side` ("spark" or "gateway") knows the token, without sending it."""
    return hmac.digest(token.encode(), side.encode() + b":" + nonce, hashlib.sha256)


def proved(token: str, side: str, nonce: bytes, claimed: bytes) -> bool:
    return hmac.compare_digest(proof(token, side, nonce), claimed)
