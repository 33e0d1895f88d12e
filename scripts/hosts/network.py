"""Hosts as network namespaces of Linux, on one bridge. Needs root, and `ip`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

PREFIX = "anabr"
NET = "10.77.61"


class NoNamespaces(Exception):
    """The message says why."""


class Network:
    """A host's address is its number on the bridge; `here`: that of this process."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._bridge = f"{PREFIX}br"
        self.here = f"{NET}.254"

    def address(self, name: str) -> str:
        return f"{NET}.{self._names.index(name) + 1}"

    def within(self, name: str) -> list[str]:
        """The words before a command that is to run there."""
        return ["ip", "netns", "exec", self._space(name)]

    def cut(self, name: str) -> None:
        """Nothing comes from it or to it, and neither end is told."""
        _ip("link", "set", self._line(name), "down")

    def heal(self, name: str) -> None:
        _ip("link", "set", self._line(name), "up")

    def power_off(self, name: str) -> None:
        """All its processes end at once."""
        found = subprocess.run(
            ["ip", "netns", "pids", self._space(name)], capture_output=True, text=True, check=True
        )
        for pid in map(int, found.stdout.split()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def begin(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self.here}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for name in self._names:
            space, line = self._space(name), self._line(name)
            _ip("netns", "add", space)
            _ip("link", "add", line, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", line, "master", self._bridge)
            _ip("link", "set", line, "up")
            for words in (
                ["addr", "add", f"{self.address(name)}/24", "dev", "eth0"],
                ["link", "set", "eth0", "up"],
                ["link", "set", "lo", "up"],
            ):
                _ip("-n", space, *words)

    def end(self) -> None:
        """Harmless if some of it is not there."""
        for name in self._names:
            with suppress(subprocess.CalledProcessError, NoNamespaces):
                self.power_off(name)
            with suppress(NoNamespaces):
                _ip("netns", "del", self._space(name))
        with suppress(NoNamespaces):
            _ip("link", "del", self._bridge)

    def _space(self, name: str) -> str:
        return f"{PREFIX}-{name}"

    def _line(self, name: str) -> str:
        return f"{PREFIX}-{self._names.index(name)}"


@contextmanager
def network(names: Sequence[str]) -> Iterator[Network]:
    """Raises `NoNamespaces` where they cannot be made."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        raise NoNamespaces("network namespaces need root and the command ip (package iproute2)")
    made = Network(names)
    try:
        made.begin()
        yield made
    finally:
        made.end()


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoNamespaces(f"ip {' '.join(words)}: {done.stderr.strip()}")
