"""The published protocol, as printed: each fault of `docs/protocol.md` 1.3 is found again.

These are the reasons for our rules: two-phase leave (PF2), `told` and `late_*` (PF3), operators in
ids (PF4, PF5), one own operation and sets of awaited ids (PF6 to PF9), buffering newcomers (PF1).
"""

from __future__ import annotations

import pytest

from anabranch.runtime.broken_protocols.counterexamples import (
    PUBLISHED,
    PUBLISHED_HOLDS,
    Counterexample,
)
from anabranch.runtime.broken_protocols.published import PaperReading, Published
from anabranch.runtime.explorer.machine import Shipped
from anabranch.runtime.explorer.search import Verdict, explore
from anabranch.runtime.explorer.story import rows

READINGS = [
    PaperReading(serial, by_operator, buffers)
    for serial in (True, False)
    for by_operator in (True, False)
    for buffers in (True, False)
]


def find(case: Counterexample) -> Verdict:
    return explore(case.machine(), case.scope, wanted=case.is_it)


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case.name)
def test_a_fault_of_the_published_protocol_is_found_in_as_many_steps(case: Counterexample) -> None:
    found = find(case)
    assert case.is_it(found.fault)
    assert len(found.path) == case.steps


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case.name)
def test_the_shipped_core_has_no_such_fault(case: Counterexample) -> None:
    found = explore(Shipped(), case.scope)
    assert found.fault == ""
    assert found.complete


@pytest.mark.parametrize("name", PUBLISHED_HOLDS)
def test_the_charitable_reading_holds_where_at_most_one_deletion_meets_joins(name: str) -> None:
    found = explore(Published(), PUBLISHED_HOLDS[name])
    assert found.fault == ""
    assert found.complete


@pytest.mark.parametrize("reading", READINGS, ids=str)
@pytest.mark.parametrize("name", ["PF2", "PF3"])
def test_pf2_and_pf3_are_there_in_every_reading(name: str, reading: PaperReading) -> None:
    (case,) = (c for c in PUBLISHED if c.name == name)
    found = explore(Published(reading, strict=False), case.scope, wanted=case.is_it)
    assert case.is_it(found.fault)
    assert len(found.path) <= case.steps


def test_pf3_control_that_reaches_the_dead_is_seen_a_step_before_its_sender_waits_for_ever() -> (
    None
):
    (case,) = (c for c in PUBLISHED if c.name == "PF3")
    found = explore(Published(strict=True), case.scope)
    assert found.fault.startswith("S3: O0.1: Deletion from O1.1")
    assert len(found.path) == case.steps - 1


def test_pf2_a_leaver_flushes_to_one_that_has_left() -> None:
    (case,) = (c for c in PUBLISHED if c.name == "PF2")
    found = find(case)
    assert found.sites is not None
    texts = [str(row) for row in rows(found.sites, found.path)]
    assert "O1.1 decides to leave; DELETION to {O0.0,O2.0,O2.1}" in texts[2]
    assert "O2.1 has drained  [flushing->gone]" in texts[-2]
    assert "O2.1 receives tuple from O1.1  [gone]" in texts[-1]
