"""The pipeline `tweet_flows`: it separates tweets with an addressee from tweets for all readers.

    tweets -> parse -> spam -> user -> notify -----------------------> save -> saved
                            -> news -> sentiment -> topic -----------> save
                                    ---------------> topic

The second application of Wladdimiro et al. (2021, Figure 13). What its operators do, the paper does
not say; this is ours. `parse` reads a tweet, `spam` drops those that are mostly links and tags.
A tweet with an addressee (it has a handle, and is no retweet) goes to `user`, which finds all of
them, and `notify`, which makes a message for each; any other goes to `news`. Plain announcements
(with a link) go straight to `topic`, others get their mood first. `save` makes records of both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Sink, Source
from anabranch.runtime.policies.policy import Scale
from anabranch.workloads import sentiment, tweet_topics
from anabranch.workloads.afinn import read_lexicon
from anabranch.workloads.texts import text_of, words_of

_HANDLE = re.compile(r"(?<!\w)@(\w+)")
_LINK = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
_TAG = re.compile(r"(?<!\w)#\w+")
SPAM_WORDS = 3
"""A tweet with fewer words than links and tags, and fewer than so many, is spam."""

Item = str | Mapping[str, object]


class Tweet(NamedTuple):
    """`to`: handles in it, without the sign; none in a retweet. `mood`: None while not known."""

    text: str
    to: tuple[str, ...]
    links: int
    tags: int
    mood: int | None = None
    topic: str | None = None


class Saved(TypedDict):
    """`flow`: "user" or "news". `to`: the addressee, None in news. `mood`: None if the tweet does
    not pass `sentiment`."""

    flow: str
    text: str
    to: str | None
    mood: int | None
    topic: str | None


def pipeline(
    source: Source,
    sink: Sink,
    *,
    name: str = "tweet_flows",
    scale: Scale | None = None,
    lexicon: Path | None = None,
) -> Pipeline:
    """The pipeline from `source` (texts, or records with a field `text`) to `sink` (`Saved`).

    `scale`: of each of the eight operators (default `Scale()`). `lexicon`: a word list in the place
    of AFINN-111. Raises `LexiconMissing` if there is none.
    """
    scale = scale or Scale()
    values = read_lexicon(lexicon)
    mood = with_mood if lexicon is None else partial(with_mood, lexicon=values)
    pipeline = Pipeline(name)
    clean = (
        pipeline.source("tweets", source)
        .map("parse", parse, scale=scale)
        .filter("spam", is_no_spam, scale=scale)
    )
    told = clean.filter("user", is_to_somebody, scale=scale).flat_map(
        "notify", told_by, scale=scale
    )
    news = clean.filter("news", is_news, scale=scale)
    moody = news.flat_map("sentiment", mood, scale=scale)
    topics = news.merge(moody).flat_map("topic", with_topic, scale=scale)
    told.merge(topics).map("save", saved, scale=scale).sink("saved", sink)
    return pipeline


def parse(item: Item) -> Tweet:
    """Raises `TypeError` for what has no text."""
    text = text_of(item)
    to = () if text.startswith("RT ") else tuple(dict.fromkeys(_HANDLE.findall(text)))
    return Tweet(text, to, len(_LINK.findall(text)), len(_TAG.findall(text)))


def is_no_spam(tweet: Tweet) -> bool:
    words = len(words_of(_TAG.sub(" ", tweet.text)))
    return words >= SPAM_WORDS or words >= tweet.links + tweet.tags


def is_to_somebody(tweet: Tweet) -> bool:
    return bool(tweet.to)


def is_news(tweet: Tweet) -> bool:
    return not tweet.to


def told_by(tweet: Tweet) -> list[tuple[str, Tweet]]:
    """One message for each addressee of the tweet."""
    return [(name, tweet) for name in tweet.to]


def with_mood(tweet: Tweet, lexicon: Mapping[str, int] | None = None) -> list[Tweet]:
    """Announcements have none, and go another way."""
    if tweet.links:
        return []
    words = " ".join(words_of(tweet.text))
    return [tweet._replace(mood=sentiment.score(words, lexicon)["score"])]


def with_topic(tweet: Tweet) -> list[Tweet]:
    """One that still has to get its mood comes again with it."""
    if tweet.mood is None and not tweet.links:
        return []
    return [tweet._replace(topic=tweet_topics.topic(tweet.text).labels[0])]


def saved(one: Tweet | tuple[str, Tweet]) -> Saved:
    if isinstance(one, Tweet):
        return Saved(flow="news", text=one.text, to=None, mood=one.mood, topic=one.topic)
    name, tweet = one
    return Saved(flow="user", text=tweet.text, to=name, mood=None, topic=None)


def expected(items: Iterable[Item], lexicon: Path | None = None) -> list[dict[str, Any]]:
    """What must come out, in any order, computed tweet by tweet."""
    values = read_lexicon(lexicon)
    found: list[dict[str, Any]] = []
    for item in items:
        text = text_of(item)
        links, tags = len(_LINK.findall(text)), len(_TAG.findall(text))
        words = len(words_of(_TAG.sub(" ", text)))
        if words < SPAM_WORDS and words < links + tags:
            continue
        names = dict.fromkeys(_HANDLE.findall(text)) if not text.startswith("RT ") else {}
        record = {"flow": "user", "text": text, "mood": None, "topic": None}
        found += [record | {"to": name} for name in names]
        if not names:
            mood = sentiment.score(" ".join(words_of(text)), values)["score"]
            (one,) = tweet_topics.expected([text])
            record |= {"flow": "news", "to": None, "topic": one.labels[0]}
            found.append(record | {"mood": None if links else mood})
    return found
