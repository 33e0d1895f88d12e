"""The pipeline `wordcount`: the words of a stream of texts, to be counted after collection.

    texts -> split -> clean -> words

The pipeline keeps no state: it makes the words, and whoever collects them counts, Spark with
`groupBy("word").count()` or plainly `count`. `split` cuts at blanks, `clean` makes what was cut
into words in lower case: none of `---`, two of `and/or`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from anabranch.runtime.ends import Sink, Source
from anabranch.runtime.graph import Pipeline, Scale
from anabranch.workloads.texts import text_of, words_of


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
