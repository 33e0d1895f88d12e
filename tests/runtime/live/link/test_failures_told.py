"""What a process says of the error that ends it."""

from __future__ import annotations

import pytest

from anabranch.runtime.live.journal.journal import JournalError
from anabranch.runtime.live.link.last_words import detail_of, reason_of
from anabranch.runtime.plan.ends import InputError, ReaderGone
from anabranch.runtime.storage.record_log import LogDamaged
from anabranch.spark_bridge.durable import Damaged
from anabranch.spark_bridge.frames import FrameError
from anabranch.spark_bridge.gateway import GatewayError
from anabranch.spark_bridge.log import LogError


def test_a_refusal_of_the_system_comes_without_our_traceback() -> None:
    refused = OSError(28, "No space left on device", "out.jsonl")
    assert detail_of(refused) == ""
    assert reason_of(refused) == "No space left on device: 'out.jsonl'"


def test_any_other_error_comes_with_it() -> None:
    def fail() -> None:
        raise ValueError("of ours")

    with pytest.raises(ValueError, match="of ours") as failed:
        fail()
    assert reason_of(failed.value) == "ValueError: of ours"
    assert "in fail" in detail_of(failed.value)


KINDS = [JournalError, LogDamaged, GatewayError, Damaged, InputError, LogError, FrameError]


@pytest.mark.parametrize("kind", KINDS)
def test_what_says_what_to_do_comes_alone(kind: type[Exception]) -> None:
    error = kind("a.journal is damaged; put it back")
    assert reason_of(error) == "a.journal is damaged; put it back"
    assert detail_of(error) == ""


@pytest.mark.parametrize("error", [ReaderGone(), ReaderGone(32, "Broken pipe")])
def test_a_reader_that_went_away_is_told_as_what_it_is(error: ReaderGone) -> None:
    assert reason_of(error).startswith("the reader of standard output has gone")
