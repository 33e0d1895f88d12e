"""The assignment that a new incarnation of a member gets, and its record in the journal."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from pathlib import Path

from anabranch.runtime.live.agent.attendants import Attendants
from anabranch.runtime.live.agent.boards import Boards
from anabranch.runtime.live.agent.copy_desk import CopyDesk
from anabranch.runtime.live.agent.host_sites import HostSites, SitePlace
from anabranch.runtime.live.agent.journal_writer import RunJournalWriter
from anabranch.runtime.live.agent.messenger import Messenger
from anabranch.runtime.live.agent.moves import Moves
from anabranch.runtime.live.agent.roster import Member
from anabranch.runtime.live.agent.run_files import RunFiles
from anabranch.runtime.live.agent.run_hosts import RunHosts
from anabranch.runtime.live.agent.run_journal import Begun, Listens
from anabranch.runtime.live.agent.starter import StartError, StartOrders
from anabranch.runtime.live.agent.state_dir import ENDS
from anabranch.runtime.live.commit.recovery import base_bytes
from anabranch.runtime.live.link.messages import Assign, EndInput, Pin
from anabranch.runtime.reporting.status import id_to_wire

BASE_BYTES_PER_S = 2**18
"""An instance that begins from a savepoint may take longer for what it has to read; on an idle core
it reads forty times as much."""


class Assignments:
    """`orders` are there when the clock of the run begins. `pinned`: see `Pins`."""

    def __init__(
        self,
        services: Attendants,
        files: RunFiles,
        journal: RunJournalWriter,
        boards: Boards,
        messenger: Messenger,
        pinned: Container[str],
        hosts: RunHosts,
        sites: HostSites,
        moves: Moves,
        copies: CopyDesk,
    ) -> None:
        self.orders: StartOrders
        self._hosts = hosts
        self._sites = sites
        self._moves = moves
        self._copies = copies
        self._services = services
        self._files = files
        self._journal = journal
        self._boards = boards
        self._messenger = messenger
        self._pinned = pinned

    async def note(self, member: Member) -> None:
        """Return when it is written that its present incarnation begins, and where. Raises
        `StartError` if there is no host for it."""
        await self._copies.fenced(member)
        try:
            self._hosts.settle(member)
            await self._copies.settle(member)
        except StartError as error:
            error.waited = bool(member.fetch)  # for another host, however long
            raise
        begun = Begun(
            id=id_to_wire(member.id),
            incarnation=member.incarnation,
            bootstrap=member.bootstrap,
            host=member.host,
        )
        self._journal.log(begun)
        await self._journal.caught_up()

    def of(self, member: Member) -> Assign:
        """For its present incarnation, on a host where a process can be made."""
        address = self._services.address_for(member.id.operator)
        there = self._sites.elsewhere(member.host)
        moved = self._moves.known_to(member)
        if there is None:
            task = self.orders.assign(member, address, self._journal_of(member), moved)
        else:
            journal = self._files.on(there.place.state_dir).journal_of(*_key(member))
            task = self._orders_at(there.place).assign(member, address, journal, moved)
        return self._copies.assign(task, member)

    def _orders_at(self, place: SitePlace) -> StartOrders:
        return replace(
            self.orders,
            run_dir=place.run_dir,
            state_dir=place.state_dir / ENDS,
            transport="tcp",
            host=place.listen,
            tls=place.tls,
            ahead_s=place.ahead_s,
        )

    def more_s(self, member: Member) -> float:
        """How much longer than others it may take to be ready."""
        if self._sites.elsewhere(member.host) is not None:
            return 0.0  # it has not begun from a savepoint
        return base_bytes(self._journal_of(member)) / BASE_BYTES_PER_S

    def _journal_of(self, member: Member) -> Path:
        return self._files.journal_of(*_key(member))

    def accepted(self, member: Member, address: str) -> None:
        """It is ready, and listens there."""
        is_elsewhere = member.listens_at(address)
        wire, host = id_to_wire(member.id), member.host
        self._journal.log(Listens(id=wire, address=address, host=host, moved=member.moved))
        if is_elsewhere:
            self._moves.tell(member)
        if self._boards.has_ended_early(member.id.operator):
            self._messenger.send(member.id, EndInput())
        if member.id.operator in self._pinned:
            self._messenger.send(member.id, Pin(holds=True))


def _key(member: Member) -> tuple[str, int]:
    return member.id.operator, member.id.number
