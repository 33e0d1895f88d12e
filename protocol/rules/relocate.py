"""Relocation: V1 to V3. A new instance on another host takes the place of this one, which leaves.

A join of one child and a leave, as they are, in one operation:

    RelocateDecided ─▶ SpawnInstances ─▶ [FreezeGroups] ─▶ JOIN ─▶ all JOIN_ACKs ─▶ START
                    ─▶ [state] ─▶ [KEEPER_ACK] ─▶ LEAVE ─▶ …

The child gets all that its creator has: key groups in the round that announces it, the keeper's
role with START. Nothing comes between the join and the leave, for an instance that wants to go
promises nothing and takes no role, and a new incarnation goes on with the operation. Until the
child is announced nothing has happened: if its start fails, everything stays as it was.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.protocol.effects import SpawnInstances, Veto
from anabranch.protocol.events import RelocateDecided
from anabranch.protocol.messages import Ids
from anabranch.protocol.ownership import Assignment, groups_of
from anabranch.protocol.rules.context import Context, Step, why_not_now
from anabranch.protocol.states import Active, Spawning


def decide_to_relocate(ctx: Context, state: Active, event: RelocateDecided) -> Step:
    """V1: ask for one process elsewhere. A keeper relocates too: the child takes its role."""
    if reason := why_not_now(ctx, state):
        return state, (Veto(reason),)
    if state.expects:
        return state, (Veto("it has promised to take over key groups, and stays until they come"),)
    own = Spawning(1, migrate=state.keeper, leave=True)
    return replace(state, own=own), (SpawnInstances(1, event.host),)


def inheritance(state: Active, new: Ids) -> Assignment:
    """V2: all key groups go to the child."""
    (child,) = new
    return tuple((group, child) for group in sorted(groups_of(state.owned)))
