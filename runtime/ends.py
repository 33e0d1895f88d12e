"""The two ends of a pipeline as contracts: what a source and a sink promise.

A **source** divides its input into splits: small values that MessagePack can carry, such as
`{"path": "a.txt", "start": 0, "end": 65536}`. Splits lie on a board (`anabranch.runtime.board`)
which the agent of the host keeps. An instance claims one split at a time, reads it, and says
that it is done; if it leaves before, it puts back what remains. So any number of instances read
one input without overlap, join and leave at any time, and the input has ended when the board is
empty and nobody holds a split.

A **sink** opens one writer per instance. What `write` returned for is counted as delivered when
`flush` has returned.

A **service** is a process of its own that ends may share: an endpoint for something outside, such
as Spark, which must stay while instances come and go.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anabranch.protocol.limits import Limits

Split = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunContext:
    """What an end may know about the run and the instance it serves.

    `started_s`: the run's beginning on `time.monotonic`, the same for all processes of a host.
    `run_dir`: private folder of the run; `instance`: text of the instance's id, as `lines.0`.
    """

    pipeline: str
    operator: str
    instance: str
    run_dir: Path
    started_s: float
    limits: Limits
    service_address: str = ""
    """Where the end's service listens; empty if it has none."""
    token: bytes = field(default=b"", repr=False)
    """Secret of the run, by which its processes know each other."""


class ServiceContext(ABC):
    """What a service may know and do while it serves. Sources read `publish`ed splits."""

    pipeline: str
    operators: tuple[str, ...]
    """The sources and sinks of the pipeline that name this service."""
    ends: Mapping[str, Source | Sink]
    """These, by the names of their operators."""
    run_dir: Path
    started_s: float
    limits: Limits
    token: bytes

    @abstractmethod
    def address(self, text: str) -> None:
        """Say where the service listens; the run begins once it has said so."""

    @abstractmethod
    async def publish(self, operator: str, splits: list[Split]) -> None:
        """Add splits to the board of a source."""

    @abstractmethod
    async def ended(self, operator: str) -> None:
        """No more splits will be published for this source."""

    @property
    @abstractmethod
    def closing(self) -> bool:
        """Whether every instance of the run has ended."""

    @abstractmethod
    async def closed(self) -> None:
        """Wait until `closing`."""


class Service(ABC):
    """A process beside the instances, one per run, started before them and ended after them.

    Sources and sinks name it in their attribute `service`; the same object means one process.
    """

    name: str = "service"
    linger_s: float = 10.0
    """How long `serve` may go on after `closing`, so that others can take what is left."""

    @abstractmethod
    async def serve(self, context: ServiceContext) -> None:
        """Work until `closing`, and until the service finds that nobody needs it any more.

        Must call `context.address` within the start deadline. An exception fails the run.
        """


@dataclass(slots=True)
class DeadLetter:
    """A tuple that leaves the stream because it could not be processed."""

    reason: str
    tuple: Any
    where: str = ""
    """Where to look: `a.txt:17` for a line of input, `pipeline.py:12 in clean` for an exception."""
    step: str = ""
    """The step of the operator that gave it up; empty at the ends of a pipeline."""


@dataclass(slots=True)
class Chunk:
    """What one read gave. Empty is fine: the reader is asked again.

    `progress`: how far the split was advanced by this chunk, in the unit of `Source.size`.
    """

    tuples: list[Any]
    dead: list[DeadLetter] = field(default_factory=list)
    progress: float = 0.0


class Reader(ABC):
    """Reads one split."""

    @abstractmethod
    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        """The next tuples in order, at most about so many; None at the end of the split.

        Works for a few milliseconds at most before it returns or awaits. If cancelled while it
        waits, nothing is lost: the next read, or `remainder`, goes on from where it was.
        """

    @abstractmethod
    def remainder(self) -> Split | None:
        """What has not been returned by `read` yet, as a split; None if nothing remains."""

    def close(self) -> None:  # noqa: B027 - optional
        """Give back files and sockets."""


class Source(ABC):
    """Where tuples come from. A value: the reader does the work."""

    bounded: bool = True
    scalable: bool = True
    """Whether several instances may read at once."""
    service: Service | None = None
    """Publishes splits beside those of `splits`, until it says `ended`."""

    def prepare(self) -> None:  # noqa: B027 - optional
        """Raise an `OSError` or `ValueError` that names the place if the input cannot be read."""

    def reads(self) -> Iterable[Path]:
        """Files that are read, so that nobody writes to them in the same run."""
        return ()

    @abstractmethod
    def splits(self) -> Iterator[Split]:
        """The whole input; pulled lazily by the agent, so it may be endless. Never blocks long."""

    @abstractmethod
    def open(self, split: Split, context: RunContext) -> Reader: ...

    def size(self) -> float | None:
        """How much there is, in the unit of `Chunk.progress`; None if unknown."""
        return None


class Writer(ABC):
    """The open end of a sink in one instance."""

    @abstractmethod
    async def write(self, tuples: list[Any]) -> list[DeadLetter]:
        """Take all tuples, in order; the ones that cannot be written come back as dead letters.

        May wait: that is how a slow sink slows the stream. Raises `OSError` if nothing can be
        written any more, which fails the operator.
        """

    async def flush(self) -> None:  # noqa: B027 - optional
        """Return when everything written so far is as safe as this sink makes it."""

    async def close(self) -> None:
        await self.flush()


class Sink(ABC):
    """Where tuples go. A value: the writer does the work."""

    scalable: bool = True
    service: Service | None = None

    def prepare(self) -> None:  # noqa: B027 - optional
        """Called once before the run, by the agent: empty or make the target, or raise."""

    def writes(self) -> Path | None:
        """The file that is written, if it is one."""
        return None

    @abstractmethod
    def open(self, context: RunContext) -> Writer: ...
