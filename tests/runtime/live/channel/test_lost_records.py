"""Journals that have lost their last records do not fit together: told, and not tried for ever."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.runtime.live.channel import frames
from anabranch.runtime.live.channel.outgoing import CONTRADICTIONS_MAX
from anabranch.runtime.live.journal.journal import JournalError
from tests.runtime.live.channel.test_channels import Pair, part
from tests.runtime.live.channel.test_faults_peers import OTHER, Raw, hello, raw
from tests.runtime.processes import eventually


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    pair = Pair(f"unix:{tmp_path}/s")
    await pair.start()
    yield pair
    await part(pair.up, "test over")
    await pair.down.part("test over")


async def greet(pair: Pair, number: int, expected: int) -> Raw:
    """A predecessor that remembers to have had all frames before `expected`."""
    one = await raw(pair)
    _, _, nonce = await one.hear()
    one.say(hello(nonce, number=number))
    assert (await one.hear())[0] == frames.WELCOME
    one.say(frames.frame(frames.RESUME, expected, expected))
    return one


async def refuse(pair: Pair, numbers: range) -> None:
    for number in numbers:
        one = await greet(pair, number, expected=9)
        await one.cut_off()


async def test_a_peer_that_contradicts_itself_in_every_connection_fails_the_instance(
    pair: Pair,
) -> None:
    failures: list[Exception] = []
    pair.down.fail = failures.append
    await refuse(pair, range(1, CONTRADICTIONS_MAX))
    assert failures == []
    one = await greet(pair, CONTRADICTIONS_MAX, expected=9)
    await eventually(lambda: bool(failures))
    (failure,) = failures
    assert isinstance(failure, JournalError)
    assert "up.1 acknowledges frames below 9, but 1 is not sent yet" in str(failure)
    assert "begin a new run" in str(failure)
    await one.close()


async def test_who_says_it_properly_in_between_may_be_mistaken_again(pair: Pair) -> None:
    failures: list[Exception] = []
    pair.down.fail = failures.append
    await refuse(pair, range(1, CONTRADICTIONS_MAX))
    one = await greet(pair, CONTRADICTIONS_MAX, expected=1)
    await eventually(lambda: pair.down.channel_to(OTHER).line.connected)
    await one.close()
    await refuse(pair, range(CONTRADICTIONS_MAX + 1, 2 * CONTRADICTIONS_MAX))
    assert failures == []
