"""L3: a number that every transition makes smaller, so that every execution ends.

Rank = what may still be decided + what is under way + what each instance has yet to do, all in
units of transitions; `docs/protocol.md` 2.4. It is a sum over the parts of a state, so one look at
each move shows it for all states in which the move is possible.
"""

from __future__ import annotations

from typing import Any

from anabranch.protocol import messages as m
from anabranch.protocol.ids import OperatorName
from anabranch.protocol.ownership import owners_of
from anabranch.protocol.states import (
    Active,
    ClosingIn,
    ClosingOut,
    Draining,
    Finished,
    Freezing,
    Gone,
    Idle,
    Joining,
    Migrating,
    Offering,
    Own,
    Seeking,
    Spawning,
    State,
    Transferring,
)
from anabranch.runtime.explorer.items import Again, GroupState, Tuple
from anabranch.runtime.explorer.node import BEGUN, Node
from anabranch.runtime.explorer.scope import Scope

ACK = 1
"""An answer makes nothing new."""
LEAVE = EOS = ACK + 1
FIN, DONE = 2, 1
START = ACK + 1  # a new keeper answers it
OFFER = 3
STATE = 1
"""It may be under way as soon as the owner begins to transfer it."""
TRANSFER = 3
"""State, the last word behind it, and the event that both are out."""
PART = 2
"""One part of a state that goes out in two, and the event that it does."""


class Ranking:
    """Ranks of the shipped core's states and messages, for a scope."""

    def __init__(self, scope: Scope) -> None:
        most = scope.instances_max
        self._receivers_max = min(scope.batch, scope.groups) if scope.keyed else 0
        self._transfer = TRANSFER + (PART if scope.crashes else 0)
        self._join = ACK + scope.batch * FIN + 1
        self._announcing = most * self._join
        self._finished = most * DONE + 1
        self._closing_out = 1
        self._draining = self._closing_out + most * EOS + 1
        self._closing_in = self._draining + 1
        self._active = self._finished + most * FIN + 1
        self._leaving = self._closing_in + most * LEAVE + 1
        self._idle = self._active + 1
        self._tuple = self._tuples(scope)
        self._budgets = {
            "free": 0,
            "processed": 0,
            "births": 0,
            "end": 0,
            "read": 1 + max(self._onward(scope, o) for o in scope.names) + len(scope.names),
            "leaves": self._seeking(leave=True) + OFFER + 1,
            "moves": self._seeking(leave=False) + OFFER + 1,
            "joins": self._spawning(scope.batch) + 1,
            "fresh": self._spawning(1) + 1,
            "relocations": self._spawning(1, leave=True) + 1,
            "sibling": OFFER + 1,
            "crashes": 1 + self._tuples_max(scope) + self._receivers_max * PART,
        }

    def _tuples(self, scope: Scope) -> dict[OperatorName, int]:
        """A queued tuple, by operator: one more than all that its processing sends."""
        ranks: dict[OperatorName, int] = {}
        while len(ranks) < len(scope.names):
            for operator in scope.names:
                if all(d in ranks for d in scope.topology.downstream(operator)):
                    onward = (ranks[d] + 2 for d in scope.topology.downstream(operator))
                    ranks[operator] = 1 + sum(onward)
        return ranks

    def _tuples_max(self, scope: Scope) -> int:
        """As many tuples can there be at one operator, and come to it again."""
        paths: dict[OperatorName, int] = {}
        while len(paths) < len(scope.names):
            for operator in scope.names:
                upstream = scope.topology.upstream(operator)
                if all(u in paths for u in upstream):
                    paths[operator] = sum(paths[u] for u in upstream) or 1
        return scope.tuples * max(paths.values())

    def _onward(self, scope: Scope, operator: OperatorName) -> int:
        return sum(self._tuple[d] + 1 for d in scope.topology.downstream(operator))

    def _spawning(self, n: int, *, leave: bool = False) -> int:
        born = n * (self._idle + 2)
        return born + self._freezing(n, min(n, self._receivers_max), leave=leave) + leave + 1

    def _seeking(self, *, leave: bool) -> int:
        return self._freezing(0, min(1, self._receivers_max), leave=leave) + 1

    def _freezing(self, n: int, receivers: int, *, leave: bool) -> int:
        return self._announcing + self._joining(n, receivers, leave=leave) + 1

    def _joining(self, n: int, receivers: int, *, leave: bool) -> int:
        state = receivers * STATE
        return n * START + state + self._transferring(receivers, leave=leave) + leave + 1

    def _transferring(self, receivers: int, *, leave: bool) -> int:
        """An instance that gives its groups away in order to go has yet to leave."""
        return receivers * self._transfer + 1 + leave * self._leaving

    def budget(self, name: str) -> int:
        return self._budgets[name]

    def item(self, receiver: OperatorName, item: Any) -> int:
        """Something under way."""
        match item:
            case Tuple() | Again():
                return self._tuple[receiver] + 1
            case m.Join():
                return self._join
            case m.Leave() | m.Eos() | m.Start() | m.Fin():
                return 2
            case m.Offer() | m.AdoptOffer():
                return OFFER
            case m.BecomeKeeper() | m.Adopt():
                return OFFER - 1
            case GroupState(kept=kept):
                return len(kept) * self._tuple[receiver] + 1
            case _:
                return 1

    def node(self, operator: OperatorName, node: Node) -> int:
        rank = _waiting(node) * self._tuple[operator] + self._state(node.state)
        rank += sum(self._tuple[to.operator] + 2 for to in node.sending)
        rank -= PART * sum(out.stage == BEGUN for out in node.outgoing)
        # An instance stops reading once, and is asked once for each of its two ends.
        return rank + node.reading + (isinstance(node.state, Active | Idle) and not node.asked)

    def _state(self, state: State) -> int:
        match state:
            case Idle():
                return self._idle
            case Active(own=own):
                return self._active + self._own(own)
            case ClosingIn():
                return self._closing_in
            case Draining():
                return self._draining
            case ClosingOut():
                return self._closing_out
            case Finished():
                return self._finished
            case Gone():
                return 0

    def _own(self, own: Own | None) -> int:
        match own:
            case Spawning(n=n, leave=leave):
                return self._spawning(n, leave=leave)
            case Seeking(leave=leave):
                return self._seeking(leave=leave)
            case Freezing(new=new, moved=moved, leave=leave):
                return self._freezing(len(new), len(owners_of(moved)), leave=leave)
            case Joining(new=new, moved=moved, leave=leave):
                return self._joining(len(new), len(owners_of(moved)), leave=leave)
            case Transferring(awaiting=awaiting, leave=leave, migrate=migrate):
                return self._transferring(len(awaiting), leave=leave) + migrate
            case Migrating(leave=leave):
                return 1 + leave * self._leaving
            case Offering() | None:
                return 0


def _waiting(node: Node) -> int:
    """How many tuples have yet to be processed here."""
    return len(node.queue) + sum(len(state.kept) for _, state in node.incoming)
