"""What the agent needs when the whole run is resumed, in one file: `agent.journal`.

A log of records (`runtime.storage.record_log`), each a MessagePack map. What was written survives
the death of the agent; with `power` the records that others act upon are on the disk before they
do. Now and then the file is replaced by a shorter edition with the same content.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from anabranch.protocol.copies import CopySet
from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.link.messages import Bootstrap
from anabranch.runtime.plan.ends import Split
from anabranch.runtime.reporting.ledger import SummedFinals
from anabranch.runtime.reporting.report import Event, SampleRow
from anabranch.runtime.reporting.status import FinalCount, WireId, id_to_wire
from anabranch.runtime.storage.record_log import RecordLog, read_log
from anabranch.runtime.values.texts import printable


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Something that happened, in the order in which it did."""


class Made(RunRecord, frozen=True, kw_only=True, tag="made"):
    """A member has an id."""

    id: WireId
    founder: bool
    heritage: dict[str, float] = {}


class Begun(RunRecord, frozen=True, kw_only=True, tag="begun"):
    """A process is about to become this incarnation of a member."""

    id: WireId
    incarnation: int
    bootstrap: Bootstrap | None
    host: str = ""


class Listens(RunRecord, frozen=True, kw_only=True, tag="listens"):
    """It is ready. From now on others may have the address. `host`: where that is; `moved`: in
    which incarnation it came there from another host, 0 if never."""

    id: WireId
    address: str
    host: str = ""
    moved: int = 0


class CopiesKnown(RunRecord, frozen=True, kw_only=True, tag="copies"):
    """What is known of the copies of its journal: a whole `CopySet`."""

    id: WireId
    incarnation: int
    order: int
    holders: list[str]
    complete: list[str]
    added: list[tuple[str, int]]
    given_up: bool = False
    removed: list[tuple[str, int]] = []
    by_majority: bool = False

    @property
    def copies(self) -> CopySet:
        return CopySet(
            self.incarnation,
            self.order,
            frozenset(self.holders),
            frozenset(self.complete),
            tuple(self.added),
            self.given_up,
            tuple(self.removed),
            self.by_majority,
        )


def copied(instance: InstanceId, copies: CopySet) -> CopiesKnown:
    return CopiesKnown(
        id=id_to_wire(instance),
        incarnation=copies.incarnation,
        order=copies.order,
        holders=sorted(copies.holders),
        complete=sorted(copies.complete),
        added=[*copies.added],
        given_up=copies.given_up,
        removed=[*copies.removed],
        by_majority=copies.by_majority,
    )


BY_USER, BY_MAJORITY = "user", "majority"
"""Who has given up a host: a user, by a command, or most of the hosts with copies."""


class GivenUp(RunRecord, frozen=True, kw_only=True, tag="given_up"):
    """The run goes on without this host; or it is back, and nothing of the run is there."""

    host: str
    by: str = BY_USER
    is_back: bool = False


class Told(RunRecord, frozen=True, kw_only=True, tag="told"):
    """Its creator is about to get its address."""

    id: WireId


class Active(RunRecord, frozen=True, kw_only=True, tag="active"):
    id: WireId


class Over(RunRecord, frozen=True, kw_only=True, tag="over"):
    """It has ended, or never took part (`discarded`)."""

    id: WireId
    discarded: bool


class Keeper(RunRecord, frozen=True, kw_only=True, tag="keeper"):
    id: WireId
    keeper: bool


class LetGo(RunRecord, frozen=True, kw_only=True, tag="let_go"):
    """It may leave; or it was let go, and stays after all."""

    id: WireId
    leaving: bool


class MemberDied(RunRecord, frozen=True, kw_only=True, tag="died"):
    id: WireId


class Final(RunRecord, frozen=True, kw_only=True, tag="final"):
    count: FinalCount


class FinalSum(RunRecord, frozen=True, kw_only=True, tag="final_sum"):
    """In a shortened file: of instances that ended so long ago that their accounts are summed."""

    summed: SummedFinals


class Claimed(RunRecord, frozen=True, kw_only=True, tag="claimed"):
    id: WireId
    split: Split
    number: int


class Released(RunRecord, frozen=True, kw_only=True, tag="released"):
    """`progress`: of the whole claim."""

    id: WireId
    remainder: Split | None
    progress: float
    number: int


class EndedEarly(RunRecord, frozen=True, kw_only=True, tag="ended_early"):
    """The input of a source was ended early. `by`: what has ended it."""

    operator: str
    by: str = ""


class AllRead(RunRecord, frozen=True, kw_only=True, tag="all_read"):
    """An instance of a source is about to learn that no part of the input is left, and that no
    other instance holds one. All releases before it have to be recorded then: what has learnt that
    its input has ended releases nothing again."""

    operator: str


class Founded(RunRecord, frozen=True, kw_only=True, tag="founded"):
    """Every founder is ready: from here on the run can be resumed."""


class Passed(RunRecord, frozen=True, kw_only=True, tag="passed"):
    """How long the run has lasted."""

    seconds: float


class Happened(RunRecord, frozen=True, kw_only=True, tag="happened"):
    """For the report of the whole run."""

    event: Event


class Sampled(RunRecord, frozen=True, kw_only=True, tag="sampled"):
    """The same: what the operators did at `t` seconds of the run."""

    t: float
    rows: dict[str, SampleRow]


class Reported(RunRecord, frozen=True, kw_only=True, tag="reported"):
    """In a shortened file: what else the report has of the run so far. `resumed`: how often it was
    resumed."""

    resumed: int
    events_dropped: int
    sample_period_s: float


class PlanNoted(RunRecord, frozen=True, kw_only=True, tag="planned"):
    """A controller has a new plan; `left`: what it leaves to another incarnation of it."""

    controller: str
    left: dict[str, float]


class Pinned(RunRecord, frozen=True, kw_only=True, tag="pinned"):
    """A user has set how many instances the operator has; None: its policy decides again."""

    operator: str
    instances: int | None


class Counters(RunRecord, frozen=True, kw_only=True, tag="counters"):
    """In a shortened file: what is left of the members of an operator that have ended."""

    operator: str
    next_number: int
    peak: int
    ever: int
    joins: int
    deaths: int


class BoardSnapshot(RunRecord, frozen=True, kw_only=True, tag="board"):
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


AnyRecord = (
    Made
    | Begun
    | Listens
    | CopiesKnown
    | GivenUp
    | Told
    | Active
    | Over
    | Keeper
    | LetGo
    | MemberDied
    | Final
    | FinalSum
    | Claimed
    | Released
    | EndedEarly
    | AllRead
    | Founded
    | Passed
    | Happened
    | Sampled
    | Reported
    | PlanNoted
    | Pinned
    | Counters
    | BoardSnapshot
)
SYNCED = (
    *(Begun, Listens, CopiesKnown, GivenUp, Told, LetGo, Claimed, Final, EndedEarly, AllRead),
    *(Founded, Pinned),
)
"""Instances act upon these as soon as they get them."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(AnyRecord).decode


class RunJournal:
    """The end that writes."""

    def __init__(self, path: Path, *, power: bool = False) -> None:
        self.path = path
        self._power = power
        self._log = RecordLog(path, power=power)

    @property
    def is_long(self) -> bool:
        return self._log.is_long

    def append(self, record: RunRecord) -> None:
        """Raises `OSError` if the disk refuses; then the record does not count, and the same one
        may be tried again. Raises `CannotSync` if it is unknown what is on the disk now."""
        self._log.append(_packed(record), sync=self._power and isinstance(record, SYNCED))

    def replace(self, records: Iterable[RunRecord]) -> None:
        """Replace the records by fewer with the same content; later, if the disk has no room for
        them now."""
        self._log.replace(map(_packed, records))

    def close(self) -> None:
        self._log.close()


def read_records(path: Path, *, power: bool = False) -> list[Any]:
    """In their order, up to what was not whole at the end. Raises `LogDamaged`."""
    return [_decode(payload) for payload in read_log(path, name=path.name, power=power)]


def _packed(record: RunRecord) -> bytes:
    try:
        return _encode(record)
    except UnicodeEncodeError:  # in what was reported of an error
        return _encode(printable(record))
