"""How processes reach each other: one listens at an address, another dials it, and each gets an end
of a stream of bytes, as a transport of asyncio with a protocol of its own.

An address is `unix:PATH`, `tcp:HOST:PORT` or `mqtt:HOST/PLACE`. What both ends may rely on, and
what they may not:

- **Order.** Bytes come in the order in which they were written, whole, cut and joined anywhere.
  Between two streams there is no order.
- **Loss.** What was written may be lost when the stream breaks, from any byte on. Neither end
  learns how much has come. One end may notice the break long before the other one, or never, if it
  sends nothing.
- **Backpressure.** What the other end does not read fills the stream; then `pause_writing` is
  called, as asyncio has it.
- **The end.** `write_eof` and `close` let everything arrive that was written before them, unless
  the other end has something unread on its way: then that may break the stream. The death of a
  process is like `close` for what the system has taken by then, and loses the rest.
- **Listening.** An address is free again when its process has ended. Until something listens there,
  a process that dials gets `ConnectionRefusedError` or `FileNotFoundError`; through a broker
  `TimeoutError`, and what it has written and not closed long enough before is lost with it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

P = TypeVar("P", bound=asyncio.Protocol)


class Listening(ABC):
    """Where a process listens. `address`: the real one, with its port."""

    address: str

    @abstractmethod
    def is_there(self) -> bool:
        """Whether others can find it: whatever tidies up files may have removed it."""

    @abstractmethod
    def filenos(self) -> list[int]:
        """Numbers of its open files, which forked processes have copies of."""

    @abstractmethod
    def close(self) -> None:
        """Listen no more. Streams that have begun stay."""


class Transport(ABC):
    @abstractmethod
    async def listen(self, address: str, made: Callable[[], asyncio.Protocol]) -> Listening:
        """`made`: makes the protocol of a stream that a peer has dialled. Port 0: any. Raises
        `OSError`."""

    @abstractmethod
    async def dial(self, address: str, made: Callable[[], P]) -> P:
        """The protocol of the stream, made by `made`. Raises `OSError`."""

    @abstractmethod
    def forget(self, address: str) -> None:
        """Nothing will listen there again: remove what is left of it, if that can be done."""

    async def settle(self, most_s: float) -> None:
        """Return when what was written to streams that are closed needs this process no more, or
        after `most_s`: at once where the system sees to it."""
        await asyncio.sleep(0)
