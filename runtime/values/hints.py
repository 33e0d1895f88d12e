"""What to write in place of a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable


def hint(word: str, known: Iterable[str], label: str = "known") -> str:
    """`did you mean 'region'?`, or, if none is similar, all of them: `known: name, region`."""
    import difflib  # only where something is wrong

    names = list(known)
    near = difflib.get_close_matches(word, names, 1)
    return f"did you mean {near[0]!r}?" if near else f"{label}: {', '.join(names) or 'none'}"
