"""Counting words inside the pipeline, against counting them one after the other."""

from __future__ import annotations

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.workloads import wordcount
from tests.workloads.shared_data import lines_of

PIPELINE = wordcount.pipeline(ab.files("texts/*.txt"), ab.discard())


def test_each_word_is_told_with_how_often_it_came() -> None:
    outcome = testing.run(PIPELINE, {"lines": ["To be, or", {"text": "not to be --"}]})
    assert outcome["counts"] == [
        *(("to", 1), ("be", 1), ("or", 1)),
        *(("not", 1), ("to", 2), ("be", 2)),
    ]


def test_the_oracle_by_hand() -> None:
    assert wordcount.expected(["a b", "a"]) == {"a": [("a", 1), ("a", 2)], "b": [("b", 1)]}


@pytest.mark.parametrize("instances", [1, 3])
def test_a_whole_book_is_counted_as_the_oracle_counts_it(instances: int) -> None:
    lines = lines_of("text/moby_dick.txt.gz")
    outcome = testing.run(PIPELINE, {"lines": lines}, instances={"count": instances})
    expected = wordcount.expected(lines)
    assert testing.by_key(outcome["counts"]) == expected
    assert sum(map(len, expected.values())) > 200_000
    assert outcome.dead == {}


def test_counts_go_with_their_words_while_the_book_is_read() -> None:
    lines = lines_of("text/moby_dick.txt.gz")[:4000]
    with testing.harness(PIPELINE, instances={"count": 4}) as h:
        for at in range(0, len(lines), 500):
            h.send("lines", *lines[at : at + 500])
            step = at // 500
            with h.moving("count", range(step, 256, 3), to=step % 4):
                h.send("lines", "the whale the whale")
    sent = [
        line
        for at in range(0, len(lines), 500)
        for line in (*lines[at : at + 500], "the whale the whale")
    ]
    assert testing.by_key(h.results("counts")) == wordcount.expected(sent)
