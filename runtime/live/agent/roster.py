"""The members of the run: ids given out, instances by operator, their states.

The agent is no master: it only makes processes and must record which it has made. Nothing here
decides which instances are neighbours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from anabranch.protocol.copies import CopySet
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.live.agent.deaths import Deaths
from anabranch.runtime.live.agent.run_journal import (
    Active,
    Keeper,
    LetGo,
    Made,
    Over,
    RunRecord,
    Told,
)
from anabranch.runtime.live.link.messages import Bootstrap, Failed, LeaveAnswer
from anabranch.runtime.live.process.process import Process
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.policies.bounds import leaves, places
from anabranch.runtime.reporting.status import id_to_wire
from anabranch.runtime.values.kinds import Ending


class Phase(Enum):
    STARTING = auto()
    """Has an id, is not ready yet; no other instance has it in its view."""
    LISTENING = auto()
    """Ready, and its creator has its address; waits for its START."""
    ACTIVE = auto()
    GONE = auto()
    """Ended by the protocol, with an account of its tuples."""
    DISCARDED = auto()
    """Never took part; its id is not used again."""


LIVING = frozenset({Phase.STARTING, Phase.LISTENING, Phase.ACTIVE})
KNOWN = frozenset({Phase.LISTENING, Phase.ACTIVE})
"""Others may have it in their views, and wait for it: it must not simply be gone."""


@dataclass(slots=True)
class Member:
    """An instance as the agent has it. `process` is None until one was found for it.

    Processes may die: each one is an **incarnation** of the member, which stays the same.
    """

    id: InstanceId
    founder: bool
    phase: Phase = Phase.STARTING
    process: Process | None = None
    incarnation: int = 1
    resuming: bool = False
    """Between two incarnations: its process has ended, and the next one is not ready yet."""
    deaths: Deaths = field(default_factory=Deaths)
    begun_s: float = 0.0
    """When its present incarnation began."""
    heard_s: float = 0.0
    """When its process last sent something."""
    doubt: Ending | None = None
    """Why the agent itself has ended its process."""
    address: str = ""
    listens_on: str = ""
    """The host of that address."""
    moved: int = 0
    """In which incarnation it came there from another host; 0: it has always been there."""
    copies: CopySet | None = None
    """Of its journal, on other hosts; None: there are none."""
    fetch: str = ""
    """The copy keeper from which its present incarnation gets its journal; empty: it has it."""
    lacks: str = ""
    """What its next incarnation waits for."""
    host: str = ""
    """On which it is; empty: the run has one host, or it has none yet."""
    wanted_host: str = ""
    """On which it is to be; empty: on any."""
    bootstrap: Bootstrap | None = None
    """None for newcomers: they get it from their creators."""
    keeper: bool = False
    heritage: dict[str, float] = field(default_factory=dict)
    """What its creator's policy passes on to it."""
    leaving: bool = False
    """It may leave, and its siblings are counted without it."""
    relocates: bool = False
    """A newcomer is to take its place, which is counted for both."""
    newcomer: InstanceId | None = None
    """Which that is, as soon as it has an id."""
    finished: bool = False
    """It has ended because its input did, and not before."""
    told_to_leave: bool = False
    """By the script; it may still refuse."""
    failed: Failed | None = None
    """Its own explanation, if it gave one before it ended."""
    goodbye: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """Done when it has sent its final count."""

    @property
    def has_begun(self) -> bool:
        """It has, or had, a process, and so a journal on its host."""
        return self.process is not None or self.incarnation > 1

    def listens_at(self, address: str) -> bool:
        """Its present incarnation does. Whether others have to learn that it has moved."""
        has_moved = bool(self.address) and self.listens_on != self.host
        if has_moved:
            self.moved = self.incarnation
        self.address, self.listens_on = address, self.host
        return has_moved

    @property
    def operator(self) -> str:
        return self.id.operator

    @property
    def text(self) -> str:
        return str(self.id)

    @property
    def who(self) -> str:
        return f"operator {self.id.operator!r}: instance {self.text}"


class Roster:
    """`log` gets a record of every change."""

    def __init__(self, pipeline: Pipeline, log: Callable[[RunRecord], None]) -> None:
        self._operators = pipeline.operators
        self._log = log
        self.next_number = dict.fromkeys(pipeline.operators, 0)
        self._members: dict[InstanceId, Member] = {}
        """Those that live."""
        self.ending: dict[InstanceId, Member] = {}
        """They have ended, and their processes have not: neighbours may still read from them."""
        self._living: dict[str, list[Member]] = {name: [] for name in pipeline.operators}
        self.peaks = dict.fromkeys(pipeline.operators, 0)
        self.ever = dict.fromkeys(pipeline.operators, 0)
        """Instances that took part at some time."""

    def found(self, operator: Operator) -> list[Member]:
        """The instances with which the operator begins; number 0 is the keeper."""
        ids = [self._new_id(operator.name, -1) for _ in range(operator.instances_at_start)]
        members = [self._add(i, True, {}) for i in ids]
        self._set_keeper(members[0], True)
        return members

    def restore(self, instance: InstanceId, founder: bool) -> Member:
        """A member of the run that is resumed."""
        name = instance.operator
        self.next_number[name] = max(self.next_number[name], instance.number + 1)
        return self._add(instance, founder, {})

    def reserve(
        self, creator: InstanceId, n: int, heritage: dict[str, float]
    ) -> tuple[list[Member], str]:
        """Up to `n` new members of the creator's operator, and why there are not all."""
        operator = self._operators[creator.operator]
        if not operator.can_scale:
            return [], f"operator {operator.name!r} cannot have several instances"
        living = sum(not self._is_counted_twice(m) for m in self.living(operator.name))
        granted, reason = places(n, living, operator.name, operator.scale)
        ids = [self._new_id(operator.name, creator.number) for _ in range(granted)]
        return [self._add(i, False, heritage) for i in ids], reason

    def may_leave(self, member: Member) -> LeaveAnswer:
        """Whether enough of its siblings stay, those that may leave already left out."""
        operator = self._operators[member.id.operator]
        active = self.active(operator.name)
        staying = sum(other is not member and not other.leaving for other in active)
        granted, reason = leaves(staying, operator.name, operator.scale)
        self.let_go(member, granted)
        return LeaveAnswer(granted=granted, reason=reason)

    def relocate(self, member: Member, goes: bool) -> None:
        """It asks for a newcomer in its place, and goes when that has begun; or it stays. While
        both are there, neither bound counts it."""
        member.relocates, member.newcomer = goes, None
        self.let_go(member, goes)

    def _is_counted_twice(self, member: Member) -> bool:
        """Not if the newcomer has ended before it began, which `member` may not have received
        yet."""
        newcomer = member.newcomer
        return member.relocates and (newcomer is None or newcomer in self._members)

    def let_go(self, member: Member, leaving: bool) -> None:
        if member.leaving is not leaving:
            member.leaving = leaving
            self._log(LetGo(id=id_to_wire(member.id), leaving=leaving))

    def get(self, instance: InstanceId) -> Member | None:
        """None if it does not live (any more)."""
        return self._members.get(instance)

    def has_ended(self, instance: InstanceId) -> bool:
        """Whether there was such a member, and is not any more. Ids are never used again."""
        number = self.next_number.get(instance.operator, 0)
        return instance.number < number and instance not in self._members

    def ended(self, operator: OperatorName) -> list[int]:
        """Numbers of its instances that have ended."""
        living = {member.id.number for member in self.living(operator)}
        return [n for n in range(self.next_number[operator]) if n not in living]

    def living(self, operator: str | None = None) -> list[Member]:
        names = self._living if operator is None else (operator,)
        return [member for name in names for member in self._living[name]]

    def active(self, operator: str) -> list[Member]:
        """Empty for the name of no operator."""
        return [m for m in self._living.get(operator, ()) if m.phase is Phase.ACTIVE]

    def unaccounted(self) -> list[Member]:
        """Those that took part, or could have, and have not reported what became of their
        tuples."""
        return [m for m in self.living() if m.phase in KNOWN]

    def listening_children(self, creator: InstanceId) -> list[Member]:
        """Those whose address their creator has and that have not been started."""
        own = (m for m in self.living(creator.operator) if m.id.creator == creator.number)
        return [m for m in own if m.phase is Phase.LISTENING and not m.founder]

    def listen(self, member: Member) -> None:
        """It is ready, and its creator is about to get its address."""
        member.phase = Phase.LISTENING
        self._log(Told(id=id_to_wire(member.id)))

    def activate(self, member: Member) -> bool:
        """Whether the phase has changed."""
        if member.phase not in (Phase.STARTING, Phase.LISTENING):
            return False
        member.phase = Phase.ACTIVE
        self._log(Active(id=id_to_wire(member.id)))
        name = member.id.operator
        self.ever[name] += 1
        self.peaks[name] = max(self.peaks[name], len(self.active(name)))
        return True

    def end(self, member: Member, phase: Phase) -> bool:
        """Whether the phase has changed. `phase`: GONE or DISCARDED."""
        if member.phase not in LIVING:
            return False
        member.phase = phase
        self._log(Over(id=id_to_wire(member.id), discarded=phase is Phase.DISCARDED))
        self._living[member.id.operator].remove(member)
        del self._members[member.id]
        if member.process is not None:
            self.ending[member.id] = member
        return True

    def set_keeper(self, member: Member) -> None:
        """`member` reports that it is the keeper now; its predecessor in the role is not."""
        for other in self._living[member.id.operator]:
            if other.keeper is not (other is member):
                self._set_keeper(other, other is member)

    def unset_keeper(self, member: Member) -> None:
        self._set_keeper(member, False)

    def _set_keeper(self, member: Member, keeper: bool) -> None:
        member.keeper = keeper
        self._log(Keeper(id=id_to_wire(member.id), keeper=keeper))

    def _new_id(self, operator: OperatorName, creator: int) -> InstanceId:
        number = self.next_number[operator]
        self.next_number[operator] = number + 1
        return InstanceId(operator, number, creator)

    def _add(self, instance: InstanceId, founder: bool, heritage: dict[str, float]) -> Member:
        member = Member(instance, founder, heritage=heritage)
        self._members[instance] = member
        self._living[instance.operator].append(member)
        self._log(Made(id=id_to_wire(instance), founder=founder, heritage=heritage))
        return member
