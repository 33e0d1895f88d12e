"""What must be true of a fake network at rest, and after everybody has ended."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from anabranch.protocol.ids import OperatorName
from anabranch.protocol.states import Active, Spawning, preds_of, succs_of
from tests.protocol.fake_keys import GROUPS

if TYPE_CHECKING:
    from tests.protocol.fake_network import Network


def check_rest(net: Network) -> None:
    here = {one.me: state for one, state in net.active()}
    for one in net.living():
        state = one.core.state
        assert not one.queue, f"L2: tuples are stuck at {one.me}"
        assert not one.holds, f"L2: results are stuck at {one.me}"
        assert one.keys.idle, f"L2: tuples or state of key groups are stuck at {one.me}"
        if not isinstance(state, Active):
            continue
        assert not isinstance(state.own, Spawning), f"L1: {one.me} waits for children"
        assert state.own is None, f"L1: {one.me} waits: {state.own}"
        assert not state.expects, f"L1: {one.me} waits for state"
        feeds = net.topology.feeds
        succs = {y for y in here if feeds(one.me.operator, y.operator)}
        preds = {y for y in here if feeds(y.operator, one.me.operator)}
        # Whoever has finished already is a neighbour still.
        assert succs <= succs_of(state), f"S4: {one.me} lacks a successor"
        assert preds <= preds_of(state), f"S4: {one.me} lacks a predecessor"
    if not net.ending:
        _check_owners(net)


def _check_owners(net: Network) -> None:
    owned = sorted(route for _, state in net.active() for route in state.owned)
    for operator in net.keyed:
        mine = [r for r in owned if r.owner.operator == operator]
        groups = [r.group for r in mine]
        assert sorted(groups) == list(range(GROUPS)), f"K6: {operator} is owned so: {mine}"
        for one, state in net.active():
            known = sorted(r for r in state.routes if r.owner.operator == operator)
            if operator in net.topology.downstream(one.me.operator):
                assert known == mine, f"K7: {one.me} routes by {known}, not {mine}"


def check_tuples(net: Network) -> None:
    for operator, due in _due(net).items():
        done: Counter[int] = Counter()
        for one in net.instances.values():
            if one.me.operator == operator:
                done.update(one.done)
        assert not (due - done), f"S1: {operator} lacks {dict(due - done)}"
        assert not (done - due), f"S2: {operator} has too often {dict(done - due)}"


def _due(net: Network) -> dict[OperatorName, Counter[int]]:
    """How often each operator should have processed each tuple: once for every path."""
    due: dict[OperatorName, Counter[int]] = {}
    waiting = sorted({o for edge in net.topology.edges for o in edge})
    produced = dict(net.read_by)
    while waiting:
        for operator in list(waiting):
            upstream = net.topology.upstream(operator)
            if any(o in waiting for o in upstream):
                continue
            waiting.remove(operator)
            if upstream:
                due[operator] = Counter()
                for o in upstream:
                    due[operator].update(produced.get(o, Counter()))
                produced[operator] = due[operator]
    return due


def check_channels(net: Network) -> None:
    for line in net.lines.values():
        assert line.settled, f"I11: {line} keeps frames that nobody has acknowledged"
        for me, end in line.ends.items():
            peer = line.ends[line.peer_of(me)]
            sent, done = end.allowance.tuples_sent, peer.grant.tuples_done
            assert sent == done, f"I10: {me} has sent {sent} tuples on {line}, {done} are done"
