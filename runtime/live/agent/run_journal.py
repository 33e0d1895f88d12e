"""What the agent must know when the whole run is resumed, in one file: `agent.journal`.

An append-only row of records, each written with one system call and checked when read. What was
written survives the death of the agent; with `power` the records that others act upon are on the
disk before they do. Now and then the file is replaced by a shorter edition that says the same. How
long it was at least is told by its extent (`anabranch.runtime.live.journal.extent`).

    length of the body (4 bytes) · CRC-32 of the body (4) · body (MessagePack)
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from anabranch.runtime.live.journal.extent import Extent, ExtentError, ExtentFile, read_extent
from anabranch.runtime.live.link.messages import Genesis
from anabranch.runtime.plan.ends import Split
from anabranch.runtime.reporting.ledger import SummedFinals
from anabranch.runtime.reporting.report import Event, SampleRow
from anabranch.runtime.reporting.status import FinalCount, WireId
from anabranch.runtime.storage.shared_file import write_whole
from anabranch.runtime.storage.sidecar import sync_folder
from anabranch.runtime.values.texts import printable

_HEAD = struct.Struct(">II")
SHORTEN_BYTES_MIN = 4 * 2**20
SHORTEN_GROWTH = 4
"""The file is shortened when it is this many times as long as after the last time."""


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Something that happened, in the order in which it did."""


class Made(Record, frozen=True, kw_only=True, tag="made"):
    """A member has an id."""

    id: WireId
    founder: bool
    heritage: dict[str, float] = {}


class Begun(Record, frozen=True, kw_only=True, tag="begun"):
    """A process is about to be told that it is this incarnation of a member."""

    id: WireId
    incarnation: int
    bootstrap: Genesis | None


class Listens(Record, frozen=True, kw_only=True, tag="listens"):
    """It is ready. From now on others may know the address."""

    id: WireId
    address: str


class Told(Record, frozen=True, kw_only=True, tag="told"):
    """Its creator is about to hear of it."""

    id: WireId


class Active(Record, frozen=True, kw_only=True, tag="active"):
    id: WireId


class Over(Record, frozen=True, kw_only=True, tag="over"):
    """It has ended, or never took part (`discarded`)."""

    id: WireId
    discarded: bool


class Keeper(Record, frozen=True, kw_only=True, tag="keeper"):
    id: WireId
    keeper: bool


class LetGo(Record, frozen=True, kw_only=True, tag="let_go"):
    """It may leave; or it was let go, and stays after all."""

    id: WireId
    leaving: bool


class Died(Record, frozen=True, kw_only=True, tag="died"):
    id: WireId


class Final(Record, frozen=True, kw_only=True, tag="final"):
    count: FinalCount


class FinalSum(Record, frozen=True, kw_only=True, tag="final_sum"):
    """In a shortened file: of instances that ended so long ago that their accounts are summed."""

    summed: SummedFinals


class Claimed(Record, frozen=True, kw_only=True, tag="claimed"):
    id: WireId
    split: Split
    number: int


class Released(Record, frozen=True, kw_only=True, tag="released"):
    """`progress`: of the whole claim."""

    id: WireId
    remainder: Split | None
    progress: float
    number: int


class EndedEarly(Record, frozen=True, kw_only=True, tag="ended_early"):
    """A source was told to act as if its input had ended. `by`: what has cut it short."""

    operator: str
    by: str = ""


class Founded(Record, frozen=True, kw_only=True, tag="founded"):
    """Every founder is ready: from here on the run can be resumed."""


class Passed(Record, frozen=True, kw_only=True, tag="passed"):
    """How long the run has lasted."""

    seconds: float


class Happened(Record, frozen=True, kw_only=True, tag="happened"):
    """For the report of the whole run."""

    event: Event


class Sampled(Record, frozen=True, kw_only=True, tag="sampled"):
    """The same: what the operators did at `t` seconds of the run."""

    t: float
    rows: dict[str, SampleRow]


class Reported(Record, frozen=True, kw_only=True, tag="reported"):
    """In a shortened file: what else the report has of the run so far. `resumed`: how often it was
    resumed."""

    resumed: int
    events_dropped: int
    sample_period_s: float


class Planned(Record, frozen=True, kw_only=True, tag="planned"):
    """A controller has a new plan; `left`: what it leaves to another incarnation of it."""

    controller: str
    left: dict[str, float]


class Counters(Record, frozen=True, kw_only=True, tag="counters"):
    """In a shortened file: what is left of the members of an operator that have ended."""

    operator: str
    next_number: int
    peak: int
    ever: int
    joins: int
    deaths: int


class BoardSnapshot(Record, frozen=True, kw_only=True, tag="board"):
    """In a shortened file: the board of a source."""

    operator: str
    pulled: int
    digest: int
    """Of the splits that were pulled: whether the input still is what it was."""
    returned: list[Split]
    unread: list[Split] = []
    held: list[tuple[WireId, Split, int, float]]
    claims: int
    progress: float
    ended_early: bool
    cut_by: str = ""


class Edition(Record, frozen=True, kw_only=True, tag="edition"):
    """How often the file has been replaced: its first record, if ever."""

    number: int


AnyRecord = (
    Made
    | Begun
    | Listens
    | Told
    | Active
    | Over
    | Keeper
    | LetGo
    | Died
    | Final
    | FinalSum
    | Claimed
    | Released
    | EndedEarly
    | Founded
    | Passed
    | Happened
    | Sampled
    | Reported
    | Planned
    | Counters
    | BoardSnapshot
    | Edition
)
SYNCED = (Begun, Listens, Told, LetGo, Claimed, Final, EndedEarly, Founded)
"""Whoever hears of these acts upon them."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(AnyRecord).decode


_TAG = _encode("kind")
"""Every body begins with it, behind the head of the map: by it records are found again behind a
damaged one."""


class CannotSync(Exception):
    """The disk takes records and does not keep them."""


class Damaged(Exception):
    """Records that have been acted upon cannot be read. The message says from which byte on."""


class RunJournal:
    """The end that writes. Cuts off what is left of a record that was not written whole."""

    def __init__(self, path: Path, *, power: bool = False) -> None:
        self.path = path
        self._power = power
        # First, for a death between the two may leave an extent without a journal, not the reverse.
        self._extent = ExtentFile(path)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        bodies = _bodies(path.read_bytes())
        whole = _size(bodies)
        os.ftruncate(self._fd, whole)
        self._edition = _edition(bodies)
        if power:
            sync_folder(self._extent.folder)
            sync_folder(path.parent)
        self._size = self._shortest = whole
        self._is_torn = False
        """Whether half a record may lie at the end."""

    @property
    def is_long(self) -> bool:
        return self._size > max(SHORTEN_BYTES_MIN, SHORTEN_GROWTH * self._shortest)

    def append(self, record: Record) -> None:
        """Raises `OSError` if the disk refuses; then the record does not count, and the same one
        may be tried again. Raises `CannotSync` if nobody knows what is on the disk now."""
        data = _framed(record)
        if self._is_torn:
            os.ftruncate(self._fd, self._size)
        self._is_torn = True
        write_whole(self._fd, data)
        if not self._power:
            self._extent.note(self._edition, self._size + len(data))
        self._is_torn = False
        self._size += len(data)
        if self._power and isinstance(record, SYNCED):
            try:
                os.fdatasync(self._fd)
                self._extent.note(self._edition, self._size)
            except OSError as error:
                raise CannotSync(f"what is on the disk now is unknown: {error.strerror}") from error

    def replace(self, records: Iterable[Record]) -> None:
        """Say the same in fewer words; later, if the disk has no room for them now."""
        aside = self.path.with_name(f"{self.path.name}.new")
        edition = self._edition + 1
        data = b"".join(map(_framed, [Edition(number=edition), *records]))
        try:
            fd = _written(aside, data)
        except OSError:
            aside.unlink(missing_ok=True)
            self._shortest = self._size
            return
        os.rename(aside, self.path)
        if self._power:
            try:
                sync_folder(self.path.parent)
            except OSError as error:
                raise CannotSync(f"what is on the disk now is unknown: {error.strerror}") from error
        os.close(self._fd)
        self._fd, self._size, self._shortest = fd, len(data), len(data)
        self._edition, self._is_torn = edition, False
        self._extent.note(edition, len(data))

    def close(self) -> None:
        os.close(self._fd)
        self._extent.close()


def read_records(path: Path, *, power: bool = False) -> list[Any]:
    """In their order. What is not whole at the end was never acted upon; raises `Damaged` if it is
    not the end, or not what a death leaves there: a beginning (a loss of power: anything), or if
    the last records are gone."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    bodies = _bodies(data)
    at = _size(bodies)
    if not _may_be_torn(data, at, power):
        raise Damaged(f"{path.name} is damaged at byte {at:,}")
    _check_extent(path, Extent(_edition(bodies), at), power)
    return [record for body in bodies if not isinstance(record := _decode(body), Edition)]


def _check_extent(path: Path, found: Extent, power: bool) -> None:
    """Raises `Damaged` if the journal was longer than it is."""
    try:
        least = read_extent(path, power=power)
    except ExtentError as error:
        raise Damaged(f"{path.name}: {error}") from None
    if found < least:
        what = f"{least.size:,} bytes long" if found.part == least.part else "another edition"
        raise Damaged(
            f"{path.name} has lost its last records: it has {found.size:,} bytes, was {what}"
        )


def _size(bodies: list[bytes]) -> int:
    return sum(_HEAD.size + len(body) for body in bodies)


def _edition(bodies: list[bytes]) -> int:
    first = _decode(bodies[0]) if bodies else None
    return first.number if isinstance(first, Edition) else 0


def _bodies(data: bytes) -> list[bytes]:
    found, at = [], 0
    while (body := _body(data, at)) is not None:
        found.append(body)
        at += _HEAD.size + len(body)
    return found


def _body(data: bytes, at: int) -> bytes | None:
    """Of the record that begins at `at`; None if that is not whole. None is empty: zeros, which a
    loss of power may leave, are no record."""
    if at + _HEAD.size > len(data):
        return None
    length, crc = _HEAD.unpack_from(data, at)
    body = data[at + _HEAD.size : at + _HEAD.size + length]
    return body if length and len(body) == length and zlib.crc32(body) == crc else None


def _may_be_torn(data: bytes, at: int, power: bool) -> bool:
    """Whether what begins at `at`, and is no whole record, was never acted upon. With `power` that
    is so unless a record stands behind it that was synced before the next one was written."""
    if at + _HEAD.size > len(data):
        return True
    (length, _) = _HEAD.unpack_from(data, at)
    if not power and at + _HEAD.size + length <= len(data):
        return False
    tag = data.find(_TAG, at + 1)
    while tag >= 0:
        start = tag - _HEAD.size - 1
        body = _body(data, start) if start > at else None
        if body is not None:
            is_last = start + _HEAD.size + len(body) == len(data)
            if not power or (not is_last and isinstance(_decode(body), SYNCED)):
                return False
        tag = data.find(_TAG, tag + 1)
    return True


def _framed(record: Record) -> bytes:
    try:
        body = _encode(record)
    except UnicodeEncodeError:  # in what was told of an error
        body = _encode(printable(record))
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def _written(path: Path, data: bytes) -> int:
    """A file that is on the disk, still open."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        write_whole(fd, data)
        os.fsync(fd)
    except OSError:
        os.close(fd)
        raise
    return fd
