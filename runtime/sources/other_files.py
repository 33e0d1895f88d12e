"""A source that reads its tuples from other files than it was written with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anabranch.runtime.plan.ends import Source
from anabranch.runtime.sources.files import Files, files
from anabranch.runtime.sources.stdin import Stdin


def read_from(source: Source, patterns: Sequence[str]) -> Files:
    """Files of the same format; in the place of what is no text, JSON lines with a tuple each."""
    named = files(*patterns)
    if isinstance(source, Files):
        return replace(source, patterns=named.patterns)
    if isinstance(source, Stdin):
        return replace(named, format=source.format, encoding=source.encoding)
    return replace(named, format="jsonl")
