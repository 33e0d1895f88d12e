"""Instances go on on another host, at another address, while the others look for them."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.runtime.live.agent.moves import Moves
from anabranch.runtime.live.agent.roster import Member
from anabranch.runtime.live.agent.run_hosts import RunHosts
from anabranch.runtime.ports.disk import store
from anabranch.runtime.world.drawing import APART, drawn
from anabranch.runtime.world.drawn_trial import Trial
from anabranch.runtime.world.load import FOLDER
from anabranch.runtime.world.trial import WorldVerdict, judged
from anabranch.runtime.world.world import End

SHARE = 0.5
SEEDS = (21, 32, 48, 63, 96)
ENDS = 63
STANDS = 8


class Movers:
    """Every second time, a next incarnation is on another host, with its journal. That is not
    lost: whatever was on the former one has ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
        self.moved: list[Member] = []
        self._rng = random.Random(seed)
        self._settle = RunHosts.settle
        monkeypatch.setattr(RunHosts, "settle", lambda hosts, member: self.settle(hosts, member))

    def settle(self, hosts: RunHosts, member: Member) -> None:
        before, home = member.host, hosts._elsewhere.home
        others = [r.name for r in hosts._elsewhere.rooms() if r.name not in (before, home)]
        goes = member.has_begun and before not in ("", home) and others
        if goes and self._rng.random() < SHARE:
            host = self._rng.choice(others)
            with suppress(OSError):  # as the disk of the agent may have it
                _copy_journal(hosts, member, host)
                member.host = host
                self.moved.append(member)
        self._settle(hosts, member)


def _copy_journal(hosts: RunHosts, member: Member, to: str) -> None:
    place = list(hosts._pipeline.operators).index(member.id.operator)
    name = f"{place}.{member.id.number}.journal"
    for run in store().names(FOLDER / member.host):
        for folder in ("journals", "journals/extents"):
            there = FOLDER / member.host / run / "state" / folder
            here = FOLDER / to / run / "state" / folder
            store().make_folder(here, parents=True)
            for file in store().names(here):
                if _is_of(file, name):
                    store().remove(here / file)
            for file in store().names(there) if store().is_folder(there) else ():
                if _is_of(file, name):
                    _write(here / file, store().read(there / file))


def _is_of(file: str, journal: str) -> bool:
    return file == journal or file.startswith(f"{journal}.")


def _write(path: Path, data: bytes) -> None:
    file = store().open(path, os.O_WRONLY | os.O_CREAT)
    file.write(data, 0)
    file.close()


def world(seed: int) -> Trial:
    """What is copied here is not synced."""
    return replace(drawn(seed, APART, crashes="all"), ends=())


@pytest.mark.parametrize("seed", SEEDS)
def test_instances_go_on_on_another_host(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    movers = Movers(monkeypatch, seed)
    outcome = judged(world(seed))
    assert outcome.verdict is WorldVerdict.VALID, outcome.text
    assert movers.moved


def test_the_agent_knows_of_moves_before_its_own_death(monkeypatch: pytest.MonkeyPatch) -> None:
    for at_s in (0.5, 1.0, 1.5):
        movers = Movers(monkeypatch, 1)
        trial = replace(world(ENDS), ends=(End(at_s, power=False, gap_s=0.1),))
        outcome = judged(trial)
        assert outcome.verdict is WorldVerdict.VALID, outcome.text
        assert movers.moved


@pytest.mark.parametrize("forgotten", ["tell", "known_to"])
def test_where_others_are_not_told_of_a_move_the_run_stands(
    forgotten: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Movers(monkeypatch, STANDS)
    monkeypatch.setattr(Moves, forgotten, lambda moves, member: [])
    assert judged(world(STANDS)).verdict is WorldVerdict.INVALID
