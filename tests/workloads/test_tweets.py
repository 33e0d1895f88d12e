"""Tweets by topic and tweets by flow, against their oracles, on made and on real tweets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.workloads import tweet_flows, tweet_topics
from anabranch.workloads.tweet_topics import OTHER
from tests.workloads.shared_data import lines_of

TWEETS = "text/tweets_fight_2017_part1.jsonl.gz"


def by_text(records: list[Any]) -> list[Any]:
    return sorted(records, key=repr)


def in_order(record: Mapping[str, object]) -> str:
    return json.dumps(record, sort_keys=True)


@pytest.fixture
def lexicon(tmp_path: Path) -> Path:
    path = tmp_path / "words.txt"
    path.write_text("great\t3\nbad\t-3\nvery bad\t-4\n")
    return path


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("The vaccine, another DOSE of it", ("health", "virus", "treatment", "vaccine")),
        ("nothing to see", (OTHER, OTHER, OTHER, OTHER)),
        ("a senator of the senate", ("politics", "state", "government", "leaders")),
        ("a film and a song", ("culture", "screen", "film", "cinema")),
    ],
)
def test_each_label_is_the_one_with_most_words_of_those_that_may_follow(
    text: str, labels: tuple[str, ...]
) -> None:
    tweet = tweet_topics.topic({"text": text})
    for _ in range(3):
        tweet = tweet_topics.labelled(tweet)
    assert tweet.labels == labels
    assert tweet_topics.expected([text])[0].labels == labels


def test_every_word_list_is_found_by_its_own_words() -> None:
    for path, words in tweet_topics.LISTS.items():
        (found,) = tweet_topics.expected([" ".join(words)])
        assert found.labels == path


def test_topics_of_real_tweets_are_those_of_the_oracle() -> None:
    tweets = [json.loads(line) for line in lines_of(TWEETS)[:500]]
    pipeline = tweet_topics.pipeline(ab.files("tweets.jsonl"), ab.discard())
    outcome = testing.run(pipeline, {"tweets": tweets})
    assert by_text(outcome["labelled"]) == by_text(tweet_topics.expected(tweets))
    assert len({one.labels for one in outcome["labelled"]}) > 5


MADE = [
    "@ann @bob that was great, @ann",
    "RT @ann: that was very bad",
    "new film https://a.b/c",
    "#win #free http://x.y now",
    "a song for the president, great",
]


def test_tweets_for_somebody_tell_each_once_and_others_are_news(lexicon: Path) -> None:
    found = tweet_flows.expected(MADE, lexicon)
    assert [(r["flow"], r["to"], r["mood"], r["topic"]) for r in found] == [
        ("user", "ann", None, None),
        ("user", "bob", None, None),
        ("news", None, -4, OTHER),
        ("news", None, None, "culture"),
        ("news", None, 3, "politics"),
    ]


def test_flows_are_those_of_the_oracle(lexicon: Path) -> None:
    pipeline = tweet_flows.pipeline(ab.files("t.jsonl"), ab.discard(), lexicon=lexicon)
    outcome = testing.run(pipeline, {"tweets": MADE})
    expected = tweet_flows.expected(MADE, lexicon)
    assert sorted(map(in_order, outcome["saved"])) == sorted(map(in_order, expected))


def test_flows_of_real_tweets_lose_and_double_none(lexicon: Path) -> None:
    tweets = [json.loads(line) for line in lines_of(TWEETS)[:500]]
    pipeline = tweet_flows.pipeline(ab.files("t.jsonl"), ab.discard(), lexicon=lexicon)
    outcome = testing.run(pipeline, {"tweets": tweets})
    expected = tweet_flows.expected(tweets, lexicon)
    assert sorted(map(in_order, outcome["saved"])) == sorted(map(in_order, expected))
    assert {one["flow"] for one in outcome["saved"]} == {"user", "news"}
    assert outcome.dead == {}
