"""What is in a world beside the run, and deals with it over the network."""

from __future__ import annotations

from abc import ABC, abstractmethod

from anabranch.runtime.world.disk import MemoryDisk


class Guest(ABC):
    """A process of its own, which no trouble of the world ends. `name`: of that process."""

    name: str

    @abstractmethod
    async def live(self, disk: MemoryDisk) -> None:
        """`disk`: that of the world, which may lose its power. It ends with the world."""
