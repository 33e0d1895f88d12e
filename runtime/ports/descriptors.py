"""What a user has opened before the program began, by its number: standard input and output. Those
of the system, except within `using(another)`, where they are those of a world."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final


class Descriptors(ABC):
    """All but the questions raise `OSError` if the descriptor is closed."""

    @abstractmethod
    def status(self, fd: int) -> os.stat_result: ...

    @abstractmethod
    def is_open_to_read(self, fd: int) -> bool: ...

    @abstractmethod
    def is_open_to_write(self, fd: int) -> bool: ...

    @abstractmethod
    def read(self, fd: int, size: int) -> bytes:
        """Raises `BlockingIOError` if nothing is there, and the descriptor does not block."""

    @abstractmethod
    def write(self, fd: int, data: memoryview | bytes) -> int: ...

    @abstractmethod
    def can_read(self, fd: int) -> bool:
        """Whether to read would not block."""

    @abstractmethod
    def can_write(self, fd: int) -> bool:
        """Whether a little more than nothing can be written without blocking."""

    @abstractmethod
    async def until_read(self, fd: int) -> None:
        """Return when something is there, or the end."""

    @abstractmethod
    async def until_written(self, fd: int) -> None:
        """Return when something can be written."""


class SystemDescriptors(Descriptors):
    def status(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    def is_open_to_read(self, fd: int) -> bool:
        return _access(fd) not in (None, os.O_WRONLY)

    def is_open_to_write(self, fd: int) -> bool:
        return _access(fd) not in (None, os.O_RDONLY)

    def read(self, fd: int, size: int) -> bytes:
        return os.read(fd, size)

    def write(self, fd: int, data: memoryview | bytes) -> int:
        return os.write(fd, data)

    def can_read(self, fd: int) -> bool:
        return _polled(fd, select.POLLIN)

    def can_write(self, fd: int) -> bool:
        return _polled(fd, select.POLLOUT)

    async def until_read(self, fd: int) -> None:
        loop = asyncio.get_running_loop()
        await _until(fd, loop.add_reader, loop.remove_reader)

    async def until_written(self, fd: int) -> None:
        loop = asyncio.get_running_loop()
        await _until(fd, loop.add_writer, loop.remove_writer)


def _access(fd: int) -> int | None:
    """None: it is closed."""
    try:
        return fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
    except OSError:
        return None


def _polled(fd: int, event: int) -> bool:
    poll = select.poll()
    poll.register(fd, event)
    return bool(poll.poll(0))


async def _until(fd: int, add: Callable[..., Any], remove: Callable[[int], Any]) -> None:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    add(fd, _resolve, ready)
    try:
        await ready
    finally:
        remove(fd)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


SYSTEM: Final = SystemDescriptors()
_here: ContextVar[Descriptors] = ContextVar("descriptors", default=SYSTEM)


def descriptors() -> Descriptors:
    """Of the process, real or simulated, that asks."""
    return _here.get()


@contextmanager
def using(another: Descriptors) -> Iterator[None]:
    """Have these meanwhile, also in tasks that are begun here."""
    token = _here.set(another)
    try:
        yield
    finally:
        _here.reset(token)
