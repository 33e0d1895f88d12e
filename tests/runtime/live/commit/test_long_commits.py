"""Commits that are long because the last one had much to tell end when nothing more can be done."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from anabranch.runtime.pipeline.graph import Pipeline
from tests.runtime.live.instance.test_keyed_watermarks import Spoken
from tests.runtime.network import Kept, Network
from tests.runtime.virtual_time import in_virtual_time

CREDIT = 64
TUPLES = 40 * CREDIT


@in_virtual_time
async def test_who_has_used_up_the_credit_of_others_does_not_wait_for_the_end_of_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, kept = Spoken(), Kept()
    pipeline = Pipeline("counting", groups=8)
    numbers = pipeline.source("numbers", source)
    numbers.key_by(lambda n: n % 3).fold("count", 0, lambda n, _: n + 1).sink("kept", kept)
    limits = {"credit_tuples": CREDIT, "outbox_tuples_max": CREDIT}
    network = Network(pipeline, tmp_path, journals=True, **limits)
    await network.start()
    (count,) = network.of("count")
    commits = count.commits
    assert commits is not None

    def tell() -> None:
        count.pump.tell(commits)
        commits.timer.not_before = asyncio.get_running_loop().time() + 3600.0

    monkeypatch.setattr(commits, "_tell_changes", tell)
    source.say(*range(TUPLES))
    source.end()
    await network.until(lambda: len(kept.tuples) > TUPLES // 2)
    monkeypatch.undo()
    commits.timer.not_before = 0.0
    commits.end_if_awaited()
    await network.finish()
    assert len(kept.tuples) == TUPLES
