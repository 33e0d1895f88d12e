"""Agents on one LAN find each other by mDNS (RFC 6762), if they are asked to.

Each announces its address, and takes the addresses of others only as seeds: a host at such an
address has to prove itself like every host that a seed names. The number of announcements that an
agent takes is bounded, since any program on the LAN may announce.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from contextlib import suppress

import msgspec
from zeroconf import Error, InterfaceChoice, IPVersion, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from anabranch.runtime.hosts.host import Address, HostInfo

SERVICE = "_anabranch._tcp.local."
AT = b"at"
"""The property with the address."""
FOUND_MAX = 64
ASKED_MAX = 16
"""Services that are asked for their addresses at a time."""
ANSWER_MS = 3000
CLOSE_S = 2.0
"""For others to receive that it leaves."""
LABEL_CHARS_MAX = 40


class Lan:
    """`found`, `lost`: are called with addresses of agents. `failed`: with the reason, if the
    system has no mDNS for it."""

    def __init__(
        self,
        me: HostInfo,
        bind: str,
        found: Callable[[str], None],
        lost: Callable[[str], None],
        failed: Callable[[str], None],
    ) -> None:
        self._me = me
        self._bind = bind
        self._found = found
        self._lost = lost
        self._failed = failed
        self._addresses: dict[str, str] = {}
        """By the name of the service, the oldest first."""
        self._asks: dict[str, asyncio.Task[None]] = {}
        self._zeroconf: AsyncZeroconf | None = None
        self._begin: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._begin = asyncio.create_task(self._announce(), name="mdns")

    async def close(self) -> None:
        """Announce that it leaves; after `CLOSE_S` without."""
        for task in (self._begin, *self._asks.values()):
            if task is not None:
                task.cancel()
        if self._zeroconf is not None:
            with suppress(TimeoutError, OSError, Error):
                async with asyncio.timeout(CLOSE_S):
                    await self._zeroconf.async_unregister_all_services()
            with suppress(OSError, Error):
                await self._zeroconf.async_close()

    async def _announce(self) -> None:
        try:
            made = AsyncZeroconf(interfaces=interfaces_of(self._bind), ip_version=IPVersion.V4Only)
            self._zeroconf = made
            AsyncServiceBrowser(made.zeroconf, SERVICE, handlers=[self.heard])
            await made.async_register_service(announced(self._me, self._bind))
        except (OSError, Error) as error:
            self._failed(str(error) or type(error).__name__)

    def heard(
        self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
    ) -> None:
        """By the browser, which names these words."""
        if state_change is ServiceStateChange.Removed:
            if (address := self._addresses.pop(name, None)) is not None:
                self._take_back(address)
        elif name not in self._asks and len(self._asks) < ASKED_MAX:
            task = asyncio.get_running_loop().create_task(self._ask(zeroconf, name), name=name)
            self._asks[name] = task
            task.add_done_callback(lambda _: self._asks.pop(name, None))

    async def _ask(self, zeroconf: Zeroconf, name: str) -> None:
        info = AsyncServiceInfo(SERVICE, name)
        await info.async_request(zeroconf, ANSWER_MS)
        self.take(name, info.properties.get(AT))

    def take(self, name: str, said: bytes | None) -> None:
        """`said`: the address, as it was announced, by whatever is on the LAN."""
        try:
            address = msgspec.convert((said or b"").decode(), Address)
        except (msgspec.ValidationError, UnicodeDecodeError):
            return
        if address == self._me.address:
            return
        before = self._addresses.pop(name, None)
        self._addresses[name] = address
        if before not in (None, address):
            self._take_back(before)
        if len(self._addresses) > FOUND_MAX:
            self._take_back(self._addresses.pop(next(iter(self._addresses))))
        if before != address:
            self._found(address)

    def _take_back(self, address: str | None) -> None:
        if address is not None and address not in self._addresses.values():
            self._lost(address)


def interfaces_of(bind: str) -> list[str] | InterfaceChoice:
    """Those on which the agent listens."""
    ip = _ip_of(bind)
    return InterfaceChoice.All if ip is None else [ip]


def announced(me: HostInfo, bind: str) -> AsyncServiceInfo:
    """The name is unlike all others, since two hosts may want one name."""
    label = f"{me.name[:LABEL_CHARS_MAX]}-{me.key.hex()}"
    ip = _ip_of(me.address) or _ip_of(bind)
    return AsyncServiceInfo(
        SERVICE,
        f"{label}.{SERVICE}",
        parsed_addresses=[] if ip is None else [ip],
        port=int(me.address.rpartition(":")[2]),
        properties={AT: me.address.encode()},
        server=f"{me.key.hex()}.local.",
    )


def _ip_of(address: str) -> str | None:
    """None of a name, of all interfaces, and of IPv6."""
    host = address.rpartition(":")[0]
    if host == "localhost":
        return "127.0.0.1"
    try:
        ip = ipaddress.IPv4Address(host)
    except ValueError:
        return None
    return None if ip.is_unspecified else str(ip)
