"""Properties of a state of the whole: the invariants in every state, the rest at the end.

Codes: I1 to I11 are the invariants of `anabranch.protocol.invariants`. S1 no tuple is lost, S2
none is doubled, S3 nothing is addressed to a terminated instance, S4 at rest the views are the
full bipartite graph, S5 every operator has a keeper. L1 every operation ends, L2 every tuple
reaches the end of the pipeline, L3 every execution ends.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from anabranch.protocol.ids import InstanceId
from anabranch.protocol.rules.context import Context

if TYPE_CHECKING:
    from anabranch.runtime.explorer.sites import Move, Site, Sites

Vector = tuple[int, ...]


class Judge:
    """Says what is wrong with a state, in one sentence; says nothing if all is well."""

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self._machine = sites.machine
        self._pairs: dict[tuple[InstanceId, int, InstanceId, int], str] = {}
        self._alone: dict[tuple[InstanceId, int], str] = {}
        self._keeps: dict[int, bool] = {}

    def broken(self, state: Vector, position: int) -> str:
        """The first invariant broken in a state of which only the instance at `position` has
        another protocol state than before."""
        sites = self._sites
        values, views = sites.sites.values, sites.view_of
        actor, its_view = values[state[position]].me, views[state[position]]
        alone = self._alone.get((actor, its_view))
        if alone is None:
            context = Context(actor, sites.scope.topology)
            alone = self._machine.broken_at(context, sites.views.values[its_view])
            self._alone[actor, its_view] = alone
        if alone:
            return alone
        for number in state[1:]:
            other = values[number].me
            key = (actor, its_view, other, views[number])
            fault = self._pairs.get(key)
            if fault is None:
                fault = self._pairs[key] = self._between(*key)
            if fault:
                return fault
        return self._keeperless(state, actor)

    def _between(self, x: InstanceId, of_x: int, y: InstanceId, of_y: int) -> str:
        if x == y:
            return ""
        views = self._sites.views.values
        found = [
            *self._machine.broken_between(x, views[of_x], y, views[of_y]),
            *self._machine.broken_between(y, views[of_y], x, views[of_x]),
        ]
        return found[0] if found else ""

    def _keeperless(self, state: Vector, actor: InstanceId) -> str:
        values, views = self._sites.sites.values, self._sites.view_of
        for number in state[1:]:
            if values[number].me.operator == actor.operator and self._is_keeper(views[number]):
                return ""
        return f"S5: operator {actor.operator} has no active keeper (I5)"

    def _is_keeper(self, view: int) -> bool:
        found = self._keeps.get(view)
        if found is None:
            found = self._machine.is_keeper(self._sites.views.values[view])
            self._keeps[view] = found
        return found

    def dead_letter(self, state: Vector, move: Move) -> str:
        """What was wrong with a move that could not be applied."""
        offsets = self._sites.budgets.offsets[state[0]]
        for operator, number, parcel in move.sends:
            at = offsets[operator] + number
            if at < len(state) and self._sites.arrive(state[at], parcel) < 0:
                sender, item = self._sites.parcels.values[parcel]
                to = self._sites.sites.values[state[at]].me
                return f"S3: {type(item).__name__} from {sender} to {to}, which has terminated"
        return f"S3: a message of {move.what} goes to an instance which has terminated"

    # -- at rest -----------------------------------------------------------------------------

    def unsettled(self, state: Vector) -> str:
        """What is wrong with a state in which nothing but a decision can happen any more."""
        sites = [self._sites.sites.values[number] for number in state[1:]]
        return self._waiting(sites) or self._views(sites) or self._unbalanced(state)

    def _waiting(self, sites: list[Site]) -> str:
        for me, node, mail in sites:
            if node.queue:
                return f"L2: {node.queue} tuples are stuck at {me}"
            if mail:
                return f"L2: mail to {me} is never taken"
            if business := self._machine.unfinished_business(node.state):
                return f"L1: {me} for ever: {business}"
            if self._sites.scope.finish and not self._machine.is_gone(node.state):
                return f"L1: the stream has ended, but {me} has not"
        return ""

    def _views(self, sites: list[Site]) -> str:
        machine, topology = self._machine, self._sites.scope.topology
        here = [s for s in sites if machine.is_active(s.node.state)]
        for me, node, _ in here:
            succs = {s.me for s in here if topology.feeds(me.operator, s.me.operator)}
            preds = {s.me for s in here if topology.feeds(s.me.operator, me.operator)}
            known = (machine.succs(node.state), machine.preds(node.state))
            if known != (succs, preds):
                return (
                    f"S4: {me} ends with succs={names(known[0])} preds={names(known[1])}, "
                    f"expected succs={names(succs)} preds={names(preds)}"
                )
        return ""

    def _unbalanced(self, state: Vector) -> str:
        """I10: every tuple of an operator has been processed once by each operator behind it."""
        scope, done = self._sites.scope, self._sites.budgets.of(state[0]).done
        feeders: dict[int, list[int]] = defaultdict(list)
        for a, b in scope.edges:
            feeders[b].append(a)
        for operator, upstream in sorted(feeders.items()):
            due = sum(done[a] for a in upstream)
            if done[operator] != due:
                code = "S1" if done[operator] < due else "S2"
                return f"{code}: {due} tuples were sent to O{operator}, {done[operator]} processed"
        return ""


def names(ids: frozenset[InstanceId] | set[InstanceId]) -> str:
    return "{" + ",".join(map(str, sorted(ids))) + "}"
