"""The chain that all contestants compute: upper-case, keep by length, put the length in front."""

from __future__ import annotations

import random
import string
from pathlib import Path

LINE_BYTES = 60
"""With its end."""


def upper(line: str) -> str:
    return line.upper()


def long_enough(line: str) -> bool:
    return len(line) > 20


def with_length(line: str) -> str:
    return f"{len(line)} {line}"


def write_lines(path: Path, count: int, seed: int = 1) -> None:
    """Words of random letters, always the same ones; every line is as long as the others."""
    rng = random.Random(seed)
    letters = string.ascii_lowercase
    words = ["".join(rng.choices(letters, k=rng.randint(2, 10))) for _ in range(5000)]
    with open(path, "w", encoding="ascii", newline="\n") as file:
        for _ in range(count):
            text = " ".join(rng.choices(words, k=LINE_BYTES // 3))
            file.write(text[: LINE_BYTES - 1] + "\n")


def expected_results(path: Path) -> int:
    """What a plain loop gives."""
    with open(path, encoding="ascii") as file:
        return sum(long_enough(upper(line.rstrip("\n"))) for line in file)
