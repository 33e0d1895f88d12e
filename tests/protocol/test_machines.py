"""Cores that scale, hand over and finish all at once, over channels that stall and break.

What happens is drawn by Hypothesis. Profiles: `fast` (in every run of the tests) and `deep`
(`ANABRANCH_HYPOTHESIS=deep`, minutes). A failure prints one command that repeats it.
"""

from __future__ import annotations

import itertools
import os
import random
import sys

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from anabranch.protocol.errors import AnabranchProtocolError
from anabranch.protocol.session import Session
from anabranch.protocol.table import TABLE
from anabranch.runtime.broken_protocols.variants import VARIANTS
from tests.protocol.fake_network import ACCIDENTS, DECISIONS, GRAPHS, KINDS, ROUTINE, Network
from tests.protocol.replay import command, replay
from tests.protocol.storm import ACTS, storm

DEEP = os.environ.get("ANABRANCH_HYPOTHESIS") == "deep"
TOLD_EVERY = 100
runs = itertools.count(1)


def tell_progress() -> None:
    """A line now and then where it takes minutes."""
    if DEEP and (run := next(runs)) % TOLD_EVERY == 0:
        print(f"{run:,} runs, nothing found", file=sys.stderr, flush=True)


class Machines(RuleBasedStateMachine):
    """Every step is one act of the fake network, which checks the invariants after it."""

    network: Network

    @initialize(
        graph=st.sampled_from(sorted(GRAPHS)),
        counts=st.lists(st.integers(1, 3), min_size=4, max_size=4),
        window=st.integers(1, 5),
        keyed=st.sampled_from(("", "b", "c", "bc", "bcd")),
    )
    def begin(self, graph: str, counts: list[int], window: int, keyed: str) -> None:
        self.network = Network(graph, tuple(counts), window, keyed)

    def _one_of(self, kinds: tuple[str, ...], kind: int, which: int) -> None:
        """An act of one of these kinds, or of the next kind of which there is one."""
        for offset in range(len(kinds)):
            acts = self.network.acts(kinds[(kind + offset) % len(kinds)])
            if acts:
                self._act(acts[which % len(acts)])
                return

    def _act(self, text: str) -> None:
        try:
            self.network.act(text)
        except BaseException:
            note(f"to repeat it: {command(self.network)}")
            raise

    @rule(kind=st.integers(0, len(DECISIONS) - 1), which=st.integers(0, 60))
    def decide(self, kind: int, which: int) -> None:
        self._one_of(DECISIONS, kind, which)

    @rule(kind=st.integers(0, len(ROUTINE) - 1), which=st.integers(0, 60))
    def go_on(self, kind: int, which: int) -> None:
        self._one_of(ROUTINE, kind, which)

    @rule(kind=st.integers(0, len(ROUTINE) - 1), which=st.integers(0, 60), n=st.integers(2, 12))
    def go_on_for_a_while(self, kind: int, which: int, n: int) -> None:
        for step in range(n):
            self._one_of(ROUTINE, kind + step, which * (step + 1))

    @rule(which=st.integers(0, 60), n=st.integers(1, 8))
    def let_one_channel_overtake(self, which: int, n: int) -> None:
        acts = self.network.acts("deliver")
        if not acts:
            return
        chosen = acts[which % len(acts)]
        for _ in range(n):
            if chosen in self.network.acts("deliver"):
                self._act(chosen)

    @rule(kind=st.integers(0, len(ACCIDENTS) - 1), which=st.integers(0, 60))
    def meet_with_an_accident(self, kind: int, which: int) -> None:
        self._one_of(ACCIDENTS, kind, which)

    def teardown(self) -> None:
        if not hasattr(self, "network"):
            return
        tell_progress()
        acts = len(self.network.history)
        try:
            self.network.settle()
        except BaseException:
            del self.network.history[acts:]
            note(f"to repeat it: {command(self.network)}")
            raise


PROFILES = {
    "fast": settings(
        max_examples=50, stateful_step_count=80, deadline=None, report_multiple_bugs=False
    ),
    "deep": settings(
        max_examples=5000, stateful_step_count=200, deadline=None, report_multiple_bugs=False
    ),
}

# Finding a short failure takes time.
TestMachines = pytest.mark.timeout(0 if DEEP else 900)(Machines.TestCase)
TestMachines.settings = PROFILES[os.environ.get("ANABRANCH_HYPOTHESIS", "fast")]


@pytest.mark.parametrize("graph", sorted(GRAPHS))
@pytest.mark.parametrize("seed", range(2))
def test_twenty_cores_at_once_lose_and_double_nothing(graph: str, seed: int) -> None:
    """A longer storm than Hypothesis draws."""
    network = storm(seed, graph=graph, acts=700)
    assert any(one.me.creator >= 0 for one in network.instances.values()), "nobody has joined"
    assert network.read_by, "a storm in which nothing was read proves nothing"


@pytest.mark.parametrize("graph", sorted(GRAPHS))
def test_key_groups_move_in_a_storm_and_every_tuple_follows_the_one_before(graph: str) -> None:
    network = storm(3, graph=graph, acts=800, keyed="bcd")
    assert any(act.startswith("transfer") for act in network.history), "no key group has moved"
    assert network.read_by, "a storm in which nothing was read proves nothing"


FOUND_BY_STORMS = (
    "R1: JOIN goes to the successors only",
    "R3: the first acknowledgement is taken for all of them",
    "R6: LEAVE and EOS are sent together, as the paper's deletion is",
    "R8: draining begins before the predecessors have acknowledged",
    "R11: a leaver ends with the first EOS_ACK",
    "R12: the fresh instance is started without the role",
    "D1: a leaver drops the tuples that still come",
    "D2: results are sent twice",
    "E5: the first DONE is taken for all of them",
    "M1: groups move while others do",
    "M4: groups that go to a new owner are not brought to rest",
    "M5: the state goes out before the predecessors have answered",
    "M5: a router acknowledges new owners, but does not switch",
    "M7: nothing is said behind the state",
)


@pytest.mark.parametrize("name", FOUND_BY_STORMS)
def test_a_storm_finds_out_a_broken_rule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the storms above would prove little."""
    (variant,) = (v for v in VARIANTS if v.name == name)
    for cell, rule_ in variant.patch.items():
        monkeypatch.setitem(TABLE, cell, rule_)
    with pytest.raises((AssertionError, AnabranchProtocolError)) as caught:
        storms(8, keyed="bcd" if variant.scope.keyed else None)
    assert any("to repeat it: python -m" in note_ for note_ in caught.value.__notes__)


def test_a_storm_finds_out_a_session_without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taking any number does no harm as long as only what is missing is repeated, and repeating
    everything does none as long as only the next number is taken: section 7."""
    monkeypatch.setattr(Session, "receive", _take_any_number)
    monkeypatch.setattr(Session, "resume", _repeat_everything)
    with pytest.raises((AssertionError, AnabranchProtocolError)):
        storms(8)


def _take_any_number(session: Session[object], number: int) -> bool:
    session.expected = max(session.expected, number + 1)
    return True


def _repeat_everything(
    session: Session[object], expected: int, acknowledged: int
) -> list[tuple[int, object]]:
    return list(enumerate(session._kept, start=session.first_kept))


def storms(seeds: int, *, keyed: str | None = None) -> None:
    for seed in range(seeds):
        storm(seed, keyed=keyed, acts=1000 if keyed else ACTS)


def test_a_run_can_be_played_again_from_its_acts() -> None:
    network = Network("chain", (1, 2, 1), 2, "b")
    rng = random.Random(7)
    for _ in range(200):
        if acts := network.acts(rng.choice(KINDS)):
            network.act(rng.choice(acts))
    again = replay(network.options, network.history, settle=False)
    assert {n: i.core.state for n, i in again.instances.items()} == {
        n: i.core.state for n, i in network.instances.items()
    }


def test_the_acts_name_every_kind_that_the_network_knows() -> None:
    known = {name.removeprefix("_can_") for name in dir(Network) if name.startswith("_can_")}
    assert known == set(KINDS)
