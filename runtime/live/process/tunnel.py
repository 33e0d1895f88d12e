"""The tunnel between a run and its worker on another host: what they send to each other, and how
that outlives every stream that carries it.

    RemoteProcesses ─ Tunnel ═ stream, and the next one, … ═ Tunnel ─ HostWorker

A message is cut into pieces, so that a large one never looks like silence. Pieces are numbered, and
kept until the other end has acknowledged them (`anabranch.protocol.session`). On a new stream each
end states which number it expects, and gets the rest. A worker that begins anew has another number,
and with it the tunnel begins anew.

Here is no IO: `TunnelStream` carries what this sends over one stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from anabranch.protocol.errors import ChannelError
from anabranch.protocol.session import Session
from anabranch.runtime.hosts.hosting import RELAYED_BYTES_MAX
from anabranch.runtime.live.link.link import FRAME_BYTES_MAX, body_of
from anabranch.runtime.values.texts import carried, original

PIECE_BYTES = 64 * 2**10
STREAM_BYTES_MAX = RELAYED_BYTES_MAX
"""Size of a frame on the stream."""
MESSAGE_BYTES_MAX = FRAME_BYTES_MAX + 1024
"""The longest message carries what a process has sent over its link."""
UNACKNOWLEDGED_BYTES_MAX = 64 * 2**20
"""More than this is not taken from processes until the other end has acknowledged some of it."""
PIECE_COST_BYTES = 200
"""What it costs to keep a piece, beside its bytes."""
OWN_BYTES = 8

Number = Annotated[int, Meta(ge=1)]
Key = Annotated[int, Meta(ge=0)]
"""Of a process: each is larger than the ones before."""


class TunnelError(Exception):
    """The other end has sent what it must not. `reason`: one of few texts, none from outside."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class WorkerPlace:
    """What instances of the run have on the host of the worker. `state_dir`: for files that
    outlive processes. `listen`: the address at which they listen and are dialled. `tls`: the folder
    of the certificate; "" without one. `ahead_s`: how much the clock there is ahead of this one."""

    state_dir: Path
    run_dir: Path
    listen: str
    tls: str = ""
    ahead_s: float = 0.0


# --- on the stream ----------------------------------------------------------------------------


class OnStream(msgspec.Struct, frozen=True, array_like=True):
    """A frame of the stream."""


class WorkerGreeting(OnStream, frozen=True, tag="worker"):
    """The first frame from a worker. `worker`: chosen at random when it begins; `expected`: number
    of the next piece."""

    worker: Annotated[bytes, Meta(min_length=OWN_BYTES, max_length=OWN_BYTES)]
    expected: Number
    state_dir: str
    run_dir: str
    listen: str
    tls: str

    @classmethod
    def of(cls, worker: bytes, expected: int, place: WorkerPlace) -> WorkerGreeting:
        folders = carried(place.state_dir), carried(place.run_dir)
        return cls(worker, expected, *folders, place.listen, place.tls)

    @property
    def place(self) -> WorkerPlace:
        folders = Path(original(self.state_dir)), Path(original(self.run_dir))
        return WorkerPlace(*folders, self.listen, self.tls)


class HomeGreeting(OnStream, frozen=True, tag="home"):
    """The answer. `home`: chosen at random by the process of the run, to which alone the worker
    listens from then on."""

    home: Annotated[bytes, Meta(min_length=OWN_BYTES, max_length=OWN_BYTES)]
    worker: bytes
    expected: Number


class NumberedPiece(OnStream, frozen=True, tag="n"):
    """A piece of a message; `more` of it follows."""

    number: Number
    more: bool
    piece: bytes


class Acknowledged(OnStream, frozen=True, tag="t"):
    """Everything below `expected` has come."""

    expected: Number


class AskTime(OnStream, frozen=True, tag="ask"):
    """From home, from time to time: it lives. `sent_s`: by its clock."""

    sent_s: float


class TellTime(OnStream, frozen=True, tag="tell"):
    """At once. `here_s`: by the clock of the worker."""

    sent_s: float
    here_s: float


Carried = WorkerGreeting | HomeGreeting | NumberedPiece | Acknowledged | AskTime | TellTime
_decode_carried = msgspec.msgpack.Decoder(Carried).decode
_encode = msgspec.msgpack.Encoder().encode

# --- messages: home -> worker -----------------------------------------------------------------


class TunnelMessage(msgspec.Struct, frozen=True, array_like=True):
    """What a tunnel carries."""


class MakeProcess(TunnelMessage, frozen=True, tag="make"):
    key: Key


class ToProcess(TunnelMessage, frozen=True, tag="to"):
    """`body`: of a frame on its link."""

    key: Key
    body: bytes


class CloseLink(TunnelMessage, frozen=True, tag="close"):
    key: Key


class KillProcess(TunnelMessage, frozen=True, tag="kill"):
    key: Key


class RemoveFiles(TunnelMessage, frozen=True, tag="remove"):
    """Of an instance that has ended."""

    operator: str
    number: Key


class MarkEnded(TunnelMessage, frozen=True, tag="mark"):
    """Instances there need not wait for these any more."""

    operator: str
    numbers: list[Key]


class StopAll(TunnelMessage, frozen=True, tag="stop"):
    """End everything. `keep`: the files of the run."""

    keep: bool


# --- messages: worker -> home -----------------------------------------------------------------


class CanMake(TunnelMessage, frozen=True, tag="can"):
    """The pipeline is read. `parent_pid`: of the process that all others are forked from."""

    parent_pid: int


class CannotMake(TunnelMessage, frozen=True, tag="cannot"):
    """Nothing can be made, now or later."""

    why: str


class ProcessMade(TunnelMessage, frozen=True, tag="made"):
    key: Key
    pid: int


class NotMade(TunnelMessage, frozen=True, tag="not_made"):
    key: Key
    reason: str


class FromProcess(TunnelMessage, frozen=True, tag="from"):
    key: Key
    body: bytes


class Printed(TunnelMessage, frozen=True, tag="printed"):
    """None: not by one that is known."""

    key: Key | None
    line: str


class LinkClosed(TunnelMessage, frozen=True, tag="link_closed"):
    """`error`: why, if the process has broken the rules of the link."""

    key: Key
    error: str


class OutputClosed(TunnelMessage, frozen=True, tag="output_closed"):
    key: Key


class ProcessExited(TunnelMessage, frozen=True, tag="exited"):
    """`orphaned`: with the process that it was forked from."""

    key: Key
    code: int
    orphaned: bool


class ParentFollowed(TunnelMessage, frozen=True, tag="followed"):
    """All have died with the process that they were forked from, and another has taken its
    place."""

    parent_pid: int


class SystemLooks(TunnelMessage, frozen=True, tag="looks"):
    """What the system reports of processes, as `KernelLook`, where that is new."""

    seen: list[tuple[Key, str, int]]


class Letters(TunnelMessage, frozen=True, tag="letters"):
    """Whole lines of the file of dead letters there, once all processes have stopped."""

    lines: bytes


class AllStopped(TunnelMessage, frozen=True, tag="stopped"):
    """The last one."""


FromHome = MakeProcess | ToProcess | CloseLink | KillProcess | RemoveFiles | MarkEnded | StopAll
FromWorker = (
    CanMake
    | CannotMake
    | ProcessMade
    | NotMade
    | FromProcess
    | Printed
    | LinkClosed
    | OutputClosed
    | ProcessExited
    | ParentFollowed
    | SystemLooks
    | Letters
    | AllStopped
)
decode_from_home = msgspec.msgpack.Decoder(FromHome).decode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode


def read_frame(body: bytes) -> Carried:
    """Raises `TunnelError`."""
    try:
        return _decode_carried(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise TunnelError("a frame that makes no sense") from None


def written(frame: OnStream) -> bytes:
    return _encode(frame)


class Owned(NamedTuple):
    """What a kept piece costs; the last one of a message has its note."""

    cost: int
    note: object


class Tunnel:
    """One end. `decode`: reads a message of the other end; `peer`: the other end's name."""

    def __init__(self, peer: str, decode: Callable[[bytes], Any]) -> None:
        self._session: Session[tuple[bool, bytes]] = Session(peer)
        self._decode = decode
        self._owned: deque[Owned] = deque()
        """Of pieces that are not acknowledged."""
        self._kept_bytes = 0
        self._unsent: deque[tuple[int, tuple[bool, bytes]]] = deque()
        """On the present stream."""
        self._carried = False
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._owes = False
        self.on_news: Callable[[], None] = lambda: None
        """There is something to write on the stream."""

    # -- out -------------------------------------------------------------------------------

    def send(self, message: TunnelMessage, note: object = None) -> None:
        """It is kept until the other end has it. `note`: comes back when it has, or in `notes`."""
        body = body_of(message)
        for start in range(0, len(body), PIECE_BYTES):
            end = start + PIECE_BYTES
            piece = end < len(body), body[start:end]
            number = self._session.send(piece)
            cost = len(piece[1]) + PIECE_COST_BYTES
            self._kept_bytes += cost
            self._owned.append(Owned(cost, None if piece[0] else note))
            if self._carried:
                self._unsent.append((number, piece))
        self.on_news()

    def next_frame(self) -> bytes | None:
        """To be written on the present stream; None: nothing just now."""
        if self._owes:
            self._owes = False
            return written(Acknowledged(self._session.expected))
        if self._unsent:
            number, (more, piece) = self._unsent.popleft()
            return written(NumberedPiece(number, more, piece))
        return None

    @property
    def is_full(self) -> bool:
        """Whether so much is kept that nothing that can wait should be sent."""
        return self._kept_bytes >= UNACKNOWLEDGED_BYTES_MAX

    @property
    def has_room(self) -> bool:
        """Whether it is far from full."""
        return self._kept_bytes < UNACKNOWLEDGED_BYTES_MAX // 2

    @property
    def is_settled(self) -> bool:
        """Whether the other end has everything."""
        return self._session.settled

    @property
    def notes(self) -> list[object]:
        """Of what is not acknowledged, oldest first."""
        return [owned.note for owned in self._owned if owned.note is not None]

    # -- streams ---------------------------------------------------------------------------

    @property
    def expected(self) -> int:
        """Number of the next piece from the other end."""
        return self._session.expected

    def begin(self, expected: int) -> list[object]:
        """On a new stream, whose other end expects this number. The notes of what it has
        acknowledged with that. Raises `TunnelError`."""
        try:
            taken = self._take_note(lambda: self._session.resume(expected))
        except ChannelError:
            raise TunnelError("a number that cannot be expected") from None
        first = self._session.first_kept
        self._unsent = deque(enumerate(self._session.kept, first))
        self._carried, self._owes = True, False
        return taken

    def end(self) -> None:
        """There is no stream."""
        self._carried, self._owes = False, False
        self._unsent.clear()

    # -- in --------------------------------------------------------------------------------

    def acknowledge(self, taken: Acknowledged) -> list[object]:
        """The notes of what the other end has now. Raises `TunnelError`."""
        try:
            return self._take_note(lambda: self._session.acknowledge(taken.expected))
        except ChannelError:
            raise TunnelError("an acknowledgement of what was not sent") from None

    def receive(self, frame: NumberedPiece, handle: Callable[[Any], None]) -> None:
        """`handle` gets the message, if this completes one that is new. It counts as taken after
        that: if it makes no sense, the other end may send another one in its place. Raises
        `TunnelError`."""
        self._owes = True
        if frame.number < self._session.expected:
            return
        if frame.number > self._session.expected:
            raise TunnelError("a number that does not follow")
        if self._parts_bytes + len(frame.piece) > MESSAGE_BYTES_MAX:
            raise TunnelError("a message that is too large")
        if frame.more:
            if not frame.piece:
                raise TunnelError("a frame that makes no sense")
            self._parts.append(frame.piece)
            self._parts_bytes += len(frame.piece)
        else:
            handle(self._read(b"".join((*self._parts, frame.piece))))
            self._parts, self._parts_bytes = [], 0
        self._session.receive(frame.number)

    def _read(self, body: bytes) -> Any:
        try:
            return self._decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise TunnelError("a message that makes no sense") from None

    def _take_note(self, act: Callable[[], object]) -> list[object]:
        before = self._session.first_kept
        act()
        taken = [self._owned.popleft() for _ in range(self._session.first_kept - before)]
        self._kept_bytes -= sum(owned.cost for owned in taken)
        return [owned.note for owned in taken if owned.note is not None]
