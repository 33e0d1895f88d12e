"""The language on a channel: length-prefixed MessagePack arrays, the first element their kind.

    HELLO      [0, version, pipeline, dialer, address, listener, incarnation, connection, nonce,
                proof]
    CHALLENGE  [1, version, nonce]
    WELCOME    [2, proof, incarnation, expected, acknowledged, tuples_allowed, bytes_allowed]
    RESUME     [3, expected, acknowledged]
    BATCH      [4, number, tuples, siblings, held, born, payload]
    MESSAGE    [5, number, cause, type, fields, addresses, watermark]
    ACK_CREDIT [6, acknowledged, tuples_allowed, bytes_allowed, tuples_done, siblings, rank]
    BYE        [7, acknowledged, reason]
    WATERMARK  [8, number, watermark, idle]
    STATE_CHUNK [9, number, chunk]
    FIGURES    [10, slot, siblings, sums, loads]
    ARREARS    [11, tuples]
    PLAN       [12, slot, instances, of_keeper]

The listener speaks first (CHALLENGE), the dialer proves that it has the run's token (HELLO),
the listener does the same (WELCOME), and the dialer states what it has of this session (RESUME):
every frame below `expected`, and safe, so that it need not be kept, below `acknowledged`. Each
states which of its incarnations it is. BATCH, MESSAGE, WATERMARK and STATE_CHUNK are numbered and
repeated after a broken connection; ACK_CREDIT holds totals, so the newest is the truth and none
needs repeating. `siblings` is the sender's count of instances of the receiver's operator, `rank`
the receiver's place among them in the order of ids; `held` is what the sender holds back for lack
of credit; `tuples_done` is how many of the receiver's tuples the sender has processed. WATERMARK
states that no tuple with an earlier event time follows (`idle`: and that none is expected for now);
with a MESSAGE goes the sender's own. STATE_CHUNK is a piece of the state of key groups, from their
old owner to the new one. FIGURES are what the sender has counted in a slot of time, or, with
`siblings` above 0, what all instances of the receiver's operator have, and the load of each;
ARREARS, how many tuples that wait before the sender, and further up, will come to the receiver's
operator, which holds it up. PLAN is how many instances the sender, a keeper, wants of its operator,
or, `of_keeper`, the receiver's keeper of theirs. None of the three is repeated.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import struct
from typing import Any

import msgpack

from anabranch.protocol import messages
from anabranch.protocol.errors import ChannelError
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.messages import MESSAGE_TYPES, Message
from anabranch.protocol.ownership import Route, Routes, owners_of

VERSION = 6
(
    HELLO,
    CHALLENGE,
    WELCOME,
    RESUME,
    BATCH,
    MESSAGE,
    ACK_CREDIT,
    BYE,
    WATERMARK,
    STATE_CHUNK,
    FIGURES,
    ARREARS,
    PLAN,
) = range(13)

Addresses = dict[InstanceId, str]
Pieces = tuple[bytes, ...]
"""A frame as it is written: its parts in order, so that payloads are never copied together."""

_LENGTH = struct.Struct(">I")
_BATCH_TAIL = struct.Struct(">BI")
_BIN32 = 0xC6


def frame(*fields: Any) -> Pieces:
    body = msgpack.packb(fields)
    return (_LENGTH.pack(len(body)) + body,)


def batch_frame(
    number: int, tuples: int, siblings: int, held: int, born: float, payload: bytes
) -> Pieces:
    """BATCH, with the payload as a piece of its own: the array's last element begins behind us."""
    head = msgpack.packb((BATCH, number, tuples, siblings, held, born, None))[:-1]
    tail = _BATCH_TAIL.pack(_BIN32, len(payload))
    length = _LENGTH.pack(len(head) + len(tail) + len(payload))
    return (length + head + tail, payload)


def tuples_of(batch: Pieces) -> int:
    """How many a BATCH has, from its pieces."""
    head = msgpack.Unpacker()
    head.feed(batch[0][_LENGTH.size :])
    head.read_array_header()
    _, _, tuples = (head.unpack() for _ in range(3))
    return int(tuples)


def read(body: bytes | memoryview) -> list[Any]:
    """The fields of a frame. Raises `ChannelError` for anything that is not one."""
    try:
        fields = msgpack.unpackb(body, strict_map_key=False)
    except Exception as error:
        raise ChannelError(f"a frame that is not MessagePack: {error}") from None
    if not isinstance(fields, list) or not fields or not isinstance(fields[0], int):
        raise ChannelError("a frame that is not an array with a kind")
    return fields


def pack_id(identity: InstanceId) -> list[Any]:
    return list(identity)


def unpack_id(fields: Any) -> InstanceId:
    match fields:
        case [str(operator), int(number), int(creator)]:
            return InstanceId(OperatorName(operator), number, creator)
    raise ChannelError(f"not the id of an instance: {fields!r}")


def message_frame(
    number: int, cause: str, message: Message, book: Addresses, watermark: float = -math.inf
) -> Pieces:
    """MESSAGE, together with the addresses of the instances that it names."""
    kind = MESSAGE_TYPES.index(type(message))
    named = _named_to_dial(message)
    addresses = [[pack_id(x), book[x]] for x in sorted(named) if x in book]
    return frame(MESSAGE, number, cause, kind, _fields(message), addresses, watermark)


def read_message(kind: Any, fields: Any, addresses: Any) -> tuple[Message, Addresses]:
    """The message of a MESSAGE frame and the addresses that came with it."""
    if not isinstance(kind, int) or not 0 <= kind < len(MESSAGE_TYPES):
        raise ChannelError(f"a message of unknown type {kind!r}")
    try:
        message = _build(MESSAGE_TYPES[kind], fields)
        book = {unpack_id(x): str(address) for x, address in addresses}
    except (TypeError, ValueError) as error:
        raise ChannelError(f"a malformed {MESSAGE_TYPES[kind].__name__}: {error}") from None
    return message, book


def _named_to_dial(message: Message) -> frozenset[InstanceId]:
    match message:
        case messages.Join(new=new, moved=moved):
            return new | owners_of(moved)
        case messages.Start(succs=succs):
            return succs
        case messages.BecomeKeeper(origin=origin) | messages.Adopt(origin=origin):
            return frozenset({origin})
        case _:
            return frozenset()


def _ids(ids: frozenset[InstanceId]) -> list[Any]:
    return [pack_id(x) for x in sorted(ids)]


def _pack_routes(routes: Routes) -> list[Any]:
    """Owners once each, with their groups and versions."""
    return [
        [pack_id(owner), [[r.group, r.version] for r in routes if r.owner == owner]]
        for owner in sorted(owners_of(routes))
    ]


def _unpack_routes(fields: Any) -> Routes:
    routes = []
    for owner, groups in fields:
        identity = unpack_id(owner)
        for group, version in groups:
            if not (isinstance(group, int) and isinstance(version, int)):
                raise ChannelError(f"not a key group and its version: {[group, version]!r}")
            routes.append(Route(identity, group, version))
    return tuple(sorted(routes, key=lambda r: (r.owner.operator, r.group)))


def _fields(message: Message) -> list[Any]:
    match message:
        case messages.Join(new=new, moved=moved):
            return [_ids(new), _pack_routes(moved)]
        case messages.Start(succs, preds, keeper, routes, new_owner):
            return [_ids(succs), _ids(preds), keeper, _pack_routes(routes), new_owner]
        case messages.Leave(told=told) | messages.Eos(told=told):
            return [_ids(told)]
        case messages.BecomeKeeper(origin=origin) | messages.Adopt(origin=origin):
            return [pack_id(origin)]
        case messages.OfferResponse(ok=ok) | messages.AdoptResponse(ok=ok):
            return [ok]
        case messages.AdoptOffer(draw=draw):
            return [draw]
        case messages.StateMoved(owned=owned, routes=routes):
            return [_pack_routes(owned), _pack_routes(routes)]
        case _:
            return []


def _build(kind: type[Message], fields: Any) -> Message:
    if kind is messages.Join:
        new, moved = fields
        return messages.Join(frozenset(map(unpack_id, new)), _unpack_routes(moved))
    if kind is messages.Leave or kind is messages.Eos:
        (ids,) = fields
        return kind(frozenset(map(unpack_id, ids)))
    if kind is messages.Start:
        succs, preds, keeper, routes, new_owner = fields
        known = frozenset(map(unpack_id, succs)), frozenset(map(unpack_id, preds))
        return messages.Start(*known, bool(keeper), _unpack_routes(routes), bool(new_owner))
    if kind is messages.BecomeKeeper or kind is messages.Adopt:
        (origin,) = fields
        return kind(unpack_id(origin))
    if kind is messages.OfferResponse or kind is messages.AdoptResponse:
        (ok,) = fields
        return kind(bool(ok))
    if kind is messages.AdoptOffer:
        (draw,) = fields
        return messages.AdoptOffer(int(draw))
    if kind is messages.StateMoved:
        owned, routes = fields
        return messages.StateMoved(_unpack_routes(owned), _unpack_routes(routes))
    () = fields
    return kind()  # type: ignore[call-arg]


def proof(token: bytes, role: str, nonce: bytes, speaker: InstanceId, hearer: InstanceId) -> bytes:
    """Membership of the run, shown without telling the token; bound to the hearer's nonce, both
    ids and the role, so that it cannot be used again or sent back."""
    said = repr((role, nonce, tuple(speaker), tuple(hearer))).encode()
    return hmac.digest(token, said, hashlib.sha256)


class FrameReader:
    """Cuts a stream of bytes into frames. Keeps at most one incomplete frame."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._max = frame_bytes_max
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[memoryview]:
        """The bodies of the frames that are complete now.

        Raises `ChannelError` for a length above the limit, before anything is kept.
        """
        if self._rest:
            self._rest += data
            view = memoryview(bytes(self._rest)) if self._complete(self._rest) else None
            if view is None:
                return []
        else:
            view = memoryview(data)
        bodies, at, end = [], 0, len(view)
        while end - at >= 4:
            (length,) = _LENGTH.unpack_from(view, at)
            self._check(length)
            if end - at - 4 < length:
                break
            bodies.append(view[at + 4 : at + 4 + length])
            at += 4 + length
        self._rest = bytearray(view[at:])
        return bodies

    @property
    def waiting(self) -> int:
        """Bytes of an incomplete frame."""
        return len(self._rest)

    def _complete(self, data: bytearray) -> bool:
        if len(data) < 4:
            return False
        (length,) = _LENGTH.unpack_from(data)
        self._check(length)
        return bool(len(data) >= 4 + length)

    def _check(self, length: int) -> None:
        if length > self._max:
            raise ChannelError(f"a frame of {length} bytes; at most {self._max} are taken")
