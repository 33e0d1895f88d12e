"""The two ends of a pipeline as contracts: what a source and a sink promise.

A **source** divides its input into splits: small values that MessagePack can carry, such as
`{"path": "a.txt", "start": 0, "end": 65536}`. Splits lie on a board (`runtime.sources.board`)
which the agent of the host keeps. An instance claims one split at a time, reads it, and reports
that it is done; if it leaves before, it puts back what remains. So any number of instances read
one input without overlap, join and leave at any time, and the input has ended when the board is
empty and no instance holds a split.

A **sink** opens one writer per instance. What `write` returned for is counted as delivered when
`flush` has returned.

An instance that dies is resumed by a new process, its next **incarnation**, from what it had
recorded. A source takes part by remainders: a reader's `remainder` is recorded with what it has
returned, and the next incarnation opens it. A sink takes part by an `ExactWriter`: what is to be
written is recorded under a number first, so that the next incarnation can put it again and the
target takes it once.

A **service** is a process of its own that ends may share: an endpoint for something outside, such
as Spark, which must stay while instances come and go.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from anabranch.protocol.limits import Limits

Split = dict[str, Any]


def _tell_nobody(_kind: str, _detail: str) -> None:
    """Where there is no report."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """What an end gets of the run and the instance it serves.

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
    """Secret of the run, by which its processes recognise each other."""
    incarnation: int = 1
    """Counts the processes that have been this instance, this one included."""
    state_dir: Path | None = None
    """Folder that outlives the processes of the run; None: `run_dir` does."""
    durable: str = "process"
    """What the operator is to survive: the death of processes, or loss of "power"."""
    folder: str = ""
    """From where relative paths are taken, whatever folder functions change to. Empty: from the
    working directory of the moment."""
    stays_open: bool = False
    """Whether the stream goes on in another run when the input of this one has ended: then no
    window ends and no timer fires because of that."""
    note: Callable[[str, str], None] = field(default=_tell_nobody, repr=False)
    """Takes a name and a detail of something for the report of the run, where it is an event of
    kind `note`; or a kind (`runtime.values.kinds.EventKind`) such as `waits`, and a detail."""

    @property
    def lasting_dir(self) -> Path:
        """Where an end keeps what its next incarnation must find."""
        return self.state_dir or self.run_dir


class ServiceContext(ABC):
    """What a service gets and can do while it serves. Sources read `publish`ed splits."""

    pipeline: str
    operators: tuple[str, ...]
    """The sources and sinks of the pipeline that name this service."""
    ends: Mapping[str, Source | Sink]
    """These, by the names of their operators."""
    run_dir: Path
    started_s: float
    limits: Limits
    token: bytes
    former_address: str = ""
    """Where this service has listened before its process died; others may look for it there."""

    @abstractmethod
    def address(self, text: str) -> None:
        """Report where the service listens; the run begins once it has reported it."""

    def delayed(self) -> None:  # noqa: B027 - optional
        """Report that the system refuses for now what is needed to begin, as a full disk does: the
        service has the whole time again until it must report where it listens."""

    @abstractmethod
    async def publish(self, operator: str, splits: list[Split]) -> None:
        """Add splits to the board of a source.

        A split may have a `number`, which grows with each one for the source. Then it may be
        published again, as by a service that has no record of what the last process of it has
        published: a number that is not above the highest so far is passed over.
        """

    @abstractmethod
    async def ended(self, operator: str) -> None:
        """No more splits will be published for this source. May be repeated."""

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
        """Work until `closing`, and until the service finds that it is not needed any more.

        Must call `context.address` within the start deadline. An exception fails the run. If the
        process dies, a new one serves in its place, from the beginning.
        """


class InputError(ValueError):
    """What a source reads is not what it expects, which no next incarnation changes: the
    run fails. The message says what to do."""


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
    `waited_s`: how long the read took only because nothing was due.
    """

    tuples: list[Any]
    dead: list[DeadLetter] = field(default_factory=list)
    progress: float = 0.0
    waited_s: float = 0.0


class Offered(NamedTuple):
    """What a paced source offers now, all its instances together. `waiting`: tuples that are due
    and not read."""

    per_s: float
    waiting: float


class Reader(ABC):
    """Reads one split."""

    @abstractmethod
    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        """The next tuples in order, at most about so many; None at the end of the split.

        Works for a few milliseconds at most before it returns or awaits. If cancelled while it
        waits, nothing is lost: the next read, or `remainder`, goes on from where it was. Raises
        `InputError` for an input of which nothing should be read.
        """

    @abstractmethod
    def remainder(self) -> Split | None:
        """What has not been returned by `read` yet, as a split; None if nothing remains.

        Cheap enough to be asked after every read, and exact: a reader that is opened with it goes
        on with the very next tuple, in this incarnation or another. May be asked after `close`.
        """

    def recorded(self, remainder: Split) -> None:  # noqa: B027 - optional
        """Called when it is in the journal that `remainder` is what remains: nothing before it will
        be read again, here or by a next incarnation. What waits for that can be acknowledged to a
        sender outside, or removed. Not called for each remainder."""

    def drain(self, *, leaves: bool) -> None:  # noqa: B027 - only where the source `drains`
        """No more input is wanted: the instance `leaves`, or the input is to end. Take no more from
        outside, and return None when all that was taken is read. May be called before the first
        read, and again."""

    def offered(self) -> Offered | None:
        """What the source offers, as far as this reader can measure it; None if there is no pace at
        which it should be read."""
        return None

    def done(self) -> None:  # noqa: B027 - optional
        """Called after `close`, once it is recorded that the split was read to its end: it will
        not be read again. Delete here what only this split needed. If the process dies in this
        moment, the next incarnation opens the split once more for this, unless that raises
        `FileNotFoundError`."""

    def close(self) -> None:  # noqa: B027 - optional
        """Give back files and sockets."""


class Source(ABC):
    """Where tuples come from. A value: the reader does the work."""

    bounded: bool = True
    scalable: bool = True
    """Whether several instances may read at once."""
    drains: bool = False
    """Whether no other reader could read what one has taken from outside. Then a reader is asked to
    `drain` and is read to its end; otherwise it is left where it is when its instance leaves or the
    input is to end, and what remains is put back or left unread."""
    positions: bool = True
    """Whether a run that begins from a savepoint can read on where another one has stopped."""
    service: Service | None = None
    """Publishes splits beside those of `splits`, until it reports `ended`."""

    def prepare(self) -> None:  # noqa: B027 - optional
        """Raise an `OSError` or `ValueError` that names the place if the input cannot be read."""

    def prepare_to_resume(self) -> None:
        """The same, when a run is resumed of which all processes are gone."""
        self.prepare()

    @property
    def replayable(self) -> bool:
        """Whether remainders can still be opened when all processes of a run are gone."""
        return True

    @property
    def why_not(self) -> str:
        """A sentence for the user if not `replayable`: what cannot be read again, and why."""
        return ""

    def reads(self) -> Iterable[Path]:
        """Files that are read, so that no sink writes to them in the same run."""
        return ()

    @abstractmethod
    def splits(self) -> Iterator[Split]:
        """The whole input; pulled lazily by the agent, so it may be endless. Never blocks long."""

    @abstractmethod
    def open(self, split: Split, context: RunContext) -> Reader: ...

    def parts(self, split: Split) -> list[Split]:
        """What a split that stands for several is made of, to be distinguished in messages."""
        return [split]

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


class ExactWriter(Writer):
    """A writer that makes no result twice, half or lost, whenever its process dies.

    The driver stages tuples, records the data under the next number, then puts it, and notes later
    that this was done. Numbers of an instance go 1, 2, 3, ... over all its
    incarnations.
    """

    gather: tuple[int, float] | None = None
    """So many tuples, or as many as come in so many seconds, should be staged at once; None: as
    they come. For targets that take few large pieces."""

    _number: int | None = None

    @abstractmethod
    def stage(self, tuples: list[Any]) -> tuple[bytes, list[DeadLetter]]:
        """What `put` has to be given for these tuples, and those that cannot be written.

        Changes nothing at the target. Without data there is nothing to put.
        """

    @abstractmethod
    async def put(self, number: int, data: bytes) -> None:
        """Make `data` be at the target exactly once under this number of this instance.

        When it returns, that is as safe as this sink is asked to be: its success may be recorded.
        After a death, the next incarnation puts again, in order, every number whose success is not
        recorded: it may have succeeded, or half succeeded. So it may be after an `OSError`, which
        is raised if the data cannot be written now; see `passing`. One call at a time.
        """

    @abstractmethod
    def last_put(self) -> int:
        """The highest number that is at the target for certain; 0 if none. Half of a piece, which a
        death has left there, is taken away."""

    async def write(self, tuples: list[Any]) -> list[DeadLetter]:
        """Stage and put without a journal: the numbers go on from the last one."""
        data, dead = self.stage(tuples)
        await self.put_next(data)
        return dead

    async def put_next(self, data: bytes) -> None:
        """Put what was staged, without a journal. Raises `OSError` as `put` does."""
        if data:
            if self._number is None:
                self._number = self.last_put()
            await self.put(self._number + 1, data)
            self._number += 1


class ReaderGone(BrokenPipeError):
    """Results have nowhere to go, as behind `| head`: the end of the run, and no mistake."""

    def __str__(self) -> str:
        return "the reader of standard output has gone, so there was nothing left to do"


class NeverTaken(OSError):
    """The target is no file on a disk, and what it refuses now it refuses always, as `/dev/full`
    does: to wait for room, or to try another process, would be in vain."""


_PASSING = frozenset(
    getattr(errno, name)
    for name in (
        *("ENOSPC", "EDQUOT", "EIO", "EROFS", "EAGAIN", "EINTR", "EBUSY", "ENOLCK"),
        *("ENFILE", "EMFILE", "ENOMEM", "ENOBUFS", "ESTALE", "EREMOTEIO", "ETIMEDOUT"),
        *("ENOTCONN", "ECONNREFUSED", "ECONNRESET", "ECONNABORTED"),
        *("ENETDOWN", "ENETUNREACH", "EHOSTDOWN", "EHOSTUNREACH"),
    )
    if hasattr(errno, name)
)


def passing(error: OSError) -> bool:
    """Whether trying again later may help: a full disk can be emptied, a server comes back.

    Not so if a file or its permission was removed, since a user did that on purpose.
    """
    return error.errno in _PASSING and not isinstance(error, NeverTaken)


class Sink(ABC):
    """Where tuples go. A value: the writer does the work."""

    scalable: bool = True
    service: Service | None = None

    @property
    def exact(self) -> bool:
        """Whether a death leaves no trace at the target: `open` gives an `ExactWriter`, or there
        is nothing that could be there twice. If not, the last results before a death may be
        written again, which an event `may_repeat` of the report shows."""
        return False

    @property
    def resumable(self) -> bool:
        """Whether what it keeps is still there when all processes of a run are gone, and the
        private folder of the run with them. If not, `prepare_to_resume` refuses."""
        return True

    def prepare(self) -> None:  # noqa: B027 - optional
        """Called once before the run, by the agent: make the target, or raise. Takes nothing away,
        since another end may yet refuse the run."""

    def empty(self) -> None:  # noqa: B027 - optional
        """Called then, when nothing refuses the run any more: take away what is at the target."""

    def prepare_to_resume(self) -> None:  # noqa: B027 - optional
        """Called instead, when a run is resumed of which all processes are gone: raise an
        `OSError` that names the target if it is not there any more. Changes nothing."""

    def writes(self) -> Path | None:
        """The file that is written, or the folder whose files are all its own; None if neither."""
        return None

    @abstractmethod
    def open(self, context: RunContext) -> Writer: ...
