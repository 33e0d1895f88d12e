"""The words most used in each window, ranked in parts, against counting them at once."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.workloads import topk
from anabranch.workloads.stamps import seconds_of
from anabranch.workloads.topk import Ranking
from tests.workloads.shared_data import SHARED, lines_of

TWEETS = "text/tweets_fight_2017_part1.jsonl.gz"
CHAT = "text/irc_ubuntu_chat.jsonl.gz"


def pipeline(**options: Any) -> Pipeline:
    return topk.pipeline(ab.files("posts.jsonl"), ab.discard(), **options)


def post(second: int, text: str) -> dict[str, str]:
    return {"ts": f"1970-01-01T00:{second // 60:02}:{second % 60:02}", "text": text}


POSTS = [post(5, "the fish eats fish"), post(50, "a fish, a bird"), post(61, "bird bird cat")]


def test_the_oracle_by_hand() -> None:
    assert topk.expected(POSTS, k=2, size_s=60) == [
        Ranking(0, 60, None, (("fish", 3), ("bird", 1))),
        Ranking(60, 120, None, (("bird", 2), ("cat", 1))),
    ]
    sliding = topk.expected(POSTS, k=1, size_s=60, every_s=30)
    assert [(r.start, r.end, *r.words) for r in sliding] == [
        (-30, 30, ("fish", 2)),
        (0, 60, ("fish", 3)),
        (30, 90, ("bird", 3)),
        (60, 120, ("bird", 2)),
    ]


@pytest.mark.parametrize("every_s", [None, 30.0, 20.0])
@pytest.mark.parametrize("parts", [1, 8])
def test_rankings_of_parts_make_the_ranking_of_all(every_s: float | None, parts: int) -> None:
    options: dict[str, Any] = {"k": 2, "size_s": 60.0, "every_s": every_s}
    outcome = testing.run(pipeline(**options, parts=parts), {"lines": POSTS})
    assert outcome["tops"] == topk.expected(POSTS, **options)


def test_the_vocabulary_is_divided_among_all_parts() -> None:
    counts = [ab.WindowResult(word, 0.0, 60.0, 1) for word in topk.STOP_WORDS]
    assert {topk.part_of(count, 8) for count in counts} == set(range(8))


def test_a_ranking_comes_as_soon_as_its_window_has_ended() -> None:
    with testing.harness(pipeline(size_s=60.0, disorder_s=10.0)) as h:
        h.send("lines", *POSTS)
        assert h.news("tops") == []
        h.send("lines", post(69, "dog"))
        assert h.news("tops") == []
        h.send("lines", post(70, "dog"))
        assert [r.words for r in h.news("tops")] == [(("fish", 3), ("bird", 1), ("eats", 1))]
        h.send("lines", post(59, "bird"))
        assert h.late["count"] == [(59.0, "bird")]


def test_a_broken_post_is_a_dead_letter() -> None:
    lines = ['{"ts": "1970-01-01T00:00:01", "text": "fish"}', "{", '{"text": "no time"}']
    outcome = testing.run(pipeline(), {"lines": lines})
    assert [r.words for r in outcome["tops"]] == [(("fish", 1),)]
    assert [letter.tuple for letter in outcome.dead["posts"]] == lines[1:]


def test_stop_words_are_lower_case_and_may_be_read_from_a_file(tmp_path: Path) -> None:
    assert all(word == word.lower() for word in topk.STOP_WORDS)
    path = tmp_path / "stop.txt"
    path.write_text("fish\ncat\n")
    stop = frozenset(path.read_text().split())
    options: dict[str, Any] = {"size_s": 60.0, "stop_words": stop}
    outcome = testing.run(pipeline(**options), {"lines": POSTS})
    assert outcome["tops"] == topk.expected(POSTS, **options)
    assert "fish" not in dict(outcome["tops"][0].words)


@pytest.mark.parametrize("instances", [1, 3])
def test_tweets_are_ranked_as_the_oracle_ranks_them(instances: int) -> None:
    lines = lines_of(TWEETS)[:2_200]
    stop = frozenset((SHARED / "text" / "stopwords_en.txt").read_text().split())
    options: dict[str, Any] = {"k": 10, "size_s": 300.0, "every_s": 60.0, "stop_words": stop}
    outcome = testing.run(
        pipeline(**options),
        {"lines": lines},
        instances=dict.fromkeys(("count", "rank"), instances),
    )
    expected = topk.expected(lines, **options)
    assert outcome["tops"] == expected
    assert len(expected) > 10
    assert outcome.late == outcome.dead == {}


def test_a_chat_that_runs_backwards_is_ranked_within_the_bound_of_its_disorder() -> None:
    lines = lines_of(CHAT)[:4_000]
    stamps = [seconds_of(json.loads(line)["ts"]) for line in lines]
    disorder_s = max(
        most - stamp for most, stamp in zip(accumulate(stamps, max), stamps, strict=True)
    )
    assert disorder_s > 10 * 3600
    options: dict[str, Any] = {"k": 5, "size_s": 3600.0}
    outcome = testing.run(pipeline(**options, disorder_s=disorder_s), {"lines": lines})
    assert outcome["tops"] == topk.expected(lines, **options)
    assert outcome.late == {}
