"""Every rule of ours broken, in one way at least: the explorer finds all of them out."""

from __future__ import annotations

import re

import pytest

from anabranch.protocol.replay_order import ReplayOrder
from anabranch.protocol.table import TABLE
from anabranch.runtime.broken_protocols.channels import BROKEN_CHANNELS, BrokenChannel
from anabranch.runtime.broken_protocols.hunt import BLOCKING, catch
from anabranch.runtime.broken_protocols.variants import VARIANTS, Variant
from anabranch.runtime.explorer.cuts import CutScope, explore_cuts
from anabranch.runtime.explorer.machine import Shipped
from anabranch.runtime.explorer.scope import Scope
from anabranch.runtime.explorer.scopes import SMALL
from anabranch.runtime.explorer.search import explore

RULES = {
    *(f"R{n}" for n in range(1, 16)),
    "R3'",
    "D1",
    "D2",
    *(f"E{n}" for n in range(1, 7)),
    *(f"V{n}" for n in range(1, 4)),
    *(f"M{n}" for n in range(1, 9)),
    *(f"Z{n}" for n in range(1, 6)),
    *(f"duty {n}" for n in range(9, 13)),
}

CONSEQUENCES = {
    # `docs/protocol.md` 3.1: what follows if no invariant is asserted.
    "R3': START leaves out a successor whose LEAVE has told the children": ("S3", 12),
    "R11: a leaver ends without waiting for EOS_ACK": ("S3", 5),
    "R7: an idle newcomer acknowledges LEAVE, but does not remember it": ("S4", 12),
    "R2: an idle newcomer acknowledges JOIN, but does not remember it": ("S4", 10),
    "R2: a leaving instance does not count new successors": ("S4", 12),
    "R5: the role is dropped when START is sent": ("S5", 3),
    "R13: a leaving neighbour relays an offer": ("S3", 8),
    "R14: the answer goes back through the relay": ("S3", 9),
    "R14: a leaving sibling accepts the role": ("S5", 5),
    "R14: a keeper accepts another's role while it offers its own": ("S5", 8),
    "R8: draining begins before the predecessors have acknowledged": ("S1", 3),
    "D1: an idle newcomer drops tuples": ("S1", 4),
    "E3: children that know the end already are told again": ("S3", 20),
    # F14 to F19. The page has the numbers of the first models, which are others where moving a
    # group takes more messages than a join, or fewer, and where a fault is found at other places.
    "M4: groups that go to children are not brought to rest": ("K2", 15),
    "M5: the state goes out before the successors have answered": ("K2", 15),
    "duty 10: tuples that were kept do not go along with the state": ("L2", 12),
    "M8: the new owner owns the groups before it knows the routes of their old owner": ("K1", 31),
}


def is_consequence(fault: str) -> bool:
    """Not an invariant or a refusal by the core, but what they are to prevent."""
    return re.match(r"[SL]\d|K[12]", fault) is not None


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_a_broken_rule_is_found_out(variant: Variant) -> None:
    found = explore(variant.machine(), variant.scope)
    assert found.fault.split(":")[0] in variant.finding, found.fault


NOT_SMALL = {str(v.scope) for v in VARIANTS} - {str(scope) for scope in SMALL.values()}
"""In the others, test_explorer_scopes.py finds nothing."""


@pytest.mark.parametrize("text", sorted(NOT_SMALL))
def test_the_same_scopes_have_nothing_against_the_shipped_core(text: str) -> None:
    found = explore(Shipped(), Scope.parse(text))
    assert found.fault == ""
    assert found.complete


def test_every_rule_has_a_broken_variant() -> None:
    assert {v.rule for v in VARIANTS} == RULES


def test_every_counterexample_met_while_designing_has_a_variant() -> None:
    known = {name for v in VARIANTS for name in v.also.split(", ")}
    met = {f"F{n}" for n in range(1, 20)}
    assert met <= known


def test_variants_replace_cells_of_the_table_and_leave_the_shipped_one_alone() -> None:
    for variant in VARIANTS:
        broken = [variant.patch, variant.broken_duty, variant.replay_order is not ReplayOrder]
        assert sum(map(bool, broken)) == 1
        assert variant.patch.keys() <= TABLE.keys()
        assert all(TABLE[cell] is not rule for cell, rule in variant.patch.items())


@pytest.mark.parametrize("name", CONSEQUENCES)
def test_what_a_broken_rule_leads_to_takes_as_many_steps_as_when_it_was_met(name: str) -> None:
    code, steps = CONSEQUENCES[name]
    (variant,) = (v for v in VARIANTS if v.name == name)
    found = explore(variant.machine(), variant.scope, wanted=is_consequence)
    assert (found.fault.split(":")[0], len(found.path)) == (code, steps)


def test_the_scopes_of_the_default_run_are_enough_to_find_a_broken_rule() -> None:
    (variant,) = (v for v in VARIANTS if v.also == "F11" and v.rule == "R8")
    caught = catch(variant)
    assert caught.fault
    assert caught.by in {"1,1 joins=1 leaves=1 tuples=2 batch=2", "1,2 joins=1 leaves=2"}


@pytest.mark.parametrize("broken", BROKEN_CHANNELS, ids=lambda b: b.what)
def test_a_broken_channel_is_found_out(broken: BrokenChannel) -> None:
    found = explore_cuts(broken.scope, broken.parts)
    assert re.match(r"N\d:", found.fault)
    assert found.path


@pytest.mark.parametrize("scope", sorted({b.scope for b in BROKEN_CHANNELS}, key=str), ids=str)
def test_the_same_scopes_have_nothing_against_the_shipped_channel(scope: CutScope) -> None:
    assert explore_cuts(scope).fault == ""


@pytest.mark.slow
def test_blocking_sends_deadlock_the_scaling_protocol() -> None:
    """`docs/protocol.md` 4. It takes two predecessors, two siblings and full channels; credits,
    which let an instance do something else, pass the same scope."""
    found = explore(Shipped(), BLOCKING)
    assert found.fault.startswith("L2:")
    assert len(found.path) == 14


@pytest.mark.slow
def test_bounded_channels_with_credits_do_not() -> None:
    found = explore(Shipped(), Scope.parse(str(BLOCKING).removesuffix(" blocking")))
    assert found.fault == ""
    assert found.complete
