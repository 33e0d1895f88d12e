"""What runs on several hosts: texts from home, two operators in the plant, results at home."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

KEYS = 101
FILES = {
    "counted.py": """
import anabranch as ab
from texts import counted, key, text

pipeline = ab.Pipeline("counted", durable="DURABLE")
numbers = pipeline.source("numbers", ab.generate(text, rate=RATE))
plant = ab.on(region="plant")
up = numbers.map("up", str.upper, place=plant, scale=ab.Scale(max_instances=6))
words = up.key_by(key, ordered=False)
totals = words.fold("total", 0, counted, place=plant, scale=ab.Scale(max_instances=4))
totals.sink("out", ab.jsonl("out.jsonl"))
""",
    "texts.py": f"""
def text(n):
    return f"k{{n % {KEYS}}}"


def key(word):
    return word


def counted(so_far, word):
    return so_far + 1
""",
}


def write_into(folder: Path, rate: int, durable: str = "process") -> list[str]:
    """What `anabranch submit` gets. `rate`: texts per second."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (folder / name).write_text(text.replace("RATE", str(rate)).replace("DURABLE", durable))
    return [str(folder / "counted.py"), "--file", str(folder / "texts.py")]


def wrong_keys(lines: Iterable[str], read: int) -> dict[str, str]:
    """By key what is wrong with its results, compared with what one process would have given: each
    count from 1 on, once and in order."""
    expected = Counter(f"K{n % KEYS}" for n in range(read))
    found: dict[str, list[int]] = {}
    for line in lines:
        key, total = json.loads(line)
        found.setdefault(key, []).append(total)
    wrong = {}
    for key in sorted({*expected, *found}):
        counts, wanted = found.get(key, []), expected[key]
        if counts != [*range(1, wanted + 1)]:
            lost = wanted - len(set(counts) & {*range(1, wanted + 1)})
            twice = len(counts) - len(set(counts))
            wrong[key] = f"{lost} of {wanted} lost, {twice} twice" + (
                "" if lost or twice else ", not in order"
            )
    return wrong
