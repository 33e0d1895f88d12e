"""Counting the words of a stream of texts: inside the pipeline, or behind it.

    lines -> split -> count -> counts        `pipeline`
    texts -> split -> clean -> words         `wordcount`

`pipeline` keeps the counts itself, by key: for each word that comes it gives (word, how often so
far). Its oracle is `expected`.

`wordcount` keeps no state: it makes the words, and a program that collects them counts, Spark with
`groupBy("word").count()` or plainly `count`. `split` cuts at blanks, `clean` makes what was cut
into words in lower case: none of `---`, two of `and/or`. Its oracle is `oracle`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Sink, Source
from anabranch.runtime.policies.policy import Scale
from anabranch.workloads.texts import text_of, words_of

Counted = tuple[str, int]
"""A word, and how often it has come so far."""


def pipeline(
    source: Source, sink: Sink, *, name: str = "wordcount", scale: Scale | None = None
) -> Pipeline:
    """The pipeline from `source` (texts, or records with a field `text`) to `sink` (`Counted`).

    `scale`: of both operators (default `Scale()`).
    """
    scale = scale or Scale()
    pipeline = Pipeline(name)
    (
        pipeline.source("lines", source)
        .flat_map("split", words_in, scale=scale)
        .key_by(itself, ordered=False)
        .fold("count", 0, one_more, scale=scale)
        .sink("counts", sink)
    )
    return pipeline


def words_in(item: str | Mapping[str, object]) -> list[str]:
    return words_of(text_of(item))


def itself(word: str) -> str:
    return word


def one_more(seen: int, _word: str) -> int:
    return seen + 1


def expected(lines: Iterable[str | Mapping[str, object]]) -> dict[str, list[Counted]]:
    """What `pipeline` must give for each word, in order, computed in this process."""
    results: dict[str, list[Counted]] = {}
    for line in lines:
        for word in words_of(text_of(line)):
            mine = results.setdefault(word, [])
            mine.append((word, len(mine) + 1))
    return results


def split(item: str | Mapping[str, object]) -> list[str]:
    return text_of(item).split()


def clean(piece: str) -> list[str]:
    return words_of(piece)


def wordcount(
    source: Source, sink: Sink, *, name: str = "wordcount", scale: Scale | None = None
) -> Pipeline:
    """The pipeline from `source` (texts, or records with a field `text`) to `sink` (words).

    `scale`: of both operators (default `Scale()`).
    """
    scale = scale or Scale()
    pipeline = Pipeline(name)
    (
        pipeline.source("texts", source)
        .flat_map("split", split, scale=scale)
        .flat_map("clean", clean, scale=scale)
        .sink("words", sink)
    )
    return pipeline


def count(words: Iterable[str]) -> Counter[str]:
    """What is made of the collected words."""
    return Counter(words)


def oracle(texts: Iterable[str | Mapping[str, object]]) -> Counter[str]:
    """What counting the pipeline's words must give, computed in this process."""
    return Counter(word for text in texts for piece in split(text) for word in clean(piece))
