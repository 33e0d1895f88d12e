"""Whether this machine lets processes hear each other by multicast on loopback."""

from __future__ import annotations

import socket
import struct
from functools import cache

import pytest

GROUP = "224.0.0.251"


@cache
def loopback_has_multicast() -> bool:
    """Tried with a datagram to the group of mDNS, at a port of its own."""
    loopback = socket.inet_aton("127.0.0.1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.bind(("", 0))
            member = struct.pack("4s4s", socket.inet_aton(GROUP), loopback)
            one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
            one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, loopback)
            one.settimeout(5.0)
            one.sendto(b"heard", (GROUP, one.getsockname()[1]))
            return one.recv(16) == b"heard"
        except OSError:
            return False


def needs_multicast() -> None:
    """Skips the test where there is none."""
    if not loopback_has_multicast():
        pytest.skip("loopback of this machine carries no multicast")
