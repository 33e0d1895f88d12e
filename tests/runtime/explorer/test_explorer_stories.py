"""A finding as a person gets to see it: a numbered exchange, and a sequence chart."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from anabranch.protocol import messages as m
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.ownership import Route
from anabranch.runtime.broken_protocols.counterexamples import PUBLISHED
from anabranch.runtime.broken_protocols.variants import VARIANTS, Variant
from anabranch.runtime.explorer.bulk import Bulk
from anabranch.runtime.explorer.chart import chart
from anabranch.runtime.explorer.items import GroupState, Tuple
from anabranch.runtime.explorer.machine import Shipped
from anabranch.runtime.explorer.scope import Scope
from anabranch.runtime.explorer.search import Verdict, explore
from anabranch.runtime.explorer.story import rows, say, told
from anabranch.runtime.explorer.survey import summary_of, survey

X, Y = (InstanceId(OperatorName("O1"), n) for n in (0, 1))
SVG = "{http://www.w3.org/2000/svg}"


def finding(name: str) -> Verdict:
    (case,) = (c for c in PUBLISHED if c.name == name)
    return explore(case.machine(), case.scope, wanted=case.is_it)


def test_pf1_reads_as_the_design_tells_it() -> None:
    found = finding("PF1")
    assert found.sites is not None
    news = "DUPLICATION(new={O1.1})"
    assert told(found.sites, found.path, found.fault).splitlines() == [
        f"   1. O1.0 decides to duplicate into {{O1.1}}; {news} to {{O0.0}}  [active]",
        f"   2. O0.0 receives {news} from O1.0; DUPLICATION_ACK to {{O1.0}}  [active]",
        "   3. O0.0 reads a tuple for {O1.1}  [active]",
        "   4. O1.1 receives tuple from O0.0  [idle]",
        "      => S1: the tuple is dropped at O1.1",
    ]


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (Tuple(), "tuple"),
        (m.Join(frozenset({Y, X})), "JOIN(new={O1.0,O1.1})"),
        (m.JoinAck(), "JOIN_ACK"),
        (m.Start(frozenset({X}), frozenset()), "START(succs={O1.0}, preds={})"),
        (m.Start(frozenset(), frozenset(), keeper=True), "START(succs={}, preds={}, keeper)"),
        (m.Leave(), "LEAVE"),
        (m.Eos(frozenset({Y})), "EOS(told={O1.1})"),
        (m.BecomeKeeper(X), "BECOME_KEEPER(origin=O1.0)"),
        (m.OfferResponse(ok=True), "OFFER_RESPONSE(ok)"),
        (m.OfferResponse(ok=False), "OFFER_RESPONSE(no)"),
        (Tuple(X, 1, 3), "tuple(O1.0 g1 #3)"),
        (m.Join(frozenset(), (Route(Y, 1, 2),)), "JOIN(moved=1->O1.1@2)"),
        (m.Start(frozenset(), frozenset(), new_owner=True), "START(succs={}, preds={}, new_owner)"),
        (m.AdoptOffer(), "ADOPT_OFFER"),
        (m.AdoptOffer(draw=1), "ADOPT_OFFER(draw=1)"),
        (m.Adopt(X), "ADOPT(origin=O1.0)"),
        (m.AdoptResponse(ok=False), "ADOPT_RESPONSE(no)"),
        (m.StateMoved((Route(Y, 1, 2),)), "STATE_MOVED(owned=1->O1.1@2)"),
        (
            GroupState(((0, ()), (2, ())), (Tuple(X, 2, 5),)),
            "STATE(g0,g2, tuple(O1.0 g2 #5))",
        ),
    ],
)
def test_messages_are_called_what_the_design_calls_them(item: object, text: str) -> None:
    assert say(item) == text


def test_what_happens_to_key_groups_reads_as_the_design_tells_it() -> None:
    (variant,) = (v for v in VARIANTS if v.rule == "duty 10")
    found = explore(variant.machine(), variant.scope)
    assert found.sites is not None
    news = "JOIN(new={O1.1}, moved=0->O1.1@1)"
    lines = told(found.sites, found.path, found.fault).splitlines()
    decided = "decides to duplicate into {O1.1}, giving groups 0->O1.1"
    assert any(f"O1.0 {decided}; {news} to {{O0.0,O2.0}}" in line for line in lines)
    assert any("O0.0 reads a tuple of group 0 for {O1.0}" in line for line in lines)
    assert any("STATE(g0) to {O1.1}; STATE_MOVED(owned=0->O1.1@1) to {O1.1}" in x for x in lines)
    assert lines[-1] == "      => L2: 2 tuples are stuck at O1.0"


def test_decisions_about_key_groups_name_the_neighbour_that_is_asked() -> None:
    (variant,) = (v for v in VARIANTS if v.name.startswith("M7: a leaver begins to leave"))
    found = explore(variant.machine(), variant.scope)
    assert found.sites is not None
    texts = [row.text for row in rows(found.sites, found.path)]
    assert texts[0].startswith(
        "decides to leave, and asks for a new owner through O0.0; ADOPT_OFFER"
    )
    assert any(text.startswith("has brought the key groups that move to rest") for text in texts)
    assert any(text.startswith("has sent the state of key groups to O1.0") for text in texts)


@pytest.mark.parametrize("name", ["PF2", "PF3", "PF9"])
def test_a_chart_has_a_line_for_everybody_and_an_arrow_for_every_message(name: str) -> None:
    found = finding(name)
    assert found.sites is not None
    steps = rows(found.sites, found.path)
    drawn = ElementTree.fromstring(chart(steps, found.fault, f"{name} <the paper's>"))
    words = [text.text or "" for text in drawn.iter(f"{SVG}text")]
    arrows = [p for p in drawn.iter(f"{SVG}path") if "arrow" in p.get("class", "")]
    lost = [p for p in arrows if "lost" in p.get("class", "")]
    sent = sum(len(step.sent) for step in steps)
    received = sum(step.received is not None for step in steps)
    assert len(arrows) == sent
    assert len(lost) == sent - received
    assert {str(step.actor) for step in steps} <= set(words)
    assert found.fault in words
    assert f"{name} <the paper's>" in words


def test_what_a_sound_scope_has_to_tell_is_nothing() -> None:
    found = survey(Scope.parse("1,1 joins=1 tuples=1"))
    assert found.sound
    assert (found.story, found.picture, found.steps) == ("", "", 0)


@pytest.mark.parametrize("variant", VARIANTS[::7], ids=lambda v: v.name)
def test_the_search_in_bulk_finds_as_short_a_story(variant: Variant) -> None:
    one = summary_of(explore(variant.machine(), variant.scope))
    other = summary_of(Bulk(variant.machine(), variant.scope).run())
    assert one.steps == other.steps
    assert other.story.splitlines()[-1].startswith("      => ")
    assert len(other.story.splitlines()) == other.steps + 1


def test_a_long_search_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.runtime.explorer.survey.PROGRESS_S", 0.0)
    lines: list[str] = []
    survey(Scope.parse("1,2 joins=1 leaves=2"), report=lines.append)
    assert "states/s" in lines[-1]
    assert lines[-1].startswith("1,2 joins=1 leaves=2: 267 states")


def test_bounded_channels_are_not_searched_in_bulk() -> None:
    with pytest.raises(ValueError, match="one state at a time"):
        Bulk(Shipped(), Scope.parse("1,1 tuples=2 room=1"))
    assert survey(Scope.parse("1,1 tuples=2 room=1"), bulk=True).sound
