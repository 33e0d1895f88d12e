"""Seeded worlds: the shipped classes survive them, a broken rule or class does not, and a seed is a
world."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from anabranch.runtime.broken_protocols.naming import variant_named
from anabranch.runtime.live.instance.outbox import Outbox
from anabranch.runtime.live.instance.poison_guard import TRIES, PoisonGuard
from anabranch.runtime.world.drawing import drawn
from anabranch.runtime.world.drawn_trial import Crashes, Trial, plain
from anabranch.runtime.world.graph_oracle import Expected, expected, faults
from anabranch.runtime.world.graphs import BAD, Graph, GraphNode, Outlet
from anabranch.runtime.world.lapse_list import lapse_named
from anabranch.runtime.world.load import InputLoad
from anabranch.runtime.world.scenes import SCENES
from anabranch.runtime.world.stdio_scene import StdioScene
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.swarm import (
    CHUNK,
    Seeds,
    Tally,
    first_found,
    over_processes,
    patched,
    swarm,
)
from anabranch.runtime.world.trial import WorldVerdict, judged, told
from anabranch.runtime.world.troubles import Troubles
from tests.runtime.processes import PATIENCE_S

SEEDS = 500
AT_A_TIME = 20
ALL_KINDS = 60
"""Seeds within which everything happens."""


def valid(first: int, count: int) -> Tally:
    tally = Seeds(first, count).run()
    assert [(one.seed, one.reason) for one in tally.failing] == []
    assert tally.verdicts[WorldVerdict.VALID] > 0.8 * count
    assert tally.sums["joins"] + tally.sums["hand-overs"] > 0
    return tally


def test_worlds_are_valid_and_everything_happens_in_them() -> None:
    tally = valid(0, ALL_KINDS)
    wanted = {"joins", "leaves", "moves", "hand-overs", "vetoes", "deaths", "kills", "host_kills"}
    wanted |= {"cuts", "hang_ups", "clogs", "deafs", "stops", "slows", "disk full", "disk killed"}
    wanted |= {"halts", "hangs", "spins", "parent_stops", "agent's disk full"}
    wanted |= {"agent's disk killed", "agent's disk unreadable", "savepoints"}
    assert wanted - (+tally.sums).keys() == set()


@pytest.mark.parametrize("first", range(ALL_KINDS, SEEDS, AT_A_TIME))
def test_worlds_are_valid_and_most_prove_something(first: int) -> None:
    valid(first, AT_A_TIME)


def test_worlds_are_of_all_kinds() -> None:
    trials = [drawn(seed) for seed in range(200)]
    assert len({trial.scene.name for trial in trials}) == 10
    assert len({trial.delivery for trial in trials}) == 3
    assert any(trial.outlives_power for trial in trials)
    assert any(trial.ends and not trial.outlives_power for trial in trials)
    assert any(trial.rest_at_s is not None for trial in trials)
    assert any(trial.scene.decides for trial in trials)
    assert any(trial.hangs for trial in trials)
    assert any(trial.saving is not None and trial.saving.least for trial in trials)
    assert any(trial.troubles.prey for trial in trials)
    assert any(trial.troubles.sudden for trial in trials)
    assert any(trial.troubles.at_once for trial in trials)
    assert any(trial.agent_disk.unsyncable for trial in trials)
    assert {bool(trial.troubles.kill) for trial in trials} == {False, True}
    graphs = [g for trial in trials if (g := getattr(trial.scene, "graph", None)) is not None]
    assert any(len(node.above) > 1 for graph in graphs for node in graph.nodes)
    assert any(len(graph.sources) > 1 for graph in graphs)
    assert any(len(graph.outlets) > 1 for graph in graphs)
    assert {o.kind for g in graphs for o in g.outlets} == {
        "jsonl",
        "keyed jsonl",
        "parquet",
        "foreach",
        "discard",
    }
    assert json.dumps(plain(trials[0]))


def test_crashes_are_in_all_worlds_or_in_none() -> None:
    for seed in range(30):
        none, all_ = drawn(seed, crashes="none"), drawn(seed, crashes="all")
        assert not none.troubles.kill
        assert not none.ends
        assert all_.troubles.kill or all_.scene.crashes


def test_worlds_with_standard_input_and_output_are_valid_whatever_these_are() -> None:
    scenes = [drawn(seed, "stdio").scene for seed in range(8)]
    assert {scene.is_file for scene in scenes if isinstance(scene, StdioScene)} == {False, True}
    tally = Seeds(0, 8, crashes="all", scene="stdio").run()
    assert [(one.seed, one.reason) for one in tally.failing] == []
    assert tally.sums["deaths"] > 8


def test_worlds_of_a_new_owner_are_valid_and_kill_the_one_behind_it() -> None:
    tally = Seeds(0, 6, crashes="all", scene="new-owner").run()
    assert [(one.seed, one.reason) for one in tally.failing] == []
    assert tally.sums["joins"] > 3
    assert tally.sums["deaths"] > 6
    assert not drawn(0, "new-owner", crashes="none").troubles.kill


DIGESTS = """
import logging
from anabranch.runtime.world.drawing import drawn
from anabranch.runtime.world.trial import judged
logging.disable()
print(*(judged(drawn(seed)).trace for seed in range(4)))
"""


def test_a_seed_tells_the_same_story_in_every_process() -> None:
    told_ = [
        subprocess.run(
            [sys.executable, "-c", DIGESTS],
            env={"PYTHONHASHSEED": "1"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        for _ in range(2)
    ]
    first, second = (done.stdout.split() for done in told_)
    assert first == second
    assert len(set(first)) == 4, told_[0].stderr


def test_being_written_down_changes_nothing() -> None:
    for seed in range(4):
        outcome, rows = told(drawn(seed))
        silent = judged(drawn(seed))
        assert replace(outcome, cpu_s=0.0) == replace(silent, cpu_s=0.0)
        assert rows


def test_what_crashes_an_instance_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("in the outbox")

    monkeypatch.setattr(Outbox, "send", crash)
    outcome = judged(drawn(1))
    assert outcome.verdict is WorldVerdict.INVALID
    assert "ZeroDivisionError" in outcome.reason


@pytest.mark.parametrize(
    ("kills", "verdict"), [(0.001, WorldVerdict.UNKNOWN), (0.0, WorldVerdict.INVALID)]
)
def test_where_troubles_kill_a_tuple_may_count_as_the_reason(
    kills: float, verdict: WorldVerdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blame(guard: PoisonGuard, senders: int, gathered: int = 0) -> None:
        guard.on, guard._left = True, 1_000
        guard._deaths["frame", "numbers.0", 1, 0] = ("was killed by SIGKILL",) * TRIES

    monkeypatch.setattr(PoisonGuard, "_consider", blame)
    trial = Trial(
        seed=1,
        size="small",
        scene=SCENES["chain"],
        load=InputLoad(count=30, span_s=0.05, bursts=()),
        decisions=(),
        conditions=Conditions(),
        troubles=Troubles(until_s=0.1, kills=kills),
    )
    outcome = judged(trial)
    assert (outcome.verdict, outcome.happened["kills"]) == (verdict, 0)
    assert "1 dead letters are counted and 1 written, of 0 bad tuples" in outcome.reason


# -- the oracle ----------------------------------------------------------------------------------

GRAPH = Graph(
    (
        GraphNode(name="a", kind="source"),
        GraphNode(name="b", kind="bad", above=("a",)),
        GraphNode(name="c", kind="count", above=("a", "b"), keys=1),
        GraphNode(name="d", kind="count", above=("c",), keys=1),
    ),
    (Outlet("out", "d", "jsonl", None),),
    paced=True,
)
WANT = expected(GRAPH, InputLoad(count=BAD + 1, span_s=1.0, bursts=()))
ROWS = [
    row
    for n in range(BAD + 1)
    for row in ((n, f"c:0#{2 * n + 1} d:0#{2 * n + 1}"), (n, f"b c:0#{2 * n + 2} d:0#{2 * n + 2}"))
][:-1]


def found(rows: list[tuple[int, str]], want: Expected = WANT) -> str:
    return next(faults(GRAPH, want, {"out": rows}, frozenset()), "")


def test_the_oracle_finds_nothing_where_nothing_is_wrong() -> None:
    assert (found(ROWS), WANT.dead, WANT.counts["c", 0]) == ("", 1, 2 * BAD + 1)


@pytest.mark.parametrize(
    ("harm", "word"),
    [
        (lambda rows: rows[:-1], "1 tuples are lost: (41, "),
        (lambda rows: [*rows, rows[0]], "1 tuples are doubled: (0, "),
        (lambda rows: [*rows, (99, rows[0][1])], "1 tuples are unexpected: (99, "),
        (lambda rows: [*rows[:-1], (41, "c:0#1 d:0#83")], "K1: key 0 of c has counted to 1 twice"),
        (lambda rows: [*rows[:-1], (41, "c:0#84 d:0#83")], "has counted to 84, which is too far"),
        (
            lambda rows: [(0, "c:0#1 d:0#2"), (0, "b c:0#2 d:0#1"), *rows[2:]],
            "K2: key 0 of d has tuples of key 0 of c in another order",
        ),
        (
            lambda rows: [(0, "c:0#3 d:0#3"), rows[1], (1, "c:0#1 d:0#1"), *rows[3:]],
            "K2: key 0 of c has tuples of a in another order",
        ),
        (lambda rows: [*rows, (1, 2, 3)], "1 tuples are late"),
    ],
)
def test_the_oracle_finds_what_is_wrong(harm: object, word: str) -> None:
    assert callable(harm)
    assert word in found(harm(ROWS))


# -- what is broken ------------------------------------------------------------------------------

LAPSE_SEEDS = 300
SOON = {
    "acknowledges on receipt": 0,
    "acknowledges before the journal": 5,
    "forgets kept frames": 0,
    "expects a stale number": 0,
    "expects what was received": 27,
    "forgets what it settled ahead": 33,
    "does a batch in work again": 0,
    "says it once": 0,
    "ignores bytes": 0,
    "ends while a neighbour is dead": 5,
    "does not wait for repeats": 2,
    "takes what is new before repeats": 2,
    "late journal": 3,
    "restores an older state": 3,
    "drops a segment too early": 8,
    "never syncs": 8,
    "writes before the commit": 18,
    "twice": 30,
    "no letters": 4,
    "does not count letters": 8,
    "forgets counts": 0,
    "forgets what it had claimed": 15,
    "skips": 15,
    "skips a line": 4,
    "half a state": 16,
    "says event time before Restarted": 2,
    "adds state sent again to its part": 138,
    "does not perform Restarted": 0,
    "leaves without asking": 7,
    "keeps children that nobody knows": 8,
    "overdraws credit": 7,
    "forgets what it held": 0,
    "settles before results are safe": 3,
    "counts one dead letter less": 4,
    "calls timers twice": 0,
    "calls timers again": 1,
    "does not hold event time back": 2,
    "forgets which tuple it tried": 0,
    "gives a claim twice": 0,
    "forgets what is left of a claim": 8,
    "makes too many": 8,
    "drains at once or never": 54,
    "lets all go": 7,
    "writes Parquet files in place": 6,
    "does not sync Parquet files": 116,
    "does not know its Parquet files again": 26,
    "begins without state": 0,
    "reads its input again": 0,
    "loses what instances have given back": 0,
    "lays all state at one instance": 26,
    "saves no timers": 46,
    "saves no pins": 51,
    "reads standard input from the beginning": 12,
    "takes standard input through memory": 49,
    "writes to standard output at any time": 23,
    "does not end half a line": 6,
}
"""Lapses that show soon, each with a seed that has shown it: if that does not any more, others are
tried from 0 on. `scripts/swarm.py --lapses` finds all lapses."""


@pytest.mark.parametrize("name", SOON)
def test_a_broken_variant_of_a_class_is_found_out(name: str) -> None:
    lapse = lapse_named(name)
    assert lapse is not None
    right = vars(lapse.of)[lapse.attribute]
    known = Seeds(SOON[name], 1, crashes=lapse.crashes, scene=lapse.scene, lapse=name)
    assert known.run().failing or first_found(lapse, LAPSE_SEEDS) is not None
    assert vars(lapse.of)[lapse.attribute] is right


RULES = {"R11: a leaver ends without": 8, "F11": 8}
"""As in `SOON`."""


@pytest.mark.parametrize("rule", RULES)
def test_a_broken_rule_is_caught_within_a_few_seeds(rule: str) -> None:
    patch = variant_named(rule).patch
    tried = (RULES[rule], *range(60))
    seeds = (Seeds(seed, 1, patch=patch).run().failing for seed in tried)
    assert any(seeds)
    with patched({}):
        assert judged(drawn(0)).verdict is WorldVerdict.VALID


@pytest.mark.parametrize(
    ("seed", "scene", "crashes"),
    [
        (76, "", "all"),  # what an earlier incarnation had put was lost with the power
    ],
)
def test_a_world_that_was_invalid_once_is_valid(seed: int, scene: str, crashes: Crashes) -> None:
    outcome = judged(drawn(seed, scene, crashes=crashes))
    assert outcome.verdict is not WorldVerdict.INVALID, outcome.text


# -- many ----------------------------------------------------------------------------------------


def test_several_processes_find_what_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHUNK, "small", 2)
    like = Seeds(2, 2, lapse="late journal")
    heard: list[int] = []

    def note(tally: Tally) -> None:
        heard.append(tally.seeds)

    one = swarm(like, seeds=5, deadline_s=None, over=over_processes(1), progress=note)
    two = swarm(like, seeds=5, deadline_s=None, over=over_processes(2))
    assert [o.seed for o in one.failing] == [o.seed for o in two.failing] != []
    assert (one.verdicts, one.sums, heard) == (two.verdicts, two.sums, [2, 4, 5])


def test_a_swarm_without_time_does_nothing() -> None:
    tally = swarm(Seeds(0, 5), seeds=None, deadline_s=time.monotonic(), over=over_processes(1))
    assert tally.seeds == 0
