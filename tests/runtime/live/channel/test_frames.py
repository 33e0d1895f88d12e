"""Frames: what is written is read again, however the bytes are cut, and garbage is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol import messages
from anabranch.protocol.errors import ChannelError
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.ownership import Route
from anabranch.runtime.live.channel import frames


def iid(operator: str, number: int) -> InstanceId:
    return InstanceId(OperatorName(operator), number, 7)


A, B = iid("a", 1), iid("b", 2)
ADDRESSES = {A: "unix:/run/a", B: "tcp:127.0.0.1:7"}

MESSAGES = [
    messages.Join(frozenset({A, B})),
    messages.JoinAck(),
    messages.Start(frozenset({A}), frozenset({B}), keeper=True),
    messages.Leave(frozenset({A})),
    messages.LeaveAck(),
    messages.Eos(frozenset()),
    messages.EosAck(),
    messages.KeeperAck(),
    messages.Offer(),
    messages.BecomeKeeper(A),
    messages.OfferResponse(ok=True),
    messages.Fin(),
    messages.Done(),
    messages.Join(frozenset(), moved=(Route(A, 3, 1), Route(A, 4, 7), Route(B, 5, 2))),
    messages.Start(frozenset({A}), frozenset(), routes=(Route(A, 0),), new_owner=True),
    messages.AdoptOffer(draw=17),
    messages.Adopt(A),
    messages.AdoptResponse(ok=True),
    messages.AdoptResponse(ok=False),
    messages.StateMoved((Route(A, 3, 1),), routes=(Route(B, 0, 4),)),
]


def bodies(data: bytes) -> list[memoryview]:
    return frames.FrameReader(2**20).feed(data)


def test_every_message_type_is_tried() -> None:
    assert {type(m) for m in MESSAGES} == set(messages.MESSAGE_TYPES)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_comes_out_as_it_went_in(message: messages.Message) -> None:
    (body,) = bodies(b"".join(frames.message_frame(3, "a.1#5", message, ADDRESSES)))
    kind, number, cause, *rest, watermark = frames.read(body)
    assert (kind, number, cause) == (frames.MESSAGE, 3, "a.1#5")
    assert watermark == -math.inf
    read, addresses = frames.read_message(*rest)
    assert read == message
    assert set(addresses.items()) <= set(ADDRESSES.items())


def test_those_who_must_be_dialled_come_with_their_addresses() -> None:
    join = messages.Join(frozenset({A}))
    (body,) = bodies(b"".join(frames.message_frame(1, "", join, ADDRESSES)))
    assert frames.read_message(*frames.read(body)[3:6])[1] == {A: ADDRESSES[A]}


def test_a_batch_frame_is_an_ordinary_array() -> None:
    (body,) = bodies(b"".join(frames.batch_frame(9, 2, 3, 4, 1.5, b"payload")))
    assert frames.read(body) == [frames.BATCH, 9, 2, 3, 4, 1.5, b"payload"]


@given(st.lists(st.binary(max_size=200), max_size=8), st.lists(st.integers(1, 50), max_size=60))
def test_frames_survive_any_cut_of_the_stream(payloads: list[bytes], cuts: list[int]) -> None:
    data = b"".join(
        b"".join(frames.batch_frame(i, 1, 1, 0, 0.0, p)) for i, p in enumerate(payloads)
    )
    reader, read = frames.FrameReader(2**20), []
    while data:
        n = cuts.pop() if cuts else len(data)
        read += [frames.read(b) for b in reader.feed(data[:n])]
        data = data[n:]
    assert [(f[1], f[-1]) for f in read] == list(enumerate(payloads))


def test_a_frame_above_the_limit_is_refused_by_its_length_alone() -> None:
    with pytest.raises(ChannelError, match="2147483648 bytes; at most 1048576"):
        frames.FrameReader(2**20).feed(b"\x80\x00\x00\x00")


@given(st.binary(min_size=1, max_size=60))
def test_garbage_is_refused_and_never_crashes(data: bytes) -> None:
    try:
        fields = frames.read(data)
        frames.read_message(*(fields[3:6] if len(fields) > 5 else (fields[0], fields, fields)))
    except ChannelError:
        pass


def test_a_proof_holds_for_one_role_nonce_and_pair_only() -> None:
    said = frames.proof(b"token", "dialer", b"nonce", A, B)
    assert said != frames.proof(b"other", "dialer", b"nonce", A, B)
    assert said != frames.proof(b"token", "listener", b"nonce", A, B)
    assert said != frames.proof(b"token", "dialer", b"again", A, B)
    assert said != frames.proof(b"token", "dialer", b"nonce", B, A)
