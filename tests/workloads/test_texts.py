"""The text pipelines: their functions by hand, their oracles, their graphs."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Sink, Source
from anabranch.runtime.policies.policy import Scale
from anabranch.workloads import afinn, sentiment, wordcount
from anabranch.workloads.texts import text_of, words_of

needs_afinn = pytest.mark.skipif(find_spec("pyspark") is None, reason="pyspark brings AFINN-111")


class NoSource(Source):
    def splits(self):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    def open(self, split, context):  # type: ignore[no-untyped-def]
        raise NotImplementedError


class NoSink(Sink):
    def open(self, context):  # type: ignore[no-untyped-def]
        raise NotImplementedError


@pytest.fixture
def lexicon(tmp_path: Path) -> Path:
    path = tmp_path / "moods.txt"
    path.write_text("good\t3\nnot good\t-2\nbad\t-3\nwork\t1\ndoes not work\t-3\n")
    return path


def run_in_order(pipeline: Pipeline, texts: list[str]) -> list[object]:
    """The pipeline's own functions over a list, as its operators would apply them."""
    tuples: list[object] = list(texts)
    for operator in pipeline.operators.values():
        for step in operator.steps:
            if step.kind == "map":
                tuples = [step.fn(t) for t in tuples]
            elif step.kind == "flat_map":
                tuples = [r for t in tuples for r in step.fn(t)]
    return tuples


def test_words_are_lower_case_without_links_handles_and_numbers() -> None:
    text = "Don\u2019t STOP @you, see https://a.b/c?d=e well-known Größe &amp; 3rd R2D2"
    assert words_of(text) == ["don't", "stop", "see", "well-known", "größe", "rd", "r", "d"]


def test_the_text_of_a_record_is_its_field() -> None:
    assert text_of("a") == "a"
    assert text_of({"text": "a", "user": "b"}) == "a"
    assert text_of({"value": "a"}) == "a"
    for wrong in (5, None, {"user": "b"}, {"text": 5}):
        with pytest.raises(TypeError, match="expected a text"):
            text_of(wrong)  # type: ignore[arg-type]


def test_sentences_end_at_marks_and_line_breaks() -> None:
    text = "One. Two is 2.5!  Three?\r\nfour\n\n  five"
    assert sentiment.split(text) == ["One.", "Two is 2.5!", "Three?", "four", "five"]
    assert sentiment.split("") == []


def test_a_sentence_without_words_is_dropped() -> None:
    assert sentiment.clean("--- 42 ---") == []
    assert sentiment.clean("All is WELL!") == ["all is well"]


def test_the_longest_phrase_counts(lexicon: Path) -> None:
    values = afinn.read_lexicon(lexicon)
    assert sentiment.score("good and bad", values)["score"] == 0
    assert sentiment.score("this does not work", values)["score"] == -3
    assert sentiment.score("does work not good work", values)["score"] == 1 - 2 + 1
    assert sentiment.score("nothing here", values) == {
        "sentence": "nothing here",
        "words": 2,
        "score": 0,
    }


def test_the_oracle_of_sentiment_by_hand(lexicon: Path) -> None:
    texts = ["Good. Not good!", "42", "bad bad\nwork"]
    assert [(m["sentence"], m["words"], m["score"]) for m in sentiment.oracle(texts, lexicon)] == [
        ("good", 1, 3),
        ("not good", 2, -2),
        ("bad bad", 2, -6),
        ("work", 1, 1),
    ]


def test_the_oracle_of_wordcount_by_hand() -> None:
    texts: list[str | dict[str, object]] = ["To be, or not to be --", {"text": "BE and/or not"}]
    assert wordcount.oracle(texts) == Counter(be=3, to=2, **{"or": 2, "not": 2, "and": 1})


def test_pipelines_and_oracles_agree(lexicon: Path) -> None:
    texts = ["Good. Not good!", "42", "bad bad\nwork and/or play", ""]
    moods = sentiment.sentiment(NoSource(), NoSink(), lexicon=lexicon)
    assert run_in_order(moods, texts) == list(sentiment.oracle(texts, lexicon))
    words = wordcount.wordcount(NoSource(), NoSink())
    assert wordcount.count(run_in_order(words, texts)) == wordcount.oracle(texts)  # type: ignore[arg-type]


def test_every_operator_between_the_ends_scales(lexicon: Path) -> None:
    scale = Scale(max_instances=3)
    moods = sentiment.sentiment(NoSource(), NoSink(), scale=scale, lexicon=lexicon)
    moods.validate()
    scaled = [o.name for o in moods.operators.values() if o.scale == scale]
    assert scaled == ["split", "clean", "score"]
    words = wordcount.wordcount(NoSource(), NoSink(), scale=scale)
    words.validate()
    assert [o.name for o in words.operators.values() if o.scale == scale] == ["split", "clean"]


@needs_afinn
def test_the_word_list_of_pyspark_is_found_and_whole() -> None:
    values = afinn.read_lexicon()
    assert len(values) == 2477
    assert (values["outstanding"], values["can't stand"], values["naïve"]) == (5, -3, -2)
    assert max(len(entry.split()) for entry in values) == sentiment.PHRASE_WORDS_MAX
    assert sentiment.score("an outstanding but naïve success")["score"] == 5 - 2 + 2


def test_without_pyspark_the_message_says_how_to_get_the_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(afinn, "find_spec", lambda name: None)
    with pytest.raises(afinn.LexiconMissing, match=r"pip install 'anabranch\[spark\]'"):
        afinn.find_lexicon()


def test_a_word_list_of_ones_own_may_be_csv(tmp_path: Path) -> None:
    path = tmp_path / "moods.csv"
    path.write_text("word,valence\ncan't stand,-3\nGood,3\n")
    assert dict(afinn.read_lexicon(path)) == {"can't stand": -3, "good": 3}
    broken = tmp_path / "broken.txt"
    broken.write_text("good\t3\nbad\n")
    with pytest.raises(ValueError, match=r"broken.txt:2: expected a word and a number"):
        afinn.read_lexicon(broken)
    with pytest.raises(afinn.LexiconMissing, match="cannot read the word list"):
        afinn.read_lexicon(tmp_path / "none.txt")
