"""The copy keeper of a host: it has copies of journals whose writers are on other hosts."""

from __future__ import annotations

from pathlib import Path


class CopyKeeper:
    """`folder`: below which copies lie. `token`: of the run, without which a peer is refused.
    `boot`: names the life of the host; if it is another one than that in the folder, the host may
    have lost its power, and no copy is read before its writer has been there. Raises `OSError`."""

    def __init__(self, folder: Path, token: bytes, *, boot: str) -> None:
        raise NotImplementedError

    async def serve(self, address: str) -> str:
        """Listen at `unix:PATH` or `tcp:HOST:PORT` (port 0: any); returns the real address."""
        raise NotImplementedError

    def forget(self, operator: str, number: int) -> None:
        """Remove the copy of an instance that has ended, or whose copy is elsewhere now."""
        raise NotImplementedError

    def status(self) -> dict[str, object]:
        """Figures for the agent: `copies`, `bytes`, `refused` (by reason), `waits` (why the disk
        takes nothing; empty if it does)."""
        raise NotImplementedError

    def close(self) -> None:
        """Listen no more, and close all connections. Files stay."""
        raise NotImplementedError
