"""The pipeline `tweet_topics`: what tweets are about, from a topic to ever finer ones.

    tweets -> topic -> subtopic -> category -> subcategory -> labelled

The first application of Wladdimiro et al. (2021), four operators in a row. The paper gives no
keyword lists; these are ours. A list belongs to a path of four labels, such as health / virus /
spread / cases. Each operator adds a label: of those that follow the ones the tweet has, the one
whose words occur most often in it, the first of several; `OTHER` if none occurs, and then to the
end. Every tweet comes out once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Sink, Source
from anabranch.runtime.policies.policy import Scale
from anabranch.workloads.texts import text_of, words_of

OTHER = "other"
LEVELS = ("topic", "subtopic", "category", "subcategory")

_LISTS = """
health virus spread cases: case cases infected infection outbreak positive
health virus spread measures: distancing lockdown mask masks quarantine
health virus treatment vaccine: dose doses jab vaccine vaccines vaccinated
health virus treatment hospital: doctor doctors hospital hospitals nurse patient patients
health body fitness training: gym run running training workout
health body food meals: breakfast dinner eat eating food lunch
politics election vote ballot: ballot election poll polls vote voters votes
politics election campaign rally: campaign candidate debate rally speech
politics state government leaders: government minister president senate senator
politics state law court: bill court judge law laws rights
sport fight bout boxing: boxing bout champ champion fight fighter knockout punch round rounds
sport fight bout stake: bet bets champs odds ring ticket tickets winner
sport ball football match: football goal goals league match penalty
sport ball basketball game: basketball game games nba team teams
economy money market trade: market markets price prices stock stocks trade
economy money work jobs: job jobs pay salary unemployment work workers
culture screen film cinema: actor film films movie movies scene
culture screen series shows: episode season series show shows tv
culture music song sound: album band concert music song songs
culture music people artists: artist rapper singer
"""


class Labelled(NamedTuple):
    """A tweet with the labels it has so far, from the topic on."""

    text: str
    labels: tuple[str, ...]


def _read(lists: str) -> dict[tuple[str, ...], frozenset[str]]:
    found = {}
    for line in lists.strip().splitlines():
        path, _, words = line.partition(":")
        found[tuple(path.split())] = frozenset(words.split())
    return found


def _followers(
    lists: Mapping[tuple[str, ...], frozenset[str]],
) -> dict[tuple[str, ...], dict[str, frozenset[str]]]:
    """By the labels a tweet has: those that may follow, each with the words of all paths behind."""
    found: dict[tuple[str, ...], dict[str, frozenset[str]]] = {}
    for path, words in lists.items():
        for depth, label in enumerate(path):
            after = found.setdefault(path[:depth], {})
            after[label] = after.get(label, frozenset()) | words
    return found


LISTS = _read(_LISTS)
"""Words by path of labels."""
_FOLLOWERS = _followers(LISTS)


def pipeline(
    source: Source, sink: Sink, *, name: str = "tweet_topics", scale: Scale | None = None
) -> Pipeline:
    """The pipeline from `source` (tweets: texts, or records with a field `text`) to `sink`
    (`Labelled`, with four labels). `scale`: of each of the four operators (default `Scale()`)."""
    scale = scale or Scale()
    pipeline = Pipeline(name)
    stream = pipeline.source("tweets", source).map(LEVELS[0], topic, scale=scale)
    for level in LEVELS[1:]:
        stream = stream.map(level, labelled, scale=scale)
    stream.sink("labelled", sink)
    return pipeline


def topic(tweet: str | Mapping[str, object]) -> Labelled:
    """With its first label. Raises `TypeError` for what has no text."""
    return labelled(Labelled(text_of(tweet), ()))


def labelled(tweet: Labelled) -> Labelled:
    """With one label more."""
    words = words_of(tweet.text)
    choices = _FOLLOWERS.get(tweet.labels, {})
    best = max(choices, key=partial(_occurrences, words, choices), default=OTHER)
    if not choices or not _occurrences(words, choices, best):
        best = OTHER
    return Labelled(tweet.text, (*tweet.labels, best))


def _occurrences(words: list[str], choices: Mapping[str, frozenset[str]], label: str) -> int:
    return sum(word in choices[label] for word in words)


def expected(tweets: Iterable[str | Mapping[str, object]]) -> list[Labelled]:
    """What must come out, in any order, computed tweet by tweet: paths are dropped level by level
    that do not have as many words as the best."""
    found = []
    for tweet in tweets:
        words = words_of(text_of(tweet))
        hits = {path: sum(map(words.count, own)) for path, own in LISTS.items()}
        labels: list[str] = []
        for depth in range(len(LEVELS)):
            left = {path: n for path, n in hits.items() if list(path[:depth]) == labels}
            totals: dict[str, int] = {}
            for path, n in left.items():
                totals[path[depth]] = totals.get(path[depth], 0) + n
            most = max(totals.values(), default=0)
            labels.append(next((lb for lb, n in totals.items() if n == most > 0), OTHER))
        found.append(Labelled(text_of(tweet), tuple(labels)))
    return found
