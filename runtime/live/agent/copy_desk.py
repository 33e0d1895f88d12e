"""Decides which hosts have copies of the journals of instances, and keeps as many copies as the
user wants (`docs/protocol.md` 9). It records each decision before it gives an order.

    first incarnation ── hosts are chosen, all copies are empty ──▶ recorded ──▶ Assign
    a holder is lost, drained, or away for long ── another one is added ──▶ recorded ──▶ CopyHolders
    its copy is complete ── CopyComplete ──▶ recorded ── the lost one is left out ──▶ CopyHolders
    the host of the instance is given up ── `fenced` ──▶ the next incarnation is elsewhere
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

import msgspec

from anabranch.protocol.copies import CopySet
from anabranch.runtime.hosts.holders import holders_for
from anabranch.runtime.live.agent.asked_holders import AskedHolders
from anabranch.runtime.live.agent.copy_keepers import CopyKeepers
from anabranch.runtime.live.agent.holder_hosts import HolderHosts
from anabranch.runtime.live.agent.journal_writer import RunJournalWriter
from anabranch.runtime.live.agent.messenger import Messenger
from anabranch.runtime.live.agent.roster import Member, Roster
from anabranch.runtime.live.agent.run_journal import copied
from anabranch.runtime.live.agent.starter import StartError, StartOrders
from anabranch.runtime.live.link.messages import Address, Assign, CopyComplete, CopyHolders
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.ports import clock

LOOK_S = 0.5
KEEPER_S = 30.0
"""Time that the first copy keepers have to become ready."""
LATE_S = 5.0
"""If a copy keeper is not ready after this time, other hosts are tried, too."""
AGAIN_S = 0.5


class CopyDesk:
    def __init__(
        self,
        pipeline: Pipeline,
        roster: Roster,
        journal: RunJournalWriter,
        messenger: Messenger,
        keepers: CopyKeepers,
        hosts: HolderHosts,
        asked: AskedHolders,
    ) -> None:
        self._pipeline = pipeline
        self._roster = roster
        self._journal = journal
        self._messenger = messenger
        self._keepers = keepers
        self._hosts = hosts
        self._asked = asked
        self._orders: StartOrders | None = None
        """None: this run makes no copies, whatever its pipeline says."""
        keepers.on_address = self._tell_address

    def _wanted(self, member: Member) -> int:
        return self._pipeline.copies_of(member.id.operator) if self._orders is not None else 0

    def begin(self, orders: StartOrders) -> None:
        """`orders` has the token of the run, with which it proves itself to copy keepers."""
        self._orders, self._keepers.orders = orders, orders
        if self._pipeline.has_copies:
            self._asked.begin(orders)

    async def keep_enough(self) -> None:
        """For as long as the run lasts."""
        while True:
            for member in self._roster.living():
                self._mend(member)
            await asyncio.sleep(LOOK_S)

    # -- the next incarnation of an instance ---------------------------------------------------

    async def fenced(self, member: Member) -> None:
        """Called before the instance gets a host. If its former host was given up, and it has not
        been ready since, wait until no earlier incarnation can act any more, and note the holder
        from which its journal comes. There is no time limit."""
        copies, member.fetch = member.copies, ""
        if copies is None:
            return
        is_given_up = self._hosts.is_given_up(member.host)
        has_moved = bool(member.address) and member.listens_on != member.host
        if not (is_given_up or has_moved or copies.given_up):
            return
        by_majority = self._hosts.is_by_majority(member.host) if is_given_up else None
        self._note(member, copies.giving_up(by_majority=by_majority))
        source = await self._source(member)
        member.fetch = self._keepers.address_of(source)
        if is_given_up:
            member.host = member.wanted_host = ""

    async def _source(self, member: Member) -> str:
        """Wait for a holder that refuses all incarnations before this one; returns its host."""
        while True:
            assert member.copies is not None
            holders = [h for h in sorted(member.copies.to_fence) if not self._hosts.is_given_up(h)]
            for host in holders:
                self._keepers.want(host)
            asked = [self._asked.fence(host, member) for host in holders]
            fenced = dict(zip(holders, await asyncio.gather(*asked), strict=True))
            readable = [host for host, is_readable in fenced.items() if is_readable]
            unreadable = [host for host, is_readable in fenced.items() if is_readable is False]
            sources = sorted(member.copies.sources(readable, unreadable))
            found = next((host for host in sources if self._keepers.address_of(host)), "")
            if found:
                member.lacks = ""
                return found
            member.lacks = f"waits for a copy of its journal on {' or '.join(holders)}"
            if member.copies.by_majority:
                member.lacks = (
                    f"waits for a majority of copies of its journal ({', '.join(holders)})"
                )
            await asyncio.sleep(AGAIN_S)

    async def settle(self, member: Member) -> None:
        """For an instance that has a host: choose the hosts of its copies, and return when the
        choice is recorded. Raises `StartError`."""
        wanted = self._wanted(member)
        if not wanted:
            return
        if member.copies is None:
            self._note(member, CopySet.begun(await self._first(member, wanted)))
            return
        copies = replace(member.copies, incarnation=member.incarnation - 1)
        there = copies.holders | copies.complete
        good = self._hosts.good(there, member.host)
        more = self._choice(member, wanted - len(good), there)
        for host in sorted({*there, *more}):
            self._keepers.want(host)
        self._note(member, copies.begins_next(more))

    async def _first(self, member: Member, wanted: int) -> list[str]:
        """The hosts of the first copies. A host whose copy keeper is not ready soon is replaced by
        another one. Raises `StartError`."""
        late: list[str] = []
        until = clock.monotonic() + KEEPER_S
        while True:
            chosen = self._choice(member, wanted, late)
            for host in chosen:
                self._keepers.want(host)
            if not chosen and not late:
                told = f"{member.text}: no other host can have a copy of its journal"
                raise StartError(told)
            await self._keepers.ready(chosen or late, LATE_S)
            ready = [host for host in (*chosen, *late) if self._keepers.address_of(host)][:wanted]
            late += [host for host in chosen if host not in ready]
            is_over = clock.monotonic() > until
            are_all = {*chosen} <= {*ready}
            if len(ready) == wanted or (ready and (is_over or are_all)):
                return ready
            if is_over:
                raise StartError(f"{member.text}: no copy keeper is ready on {', '.join(late)}")

    def _choice(self, member: Member, wanted: int, have: Collection[str]) -> list[str]:
        return holders_for(self._hosts.rooms(member.host), member.host, wanted, have)

    def assign(self, task: Assign, member: Member) -> Assign:
        """The task, with the holders of the instance's copies."""
        if (copies := member.copies) is None:
            return task
        return msgspec.structs.replace(
            task,
            copies=self._addresses(copies.holders),
            complete=sorted(copies.complete),
            order=copies.order,
            fetch=member.fetch,
        )

    # -- while it lives ------------------------------------------------------------------------

    def completed(self, member: Member, told: CopyComplete) -> None:
        copies = member.copies
        if copies is not None:
            member.copies = copies.completed(member.incarnation, told.order, told.host)
            if member.copies.complete != copies.complete:
                self._note(member, member.copies)
                self._mend(member)

    def _mend(self, member: Member) -> None:
        """One step towards as many complete copies as are wanted, on hosts that are good."""
        copies = member.copies
        if copies is None or copies.given_up or member.resuming or member.process is None:
            return
        if self._pipeline.give_up_after_s is not None and self._hosts.is_away(member.host):
            return  # it hears of nothing, and its holders may have to give it up
        wanted = self._wanted(member)
        good = self._hosts.good(copies.holders, member.host)
        if len(good) < wanted:
            for host in self._choice(member, wanted - len(good), copies.holders):
                self._keepers.want(host)
                if self._keepers.address_of(host):
                    self._order(member, copies.with_holder(host))
                    return
        enough = len(good & copies.complete) >= wanted
        for host in sorted(copies.holders - good):
            if (enough or self._hosts.is_lost(host)) and copies.complete & good:
                self._order(member, copies.without_holder(host))
                return
        if len(good & copies.complete) > wanted:
            self._order(member, copies.without_holder(max(good & copies.complete)))

    def _order(self, member: Member, copies: CopySet) -> None:
        before = member.copies
        self._note(member, copies)
        holders = self._addresses(copies.holders)
        if not copies.given_up:
            self._messenger.send(member.id, CopyHolders(order=copies.order, holders=holders))
        if before is not None:
            self._forget(member, before.holders - copies.holders)

    def _tell_address(self, host: str) -> None:
        """The copy keeper of this host has another address than the one before."""
        for member in self._roster.living():
            copies = member.copies
            if copies is None or host not in copies.holders or copies.given_up:
                continue
            self._order(member, copies.again())  # one that is not ready yet waits for it, too

    def lack_of(self, member: Member) -> str:
        """Which copies the instance lacks, in words; empty if it lacks none."""
        if member.copies is None or self._orders is None:
            return ""
        missing = self._wanted(member) - len(self._hosts.good(member.copies.complete, member.host))
        if member.lacks or missing <= 0:
            return member.lacks
        return f"lacks {missing} {'copy' if missing == 1 else 'copies'} of its journal"

    def relieve(self, host: str) -> None:
        """J9: instances that were there need no majority any more."""
        for member in self._roster.living():
            copies = member.copies
            if copies is None or not (copies.given_up and copies.by_majority):
                continue
            if host in (member.host, member.listens_on):
                self._note(member, copies.giving_up(by_majority=False))

    def strike(self, host: str) -> None:
        """It was given up, and what it has is lost, even if that is the only complete copy: then
        nothing leaves the instance until there is another one."""
        for member in self._roster.living():
            copies = member.copies
            if copies is not None and host in copies.holders | copies.complete:
                self._order(member, copies.struck(host))

    def see_off(self, member: Member) -> None:
        """It has ended: nothing reads its journal any more."""
        if member.copies is not None:
            self._forget(member, member.copies.holders)

    def _forget(self, member: Member, holders: Collection[str]) -> None:
        for host in sorted(holders):
            self._asked.forget(host, member)

    def _addresses(self, holders: Collection[str]) -> list[tuple[str, Address]]:
        return [(host, self._keepers.address_of(host)) for host in sorted(holders)]

    def _note(self, member: Member, copies: CopySet) -> None:
        member.copies = copies
        self._journal.log(copied(member.id, copies))
