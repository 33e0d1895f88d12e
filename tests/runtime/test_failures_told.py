"""What a process says of the error that ends it."""

from __future__ import annotations

from contextlib import suppress

import pytest

from anabranch.runtime.ends import ReaderGone
from anabranch.runtime.live.instance_process import _detail, _reason


def test_a_refusal_of_the_system_comes_without_our_traceback() -> None:
    refused = OSError(28, "No space left on device", "out.jsonl")
    assert _detail(refused) == ""
    assert _reason(refused) == "OSError: [Errno 28] No space left on device: 'out.jsonl'"


def test_any_other_error_comes_with_it() -> None:
    told = []
    with suppress(ValueError):
        try:
            raise ValueError("of ours")
        finally:
            told.append(_detail(ValueError()))
    assert "of ours" in told[0]


@pytest.mark.parametrize("error", [ReaderGone(), ReaderGone(32, "Broken pipe")])
def test_a_reader_that_went_away_is_told_as_what_it_is(error: ReaderGone) -> None:
    assert _reason(error).startswith("the reader of standard output has gone")
