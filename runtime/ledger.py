"""The ledger of a run: what went in equals what came out, what died and what is on its way.

Pure: from the final counts of all instances to a verdict. Four statements must hold, each of
which would be broken by one way of losing or doubling a tuple:

- per channel, sent = received;
- per instance, received + handed in = processed + dead + queued + handed out (and for a sink,
  processed = accepted); tuples are handed from sibling to sibling with their key groups;
- per operator, handed out = handed in;
- per instance and downstream operator, results made = results sent to its instances.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from anabranch.runtime.status import FinalCount, Status, operator_of

FAULTS_MAX = 100
"""Sentences kept; the numbers count all."""


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """One operator: received = processed + dead + queued, if all that was handed from sibling to
    sibling has come in."""

    name: str
    received: int
    processed: int
    dead: int
    queued: int
    balanced: bool


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
class _Faults:
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


def settle(
    finals: Iterable[FinalCount],
    edges: Iterable[tuple[str, str]],
    operators: Sequence[str],
    unaccounted: Mapping[str, Status | None] | None = None,
    *,
    excused: bool = False,
) -> Ledger:
    """The ledger of a run of `operators` joined by `edges` (upstream, downstream).

    `unaccounted`: ids of instances that ended without a final count, with their last status;
    a run that has any never balances. `excused`: processes have died, and delivery is not exact.
    """
    counts = {final.id: final for final in finals}
    missing = dict(unaccounted or {})
    downstream: defaultdict[str, list[str]] = defaultdict(list)
    for above, below in edges:
        downstream[above].append(below)
    sources = set(operators) - {name for many in downstream.values() for name in many}
    faults = _Faults()
    channels = _compare_channels(counts, missing, faults)
    for final in counts.values():
        _compare_within(final, downstream[final.operator], final.operator in sources, faults)
    for name in operators:
        _compare_handed(name, counts.values(), missing, faults)
    for instance in missing:
        faults.say(f"{instance} ended without an account of its tuples")
    rows: list[FinalCount | Status] = list(counts.values())
    rows += [status for status in missing.values() if status is not None]
    queued = sum(final.queued for final in counts.values())
    in_flight = faults.in_flight + queued
    balanced = not (faults.lost or faults.duplicated or in_flight or missing)
    return Ledger(
        tuples_in=sum(row.tuples_in for row in rows if row.operator in sources),
        tuples_out=sum(row.tuples_out for row in rows if not downstream[row.operator]),
        lost=faults.lost,
        duplicated=faults.duplicated,
        dead_letters=sum(row.dead for row in rows) + sum(c.dead_upstream for c in counts.values()),
        in_flight=in_flight,
        balanced=balanced,
        excused=excused and not balanced and not missing,
        channels=channels,
        operators=[_balance(name, counts.values()) for name in operators],
        faults=faults.words,
    )


def _compare_channels(
    counts: Mapping[str, FinalCount], missing: Mapping[str, Status | None], faults: _Faults
) -> int:
    pairs = {(f.id, peer) for f in counts.values() for peer in f.sent}
    pairs |= {(peer, f.id) for f in counts.values() for peer in f.received}
    for sender, receiver in sorted(pairs):
        sent = counts[sender].sent.get(receiver, 0) if sender in counts else None
        received = counts[receiver].received.get(sender, 0) if receiver in counts else None
        if received is None and receiver in missing:
            faults.in_flight += sent or 0
        elif sent is None and sender in missing:
            continue
        else:
            words = f"{sender} sent {sent or 0:,} to {receiver}, which received {received or 0:,}"
            faults.compare(sent or 0, received or 0, words)
    return len(pairs)


def _compare_within(
    final: FinalCount, downstream: Sequence[str], is_source: bool, faults: _Faults
) -> None:
    received = sum(final.received.values())
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
    for name in downstream:
        words = f"{final.id} made {final.tuples_out:,} results, sent {sent[name]:,} to {name}"
        faults.compare(final.tuples_out, sent[name], words)


def _compare_handed(
    name: str,
    finals: Iterable[FinalCount],
    missing: Mapping[str, Status | None],
    faults: _Faults,
) -> None:
    """What siblings hand each other stays within their operator. Where one of them gives no account
    it may have taken what others handed out, or handed out what they have taken: nothing is wrong.
    """
    own = [final for final in finals if final.operator == name]
    out, taken = sum(f.handed_out for f in own), sum(f.handed_in for f in own)
    if any(operator_of(instance) == name for instance in missing):
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
