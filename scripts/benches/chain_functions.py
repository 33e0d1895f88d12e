"""The chain that all contestants compute: upper-case, keep by length, put the length in front."""

from __future__ import annotations


def upper(line: str) -> str:
    return line.upper()


def long_enough(line: str) -> bool:
    return len(line) > 20


def with_length(line: str) -> str:
    return f"{len(line)} {line}"
