"""Words to count, the same for every contestant."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

VOCABULARY = 20_000
WORDS_PER_LINE = 8
WINDOW_WORDS = 2_000


def write_text(path: Path, lines: int) -> None:
    """Lines of words, few of which are frequent (Zipf), the same on every machine."""
    rng = random.Random(11)
    words = [f"word{n:05d}" for n in range(VOCABULARY)]
    weights = [1 / (n + 1) for n in range(VOCABULARY)]
    with path.open("w") as file:
        drawn: list[str] = []
        for number in range(lines):
            if not drawn:
                drawn = rng.choices(words, weights, k=WORDS_PER_LINE * min(10_000, lines - number))
            file.write(" ".join(drawn[-WORDS_PER_LINE:]) + "\n")
            del drawn[-WORDS_PER_LINE:]


def expected_counts(path: Path) -> int:
    """How many words there are: each makes one result."""
    with path.open() as file:
        return sum(Counter(len(line.split()) for line in file).elements())


def expected_windows(path: Path) -> int:
    """How many windows of words with the same ending there are, the last ones begun."""
    endings = Counter(map(ending, path.read_text().split()))
    return sum(-(-n // WINDOW_WORDS) for n in endings.values())


def ending(word: str) -> str:
    return word[-1]


def most_frequent(ending: str, _window: object, words: list[str]) -> list[tuple[str, str]]:
    return [(ending, Counter(words).most_common(1)[0][0])]


def itself(word: str) -> str:
    return word


def one_more(n: int, _word: str) -> int:
    return n + 1
