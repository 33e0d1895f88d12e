"""The pipeline `topk`: the words most used in each window of time, as Lombardi et al. rank them.

    lines -> posts -> words -> meaning -> count -> rank -> total -> tops

The first application of the ELYSIUM paper (2018). `posts` reads posts, each with its time, from
where on event time counts: one instance, so which words are late depends on the order of the posts
only. `words` gives each word with its time; `meaning` drops stop words. `count` counts each word
per window, sliding or tumbling; `rank` ranks the words of one part of the vocabulary; `total`
makes one ranking of these. Counts and rankings of a window are in time until its end, so both
rankers wait for it by windows of their own, one for each end.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from anabranch.runtime.keyed.aggregations import tally
from anabranch.runtime.keyed.windows import WindowResult, sliding, tumbling
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Sink, Source
from anabranch.runtime.policies.policy import Scale
from anabranch.workloads.stamps import seconds_of
from anabranch.workloads.texts import text_of, words_of

_STOP_WORDS = """
a about after all also am an and any are as at be because been but by can could did do does don't
for from get got had has have he her him his how i i'm if in into is isn't it it's its just like me
more my no not now of on one or other our out over she should so some than that that's the their
them then there these they this to too up us very was we were what when which who why will with
would yes you you're your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

Post = str | Mapping[str, Any]
Timed = tuple[float, str]
"""The time of a post, in seconds, and its text or a word of it."""


class Ranking(NamedTuple):
    """The most frequent words of the window [start, end); of one part of them, if there is one."""

    start: float
    end: float
    part: int | None
    words: tuple[tuple[str, int], ...]
    """Words with their counts, the most frequent first; equal counts by alphabet."""


def pipeline(
    source: Source,
    sink: Sink,
    *,
    k: int = 10,
    size_s: float = 3600.0,
    every_s: float | None = None,
    parts: int = 8,
    disorder_s: float = 0.0,
    stop_words: Collection[str] = STOP_WORDS,
    name: str = "topk",
    scale: Scale | None = None,
) -> Pipeline:
    """The pipeline from `source` (posts: records with `ts` and `text`, or these as JSON lines) to
    `sink` (`Ranking`).

    Windows are `size_s` long, and one begins every `every_s` (default: when the last one ends).
    `parts`: intermediate rankings. `disorder_s`: how far a post may be behind the latest one.
    `scale`: of all operators between the ends but `posts` and `total` (default `Scale()`).
    """
    scale = scale or Scale()
    every = size_s if every_s is None else every_s
    in_window = partial(just_before_end, every_s=every)
    pipeline = Pipeline(name)
    words = (
        pipeline.source("lines", source)
        .map("posts", timed_post)
        .event_time(time_of, disorder_s=disorder_s)
        .flat_map("words", timed_words, scale=scale)
        .filter("meaning", partial(has_meaning, stop_words=frozenset(stop_words)), scale=scale)
    )
    counts = (
        words.key_by(word_of)
        .window(sliding(size_s, every=every) if every < size_s else tumbling(size_s), time=time_of)
        .aggregate("count", tally(), scale=scale)
    )
    rankings = (
        counts.key_by(partial(part_of, parts=parts), ordered=False)
        .window(tumbling(every), time=in_window)
        .apply("rank", partial(rank, k=k), scale=scale)
    )
    totals = (
        rankings.key_by(all_together, ordered=False)
        .window(tumbling(every), time=in_window)
        .apply("total", partial(total, k=k))
    )
    totals.sink("tops", sink)
    return pipeline


def timed_post(post: Post) -> Timed:
    """Raises `ValueError` for a line that is no JSON, `KeyError` for a post without time."""
    record = json.loads(post) if isinstance(post, str) else post
    return seconds_of(record["ts"]), text_of(record)


def timed_words(post: Timed) -> list[Timed]:
    time, text = post
    return [(time, word) for word in words_of(text)]


def words_of_post(post: Post) -> list[Timed]:
    return timed_words(timed_post(post))


def has_meaning(one: Timed, stop_words: Collection[str]) -> bool:
    return one[1] not in stop_words


def time_of(one: Timed) -> float:
    return one[0]


def word_of(one: Timed) -> str:
    return one[1]


def part_of(count: WindowResult, parts: int) -> int:
    return zlib.crc32(count.key.encode()) % parts


def all_together(_ranking: Ranking) -> None:
    return None


def just_before_end(one: WindowResult | Ranking, every_s: float) -> float:
    """A time in the window of `every_s` that ends with that of `one`, whatever rounding does."""
    return one.end - every_s / 2


def rank(part: int, _window: object, counts: Iterable[WindowResult], k: int) -> list[Ranking]:
    counted = list(counts)
    best = _best(((c.key, c.value) for c in counted), k)
    return [Ranking(counted[0].start, counted[0].end, part, best)]


def total(_key: None, _window: object, rankings: Iterable[Ranking], k: int) -> list[Ranking]:
    ranked = list(rankings)
    best = _best((word for one in ranked for word in one.words), k)
    return [Ranking(ranked[0].start, ranked[0].end, None, best)]


def _best(words: Iterable[tuple[str, int]], k: int) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(words, key=_order)[:k])


def _order(word: tuple[str, int]) -> tuple[int, str]:
    return -word[1], word[0]


def expected(
    posts: Iterable[Post],
    *,
    k: int = 10,
    size_s: float = 3600.0,
    every_s: float | None = None,
    stop_words: Collection[str] = STOP_WORDS,
) -> list[Ranking]:
    """What must come out, in order, if no post is late: for each window that has words."""
    every = size_s if every_s is None else every_s
    windows: dict[int, Counter[str]] = {}
    for post in posts:
        for time, word in words_of_post(post):
            if word in stop_words:
                continue
            number = int(time // every)
            while number * every + size_s > time:
                windows.setdefault(number, Counter())[word] += 1
                number -= 1
    rankings = []
    for number, counts in sorted(windows.items()):
        best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:k]
        rankings.append(Ranking(number * every, number * every + size_s, None, tuple(best)))
    return rankings
