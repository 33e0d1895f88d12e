"""Agents that find each other by mDNS: what they announce, and what they make of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from zeroconf import InterfaceChoice

from anabranch.runtime.hosts.host import HostInfo
from anabranch.runtime.live.hosts import lan as lan_module
from anabranch.runtime.live.hosts.lan import FOUND_MAX, Lan, announced, interfaces_of
from tests.runtime.live.hosts.multicast import needs_multicast
from tests.runtime.processes import PATIENCE_S

HOST = HostInfo("press-1", bytes(range(8)), 1, "127.0.0.1:7433", "", {}, 1, 1, "1")


class Found:
    """A host on the LAN, and the seeds that it has."""

    def __init__(self, host: HostInfo, bind: str = "127.0.0.1:0") -> None:
        self.seeds: list[str] = []
        self.failed: list[str] = []
        self.lan = Lan(host, bind, self.seeds.append, self.seeds.remove, self.failed.append)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - of the network
            await asyncio.sleep(0.02)


async def test_two_hosts_find_each_other_on_loopback_and_one_that_leaves_is_no_seed() -> None:
    needs_multicast()
    hosts = [
        msgspec.structs.replace(HOST, key=bytes([n] * 8), address=f"127.0.0.1:{7000 + n}")
        for n in range(2)
    ]
    one, other = map(Found, hosts)
    one.lan.start()
    other.lan.start()
    await until(lambda: bool(one.failed or other.failed or (one.seeds and other.seeds)))
    assert one.failed + other.failed == []
    assert (one.seeds, other.seeds) == (["127.0.0.1:7001"], ["127.0.0.1:7000"])
    await other.lan.close()
    await until(lambda: not one.seeds)
    await one.lan.close()


def test_what_is_no_address_is_no_seed_and_an_address_is_one_once() -> None:
    it = Found(HOST)
    for said in (None, b"", b"7433", b"a:99999", b"\xff:1", b"a b:1", HOST.address.encode()):
        it.lan.take("x", said)
    assert it.seeds == []
    it.lan.take("x", b"10.0.0.7:7433")
    it.lan.take("x", b"10.0.0.7:7433")
    assert it.seeds == ["10.0.0.7:7433"]
    it.lan.take("x", b"10.0.0.8:7433")
    assert it.seeds == ["10.0.0.8:7433"]


def test_a_flood_of_services_has_a_bound_and_the_newest_count() -> None:
    it = Found(HOST)
    for number in range(3 * FOUND_MAX):
        it.lan.take(f"service {number}", f"10.0.0.1:{number + 1}".encode())
    first = 2 * FOUND_MAX + 1
    assert it.seeds == [f"10.0.0.1:{n}" for n in range(first, first + FOUND_MAX)]


def test_an_agent_is_announced_where_it_listens_under_a_name_of_its_own() -> None:
    long = msgspec.structs.replace(HOST, name="n" * 63)
    info = announced(long, "127.0.0.1:7433")
    assert info.name == f"{'n' * 40}-0001020304050607._anabranch._tcp.local."
    assert (info.parsed_addresses(), info.port) == (["127.0.0.1"], 7433)
    assert info.properties == {b"at": b"127.0.0.1:7433"}
    named = msgspec.structs.replace(HOST, address="press-1.plant:7433")
    assert announced(named, "0.0.0.0:7433").parsed_addresses() == []
    assert interfaces_of("127.0.0.1:7433") == ["127.0.0.1"]
    assert interfaces_of("localhost:7433") == ["127.0.0.1"]
    assert interfaces_of("10.0.0.7:7433") == ["10.0.0.7"]
    assert interfaces_of("0.0.0.0:7433") is InterfaceChoice.All


async def test_a_system_without_mdns_is_told_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(**_: object) -> None:
        raise OSError(19, "No such device")

    monkeypatch.setattr(lan_module, "AsyncZeroconf", refused)
    it = Found(HOST)
    it.lan.start()
    await until(lambda: bool(it.failed))
    assert it.failed == ["[Errno 19] No such device"]
    await it.lan.close()
