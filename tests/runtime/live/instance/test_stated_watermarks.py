"""What an instance tells its successors of event time: the latest that is known, not too often."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.keyed.watermarks import Gate
from anabranch.runtime.live.instance.intake import Said
from anabranch.runtime.live.instance.watermarks import Watermarks
from tests.runtime.processes import PATIENCE_S

A, B = InstanceId(OperatorName("next"), 0), InstanceId(OperatorName("next"), 1)
Stated = tuple[float, bool]


class Channel:
    def __init__(self) -> None:
        self.stated: list[Stated] = []

    def send_watermark(self, watermark: float, idle: bool) -> None:
        self.stated.append((watermark, idle))


class Outbox:
    """Holds nothing, so that what is said goes out at once, to all `channels`."""

    def __init__(self) -> None:
        self.channels = [Channel()]

    def after_held(self, act: Callable[[Any], None]) -> None:
        act(self)

    @property
    def stated(self) -> list[Stated]:
        return self.channels[0].stated


def stating() -> tuple[Watermarks, Outbox]:
    outbox: Any = Outbox()
    return Watermarks(Gate(), outbox, stamps=True, period_s=0.02), outbox


async def soon(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.001)


async def test_the_first_word_goes_out_at_once_and_the_latest_of_others_soon() -> None:
    watermarks, outbox = stating()
    for watermark in (1.0, 2.0, 3.0, 2.5):
        watermarks.state(watermark, idle=False)
    assert outbox.stated == [(1.0, False)]
    await soon(lambda: len(outbox.stated) == 2)
    assert outbox.stated[1] == (3.0, False)


async def test_who_wakes_up_before_its_silence_was_told_is_not_idle() -> None:
    watermarks, outbox = stating()
    watermarks.state(1.0, idle=False)
    watermarks.state(1.0, idle=True)
    watermarks.state(1.0, idle=False)
    await soon(lambda: watermarks._timer is None)
    assert outbox.stated == [(1.0, False)]


async def test_nothing_new_is_not_told_again() -> None:
    watermarks, outbox = stating()
    watermarks.state(-math.inf, idle=False)
    assert outbox.stated == []
    watermarks.state(-math.inf, idle=True)
    await soon(lambda: watermarks._timer is None)
    watermarks.state(-math.inf, idle=True)
    assert outbox.stated == [(-math.inf, True)]


async def test_time_is_worked_out_no_more_often_than_it_is_told() -> None:
    watermarks, outbox = stating()
    asked: list[int] = []

    def stamps() -> None:
        asked.append(results)
        watermarks.state(float(results), idle=False)

    for results in range(1000):  # noqa: B007 - `stamps` sees it
        watermarks.ask(stamps)
    assert (asked, outbox.stated) == ([0], [(0.0, False)])
    await soon(lambda: len(asked) == 2)
    assert outbox.stated == [(0.0, False), (999.0, False)]
    await soon(lambda: watermarks._timer is None)
    assert asked == [0, 999]
    watermarks.ask(stamps)
    assert asked == [0, 999, 999]


async def test_a_newcomer_is_told_what_others_know_even_if_that_is_silence_only() -> None:
    watermarks, outbox = stating()
    watermarks.change_view(frozenset({A}), frozenset())
    watermarks.state(-math.inf, idle=True)
    outbox.channels.append(Channel())
    watermarks.change_view(frozenset({A, B}), frozenset())
    assert outbox.channels[1].stated == [(-math.inf, True)]


async def test_after_the_end_nothing_is_told() -> None:
    watermarks, outbox = stating()
    watermarks.state(1.0, idle=False)
    watermarks.state(2.0, idle=False)
    watermarks.close()
    watermarks.ask(lambda: watermarks.state(3.0, idle=False))
    watermarks.state(4.0, idle=False)
    assert outbox.stated == [(1.0, False)]


def test_a_leaver_counts_until_its_end_has_its_turn_and_never_after_it() -> None:
    watermarks, _ = stating()
    gate = watermarks._gate
    channel: Any = SimpleNamespace(peer=A, number=0)
    other: Any = SimpleNamespace(peer=B, number=0)
    watermarks.change_view(frozenset(), frozenset({A, B}))
    watermarks.heard(Said(channel, 0, 10.0))
    watermarks.heard(Said(other, 0, 20.0))
    left = watermarks.leaving(channel)
    watermarks.change_view(frozenset(), frozenset({B}))
    assert gate.output == 10.0, "what A sent before it left is still in the intake"
    watermarks.heard(left)
    watermarks.change_view(frozenset(), frozenset({B}))
    assert gate.output == 20.0
    assert watermarks.snapshot()[1] == frozenset()


async def test_the_last_before_the_end_is_told_in_any_case() -> None:
    watermarks, outbox = stating()
    for watermark in (1.0, 2.0, math.inf):
        watermarks.state(watermark, idle=False)
    assert outbox.stated == [(1.0, False), (2.0, False)]
    watermarks.conclude()
    assert outbox.stated[2:] == [(math.inf, False)]


async def test_who_is_asked_to_conclude_tells_what_it_has_not_worked_out_yet() -> None:
    watermarks, outbox = stating()
    watermarks.ask(lambda: watermarks.state(1.0, idle=False))
    watermarks.ask(lambda: watermarks.state(2.0, idle=False))
    watermarks.conclude()
    watermarks.conclude()
    assert outbox.stated == [(1.0, False), (2.0, False)]
