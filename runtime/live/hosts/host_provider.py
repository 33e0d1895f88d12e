"""What opens and closes hosts: a small interface, and three ways.

`CheckedProvider` stands before each of them: whatever asks for it, a host on which there may be an
instance does not close.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from anabranch.runtime.ports.disk import store
from anabranch.runtime.storage.replaced import replace_file

END_S = 30.0
"""For the agent of a local host to stop its runs; then it is killed."""
LOOK_S = 0.1
SHOWN_CHARS = 300


class ProviderFailed(Exception):
    """A host could not be opened or closed. The message says why."""


class HostInUse(ProviderFailed):
    """It was not closed."""


class HostProvider(Protocol):
    """Both may be asked for again: to open a host that is there, and to close one that is gone, is
    done at once."""

    async def open(self, name: str) -> None:
        """Begin with it; that it is there is seen by its gossip. Raises `ProviderFailed`."""

    async def close(self, name: str) -> None:
        """Return when it is gone. Raises `ProviderFailed`."""

    async def leave(self) -> None:
        """The agent ends."""


class FixedHosts:
    """The hosts are as they are."""

    async def open(self, name: str) -> None:
        raise ProviderFailed("hosts are fixed here; [provider] in agent.toml can open some")

    async def close(self, name: str) -> None:
        raise ProviderFailed("hosts are fixed here")

    async def leave(self) -> None:
        return


class CheckedProvider:
    """`in_use`: why there may be an instance on a host; empty if there is none, and none can
    come."""

    def __init__(self, provider: HostProvider, in_use: Callable[[str], Awaitable[str]]) -> None:
        self._provider = provider
        self._in_use = in_use

    async def open(self, name: str) -> None:
        await self._provider.open(name)

    async def close(self, name: str) -> None:
        """Raises `HostInUse`."""
        if why := await self._in_use(name):
            raise HostInUse(why)
        await self._provider.close(name)

    async def leave(self) -> None:
        await self._provider.leave()


class LocalHosts:
    """Further agents on this machine, each with a folder of its own below `parent`. `command`:
    `anabranch agent` with its options but name and folder. They end with this agent if that ends
    by itself. If it is killed they go on, and the next one finds them by gossip."""

    def __init__(self, parent: Path, command: Sequence[str]) -> None:
        self._parent = parent
        self._command = command
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def open(self, name: str) -> None:
        running = self._running.get(name)
        if running is not None and running.returncode is None:
            return
        if self._former(name) is not None:
            return
        try:
            store().make_folder(self._parent, 0o700, parents=True)
            process = await asyncio.create_subprocess_exec(
                *self._command,
                *("--name", name, "--data", str(self._parent / name)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the terminal is for this agent
            )
            replace_file(self._pid_file(name), str(process.pid).encode())
        except OSError as error:
            raise ProviderFailed(f"cannot start an agent: {error.strerror or error}") from None
        self._running[name] = process

    async def close(self, name: str) -> None:
        process = self._running.pop(name, None)
        if process is not None:
            await _ended(process)
        elif (pid := self._former(name)) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            await self._gone(name, pid)
        with suppress(OSError):
            store().remove(self._pid_file(name))

    async def leave(self) -> None:
        await asyncio.gather(*(self.close(name) for name in [*self._running]))

    async def _gone(self, name: str, pid: int) -> None:
        for _ in range(round(END_S / LOOK_S)):
            if self._former(name) is None:
                return
            await asyncio.sleep(LOOK_S)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def _former(self, name: str) -> int | None:
        """The process of an agent there that another agent has started here."""
        try:
            pid = int(store().read(self._pid_file(name)))
            words = store().read(Path(f"/proc/{pid}/cmdline")).split(b"\0")
        except (OSError, ValueError):
            return None
        return pid if str(self._parent / name).encode() in words else None

    def _pid_file(self, name: str) -> Path:
        return self._parent / f"{name}.pid"


class HostCommands:
    """A command of the user's opens a host, another one closes it: lists of words, in which
    `{name}` and `{seed}`, the address of this agent, are filled in. Each has `boot_s`, and code 0
    means that it is done."""

    def __init__(self, open: Sequence[str], close: Sequence[str], seed: str, boot_s: float) -> None:
        self._open = open
        self._close = close
        self._seed = seed
        self._boot_s = boot_s

    async def open(self, name: str) -> None:
        await self._run(self._open, name)

    async def close(self, name: str) -> None:
        await self._run(self._close, name)

    async def leave(self) -> None:
        return

    async def _run(self, words: Sequence[str], name: str) -> None:
        filled = [w.replace("{name}", name).replace("{seed}", self._seed) for w in words]
        try:
            process = await asyncio.create_subprocess_exec(
                *filled,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ProviderFailed(f"cannot run {filled[0]}: {error.strerror}") from None
        try:
            async with asyncio.timeout(self._boot_s):
                said, _ = await process.communicate()
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            raise ProviderFailed(f"{filled[0]} takes longer than {self._boot_s:g} s") from None
        if process.returncode:
            last = said.decode(errors="replace").strip().splitlines()[-1:]
            told = f": {last[0][:SHOWN_CHARS]}" if last else ""
            raise ProviderFailed(f"{filled[0]} ends with code {process.returncode}{told}")


async def _ended(process: asyncio.subprocess.Process) -> None:
    """By SIGTERM, or at last by force."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
