"""The ledger of a run: tuples in = tuples out + dead letters + tuples in flight.

Pure: from the final counts of all instances to a verdict. Four statements must hold, each of
which would be broken by one way of losing or doubling a tuple:

- per channel, sent = received; if an end has only sums of its channels, the same for all channels
  between two operators, by their sum and by a proof (`runtime.reporting.carried`);
- per instance, received + handed in = processed + dead + queued + handed out (and for a sink,
  processed = accepted); tuples are handed from sibling to sibling with their key groups;
- per operator, handed out = handed in;
- per instance and downstream operator, results made = results sent to its instances + results
  dead on their way there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from anabranch.runtime.reporting.carried import Carried, carried
from anabranch.runtime.reporting.status import FinalCount, Status, operator_of

FAULTS_MAX = 100
"""So many faults are described in words; the numbers count all."""


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """One operator: received = processed + dead + queued, if all that was handed from sibling to
    sibling has come in."""

    name: str
    received: int
    processed: int
    dead: int
    queued: int
    balanced: bool


class SummedFinals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of instances of one operator, if there were too many to keep them one by one. Each of
    them was checked before."""

    count: FinalCount
    lost: int = 0
    duplicated: int = 0
    faults: list[str] = msgspec.field(default_factory=list)


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    tuples_in: int
    """Read by the sources."""
    tuples_out: int
    """Accepted at the sinks."""
    lost: int
    duplicated: int
    dead_letters: int
    in_flight: int
    """Queued at the end, or sent to an instance that ended without an account."""
    balanced: bool
    excused: bool = False
    """It does not balance, but processes have died, and the delivery of the pipeline allows that
    what they had in work is lost or done twice."""
    channels: int
    operators: list[Balance]
    faults: list[str]
    """What does not balance, in words."""


@dataclass(slots=True)
class Faults:
    lost: int = 0
    duplicated: int = 0
    in_flight: int = 0
    words: list[str] = field(default_factory=list)

    def compare(self, expected: int, found: int, words: str) -> None:
        if expected == found:
            return
        self.lost += max(0, expected - found)
        self.duplicated += max(0, found - expected)
        self.say(words)

    def say(self, words: str) -> None:
        if len(self.words) < FAULTS_MAX:
            self.words.append(words)


class Accounts:
    """The final counts that a ledger is made of. `latest`: by id, one by one; `summed`: of all
    others, by operator. `missing`: the last status of those that have given no account."""

    def __init__(
        self,
        latest: Iterable[FinalCount],
        summed: Mapping[str, SummedFinals],
        missing: Mapping[str, Status | None],
    ) -> None:
        self.latest = {final.id: final for final in latest}
        self.summed = summed
        self.missing = missing

    @property
    def rows(self) -> list[FinalCount]:
        return [*(one.count for one in self.summed.values()), *self.latest.values()]

    def lacks(self, operator: str) -> bool:
        """Whether an instance of it has given no account."""
        return any(operator_of(instance) == operator for instance in self.missing)

    def sent(self, sender: str, receiver: str) -> int | None:
        """By the count of the sender; None if it has no count of this channel any more."""
        if sender not in self.latest:
            return self._without_account(sender)
        final = self.latest[sender]
        unknown = operator_of(receiver) in final.sent_before
        return final.sent.get(receiver, None if unknown else 0)

    def received(self, sender: str, receiver: str) -> int | None:
        if receiver not in self.latest:
            return self._without_account(receiver)
        final = self.latest[receiver]
        unknown = operator_of(sender) in final.received_before
        return final.received.get(sender, None if unknown else 0)

    def _without_account(self, instance: str) -> int | None:
        unknown = instance in self.missing or operator_of(instance) in self.summed
        return None if unknown else 0


def settle(
    finals: Iterable[FinalCount],
    edges: Iterable[tuple[str, str]],
    operators: Sequence[str],
    unaccounted: Mapping[str, Status | None] | None = None,
    *,
    summed: Mapping[str, SummedFinals] | None = None,
    excused: bool = False,
) -> Ledger:
    """The ledger of a run of `operators` joined by `edges` (upstream, downstream).

    `unaccounted`: ids of instances that ended without a final count, with their last status;
    a run that has any never balances. `summed`: more final counts, by operator. `excused`:
    processes have died, and delivery is not exact.
    """
    accounts = Accounts(finals, summed or {}, unaccounted or {})
    downstream = downstream_of(edges)
    sources = sources_of(operators, downstream)
    faults = Faults()
    for one in accounts.summed.values():
        faults.lost += one.lost
        faults.duplicated += one.duplicated
        faults.words += one.faults
    channels = _compare_channels(accounts, faults)
    for final in accounts.latest.values():
        compare_within(final, downstream[final.operator], final.operator in sources, faults)
    for name in operators:
        _compare_handed(name, accounts, faults)
    for instance in accounts.missing:
        faults.say(f"{instance} ended without an account of its tuples")
    return _ledger(accounts, operators, downstream, channels, faults, excused)


def downstream_of(edges: Iterable[tuple[str, str]]) -> defaultdict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for above, below in edges:
        found[above].append(below)
    return found


def sources_of(operators: Iterable[str], downstream: Mapping[str, Sequence[str]]) -> set[str]:
    return set(operators) - {name for many in downstream.values() for name in many}


def _ledger(
    accounts: Accounts,
    operators: Sequence[str],
    downstream: Mapping[str, Sequence[str]],
    channels: int,
    faults: Faults,
    excused: bool,
) -> Ledger:
    counts, missing = accounts.rows, accounts.missing
    rows: list[FinalCount | Status] = [*counts]
    rows += [status for status in missing.values() if status is not None]
    sources = sources_of(operators, downstream)
    in_flight = faults.in_flight + sum(final.queued for final in counts)
    balanced = not (faults.lost or faults.duplicated or in_flight or missing)
    return Ledger(
        tuples_in=sum(row.tuples_in for row in rows if row.operator in sources),
        tuples_out=sum(row.tuples_out for row in rows if not downstream.get(row.operator)),
        lost=faults.lost,
        duplicated=faults.duplicated,
        dead_letters=sum(row.dead for row in rows) + sum(c.dead_upstream for c in counts),
        in_flight=in_flight,
        balanced=balanced,
        excused=excused and not balanced and not missing,
        channels=channels,
        operators=[_balance(name, counts) for name in operators],
        faults=faults.words[:FAULTS_MAX],
    )


@dataclass(slots=True)
class _Edge:
    """Channels between two operators of which an end has only the sum."""

    sent: Carried = field(default_factory=Carried)
    received: Carried = field(default_factory=Carried)


def _compare_channels(accounts: Accounts, faults: Faults) -> int:
    """Returns how many there were."""
    latest, missing = accounts.latest, accounts.missing
    pairs = {(f.id, peer) for f in latest.values() for peer in f.sent}
    pairs |= {(peer, f.id) for f in latest.values() for peer in f.received}
    together = _summed_channels(accounts)
    channels = 0
    for sender, receiver in sorted(pairs):
        sent, received = accounts.sent(sender, receiver), accounts.received(sender, receiver)
        if receiver in missing:
            faults.in_flight += sent or 0
        elif sent is not None and received is not None:
            words = f"{sender} sent {sent:,} to {receiver}, which received {received:,}"
            faults.compare(sent, received, words)
        elif sender not in missing:
            edge = together[operator_of(sender), operator_of(receiver)]
            edge.sent += carried(sender, receiver, sent or 0)
            edge.received += carried(sender, receiver, received or 0)
            continue
        channels += 1
    for (above, below), edge in sorted(together.items()):
        _compare_together(above, below, edge, accounts, faults)
        channels += max(edge.sent.channels, edge.received.channels)
    return channels


def _summed_channels(accounts: Accounts) -> defaultdict[tuple[str, str], _Edge]:
    found: defaultdict[tuple[str, str], _Edge] = defaultdict(_Edge)
    for final in accounts.rows:
        for below, sent in final.sent_before.items():
            found[final.operator, below].sent += sent
        for above, received in final.received_before.items():
            found[above, final.operator].received += received
    return found


def _compare_together(
    above: str, below: str, edge: _Edge, accounts: Accounts, faults: Faults
) -> None:
    """If an instance has left no counts, those of its neighbours have no counterpart: more was sent
    if it was a receiver, more was received if it was a sender."""
    sent, received = edge.sent, edge.received
    surplus = sent.tuples - received.tuples
    if accounts.lacks(below):
        faults.in_flight += max(0, surplus)
    elif accounts.lacks(above):
        return
    elif surplus:
        words = f"instances of {above} sent {sent.tuples:,} to instances of {below}, which received"
        faults.compare(sent.tuples, received.tuples, f"{words} {received.tuples:,}")
    elif sent.proof != received.proof:
        faults.lost += 1
        faults.duplicated += 1
        faults.say(
            f"instances of {below} received as much as those of {above} sent, {sent.tuples:,}, but "
            "not each of them from each: at least one tuple is lost, and one doubled"
        )


def compare_within(
    final: FinalCount, downstream: Sequence[str], is_source: bool, faults: Faults
) -> None:
    """The counts of one instance must be consistent."""
    received = sum(final.received.values())
    received += sum(one.tuples for one in final.received_before.values())
    if not is_source:
        words = f"{final.id} counts {final.tuples_in:,} in, its channels {received:,}"
        faults.compare(received, final.tuples_in, words)
    taken = final.tuples_in + final.handed_in
    handled = final.processed + final.dead + final.queued + final.handed_out
    words = f"{final.id} took {taken:,} in, but accounts for {handled:,}"
    faults.compare(taken, handled, words)
    if not downstream:
        words = f"{final.id} wrote {final.processed:,}, its target has {final.tuples_out:,}"
        faults.compare(final.processed, final.tuples_out, words)
    sent: defaultdict[str, int] = defaultdict(int)
    for peer, tuples in final.sent.items():
        sent[operator_of(peer)] += tuples
    for name, one in final.sent_before.items():
        sent[name] += one.tuples
    for name in downstream:
        dead = final.dead_towards.get(name, 0)
        words = f"{final.id} made {final.tuples_out:,} results, sent {sent[name]:,} to {name}"
        words += f", could not send {dead:,}" if dead else ""
        faults.compare(final.tuples_out, sent[name] + dead, words)


def _compare_handed(name: str, accounts: Accounts, faults: Faults) -> None:
    """What siblings hand each other stays within their operator. If one of them has left no counts,
    it may have taken or handed out the difference, so that is no fault.
    """
    own = [final for final in accounts.rows if final.operator == name]
    out, taken = sum(f.handed_out for f in own), sum(f.handed_in for f in own)
    if accounts.lacks(name):
        faults.in_flight += max(0, out - taken)
    else:
        words = f"instances of {name} handed {out:,} to siblings, which took over {taken:,}"
        faults.compare(out, taken, words)


def _balance(name: str, finals: Iterable[FinalCount]) -> Balance:
    own = [final for final in finals if final.operator == name]
    received = sum(f.tuples_in for f in own)
    processed = sum(f.processed for f in own)
    dead = sum(f.dead for f in own)
    queued = sum(f.queued for f in own)
    return Balance(
        name=name,
        received=received,
        processed=processed,
        dead=dead,
        queued=queued,
        balanced=received == processed + dead + queued,
    )
