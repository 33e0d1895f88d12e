"""The agent carries out runs of real processes, whose instances only speak to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.live.process.run_dir import PATH_BYTES_MAX
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.policies.policy import Scale
from tests.runtime import fake_instance as fake
from tests.runtime.agent_runs import (
    finish,
    kinds,
    start,
    until,
    wait_for,
)
from tests.runtime.fake_instance import Endless, Fake, Numbers, three_operators

pytestmark = pytest.mark.usefixtures("usual_behaviour")


def test_a_run_is_complete_when_every_instance_has_given_its_account() -> None:
    report = finish(start(three_operators(Numbers(5), min_instances=3)))
    assert (report.ended, report.failure, report.ok) == ("completed", None, True)
    assert report.ledger.tuples_in == 5
    assert [o.instances_peak for o in report.operators] == [1, 3, 1]
    assert kinds(report) == ["ended"] * 3


def test_founders_know_their_neighbours_completely_and_one_is_the_keeper() -> None:
    def tell(me: Fake) -> None:
        assert me.assign.bootstrap is not None
        bootstrap = me.assign.bootstrap
        succs = sorted(i[1] for i, address in bootstrap.succs if address.startswith("unix:/"))
        preds = sorted(i[1] for i in bootstrap.preds)
        me.note("told", f"{me.id} {preds} {succs} {bootstrap.keeper}")

    for operator in ("lines", "work", "out"):
        fake.BEHAVIOUR[operator] = tell
    pipeline = Pipeline("fake")
    lines = pipeline.source("lines", Numbers(), scale=Scale(min_instances=2))
    work = lines.map("work", str, scale=Scale(min_instances=3))
    work.sink("out", fake.Nowhere(), scale=Scale(min_instances=2))
    report = finish(start(pipeline))
    assert sorted(e.detail for e in report.events if e.label == "told") == [
        "lines.0 [] [0, 1, 2] True",
        "lines.1 [] [0, 1, 2] False",
        "out.0 [0, 1, 2] [] True",
        "out.1 [0, 1, 2] [] False",
        "work.0 [0, 1] [0, 1] True",
        "work.1 [0, 1] [0, 1] False",
        "work.2 [0, 1] [0, 1] False",
    ]


def test_the_folder_of_a_run_is_private_short_and_removed() -> None:
    def tell(me: Fake) -> None:
        me.note("folder", f"{me.run_dir} {me.run_dir.stat().st_mode & 0o777:o}")

    fake.BEHAVIOUR["work"] = tell
    report = finish(start(three_operators()))
    folder, mode = next(e.detail for e in report.events if e.label == "folder").split()
    assert mode == "700"
    assert len(folder) <= PATH_BYTES_MAX
    assert not Path(folder).exists()


def test_instances_share_the_splits_without_overlap() -> None:
    def tell(me: Fake) -> None:
        me.status()
        me.read_everything()
        for split in me.claimed:
            me.note("read", str(split["n"]))
        me.gone()

    fake.BEHAVIOUR["lines"] = tell
    pipeline = Pipeline("fake")
    lines = pipeline.source("lines", Numbers(40), scale=Scale(min_instances=3))
    lines.sink("out", fake.Nowhere())
    report = finish(start(pipeline))
    read = [int(e.detail) for e in report.events if e.label == "read"]
    assert sorted(read) == list(range(40))


def test_an_instance_that_claimed_in_vain_gets_what_another_one_puts_back() -> None:
    def tell(me: Fake) -> None:
        me.status()
        if me.id.number == 0:
            me.say(msg.Claim())
            split = me.expect(msg.SplitAnswer).split
            (me.run_dir / "claimed").touch()
            wait_for(me.run_dir / "asked")
            me.say(msg.Release(remainder={**split, "rest": True}, progress=0.5))
            me.gone()
        wait_for(me.run_dir / "claimed")
        me.say(msg.Claim())
        while me.expect(msg.SplitAnswer).split is not None:
            me.say(msg.Release(remainder=None))
            me.say(msg.Claim())
        (me.run_dir / "asked").touch()
        me.expect(msg.Splits)
        me.say(msg.Claim())
        me.note("got", str(me.expect(msg.SplitAnswer).split.get("rest")))
        me.say(msg.Release(remainder=None))
        me.say(msg.Claim())
        me.note("then", str(me.expect(msg.SplitAnswer).ended))
        me.gone()

    fake.BEHAVIOUR["lines"] = tell
    pipeline = Pipeline("fake")
    lines = pipeline.source("lines", Numbers(5), scale=Scale(min_instances=2))
    lines.sink("out", fake.Nowhere())
    report = finish(start(pipeline))
    told = {e.label: e.detail for e in report.events}
    assert (told["got"], told["then"]) == ("True", "True")


def test_a_snapshot_shows_what_runs() -> None:
    def tell(me: Fake) -> None:
        me.status(tuples_in=10, load=0.5, queued=3, held=2, blocked_by="out.0")

    fake.BEHAVIOUR["work"] = tell
    with start(three_operators(Endless(), min_instances=2)) as run:
        until(lambda: run.snapshot().operator("work").queued == 6)
        snapshot = run.snapshot()
        work = snapshot.operator("work")
        assert (snapshot.phase, snapshot.pipeline) == ("running", "fake")
        assert (work.kind, work.instances, work.tuples_in) == ("operator", 2, 20)
        assert (work.load, work.queued, work.held) == (0.5, 6, 4)
        assert [m.id for m in work.members] == ["work.0", "work.1"]
        assert [m.keeper for m in work.members] == [True, False]
        assert work.members[0].blocked_by == "out.0"
        assert {m.pid for o in snapshot.operators for m in o.members} <= set(snapshot.pids)
    assert run.snapshot().phase == "ended"


def test_progress_is_the_share_of_the_input_that_was_read() -> None:
    def half(me: Fake) -> None:
        me.status()
        for _ in range(2):
            me.say(msg.Claim())
            number = me.expect(msg.SplitAnswer).number
            me.say(msg.Progress(number=number, progress=0.5))
            me.say(msg.Release(remainder=None, progress=1.0))
        me.expect(msg.EndInput)

    fake.BEHAVIOUR["lines"] = half
    run = start(three_operators(Numbers(4)))
    until(lambda: run.snapshot().operator("lines").progress == 0.5)
    assert run.snapshot().operator("work").progress is None
    run.end_input()
    finish(run)
