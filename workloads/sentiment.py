"""The pipeline `sentiment`: the mood of each sentence of a stream of texts.

    texts -> split -> clean -> score -> results

`split` cuts a text into sentences, `clean` keeps their words, `score` adds up the words' moods in
AFINN-111. A result is a record of three fields: `sentence` (its words in lower case), `words` (how
many) and `score` (0 is neutral).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypedDict

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Sink, Source
from anabranch.runtime.policies.policy import Scale
from anabranch.workloads.afinn import read_lexicon
from anabranch.workloads.texts import text_of, words_of

_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+|[\r\n]+")

PHRASE_WORDS_MAX = 3
"""The longest entry of AFINN-111 ("does not work")."""


class Mood(TypedDict):
    sentence: str
    words: int
    score: int


def split(item: str | Mapping[str, object]) -> list[str]:
    """The sentences of a text; a line break ends one too."""
    parts = (part.strip() for part in _END_OF_SENTENCE.split(text_of(item)))
    return [part for part in parts if part]


def clean(sentence: str) -> list[str]:
    """Its words joined by blanks; nothing if it has none."""
    words = words_of(sentence)
    return [" ".join(words)] if words else []


def score(sentence: str, lexicon: Mapping[str, int] | None = None) -> Mood:
    """Add up the values of its words; where phrases of the list overlap, the longest counts."""
    values = read_lexicon() if lexicon is None else lexicon
    words = sentence.split()
    total = at = 0
    while at < len(words):
        for length in range(min(PHRASE_WORDS_MAX, len(words) - at), 0, -1):
            value = values.get(" ".join(words[at : at + length]))
            if value is not None:
                total += value
                break
        at += length
    return Mood(sentence=sentence, words=len(words), score=total)


def sentiment(
    source: Source,
    sink: Sink,
    *,
    name: str = "sentiment",
    scale: Scale | None = None,
    lexicon: Path | None = None,
) -> Pipeline:
    """The pipeline from `source` (texts, or records with a field `text`) to `sink` (`Mood`).

    `scale`: of each of the three operators (default `Scale()`). `lexicon`: a word list instead
    of AFINN-111. Raises `LexiconMissing` if there is none.
    """
    scale = scale or Scale()
    # Read before anything starts: instances are forked and share it, and what is missing is
    # said here and not by each of them.
    values = read_lexicon(lexicon)
    scorer = score if lexicon is None else partial(score, lexicon=values)
    pipeline = Pipeline(name)
    (
        pipeline.source("texts", source)
        .flat_map("split", split, scale=scale)
        .flat_map("clean", clean, scale=scale)
        .map("score", scorer, scale=scale)
        .sink("results", sink)
    )
    return pipeline


def oracle(
    texts: Iterable[str | Mapping[str, object]], lexicon: Path | None = None
) -> Iterator[Mood]:
    """What the pipeline must give, computed one after the other in this process."""
    values = read_lexicon(lexicon)
    for text in texts:
        for sentence in split(text):
            for words in clean(sentence):
                yield score(words, values)
