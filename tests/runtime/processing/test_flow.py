"""To whom a batch goes next."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from anabranch.protocol.credit import Allowance
from anabranch.protocol.limits import Limits
from anabranch.runtime.processing.flow import least_waiting, window_tuples


@dataclass
class Successor:
    name: str
    allowance: Allowance = field(default_factory=Allowance)


def successor(name: str, *, allowed: int, sent: int = 0, done: int = 0) -> Successor:
    made = Successor(name)
    made.allowance.allow(allowed, 10**9)
    made.allowance.spend(sent, 0)
    made.allowance.note_done(done)
    return made


def test_the_one_with_the_fewest_waiting_is_chosen_however_wide_the_windows_are() -> None:
    wide = successor("wide", allowed=1000, sent=20, done=10)
    narrow = successor("narrow", allowed=32, sent=20, done=16)
    assert least_waiting([wide, narrow], random.Random(0)) is narrow


def test_one_without_credit_is_not_chosen_though_it_has_fewest_waiting() -> None:
    shut = successor("shut", allowed=0)
    busy = successor("busy", allowed=100, sent=50)
    assert least_waiting([shut, busy], random.Random(0)) is busy
    assert least_waiting([shut], random.Random(0)) is None
    assert least_waiting([], random.Random(0)) is None


def test_equals_get_equal_shares() -> None:
    equals = [successor(name, allowed=10) for name in "abcd"]
    rng = random.Random(0)
    chosen = Counter(s.name for _ in range(1000) if (s := least_waiting(equals, rng)))
    assert min(chosen.values()) > 200


def test_an_older_word_about_what_is_done_changes_nothing() -> None:
    allowance = Allowance()
    allowance.spend(10, 0)
    allowance.note_done(8)
    allowance.note_done(3)
    assert allowance.tuples_waiting == 2


def test_a_window_is_a_share_of_what_is_worked_off_within_bounds() -> None:
    limits = Limits(credit_tuples=4096, credit_tuples_min=16)
    assert window_tuples(4000, 2, limits) == 500
    assert window_tuples(1, 2, limits) == 16
    assert window_tuples(10**9, 1, limits) == 4096
