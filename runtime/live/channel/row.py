"""What a journal has of a channel."""

from __future__ import annotations

from typing import NamedTuple


class ChannelRow(NamedTuple):
    """What the next incarnation of an instance needs of a channel, besides the frames it
    keeps. `handled`: numbers of messages that the core has had before their turn; below 0, of
    frames that are settled before theirs."""

    next_number: int
    first_kept: int
    settled: int
    handled: tuple[int, ...]
    partial: tuple[int, int]
    tuples_sent: int
    bytes_sent: int
    messages_sent: int
    tuples_settled: int
    bytes_settled: int
    peer_incarnation: int
