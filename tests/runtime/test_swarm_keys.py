"""Worlds with keyed operators: each duty of a driver and each rule of event time that is neglected
is found out within a few hundred seeds."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import pytest

from anabranch.protocol import events, messages
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import Message
from anabranch.runtime.simulation.instance import Instance
from anabranch.runtime.simulation.keyed_work import Groups, KeyedWork
from anabranch.runtime.simulation.outbox import KeyedBranch
from anabranch.runtime.simulation.progress import FREEZING, Progress
from anabranch.runtime.simulation.scene import Scene, draw
from anabranch.runtime.simulation.trial import Outcome, Trial, Verdict

SEEDS = 400
"""Half of them have keys."""


def keyed_scenes(seeds: int) -> list[Scene]:
    """Those among the first so many that have keys."""
    return [scene for scene in map(draw, range(seeds)) if scene.timing is not None]


def found(seeds: int = SEEDS) -> Outcome | None:
    outcomes = (Trial(scene).run() for scene in keyed_scenes(seeds))
    return next((o for o in outcomes if o.verdict is Verdict.INVALID), None)


# -- neglected duties and broken rules ---------------------------------------------------------


def _process_what_is_frozen(self: KeyedWork, group: int) -> bool:
    return group in self.states


def _think_nothing_is_in_work(self: KeyedWork, groups: Groups) -> bool:
    return False


def _report_before_all_is_sent(self: KeyedWork) -> None:
    self.me.feed(events.GroupsFrozen())


def _leave_results_with_the_old_owner(self: KeyedBranch) -> None:
    pass


def _forget_what_was_kept(self: KeyedWork, group: int) -> list[object]:
    for one in self.kept.pop(group, []):
        self.queued -= 1
        self._kept_count -= 1
        if one.channel is not None:
            self._credit[one.channel] += 1
    return []


def _export_before_the_queue_is_passed(self: KeyedWork, to: InstanceId, groups: Groups) -> None:
    self.export(to, groups)


def _begin_with_what_was_kept_here(self: KeyedWork, group: int) -> list[object]:
    return [*self.kept.pop(group, ()), *self._came.pop(group, ())]


def _do_not_hear_newcomers(self: Progress, new: frozenset[InstanceId], creator: InstanceId) -> None:
    pass


def _tell_newcomers_the_present(self: Instance, message: Message) -> float:
    """W2 at the time of START."""
    assert self.progress is not None
    match message:
        case messages.Start():
            return self.progress.value
        case messages.AdoptResponse():
            return self.progress.out
    return 0.0


def _hold_while_freezing_only(self: Progress, why: Hashable) -> None:
    if why == FREEZING:
        self._holds.add(why)


def _hold_while_state_is_to_come_only(self: Progress, why: Hashable) -> None:
    if why != FREEZING:
        self._holds.add(why)


def _freeze_at_once(self: KeyedWork, heir: InstanceId) -> bool:
    return True


def _state_before_all_is_sent(self: Progress, watermark: float) -> None:
    self._state(watermark)


def _out_of_turn(self: Instance, do: Callable[[], None]) -> None:
    do()


Neglect = tuple[str, type, str, Callable[..., object], tuple[str, ...]]
NEGLECTS: list[Neglect] = [
    ("duty 9: tuples of frozen groups are processed", KeyedWork, "is_open",
     _process_what_is_frozen, ("K", "W", "S")),
    ("duty 9: at rest is what is not sent yet", KeyedWork, "report_when_sent",
     _report_before_all_is_sent, ("K", "W")),
    ("duty 4: held results stay with the old owner", KeyedBranch, "_rebind",
     _leave_results_with_the_old_owner, ("K", "L", "Local")),
    ("duty 10: kept tuples do not go along", KeyedWork, "kept_of",
     _forget_what_was_kept, ("K1", "S1")),
    ("duty 10: the state goes before the queue is passed", KeyedWork, "transfer",
     _export_before_the_queue_is_passed, ("K",)),
    ("duty 11: what was kept here is processed first", KeyedWork, "in_order",
     _begin_with_what_was_kept_here, ("K1",)),
    ("W1: a newcomer is not heard", Progress, "add", _do_not_hear_newcomers, ("W",)),
    ("W2: a newcomer begins with what is known at its start", Instance, "_says",
     _tell_newcomers_the_present, ("W",)),
    ("W3: who expects state holds nothing back", Progress, "hold",
     _hold_while_freezing_only, ("W",)),
    ("W4: the giver does not catch up with the heir", KeyedWork, "is_as_far_as",
     _freeze_at_once, ("W",)),
    ("W6: a watermark overtakes held results", Progress, "when_sent",
     _state_before_all_is_sent, ("W",)),
    ("what is said does not wait for its turn", Instance, "_in_turn", _out_of_turn, ("W",)),
]  # fmt: skip


@pytest.mark.parametrize("neglect", NEGLECTS, ids=lambda n: n[0])
def test_what_is_neglected_is_found_out(neglect: Neglect, monkeypatch: pytest.MonkeyPatch) -> None:
    _, where, name, broken, codes = neglect
    monkeypatch.setattr(where, name, broken)
    outcome = found()
    assert outcome is not None
    assert outcome.reason.startswith(codes)


CAUGHT_LATE: list[tuple[int, Neglect]] = [
    (4257, ("duty 9: at rest is what is still in work", KeyedWork, "is_at_work_on",
            _think_nothing_is_in_work, ("K1",))),
    (8384, ("W5: the giver holds nothing back while it freezes", Progress, "hold",
            _hold_while_state_is_to_come_only, ("W",))),
]  # fmt: skip
"""With the first seed that finds it, since the order of the queue and of what is held hides it
mostly. When worlds are drawn in another way, look for another one."""


@pytest.mark.parametrize(("seed", "neglect"), CAUGHT_LATE, ids=lambda v: str(v)[:40])
def test_what_is_hidden_mostly_is_found_out(
    seed: int, neglect: Neglect, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, where, name, broken, codes = neglect
    assert Trial(draw(seed)).run().verdict is Verdict.VALID
    monkeypatch.setattr(where, name, broken)
    assert Trial(draw(seed)).run().reason.startswith(codes)
