"""What the agent, and a new incarnation, ask of a copy keeper."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from anabranch.protocol.copies import Parts
from anabranch.protocol.ids import InstanceId


class CopyFound(NamedTuple):
    """`readable`: it can be fetched; else it may have lost its end with the host's power."""

    parts: Parts
    readable: bool


async def fence(address: str, token: bytes, instance: InstanceId, incarnation: int) -> CopyFound:
    """From now on the holder refuses all incarnations before this one; that is on its disk when
    this returns. To be asked again at will. Raises `OSError` if the holder cannot be reached or
    refuses, `FencedError` if it was fenced for a later incarnation."""
    raise NotImplementedError


async def fetch(
    address: str, token: bytes, instance: InstanceId, incarnation: int, into: Path
) -> CopyFound:
    """`fence`, and put the journal of the holder at this path, in place of what is there. Raises
    as `fence` does, and `CopyError` if the copy is not readable."""
    raise NotImplementedError


async def forget(address: str, token: bytes, instance: InstanceId) -> None:
    """The instance has ended, or its copy is elsewhere now: the holder removes it. Raises
    `OSError` if the holder cannot be reached or refuses."""
    raise NotImplementedError
