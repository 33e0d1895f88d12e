"""The word list AFINN-111: English words and phrases with a mood from -5 to 5.

By Finn Årup Nielsen. The wheel of pyspark carries it for its streaming
examples; we read it there and do not import pyspark for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

_IN_PYSPARK = Path("data", "streaming", "AFINN-111.txt")


class LexiconMissing(RuntimeError):
    """There is no word list. The message says how to get it."""


def find_lexicon() -> Path:
    """Where the installed pyspark keeps the word list; raises `LexiconMissing`."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise LexiconMissing(
            "the word list AFINN-111 comes with pyspark, which is not installed: "
            "pip install 'anabranch[spark]', or give a list of your own (word, tab, -5 to 5)"
        )
    path = Path(spec.origin).parent / _IN_PYSPARK
    if not path.is_file():
        raise LexiconMissing(
            f"this pyspark does not carry the word list AFINN-111 (looked for {path}): "
            "give a list of your own (word, tab, -5 to 5)"
        )
    return path


@lru_cache(maxsize=4)
def read_lexicon(path: Path | None = None) -> Mapping[str, int]:
    """Words and phrases with their values; raises `LexiconMissing`, or `ValueError` with the line.

    `path`: a list of one's own, a word and a number per line, between them a tab (or, in a
    file `*.csv` with a header, a comma).
    """
    place = path or find_lexicon()
    comma = place.suffix == ".csv"
    try:
        lines = place.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise LexiconMissing(f"cannot read the word list {place}: {error.strerror}") from error
    values: dict[str, int] = {}
    for number, line in enumerate(lines[1:] if comma else lines, start=2 if comma else 1):
        word, _, value = line.rpartition("," if comma else "\t")
        try:
            values[word.strip().lower()] = int(value)
        except ValueError as error:
            raise ValueError(f"{place}:{number}: expected a word and a number") from error
    return MappingProxyType(values)
