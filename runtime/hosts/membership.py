"""How hosts find out which of them are live, without a server: gossip in the manner of SWIM.

Once per period each host probes another one, in an order that is shuffled anew after each round.
If the tables of the two differ, they exchange the rows that differ, so that news reach n hosts in
about log2(n) periods, and hosts that were cut off agree again soon after they meet.

    ALIVE ──no answer to this host, nor to three that it asks──▶ SUSPECTED ──10 s──▶ DEAD
      ▲                                                              │                 │
      ╰──────── the host gets that, and takes a higher incarnation ─┴─────────────────╯
    ALIVE ──says so──▶ LEFT

- A statement on a host counts for one of its incarnations. Only the host itself begins another one,
  so a host that lives takes back whatever others state of it, however late that comes.
- A suspicion needs a witness: one of the hosts that were asked could not reach it either. If none
  of these answers, it takes `TRIALS_ALONE` trials. A host that was held up itself, so that its
  timers came late, gives the others as much time again.
- Hosts that are dead, and seeds that are not known to live, are tried now and then: so the halves
  of a network that was cut find each other.
- A name belongs to the host that has it and lives. Another one with that name is refused. If both
  had it before they met, that of the higher incarnation keeps it, and the other one stays out
  until the name is free.
- With certificates each host speaks as the one that it is, and of others it states only what keeps
  them able to object (`hearsay`): a false word costs them another incarnation, and no more.
- What a host sends is bounded in bytes per second (`budget`), in the size of frames, and the table
  in its rows.

Pure: events in, effects out (`effects`); time is an argument, chance is given.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

import msgspec

from anabranch.runtime.hosts.budget import Budget
from anabranch.runtime.hosts.effects import (
    Changed,
    Dial,
    DrainWanted,
    Effect,
    Event,
    FrameCame,
    HangUp,
    Joined,
    KeepIncarnation,
    LeaveWanted,
    NameTaken,
    Say,
    StreamLost,
    Tick,
)
from anabranch.runtime.hosts.frames import (
    FRAME_BYTES_MAX,
    HASH_BYTES,
    HOSTS_MAX,
    Answer,
    AnyFrame,
    AskOther,
    Busy,
    Frame,
    Opinion,
    Probe,
    ProbeOutcome,
    Refused,
    Rows,
    decode,
    encode,
)
from anabranch.runtime.hosts.hearsay import sayable
from anabranch.runtime.hosts.host import HostInfo, HostState, HostStatement
from anabranch.runtime.hosts.latency import Latencies
from anabranch.runtime.hosts.table import HostRow, Table, fitting

PERIOD_S = 1.0
ANSWER_S = 2.0
"""For an answer to a probe. Hosts may be busy."""
HELP_S = 2 * ANSWER_S + 1.0
"""For the outcome of a probe by another host."""
SUSPICION_S = 10.0
RETRY_EVERY = 5
"""Periods between attempts to reach hosts that are not live."""
HELPERS = 3
TRIALS_ALONE = 3
HELPED_MAX = 32
"""Hosts that are probed for others at a time."""
LATE_S = 0.5
"""A timer that comes later than that shows that this host was held up."""
TOLD_OF_LEAVE = 5
SOME = 3
"""Rows for a host that has to ask elsewhere."""
BUSY_MAX = 3
"""A host that has got so many answers that another one is busy waits eight periods on average."""
_ANSWER_BYTES = 96
"""At least what an answer without hashes takes."""


@dataclass(slots=True)
class Exchange:
    """That this host has begun. `target`: None if it is a seed that is not known. `helps`: the
    exchange whose other end wants the outcome. `asks`: the host that is tried by another one."""

    address: str
    begun: float
    deadline: float
    target: HostInfo | None = None
    helps: int | None = None
    asks: HostInfo | None = None
    answered: bool = False


class HostMembership:
    """Of one host. Large because all of it is one state: its table, and the exchanges that it has
    begun."""

    def __init__(
        self,
        me: HostInfo,
        seeds: Sequence[str],
        chance: random.Random,
        now: float,
        cost: Callable[[str], int] | None = None,
    ) -> None:
        """`cost`: bytes before an exchange with an address can begin, where there are any."""
        self.me = me
        self._cost = cost
        self.table = Table()
        self.budget = Budget(now)
        self.latencies = Latencies()
        self.malformed = 0
        """Frames that were none."""
        self.false_names = 0
        """Frames in the name of another host than the certificate has."""
        self.false_rows = 0
        """Rows that their sender may not state."""
        self.refused = False
        """Another host has this one's name."""
        self._joined = False
        self._leaving = False
        self.seeds = {seed: "" for seed in seeds if seed != me.address}
        """And the names of those that have answered there. Others may be put in later."""
        self._chance = chance
        self._exchanges: dict[int, Exchange] = {}
        self._count = 0
        self._order: list[str] = []
        self._period = 0
        self._probe_at = now
        self._busy = 0
        """How often in a row others had no time for this host."""
        self._dead_at: dict[str, float] = {}
        """By name, of suspected hosts: when they are taken for dead."""
        self._trials: dict[str, int] = {}
        """How many in a row have failed."""
        self._witnessed: set[str] = set()
        """Hosts that another one could not reach either, in the trial that goes on."""
        self._effects: list[Effect] = []
        self.table.put(HostStatement(me, HostState.ALIVE), now)

    @property
    def live(self) -> list[HostInfo]:
        """This host and those that it takes for live, by name."""
        return sorted((row.host for row in self.table.live()), key=lambda host: host.name)

    def next_due(self) -> float:
        deadlines = (exchange.deadline for exchange in self._exchanges.values())
        return min([self._probe_at, *deadlines, *self._dead_at.values()])

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case FrameCame(number, body, peer):
                self._take_body(number, body, peer, now)
            case StreamLost(number):
                if (exchange := self._exchanges.pop(number, None)) is not None:
                    self._over(exchange, now)
            case Tick():
                self._tick(now)
            case LeaveWanted():
                self._leave(now)
            case DrainWanted(drained):
                if drained is not self.me.drained:
                    self._begin_incarnation(self.me.incarnation + 1, now, drained=drained)
            case _:
                assert_never(event)
        effects, self._effects = self._effects, []
        return effects

    # -- timers ----------------------------------------------------------------------------

    def _tick(self, now: float) -> None:
        if (late_s := now - self.next_due()) > LATE_S:
            self._give_time(late_s)
        for number, exchange in [*self._exchanges.items()]:
            if exchange.deadline <= now:
                self._hang_up(number)
                self._over(exchange, now)
        for name in [name for name, at in self._dead_at.items() if at <= now]:
            row = self.table.get(name)
            assert row is not None
            self._put(HostStatement(row.host, HostState.DEAD), now)
        if self._probe_at <= now and not self._leaving:
            self._probe_at = now + PERIOD_S * self._chance.uniform(0.9, 1.1)
            self._begin_period(now)
        elif self._leaving:
            self._probe_at = now + PERIOD_S

    def _give_time(self, seconds: float) -> None:
        for exchange in self._exchanges.values():
            exchange.deadline += seconds
        self._dead_at = {name: at + seconds for name, at in self._dead_at.items()}

    def _begin_period(self, now: float) -> None:
        self.table.forget(now)
        self._period += 1
        if self._busy and self._chance.randrange(2 ** min(self._busy, BUSY_MAX)):
            return
        others = [row.host for row in self.table.live() if row.host.name != self.me.name]
        if self._period % RETRY_EVERY == 0 or not others:
            self._retry(now)
        if others and not (self.refused and self._period % RETRY_EVERY):
            target = self._next_of(others, now)
            if target is not None:
                self._probe(target, now)

    def _next_of(self, others: list[HostInfo], now: float) -> HostInfo | None:
        """Of this round, or of the next one if this is over. If this host cannot afford to reach
        any that is left, one that costs nothing, so that news spread; or None."""
        by_name = {host.name: host for host in others}
        for name in [*reversed(self._order)]:
            host = by_name.get(name)
            if host is None or self._affords(host, now):
                self._order.remove(name)
            if host is not None and name not in self._order:
                return host
        if not self._order:
            self._order = sorted(by_name)
            self._chance.shuffle(self._order)
            if self._affords(by_name[self._order[-1]], now):
                return by_name[self._order.pop()]
        free = [host for host in others if self._cost is None or not self._cost(host.address)]
        return self._chance.choice(free) if free else None

    def _affords(self, host: HostInfo, now: float) -> bool:
        cost = 0 if self._cost is None else self._cost(host.address)
        return not cost or cost <= 2 * self.budget.room(now)

    def _retry(self, now: float) -> None:
        """One seed or host that is not live."""
        dead = [r.host for r in self.table if r.state is HostState.DEAD]
        unknown = [seed for seed, name in self.seeds.items() if not self._lives(name)]
        chosen = self._chance.randrange(len(dead) + len(unknown)) if dead or unknown else None
        if chosen is None:
            return
        if chosen < len(dead):
            self._probe(dead[chosen], now)
        else:
            self._dial(unknown[chosen - len(dead)], self._probe_of(""), ANSWER_S, now)

    def _lives(self, name: str) -> bool:
        row = self.table.get(name)
        return row is not None and row.state.is_live

    # -- what this host begins -------------------------------------------------------------

    def _probe(self, target: HostInfo, now: float, helps: int | None = None) -> None:
        body = self._probe_of(target.name)
        self._dial(target.address, body, ANSWER_S, now, target=target, helps=helps)

    def _probe_of(self, name: str) -> Probe:
        me, opinion = self.me, self.table.opinion(name)
        return Probe(me.name, me.key, me.incarnation, name, self.table.digest, opinion)

    def _dial(
        self,
        address: str,
        frame: Frame,
        wait_s: float,
        now: float,
        *,
        target: HostInfo | None = None,
        helps: int | None = None,
        asks: HostInfo | None = None,
    ) -> None:
        self._count += 1
        self._exchanges[self._count] = Exchange(address, now, now + wait_s, target, helps, asks)
        self._effects.append(Dial(self._count, address, self._spent(frame)))

    def _over(self, exchange: Exchange, now: float) -> None:
        """It has ended, and what it was for has come or will not come."""
        if exchange.answered:
            return
        if exchange.helps is not None:
            self._say_last(exchange.helps, ProbeOutcome(False))
        elif exchange.asks is not None:
            self._note_trial(exchange.asks, now)
        elif exchange.target is not None and self._lives(exchange.target.name):
            self._ask_others(exchange.target, now)

    def _ask_others(self, target: HostInfo, now: float) -> None:
        names = {self.me.name, target.name}
        others = [r.host for r in self.table.live() if r.host.name not in names]
        helpers = self._chance.sample(others, min(HELPERS, len(others)))
        for helper in helpers:
            self._dial(helper.address, AskOther(target), HELP_S, now, asks=target)
        if not helpers:
            self._note_trial(target, now)

    def _note_trial(self, target: HostInfo, now: float) -> None:
        """An attempt to reach it, or to have it reached, has failed."""
        if self._is_tried(target):
            return
        name = target.name
        self._trials[name] = self._trials.get(name, 0) + 1
        row, witnessed = self.table.get(name), name in self._witnessed
        self._witnessed.discard(name)
        if row is None or row.host != target or row.state is not HostState.ALIVE:
            return
        if witnessed or self._trials[name] >= TRIALS_ALONE:
            self._put(HostStatement(target, HostState.SUSPECTED), now)

    def _is_tried(self, target: HostInfo) -> bool:
        """Whether another host may still report that it has reached it."""
        return any(e.asks == target and not e.answered for e in self._exchanges.values())

    def _has_answered(self, name: str) -> None:
        self._trials.pop(name, None)
        self._witnessed.discard(name)
        for exchange in self._exchanges.values():
            if exchange.asks is not None and exchange.asks.name == name:
                exchange.answered = True

    def _leave(self, now: float) -> None:
        self._leaving = True
        self._put(HostStatement(self.me, HostState.LEFT), now)
        others = [] if self.refused else [row.host for row in self.table.live()]
        told = Rows([HostStatement(self.me, HostState.LEFT)], b"")
        for host in self._chance.sample(others, min(TOLD_OF_LEAVE, len(others))):
            self._dial(host.address, told, ANSWER_S, now)

    # -- frames ----------------------------------------------------------------------------

    def _take_body(self, number: int, body: bytes, peer: str | None, now: float) -> None:
        exchange = self._exchanges.get(number)
        if number > 0 and exchange is None:
            return  # it came while this host hung up
        try:
            frame = decode(body)
        except msgspec.DecodeError:
            self._do_not_take(number, now)
            return
        if peer is not None:
            if isinstance(frame, Probe | Answer) and frame.name != peer:
                self.false_names += 1
                self._end(number, now)
                return
            frame, refused = sayable(frame, peer, self.table, self.me)
            self.false_rows += refused
        if exchange is None:
            self._take_from_dialler(number, frame, now)
        else:
            self._take_from_dialled(number, exchange, frame, now)

    def _do_not_take(self, number: int, now: float) -> None:
        self.malformed += 1
        self._end(number, now)

    def _end(self, number: int, now: float) -> None:
        """Give it up."""
        exchange = self._exchanges.get(number)
        self._hang_up(number)
        if exchange is not None:
            self._over(exchange, now)

    def _take_from_dialler(self, number: int, frame: AnyFrame, now: float) -> None:
        match frame:
            case Probe():
                self._answer(number, frame, now)
            case Rows(rows, wanted):
                self._merge(rows, now)
                room = self._room(now)
                sent = self.table.with_hashes(wanted, now, room) if wanted else []
                if sent:
                    self._say_last(number, Rows(sent, b""))
                else:
                    self._hang_up(number)
            case AskOther(target):
                helped = sum(e.helps is not None for e in self._exchanges.values())
                if helped < HELPED_MAX:
                    self._probe(target, now, helps=number)
                else:
                    self._hang_up(number)
            case Answer() | Refused() | ProbeOutcome() | Busy():
                self._do_not_take(number, now)
            case _:
                assert_never(frame)

    def _answer(self, number: int, probe: Probe, now: float) -> None:
        me = self.me
        if probe.key != me.key and (holder := self._holder_of(probe.name, probe.key)) is not None:
            self._say_last(number, Refused(holder.address))
            return
        if probe.key != me.key and self._is_full_for(probe.name):
            self._say_last(number, Refused(None))
            return
        room = self._room(now)
        if room < _ANSWER_BYTES:
            self._say_last(number, Busy())
            return
        if probe.key != me.key:
            self._take_opinion(probe.opinion, now)
        have, some = None, list[HostStatement]()
        if probe.digest != self.table.digest:
            have = self.table.hashes
            if len(have) + _ANSWER_BYTES > room:
                have, some = None, self._some(probe.name, now, room - _ANSWER_BYTES)
        opinion = self.table.opinion(probe.name)
        self._say(number, Answer(me.name, me.key, self.me.incarnation, opinion, have, some))

    def _some(self, asker: str, now: float, room: int) -> list[HostStatement]:
        """Live hosts that it may ask."""
        rows = [row for row in self.table.live() if row.host.name != asker]
        drawn = self._chance.sample(rows, min(SOME, len(rows)))
        return fitting((row.member(now) for row in drawn), room)

    def _holder_of(self, name: str, key: bytes) -> HostInfo | None:
        """The live host that has this name, if that is another one."""
        row = self.table.get(name)
        return row.host if row is not None and row.state.is_live and row.host.key != key else None

    def _is_full_for(self, name: str) -> bool:
        return self.table.get(name) is None and len(self.table.live()) >= HOSTS_MAX

    def _take_from_dialled(
        self, number: int, exchange: Exchange, frame: AnyFrame, now: float
    ) -> None:
        match frame:
            case Answer():
                self._take_answer(number, exchange, frame, now)
            case Refused(holder):
                exchange.answered = exchange.helps is None
                self._hang_up(number)
                self._over(exchange, now)
                self._be_refused(holder)
            case Busy():
                exchange.answered = exchange.helps is None
                self._busy += 1
                self._hang_up(number)
                self._over(exchange, now)
            case Rows(rows, _):
                self._merge(rows, now)
                self._hang_up(number)
            case ProbeOutcome(reached):
                if exchange.asks is None:
                    self._do_not_take(number, now)
                    return
                if reached:
                    self._has_answered(exchange.asks.name)
                elif not exchange.answered:
                    self._witnessed.add(exchange.asks.name)
                self._hang_up(number)
                self._over(exchange, now)
            case Probe() | AskOther():
                self._do_not_take(number, now)
            case _:
                assert_never(frame)

    def _take_answer(self, number: int, exchange: Exchange, answer: Answer, now: float) -> None:
        """The host that was expected there may have another one's address now."""
        target = exchange.target
        if target is not None and (answer.name, answer.key) != (target.name, target.key):
            self._hang_up(number)
            self._over(exchange, now)
            return
        exchange.answered = True
        self._busy = 0
        if exchange.helps is not None:
            self._hang_up(number)
            self._say_last(exchange.helps, ProbeOutcome(True))
            return
        if target is None and exchange.address in self.seeds:  # it may have been taken back
            self.seeds[exchange.address] = answer.name
        self.latencies.note(target, now - exchange.begun)
        self._has_answered(answer.name)
        if answer.key == self.me.key:  # a seed may be this host, by another address
            self._hang_up(number)
            return
        self._take_opinion(answer.opinion, now)
        if not self._joined or self.refused:
            self._joined, self.refused = True, False
            self._effects.append(Joined())
        self._merge(answer.some, now)
        self._send_rows(number, answer, now)

    def _send_rows(self, number: int, answer: Answer, now: float) -> None:
        """And ask for those that this host lacks, as many as it may. A host that does not have this
        one gets its row in any case."""
        room, wanted, sent = self._room(now), b"", list[HostStatement]()
        if answer.have is not None and room >= _ANSWER_BYTES:
            wanted = self.table.wanted_from(answer.have)[: room // 2 // HASH_BYTES * HASH_BYTES]
            sent = self.table.lacked_by(answer.have, now, room - len(wanted))
        elif answer.opinion is None:
            sent = [HostStatement(self.me, HostState.ALIVE)]
        if wanted:
            self._say(number, Rows(sent, wanted))
        elif sent:
            self._say_last(number, Rows(sent, b""))
        else:
            self._hang_up(number)

    # -- the table -------------------------------------------------------------------------

    def _merge(self, rows: list[HostStatement], now: float) -> None:
        for member in rows:
            if member.host.name == self.me.name:
                host = member.host
                self._take_opinion(Opinion(host.key, host.incarnation, member.state), now, host)
            else:
                self._put(member, now)

    def _take_opinion(
        self, opinion: Opinion | None, now: float, host: HostInfo | None = None
    ) -> None:
        """What another host has on the name of this one: it begins another incarnation if that is
        wrong. `host`: which one it takes it for."""
        if opinion is None or self._leaving:
            return
        mine = (self.me.incarnation, HostState.ALIVE, self.me.key)
        if (opinion.incarnation, opinion.state, opinion.key) <= mine:
            return
        if opinion.key != self.me.key and opinion.state.is_live:
            if host is not None:
                self._be_refused(host.address)
            return
        self._begin_incarnation(opinion.incarnation + 1, now, drained=self.me.drained)

    def _begin_incarnation(self, incarnation: int, now: float, *, drained: bool) -> None:
        self.me = msgspec.structs.replace(self.me, incarnation=incarnation, drained=drained)
        self._effects.append(KeepIncarnation(incarnation))
        self._put(HostStatement(self.me, HostState.ALIVE), now)

    def _be_refused(self, holder: str | None) -> None:
        if not self.refused:
            self.refused = True
            self._effects.append(NameTaken(holder))

    def _put(self, member: HostStatement, now: float) -> None:
        name = member.host.name
        before = self.table.get(name)
        row = self.table.put(member, now)
        if row is None:
            return
        if row.state is HostState.SUSPECTED:
            self._dead_at[name] = now + SUSPICION_S
        else:
            self._dead_at.pop(name, None)
        if not row.state.is_live:
            self._trials.pop(name, None)
            self.latencies.forget(name)
        if name != self.me.name and _tells(before, row):
            was = None if before is None else before.state
            self._effects.append(Changed(row.host, was, row.state))

    # -- saying ----------------------------------------------------------------------------

    def _room(self, now: float) -> int:
        return min(self.budget.room(now), FRAME_BYTES_MAX)

    def _spent(self, frame: Frame) -> bytes:
        body = encode(frame)
        self.budget.spend(len(body))
        return body

    def _say(self, number: int, frame: Frame) -> None:
        self._effects.append(Say(number, self._spent(frame)))

    def _say_last(self, number: int, frame: Frame) -> None:
        self._say(number, frame)
        self._hang_up(number)

    def _hang_up(self, number: int) -> None:
        self._exchanges.pop(number, None)
        self._effects.append(HangUp(number))


def _tells(before: HostRow | None, row: HostRow) -> bool:
    """Whether this is news to people."""
    if before is None:
        return row.state.is_live
    same = before.host.key == row.host.key and before.host.drained is row.host.drained
    return before.state is not row.state or not same
