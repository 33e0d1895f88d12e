"""Properties of a state of the whole: the invariants in every state, the rest at the end.

Codes: I1 to I11 are the invariants of `anabranch.protocol.invariants`. S1 no tuple is lost, S2
none is doubled, S3 nothing is addressed to a terminated instance, S4 at rest the views are the
full bipartite graph, S5 every operator has a keeper, and at rest only one, S6 if instances only
relocate, each operator has as many at rest as at the beginning. L1 every operation
ends, L2 every tuple reaches the end of the pipeline, L3 every execution ends. Of keyed operators:
K1 a tuple is processed when it follows the last in the state, K2 operators behind get results in
this order, K3 a tuple is sent to a successor; K4 no instance leaves with key groups, or with state
for them; K5 a group has one owner at most; at rest K6 it has one, and K7 all senders have it in
their routes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.ownership import Route
from anabranch.runtime.explorer.site import Site, SiteMove
from anabranch.runtime.explorer.sites import Sites

Vector = tuple[int, ...]


class Judge:
    """Describes what is wrong with a state, in one sentence; nothing if all is well."""

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self._machine = sites.machine
        self._pairs: dict[tuple[InstanceId, int, InstanceId, int], str] = {}
        self._keeps: dict[int, bool] = {}

    def broken(self, state: Vector, site: int) -> str:
        """The first invariant broken in a state of which only the instance at `site` has another
        protocol state than before."""
        sites = self._sites
        values, views = sites.sites.values, sites.view_of
        actor, its_view = values[site].me, views[site]
        for number in state[1:]:
            if fault := self.between(actor, its_view, values[number].me, views[number]):
                return fault
        return self.keeperless(state, actor)

    def between(self, x: InstanceId, of_x: int, y: InstanceId, of_y: int) -> str:
        """What two instances break together, given the numbers of their protocol states."""
        key = (x, of_x, y, of_y)
        fault = self._pairs.get(key)
        if fault is None:
            fault = self._pairs[key] = self._compare(*key)
        return fault

    def _compare(self, x: InstanceId, of_x: int, y: InstanceId, of_y: int) -> str:
        if x == y:
            return ""
        views = self._sites.views.values
        found = [
            *self._machine.broken_between(x, views[of_x], y, views[of_y]),
            *self._machine.broken_between(y, views[of_y], x, views[of_x]),
        ]
        return found[0] if found else ""

    def keeperless(self, state: Vector, actor: InstanceId) -> str:
        """S5, for the operator of one instance."""
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

    def dead_letter(self, state: Vector, move: SiteMove) -> str:
        """What was wrong with a move that could not be applied."""
        places = self._sites.budgets.positions[state[0]]
        for receiver, parcel in move.sends:
            place = places.get(receiver)
            sender, item = self._sites.parcels.values[parcel]
            to = self._sites.budgets.ids.values[receiver]
            if place is None:
                return f"S3: {type(item).__name__} from {sender} to {to}, which does not exist"
            if self._sites.arrive(state[place], parcel) < 0:
                return f"S3: {type(item).__name__} from {sender} to {to}, which has terminated"
        return "S3: a message goes to an instance which has terminated"

    # -- at rest -----------------------------------------------------------------------------

    def unsettled(self, state: Vector) -> str:
        """What is wrong with a state in which nothing but a decision can happen any more."""
        sites = [self._sites.sites.values[number] for number in state[1:]]
        return (
            self._waiting(sites)
            or self._views(sites)
            or self._keepers(sites)
            or self._relocated(sites)
            or self._ownership(sites)
            or self._unbalanced(state)
        )

    def _waiting(self, sites: list[Site]) -> str:
        for me, number, mail in sites:
            node = self._sites.nodes.values[number]
            if node.sending:
                return f"L2: {me} waits for ever for room at {names(set(node.sending))}"
            if node.queue:
                return f"L2: {len(node.queue)} tuples are stuck at {me}"
            if mail:
                return f"L2: mail to {me} is never taken"
            if business := self._machine.unfinished_business(node.state):
                return f"L1: {me} for ever: {business}"
            if self._machine.is_gone(node.state) and not node.ended:
                return f"L1: {me} has ended, but its process has not"
            if self._sites.scope.finish and not self._machine.is_gone(node.state):
                return f"L1: the stream has ended, but {me} has not"
        return ""

    def _views(self, sites: list[Site]) -> str:
        machine, topology = self._machine, self._sites.scope.topology
        nodes = self._sites.nodes.values
        here = {s.me: nodes[s.node].state for s in sites}
        here = {me: state for me, state in here.items() if machine.is_active(state)}
        for me, state in here.items():
            succs = frozenset(y for y in here if topology.feeds(me.operator, y.operator))
            preds = frozenset(y for y in here if topology.feeds(y.operator, me.operator))
            known = (machine.succs(state), machine.preds(state))
            if known != (succs, preds):
                return (
                    f"S4: {me} ends with succs={names(known[0])} preds={names(known[1])}, "
                    f"expected succs={names(succs)} preds={names(preds)}"
                )
        return ""

    def _keepers(self, sites: list[Site]) -> str:
        """S5 at rest: an instance that has given the role away has it no more."""
        nodes, keepers = self._sites.nodes.values, dict[OperatorName, InstanceId]()
        for me, number, _ in sites:
            state = nodes[number].state
            if not (self._machine.is_active(state) and self._machine.is_keeper(state)):
                continue
            if (other := keepers.setdefault(me.operator, me)) != me:
                return f"S5: operator {me.operator} ends with two keepers, {other} and {me}"
        return ""

    def _relocated(self, sites: list[Site]) -> str:
        """S6 at rest: an instance whose place another one has taken has gone."""
        scope = self._sites.scope
        if not scope.relocations or scope.joins or scope.fresh or scope.leaves or scope.finish:
            return ""
        nodes = self._sites.nodes.values
        left = Counter(s.me.operator for s in sites if self._machine.is_active(nodes[s.node].state))
        for name, count in zip(scope.names, scope.counts, strict=True):
            if left[name] != count:
                return f"S6: {name} had {count} instances, and has {left[name]} after relocations"
        return ""

    def _ownership(self, sites: list[Site]) -> str:
        """K6 and K7: every key group has one owner, and all senders have it in their routes."""
        machine, nodes = self._machine, self._sites.nodes.values
        scope = self._sites.scope
        here = [(s.me, nodes[s.node].state) for s in sites if scope.keyed]
        here = [(me, state) for me, state in here if machine.is_active(state)]
        owned = sorted(r for me, state in here for r in machine.owned(state))
        for name in sorted({me.operator for me, _ in here} & {scope.names[k] for k in scope.keyed}):
            groups = [r.group for r in owned if r.owner.operator == name]
            if sorted(groups) != list(range(scope.groups)):
                return f"K6: the key groups of {name} end with owners {_told(owned, name)}"
            for me, state in here:
                table = [r for r in machine.table(state) if r.owner.operator == name]
                due = scope.topology.feeds(me.operator, name)
                if due and sorted(table) != [r for r in owned if r.owner.operator == name]:
                    routes = _told(table, name)
                    return f"K7: {me} ends with routes {routes}, owners are {_told(owned, name)}"
        return ""

    def _unbalanced(self, state: Vector) -> str:
        """I10: every tuple of an operator has been processed once by each operator behind it."""
        scope, done = self._sites.scope, self._sites.budgets.metas.values[state[0]].done
        feeders: dict[int, list[int]] = defaultdict(list)
        for a, b in scope.edges:
            feeders[b].append(a)
        for operator, upstream in sorted(feeders.items()):
            due = sum(done[a] for a in upstream)
            if done[operator] != due:
                code = "S1" if done[operator] < due else "S2"
                return f"{code}: {due} tuples were sent to O{operator}, {done[operator]} processed"
        return ""


def _told(routes: Iterable[Route], operator: OperatorName) -> str:
    mine = [r for r in routes if r.owner.operator == operator]
    return "{" + " ".join(f"{r.group}->{r.owner}@{r.version}" for r in mine) + "}"


def names(ids: frozenset[InstanceId] | set[InstanceId]) -> str:
    return "{" + ",".join(map(str, sorted(ids))) + "}"
